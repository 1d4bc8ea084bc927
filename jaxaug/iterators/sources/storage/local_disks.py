"""The question if files lie on disks of this machine."""

import os
from collections.abc import Sequence

from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.files import is_remote

# Types of file systems on disks of this machine, or in its memory: linux/magic.h, and for XFS, ZFS,
# F2FS and others statfs(2) or the file system's own header. All others are far away, or may be.
_LOCAL_FILE_SYSTEMS = {
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # XFS
    0x9123683E,  # Btrfs
    0x2FC12FC1,  # ZFS
    0xF2F52010,  # F2FS
    0xCA451A4E,  # bcachefs
    0x3153464A,  # JFS
    0x52654973,  # ReiserFS
    0x794C7630,  # overlayfs, as in containers
    0x61756673,  # AUFS
    0x01021994,  # tmpfs
    0x858458F6,  # ramfs
    0x73717368,  # SquashFS
    0xE0F5E1E2,  # EROFS
    0x9660,  # ISO 9660
    0x15013346,  # UDF
    0x4D44,  # FAT
    0x2011BAB0,  # exFAT
    0x7366746E,  # NTFS
}


def all_local(paths: Sequence[str]) -> bool:
    """Return True if all paths lie on local disks; each file system is asked once."""
    known: dict[int, bool] = {}
    for path in paths:
        if is_remote(path):
            return False
        try:
            device = os.stat(path).st_dev
        except OSError:  # gone since it was listed: told by the first read
            continue
        if device not in known:
            kind = libc.file_system(path)
            known[device] = kind is None or kind in _LOCAL_FILE_SYSTEMS
        if not known[device]:
            return False
    return True
