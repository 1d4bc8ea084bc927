"""Records of packed files at their addresses in memory-mapped files."""

import mmap
import os
import threading

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.storage import libc
from jaxaug.iterators.sources.storage.files import DataFile, changed, reason
from jaxaug.iterators.sources.storage.read import OpenFile

# The kernel maps the block with the touched page as far as the page cache has it: "fault-around".
_FAULT_AROUND = 64 << 10
_MAX_ADVICE = (
    128 << 10
)  # bytes the kernel may be asked for in one call; some disks let it read no more


class Mapped:
    """Local files mapped into memory, without a copy or a system call for each record.

    Where a disk is at work, the kernel is asked for all ranges at once: else each page that is not
    there would hold up whoever touches it, one after the other. Then the pages with the first and
    the last bytes are mapped, because the byte check, which reads those, keeps the GIL meanwhile.

    Guarantees: each file that a call touches is compared with its indexed size and time of
    modification first, so one that was truncated or written to gives failed rows. What is written
    between the check and the decoder's access is decoded; a truncation then, and a disk that fails
    or stalls under a mapping, cannot be caught: the process gets SIGBUS or hangs. A file that is
    deleted, renamed or replaced after its first use is read on unharmed, as long as nobody writes
    to it under its new name; one that was written to before is mapped anew. Use `Staged` where that
    is not enough.

    Args:
      files: mapped on first use. None stays open: a mapping needs no descriptor.
    """

    def __init__(self, files: list[DataFile]):
        self._files = files
        self._lock = threading.Lock()
        # What `ask` must answer: device and inode of what is mapped, size and time as indexed.
        indexed = [(0, 0, file.size, int(file.stamp)) for file in files]
        self._expected = np.array(indexed, np.int64).reshape(-1, 4)
        self._mappings: dict[int, libc.Mapping] = {}
        self._status = libc.FileStatus(len(files))
        self._bases = np.zeros(len(files), np.int64)  # 0: not mapped yet
        self._written = np.zeros(len(files), bool)  # the mapping shows other bytes by now
        self._blocks_read = -1
        # One block more, as a mapping may begin inside of one.
        ends = np.cumsum([file.size // _FAULT_AROUND + 2 for file in files])
        self._first_block = np.concatenate([[0], ends])
        self._touched = np.zeros(int(self._first_block[-1]), bool)

    def read(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray
    ) -> tuple[Encoded, dict[int, str]]:
        """Return addresses inside the mappings."""
        numbers = np.bincount(files).nonzero()[0]
        refused = self._open(numbers)
        failed: list[int] = []
        used: slice | np.ndarray = slice(None)
        if refused:
            is_refused = np.isin(files, list(refused))
            failed = is_refused.nonzero()[0].tolist()
            used = ~is_refused

        with self._lock:  # another thread may map a file anew
            mappings = self._mappings
            owners = [mappings[number] for number in numbers.tolist() if number in mappings]
            bases = self._bases[files]
        addresses = bases + offsets
        if self._disk_is_at_work():
            _ask_for(addresses[used], lengths[used])
            self._touched[:] = False  # pages may have gone, too
        self._touch(files[used], bases[used], addresses[used], lengths[used])

        failures = {row: refused[int(files[row])] for row in failed}
        known = lengths.astype(np.uint64)
        known[failed] = 0
        return Encoded(addresses.astype(np.uint64), known, owners), failures

    def hold(
        self, files: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, keeper: object
    ) -> None:
        """Do nothing: no server is asked."""

    @property
    def traffic(self) -> dict[str, int]:
        """Nothing was asked of servers."""
        return {}

    def _open(self, numbers: np.ndarray) -> dict[int, str]:
        """Have files mapped: why some of them cannot be used, by their numbers."""
        refused = {}
        unmapped = (self._bases[numbers] == 0) | self._written[numbers]
        for number in numbers[unmapped].tolist():
            try:
                self._map(number)
            except SourceError as error:
                refused[number] = str(error)
        status = self._status.ask(numbers)
        differs = status != self._expected[numbers]
        # Another file under the path, or none, says nothing of the one that is mapped.
        written = differs[:, 2:].any(1) & ~differs[:, :2].any(1)
        self._written[numbers[written]] = True
        for number in numbers[written].tolist():
            refused.setdefault(number, str(changed(self._files[number])))
        return refused

    def _disk_is_at_work(self) -> bool:
        """Return True if blocks were read for this process since the last call; at first, too."""
        import resource

        before = self._blocks_read
        self._blocks_read = resource.getrusage(resource.RUSAGE_SELF).ru_inblock
        return self._blocks_read != before

    def _touch(
        self, files: np.ndarray, bases: np.ndarray, addresses: np.ndarray, lengths: np.ndarray
    ) -> None:
        """Have the first and the last page of records mapped, but for those in blocks that had a
        page mapped before.
        """
        ends = np.empty((2, addresses.size), np.int64)
        ends[0] = addresses
        np.add(addresses, np.maximum(lengths - 1, 0), out=ends[1])
        block = ends // _FAULT_AROUND + self._first_block[files] - bases // _FAULT_AROUND
        new = ~self._touched[block]
        if new.any():
            libc.map_pages(ends[new])
            self._touched[block[new]] = True

    def _map(self, number: int) -> None:
        with self._lock:
            if number in self._mappings and not self._written[number]:
                return
            file = self._files[number]
            try:
                opened = OpenFile(file)
                status = os.fstat(opened.descriptor)
                mapping = libc.Mapping(opened.descriptor, file.size)
            except OSError as error:
                raise SourceError(f"{file.path!r} cannot be opened: {reason(error)}") from error
            self._mappings[number] = mapping
            self._status.add(number, file.path)
            self._expected[number, :2] = status.st_dev, status.st_ino
            self._bases[number] = mapping.address
            self._written[number] = False


def _ask_for(addresses: np.ndarray, lengths: np.ndarray) -> None:
    """Ask the kernel to start to read ranges of mapped files."""
    before = addresses % mmap.PAGESIZE
    for begin, length in zip((addresses - before).tolist(), (lengths + before).tolist()):
        for piece in range(0, length, _MAX_ADVICE):
            libc.will_need(begin + piece, min(_MAX_ADVICE, length - piece))
