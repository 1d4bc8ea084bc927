"""The CPUs that this process may use, and whether threads of Python run on several of them."""

import contextlib
import os
import sys
from pathlib import Path

_PROCESS_GROUP = Path("/proc/self/cgroup")
_GROUP_ROOT = Path("/sys/fs/cgroup")
_MANY = 2**31  # CPUs of a group without a quota


def usable_cpus(own_group: Path = _PROCESS_GROUP, groups: Path = _GROUP_ROOT) -> int:
    """Return the number of CPUs by affinity, or by the quota of a control group if that is smaller.

    A container with 4 of 128 CPUs has a quota of 4, and an affinity to all of them.

    Args:
      own_group: a file that names the groups of this process.
      groups: the folder of all groups: those of version 2 (Linux's admin-guide/cgroup-v2,
        "cpu.max"), and in "cpu" those of version 1 (scheduler/sched-bwc).
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1

    quotas = [_quota(each / "cpu.max") for each in _folders(groups, own_group, "")]
    for each in _folders(groups / "cpu", own_group, "cpu"):
        quotas.append(_quota(each / "cpu.cfs_quota_us", each / "cpu.cfs_period_us"))
    return max(1, min([count, *quotas]))


def has_gil() -> bool:
    """Return True unless this is a free-threaded Python whose GIL no extension has switched on."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()


def _folders(groups: Path, own_group: Path, controller: str) -> list[Path]:
    """Return the folders of the process's group and of those around it.

    Args:
      groups: the folder of the outermost group.
      own_group: a file with lines "number:controllers:path".
      controller: that of version 1; "" for version 2.
    """
    name = "/"
    with contextlib.suppress(OSError, ValueError):
        for line in own_group.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controller in controllers.split(","):
                name = path
    folder = groups / name.strip("/")
    return [each for each in (folder, *folder.parents) if each.is_relative_to(groups)]


def _quota(*files: Path) -> int:
    """Return the quota "microseconds period", in one file or in two, in whole CPUs, rounded up."""
    try:
        quota, period = (int(word) for file in files for word in file.read_text().split())
    except (OSError, ValueError):  # no such file; "max"
        return _MANY
    return -(-quota // period) if quota > 0 else _MANY
