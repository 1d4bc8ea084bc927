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


def test_without_control_groups_affinity_counts(tmp_path):
    assert usable_cpus(tmp_path / "none", tmp_path) == ALL
    assert 1 <= usable_cpus() <= ALL
