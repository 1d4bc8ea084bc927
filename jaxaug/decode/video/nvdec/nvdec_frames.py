"""The NVDEC backend: threads that each keep sessions of the engines, and canvases on the GPUs.

The engines decode what `engines.engine_form` says. The host decodes everything else, and whatever
the engines find errors in, so that both say the same of damaged videos; its planes are copied.

Several rows are decoded at once on each GPU, by a thread each, two for an engine: while one plans
in Python, the pictures of the other keep the engine busy.
"""

import math
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from jaxaug._install import install_gpu_command
from jaxaug._nvrtc import is_available
from jaxaug._typing import Device
from jaxaug.decode.image.nvjpeg.canvas_buffers import BufferPool, CanvasBuffer, buffer_budget
from jaxaug.decode.native import cuda, libnvcuvid, nvcuvid_loop
from jaxaug.decode.native.libnvcuvid import CuvidError
from jaxaug.decode.native.load_library import LibraryError
from jaxaug.decode.video.host import PLANES, Shown, completed_codec, write_frames
from jaxaug.decode.video.nvdec.bitstream import Bitstream
from jaxaug.decode.video.nvdec.engines import EngineError, Form, engine_count, engine_form
from jaxaug.decode.video.nvdec.place_planes import Kernels, compile_place_kernels
from jaxaug.decode.video.nvdec.placer import Canvases, Picture, Placer, Size
from jaxaug.decode.video.nvdec.session import Packets, Session, Surfaces
from jaxaug.decode.video.nvdec.table_cache import TableCache
from jaxaug.decode.video.planes import ORIENTATIONS, color_of, quarter_turns
from jaxaug.decode.video.stream import VideoFile
from jaxaug.decode.video.table import Codec, Table

