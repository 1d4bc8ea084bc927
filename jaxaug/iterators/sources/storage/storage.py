"""The choice between mapping packed files and reading them."""

import math
import os
from typing import Protocol

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators.sources.storage.cached import Cached
from jaxaug.iterators.sources.storage.files import DataFile, cache_folder, is_remote
from jaxaug.iterators.sources.storage.local_disks import all_local
from jaxaug.iterators.sources.storage.mapped import Mapped
from jaxaug.iterators.sources.storage.staged import Staged
from jaxaug.iterators.sources.storage.unpacked import Unpacked


class Storage(Protocol):
    """Ranges of files, by number of the file."""

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return the ranges (all int64[k]), and the errors by row; such a row has length 0."""
        ...

    def hold(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, keeper: object
    ) -> None:
        """Have ranges near that will be wanted, each in one `read`; an error shows there.

        They are let go of with `keeper`, an object that weak references may refer to.
        """
        ...

    @property
    def traffic(self) -> dict[str, int]:
        """What was asked of servers, see `Far`."""
        ...


# Half of the mappings that Linux grants a process, vm.max_map_count: others need some too.
_MAX_MAPPED_FILES = 32_000


def choose_storage(
    files: list[DataFile],
    *,
    mapped: bool,
    timeout: float,
    retries: int,
    cache: str | None = None,
    cache_bytes: float = 0.0,
) -> Storage:
    """Map the files if that is wanted and safe, else have them read by threads.

    What is in compressed ones is kept on disk.

    Mapping is safe on disks of this machine: a network disk that does not answer would stop the
    whole process, and asking it for each file's time of modification takes a round trip.
    """
    if any(file.unpack for file in files):
        folder = cache or os.path.join(cache_folder(), "unpacked")
        return Cached(Unpacked(files, timeout), files, folder, cache_bytes, whole=True)
    local = all_local([file.path for file in files])
    size = sum(file.size for file in files)
    if mapped and local and len(files) <= _MAX_MAPPED_FILES and size <= mappable_bytes():
        return Mapped(files)
    staged = Staged(files, local=local, timeout=timeout, retries=retries)
    if cache is None or not all(is_remote(file.path) for file in files):
        return staged
    return Cached(staged, files, cache, cache_bytes)


def mappable_bytes() -> float:
    """Return half of the addresses that the process may use: `ulimit -v`, which schedulers set."""
    import resource  # POSIX only, as is `fcntl` elsewhere

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return math.inf if soft == resource.RLIM_INFINITY else soft / 2
