"""The number of CPUs that this process may use."""

import os
from pathlib import Path

_PROCESS_GROUP = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")


def usable_cpus(own_group: Path = _PROCESS_GROUP, groups: Path = _GROUP_ROOT) -> int:
    """Return the number of CPUs by affinity, or by the quota of a control group if that is smaller.

    A container with 4 of 128 CPUs has a quota of 4, and an affinity to all of them.

    Args:
      own_group: a file that names the group of this process.
      groups: the folder of all groups (version 2, Linux's admin-guide/cgroup-v2, "cpu.max").
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1

    folder = groups / _group_name(own_group).strip("/")
    inside = [each for each in (folder, *folder.parents) if each.is_relative_to(groups)]
    quotas = [_quota(each / "cpu.max") for each in inside]
    return max(1, min([count, *quotas]))


def _group_name(own_group: Path) -> str:
    """Return the path of the process's group below all groups."""
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        return "/"
    return next((line[3:] for line in lines if line.startswith("0::")), "/")


def _quota(file: Path) -> int:
    """Return the quota "microseconds period" in whole CPUs, rounded up; many without a quota."""
    try:
        quota, period = file.read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):  # no such file; "max"
        return 2**31
