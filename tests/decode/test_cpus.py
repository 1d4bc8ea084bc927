"""The number of usable CPUs, with control groups as folders of our own."""

import os

import pytest

from jaxaug.decode._cpus import usable_cpus

ALL = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "limits, expected",
    [
        ({}, ALL),
        ({"": "max 100000\n"}, ALL),
        ({"": "100000 100000\n"}, 1),
        ({"": "99000000 100000\n"}, ALL),
        ({"a/b": "100000 100000\n"}, 1),
        (
            {"a": "20000 100000\n", "a/b": "max 100000\n"},
            1,
        ),  # the parent's quota counts, a part is a CPU
        ({"a/b": "garbage"}, ALL),
        ({"other": "100000 100000\n"}, ALL),
    ],
)
def test_the_smallest_quota_counts(tmp_path, limits, expected):
    groups = tmp_path / "groups"
    own = tmp_path / "cgroup"
    (groups / "a/b").mkdir(parents=True)
    (groups / "other").mkdir()
    for name, text in limits.items():
        (groups / name / "cpu.max").write_text(text)
    own.write_text("1:name=systemd:/x\n0::/a/b\n")
    assert usable_cpus(own, groups) == expected


def test_a_quota_is_rounded_up(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(128))
    (tmp_path / "cpu.max").write_text("350000 100000\n")
    assert usable_cpus(tmp_path / "none", tmp_path) == 4


@pytest.mark.parametrize(
    "quota, expected", [("350000", 4), ("-1", 128), ("100", 1), ("99000000", 128)]
)
@pytest.mark.parametrize("folder", ["cpu", "cpu/docker/a"])
def test_quotas_of_version_1_count(tmp_path, monkeypatch, folder, quota, expected):
    """A container sees its own group as the outermost one, under the name that it has outside."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(128))
    own = tmp_path / "cgroup"
    own.write_text("5:cpuset:/x\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/x\n")
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / folder / "cpu.cfs_period_us").write_text("100000\n")
    assert usable_cpus(own, tmp_path) == expected


def test_without_control_groups_affinity_counts(tmp_path):
    assert usable_cpus(tmp_path / "none", tmp_path) == ALL
    assert 1 <= usable_cpus() <= ALL
