"""The choice between mapping packed files and reading them."""

import os
from typing import Protocol

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators.sources import _libc
from jaxaug.iterators.sources._files import DataFile, is_remote
from jaxaug.iterators.sources.packed.mapped import Mapped
from jaxaug.iterators.sources.packed.staged import Staged


class Storage(Protocol):
    """Ranges of files, by number of the file."""

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return the ranges (all int64[k]), and the errors by row; such a row has length 0."""
        ...


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
# Half of the mappings that Linux grants a process, vm.max_map_count: others need some too.
_MAX_MAPPED_FILES = 32_000


def choose_storage(files: list[DataFile], *, mapped: bool, timeout: float, retries: int) -> Storage:
    """Map the files if that is wanted and safe, else have them read by threads.

    Mapping is safe on disks of this machine: a network disk that does not answer would stop the
    whole process, and asking it for each file's time of modification takes a round trip.
    """
    if mapped and len(files) <= _MAX_MAPPED_FILES and all_local(files):
        return Mapped(files)
    return Staged(files, timeout=timeout, retries=retries)


def all_local(files: list[DataFile]) -> bool:
    """Return True if all files lie on local disks; each file system is asked once."""
    known: dict[int, bool] = {}
    for file in files:
        if is_remote(file.path):
            return False
        try:
            device = os.stat(file.path).st_dev
        except OSError:  # gone since it was listed: told by the first read
            continue
        if device not in known:
            kind = _libc.file_system(file.path)
            known[device] = kind is None or kind in _LOCAL_FILE_SYSTEMS
        if not known[device]:
            return False
    return True