# Codecs, depths and kinds of chroma that a thread keeps a session of: each takes some surfaces.
_MAX_SESSIONS = 3
# Threads of an engine, and batches: one is begun or finished while another keeps it busy. Beside a
# training three are in the way of what launches its steps (`benchmarks/LESSONS.md`).
_AT_ONCE = 2
# Batches that may wait for the compiled call behind the steps of a training, with their canvases.
_WAITING = 2
_END = np.array([-1])  # in place of a packet, behind a run
Forms = dict[str, jax.ShapeDtypeStruct]
T = TypeVar("T")


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
      at_decoder: of its sessions.
    """

    def __init__(
        self, ordinal: int, canvases: Canvases, kernels: Kernels, at_decoder: Callable[[], None]
    ):
        cuda.set_device(ordinal)
        self._stream = cuda.create_stream()
        self._at_decoder = at_decoder
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
        shown = np.flatnonzero(numbers >= 0)
        ranks = video.table.ranks[video.table.frames[numbers[shown]]]
        places: dict[int, list[int]] = {}
        for place, rank in zip(shown.tolist(), ranks.tolist()):
            places.setdefault(rank, []).append(place)
        task = _Task(self._placer, quarter_turns(codec.rotation or 0), places, row)
        try:
            packets = _packets(video, codec, video.table.runs(numbers[shown]))
            self._session(form).decode(packets, ranks, task.take)
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
        for shape in shapes[len(self._staging) :]:  # none, or what was not to be had the last time
            self._staging.append(cuda.pinned_array(shape))
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
            session = Session(form.codec, self._stream, self._at_decoder)
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
        self._format: Any = None  # of all surfaces
        self.missing = places  # rank of a frame -> its canvases
        self.sizes: tuple[Size, Size] | None = None

    def take(self, surfaces: Surfaces) -> None:
        """Write surfaces to their canvases."""
        if self._format is None:
            self._format = surfaces.format
            self.sizes = self._placer.start(surfaces, self._turns)
        elif surfaces.format is not self._format:
            raise EngineError("its headers change")
        row, pictures = self._row, []
        for rank, pointer, pitch in zip(surfaces.ranks, surfaces.pointers, surfaces.pitches):
            for place in self.missing.pop(rank, ()):
                luma = row.luma + place * row.luma_bytes
                chroma = row.chroma + place * row.chroma_bytes
                pictures.append(Picture(pointer, pitch, luma, chroma))
        self._placer.put(pictures)
        self._placer.finish()


def _packets(video: VideoFile, codec: Codec, runs: Sequence[np.ndarray]) -> Packets:
    """Return the packets of runs as the engines read them, with an end behind each run."""
    contents: list[bytes | memoryview] = []
    for run in runs:
        contents += [*(content for _, content in video.packets(run)), b""]
    order = np.concatenate([part for run in runs for part in (run, _END)])
    keyframes = video.table.keyframes[order] & (order >= 0)
    content, sizes = Bitstream(codec).packets(contents, keyframes)
    return Packets(content, sizes, np.where(order < 0, -1, video.table.ranks[order]))


class NvdecFrames:
    """The engines of some GPUs, on each of which lies an equal number of a batch's rows.

    Args:
      forms: of the planes of a row, by `PLANES`.
      devices: CUDA devices of this process.
      silent: see `engine_form`.

    Attributes:
      in_flight: batches that keep the engines busy.

    Raises:
      LibraryError, CuvidError, CudaError: the engines cannot be used here.
    """

    def __init__(self, forms: Forms, devices: Sequence[Device], silent: bool = True):
        libnvcuvid.load()
        self.in_flight = _AT_ONCE
        # Imported before threads are, in which kernels are compiled: the caller's may do the same.
        cuda.core()
        if not is_available():
            raise LibraryError(f"NVRTC is missing: {install_gpu_command()}.")
        self._gpus: list[_Gpu] = []
        self._tables = TableCache()
        # Runs at `close`, when the last reference goes, and if a GPU cannot be used.
        self._finalizer = weakref.finalize(self, _close, self._gpus, os.getpid())
        self._finalizer.atexit = False
        with cuda.on_device(devices[0].local_hardware_id or 0):
            for device in devices:
                self._gpus.append(_Gpu(device, forms, silent))

    @property
    def memory(self) -> dict[str, int]:
        """The bytes of the host's tables and page-locked memory, and those of the GPUs.

        The latter are of canvases, kernels and surfaces.
        """
        host = self._tables.bytes_held + sum(gpu.host_bytes for gpu in self._gpus)
        return {"host_bytes": host, "device_bytes": sum(gpu.bytes_held for gpu in self._gpus)}

    def open(self, data: memoryview, max_pixels: int, table: Table | None, begin: int) -> VideoFile:
        """Return a video; see `VideoFile`."""
        if table is None:
            return self._tables.open(data, max_pixels)
        return VideoFile(data, max_pixels, table, begin)

    def take(self, rows: int) -> "NvdecCanvases":
        """Return canvases for the rows of a batch; waits for earlier ones if need be.

        Raises:
          MemoryError: a device has none left.
        """
        parts: list[_Part] = []
        with cuda.on_device(self._gpus[0].ordinal):
            try:
                for gpu in self._gpus:
                    parts.append(gpu.take(rows // len(self._gpus)))
            except BaseException:
                for part in parts:
                    part.release(())
                raise
        return NvdecCanvases(parts)

    def close(self) -> None:
        """Stop the threads and free all memory, that of taken canvases when they are released."""
        self._finalizer()
        self._tables = TableCache()


class NvdecCanvases:
    """The canvases of a batch."""

    def __init__(self, parts: "list[_Part]"):
        self._parts = parts
        self._by_engines: list[int] = []  # rows; lists may be appended to by several threads

    @property
    def on_engines(self) -> int:
        """How many videos the engines have decoded."""
        return len(self._by_engines)

    def map(self, function: Callable[[int], T], rows: Sequence[int]) -> list[T]:
        """Return what a function returns of each row, called in threads of the row's GPU."""
        futures: dict[int, Future[T]] = {}
        try:
            for row in rows:
                futures[row] = self._part(row)[0].gpu.submit(function, row)
            wait(futures.values())
        except BaseException:
            for future in futures.values():
                future.cancel()
            wait(futures.values())  # before anybody frees canvases
            raise
        return [futures[row].result() for row in rows]

    def decode(self, row: int, video: VideoFile, numbers: np.ndarray) -> Shown:
        """Write frames int64[k] to the canvases of a row; see `write_frames`."""
        part, place = self._part(row)
        found = part.decode_on_engines(place, video, numbers)
        if found is None:
            video.reopen()
            return part.decode_on_host(place, video, numbers)
        self._by_engines.append(row)
        return found

    def planes(self) -> dict[str, Any]:
        """Return a list with the canvases of each device."""
        return {name: [part.view(name) for part in self._parts] for name in PLANES}

    def release(self, readers: Any) -> None:
        """Give the memory back; arrays whose computation reads it are waited for."""
        for part in self._parts:
            part.release(readers)

    def _part(self, row: int) -> "tuple[_Part, int]":
        rows = self._parts[0].rows
        return self._parts[row // rows], row % rows


class _Gpu:
    """One GPU: its threads, each with a `Worker`, and its memory for canvases.

    Args:
      device: of CUDA.
      forms: of the planes of a row.
      silent: see `engine_form`.
    """

    def __init__(self, device: Device, forms: Forms, silent: bool):
        self.silent = silent
        self.ordinal = device.local_hardware_id or 0
        self.forms = forms
        self._device = device
        cuda.set_device(self.ordinal)
        _, total = cuda.call("cudaMemGetInfo")
        budget = buffer_budget(int(total)) // len(PLANES)
        self.buffers = {}
        for name in PLANES:
            self.buffers[name] = BufferPool(
                self.ordinal, forms[name].shape, budget, max_count=_AT_ONCE + _WAITING
            )
        luma, chroma = (forms[name].shape[-2:] for name in PLANES)
        self._canvases = Canvases((luma[0], luma[1]), (chroma[0], chroma[1]))
        self._local = threading.local()
        self._rows: deque[tuple[Future[Any], Callable[[int], Any], int]] = deque()
        self._beginning = threading.Lock()  # held by a thread until it has its first decoder
        self._workers: list[Worker] = []
        count = engine_count() * _AT_ONCE
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="jaxaug-nvdec")
        # Beside what the caller does until the first batch: a Loader compiles. A C compiler is
        # started once, not by each thread, and all of them wait for it, so that each has a start.
        callbacks = self._pool.submit(nvcuvid_loop.compiled)
        self._kernels = self._pool.submit(self._compile)
        for _ in range(count):
            self._pool.submit(self._start, callbacks)

    @property
    def bytes_held(self) -> int:
        """The device memory of canvases, kernels and surfaces."""
        canvases = sum(pool.bytes_held for pool in self.buffers.values())
        return canvases + sum(worker.bytes_held for worker in list(self._workers))

    @property
    def host_bytes(self) -> int:
        """The page-locked memory for what the host decodes."""
        return sum(worker.host_bytes for worker in list(self._workers))

    def take(self, rows: int) -> "_Part":
        """Return canvases for some rows; the device is current afterwards."""
        cuda.set_device(self.ordinal)
        taken: dict[str, tuple[CanvasBuffer, np.ndarray]] = {}
        try:
            for name in PLANES:
                taken[name] = self.buffers[name].take(rows)
        except BaseException:
            for name, (buffer, _) in taken.items():
                self.buffers[name].give_back(buffer)
            raise
        return _Part(self, rows, taken)

    def submit(self, function: Callable[[int], Any], row: int) -> "Future[Any]":
        """Call a function in one of the threads."""
        future: Future[Any] = Future()
        self._rows.append((future, function, row))
        self._pool.submit(self._call_all)
        return future

    def _call_all(self) -> None:
        """Call the functions of the rows that wait, until there are none.

        The driver makes one decoder after the other: a thread that has none waits for its turn
        before it takes a row, so that meanwhile those that have one take more.
        """
        if not hasattr(self._local, "begun"):
            self._beginning.acquire()
            self._local.begun = False
        try:
            while True:
                self._call(*self._rows.popleft())
        except IndexError:
            if not self._local.begun:  # its turn will come again
                del self._local.begun
                self._beginning.release()

    def _call(self, future: "Future[Any]", function: Callable[[int], Any], row: int) -> None:
        try:
            if future.set_running_or_notify_cancel():
                future.set_result(function(row))
        except BaseException as error:
            future.set_exception(error)
        self.begun()

    def begun(self) -> None:
        """Let another thread make its first decoder; this one has it, or need not."""
        if not self._local.begun:
            self._local.begun = True
            self._beginning.release()

    def _compile(self) -> Kernels:
        cuda.set_device(self.ordinal)
        return compile_place_kernels()

    def _start(self, callbacks: "Future[Any]") -> None:
        callbacks.result()
        self.worker()  # an error is raised when a row wants it

    def worker(self) -> Worker:
        """Return the worker of this thread, one of the pool's."""
        if not hasattr(self._local, "worker"):
            kernels = self._kernels.result()
            self._local.worker = Worker(self.ordinal, self._canvases, kernels, self.begun)
            self._workers.append(self._local.worker)
        return self._local.worker

    def close(self) -> None:
        """Stop the threads and free everything."""
        self._pool.shutdown(cancel_futures=True)
        for future, *_ in self._rows:
            future.cancel()
            future.set_running_or_notify_cancel()  # else who waits for it goes on waiting
        with cuda.on_device(self.ordinal):
            for worker in self._workers:
                worker.close()
            for pool in self.buffers.values():
                pool.close()


