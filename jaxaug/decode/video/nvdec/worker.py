"""One thread's share of a GPU: its sessions, its stream and the memory of its kernels."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jaxaug.decode.native import cuda
from jaxaug.decode.native.libnvcuvid import CuvidError
from jaxaug.decode.video.nvdec.bitstream import Bitstream
from jaxaug.decode.video.nvdec.engines import EngineError, Form
from jaxaug.decode.video.nvdec.place_planes import Kernels
from jaxaug.decode.video.nvdec.placer import Canvases, Picture, Placer, Size
from jaxaug.decode.video.nvdec.session import Session, Surface
from jaxaug.decode.video.planes import quarter_turns
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Codec, Run

# Codecs, depths and kinds of chroma that a thread keeps a session of: each takes some surfaces.
_MAX_SESSIONS = 3


class Row(NamedTuple):
    """The canvases of a row on the device.

    Attributes:
      luma, chroma: addresses of its first frame.
      luma_bytes, chroma_bytes: from one frame to the next.
    """

    luma: int
    chroma: int
    luma_bytes: int
    chroma_bytes: int


class Worker:
    """Decodes rows on one GPU, in one thread.

    Args:
      ordinal: number of the CUDA device, which is current in the thread from now on.
      canvases: of a frame.
      kernels: of the device.
    """

    def __init__(self, ordinal: int, canvases: Canvases, kernels: Kernels):
        cuda.set_device(ordinal)
        self._stream = cuda.create_stream()
        self._placer = Placer(canvases, kernels, self._stream)
        self._staging: list[tuple[np.ndarray, int]] = []  # page-locked arrays, their addresses
        self._sessions: dict[Form, Session] = {}  # the one used last at the end

    @property
    def bytes_held(self) -> int:
        """The device memory of its kernels, and of the surfaces of its sessions."""
        surfaces = sum(session.bytes_held for session in list(self._sessions.values()))
        return self._placer.bytes_held + surfaces

    @property
    def host_bytes(self) -> int:
        """The page-locked memory of `staging`."""
        return sum(array.nbytes for array, _ in list(self._staging))

    def decode(
        self, video: VideoFile, form: Form, codec: Codec, numbers: np.ndarray, row: Row
    ) -> tuple[Size, Size]:
        """Write frames of a video to the canvases of a row; return their size, and their own.

        Args:
          video: where they are.
          form: what the engines decode it as.
          codec: of the video, with what its frames tell.
          numbers: int64[k], of the frame of each canvas; -1 for none.
          row: the canvases.

        Raises:
          EngineError: the host must decode it.
        """
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers.tolist()):
            if number >= 0:
                rank = int(video.table.ranks[video.table.frames[number]])
                places.setdefault(rank, []).append(place)
        task = _Task(self._placer, quarter_turns(codec.rotation or 0), places, row)
        stream = Bitstream(codec)
        try:
            session = self._session(form)
            runs = video.table.runs(np.unique(numbers[numbers >= 0]))
            groups = (_packets(video, stream, run) for run in runs)
            session.decode(groups, list(places), task.take)
            self._placer.finish()
        except BaseException as error:
            self._forget(form)
            if isinstance(error, CuvidError):
                raise EngineError(str(error)) from error
            raise
        if task.missing or task.sizes is None:
            raise EngineError("the engines did not show all frames")
        return task.sizes

    def staging(self, *shapes: tuple[int, ...]) -> list[np.ndarray]:
        """Return host memory for the luma [k, H, W] and chroma [k, 2, h, w] of a row's frames.

        Args:
          shapes: of the row.
        """
        if not self._staging:
            self._staging = [cuda.pinned_array(shape) for shape in shapes]
        luma, chroma = (array for array, _ in self._staging)
        return [luma.reshape(-1, *luma.shape[-2:]), chroma.reshape(-1, *chroma.shape[-3:])]

    def upload(self, values: np.ndarray, address: int) -> None:
        """Copy an array of `staging` to the device."""
        kind = cuda.runtime().cudaMemcpyKind.cudaMemcpyHostToDevice
        copy = (address, values.ctypes.data, values.nbytes, kind, self._stream)
        cuda.call("cudaMemcpyAsync", *copy)
        cuda.call("cudaStreamSynchronize", self._stream)

    def close(self) -> None:
        """Free everything."""
        for form in list(self._sessions):
            self._forget(form)
        self._placer.close()
        for _, address in self._staging:
            cuda.call("cudaFreeHost", address)
        self._staging.clear()
        cuda.call("cudaStreamDestroy", self._stream)

    def _session(self, form: Form) -> Session:
        """Return a session, made if there is none."""
        session = self._sessions.pop(form, None)
        if session is None:
            if len(self._sessions) >= _MAX_SESSIONS:
                self._forget(next(iter(self._sessions)))
            session = Session(form.codec, self._stream)
        self._sessions[form] = session
        return session

    def _forget(self, form: Form) -> None:
        session = self._sessions.pop(form, None)
        if session is not None:
            cuda.call("cudaStreamSynchronize", self._stream)
            session.close()


class _Task:
    """Brings the pictures of one video to their canvases."""

    def __init__(self, placer: Placer, turns: int, places: dict[int, list[int]], row: Row):
        self._placer = placer
        self._turns = turns
        self._row = row
        self._first: Surface | None = None
        self.missing = places  # rank of a frame -> its canvases
        self.sizes: tuple[Size, Size] | None = None

    def take(self, shown: Sequence[tuple[int, Surface]]) -> None:
        """Write pictures of some ranks to their canvases."""
        row = self._row
        pictures: list[Picture] = []
        for rank, surface in shown:
            if self._first is None:
                self._first = surface
                self.sizes = self._placer.start(surface, self._turns)
            elif surface.format is not self._first.format:
                raise EngineError("its headers change")
            for place in self.missing.pop(rank, ()):
                luma = row.luma + place * row.luma_bytes
                pictures.append(Picture(surface, luma, row.chroma + place * row.chroma_bytes))
        self._placer.put(pictures)


def _packets(video: VideoFile, stream: Bitstream, run: Run) -> Iterator[tuple[int, bytes]]:
    """Yield the packets of a run as the engines read them, with their ranks in time."""
    table = video.table
    for packet, content in video.packets(run):
        yield int(table.ranks[packet]), stream.packet(content, bool(table.keys[packet]))