class _Part:
    """The canvases of a batch's rows on one GPU."""

    def __init__(self, gpu: _Gpu, rows: int, taken: dict[str, tuple[CanvasBuffer, np.ndarray]]):
        self.gpu = gpu
        self.rows = rows
        self._taken = taken

    def decode_on_engines(self, place: int, video: VideoFile, numbers: np.ndarray) -> Shown | None:
        """Decode a row in a thread of the GPU; None where the host must do it."""
        codec = completed_codec(video)
        luma, chroma = (self.gpu.forms[name].shape for name in PLANES)
        worker = self.gpu.worker()  # makes the device current
        form = engine_form(codec, luma[-2:] == chroma[-2:], self.gpu.silent)
        if form is None or not video.table.timed:
            return None
        row = Row(*self._addresses(place), math.prod(luma[-2:]), math.prod(chroma[-3:]))
        read = video.packets_read
        try:
            size, original = worker.decode(video, form, codec, numbers, row)
        except EngineError:  # the host says what it is
            video.packets_read = read
            return None
        turns = quarter_turns(codec.rotation or 0)
        progressive = np.zeros(len(numbers), bool)  # as are all that the engines get
        return Shown(size, original, color_of(codec), ORIENTATIONS[turns], progressive)

    def decode_on_host(self, place: int, video: VideoFile, numbers: np.ndarray) -> Shown:
        """Decode a row in a thread of the GPU, by FFmpeg, and copy its canvases."""
        self.gpu.begun()
        worker = self.gpu.worker()
        luma, chroma = worker.staging(*(self.gpu.forms[name].shape for name in PLANES))
        shown = write_frames(video, numbers, luma, chroma)
        for values, address in zip((luma, chroma), self._addresses(place)):
            worker.upload(values, address)
        return shown

    def _addresses(self, place: int) -> tuple[int, int]:
        luma, chroma = (int(self._taken[name][1][place]) for name in PLANES)
        return luma, chroma

    def view(self, name: str) -> jax.Array:
        """Return the canvases of all rows."""
        buffer, _ = self._taken[name]
        return buffer.view(self.rows)

    def release(self, readers: Any) -> None:
        """Give the canvases back."""
        for name, (buffer, _) in self._taken.items():
            self.gpu.buffers[name].give_back(buffer, readers)


def _close(gpus: list[_Gpu], process: int) -> None:
    if os.getpid() == process:  # a child has no threads, and the device is its parent's
        for gpu in gpus:
            gpu.close()
