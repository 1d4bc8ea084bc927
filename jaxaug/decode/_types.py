"""The values of columns as sources return them, and decoded images."""

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array


class Span(NamedTuple):
    """The part of each of n videos or sounds that a record is, [start, end).

    Clips are taken from that part alone, so that several records may share a file.

    Attributes:
      start, end: float64[n]; an end of `inf` is that of the file.
      unit: "seconds", by the stream's own clock, or "frames" of a video, counted from 0.
      channel: int64[n], of a sound the one channel that the record is, -1 for all; None for all.

    Example:
      >>> Span(np.array([0.0, 2.5]), np.array([2.5, np.inf])).take(slice(1, 2)).start.tolist()
      [2.5]
    """

    start: np.ndarray
    end: np.ndarray
    unit: str = "seconds"
    channel: "np.ndarray | None" = None

    def take(self, rows: "slice | np.ndarray") -> "Span":
        """Return some of the spans."""
        channel = None if self.channel is None else self.channel[rows]
        return self._replace(start=self.start[rows], end=self.end[rows], channel=channel)

    def text(self, row: int) -> str:
        """Return a span for messages."""
        part = f"{self.start[row]:g} to {self.end[row]:g} {self.unit}"
        channel = -1 if self.channel is None else int(self.channel[row])
        return part if channel < 0 else f"{part} of channel {channel}"


class Encoded(NamedTuple):
    """Encoded images in host memory, without a Python object per image.

    The bytes must not change until the call that they are given to has returned. Pickled or
    deep-copied, it holds a copy of its bytes.

    Attributes:
      addresses: uint64[n], the address of the first byte of each image.
      lengths: uint64[n], the bytes of each image.
      owner: an object that keeps that memory alive (a list of bytes, an mmap, a staging buffer).
      span: the part of each that the record is; None where all of them are whole.
      begins: int64[n], the byte of each file that its bytes begin with, where a source was asked
        for parts of them; None where all of them are whole.

    Example:
      >>> encoded = Encoded.from_bytes([b"abc", b"de"])
      >>> bytes(encoded.take(slice(1, 2)).view(0))
      b'de'
    """

    addresses: np.ndarray
    lengths: np.ndarray
    owner: Any
    span: "Span | None" = None
    begins: "np.ndarray | None" = None

    @classmethod
    def from_bytes(
        cls, images: "Sequence[bytes | bytearray | memoryview | np.ndarray]"
    ) -> "Encoded":
        """Return a view of bytes-like objects, without a copy.

        Raises:
          TypeError: one of them is not bytes-like, or an array of pixels.

        Example:
          >>> Encoded.from_bytes([b"abc", b""]).lengths.tolist()
          [3, 0]
        """
        try:
            views = [np.frombuffer(image, np.uint8) if len(image) else _EMPTY for image in images]
        except (TypeError, ValueError, BufferError) as error:  # a view may have gaps
            kinds = ", ".join(sorted({type(image).__name__ for image in images}))
            raise TypeError(
                f"`images` must be bytes-like objects without gaps, got {kinds} ({error}): give "
                "the bytes of each file, as from `pathlib.Path.read_bytes`."
            ) from None
        for image in images:
            if getattr(image, "ndim", 1) > 1:
                pixels = np.asarray(image)
                raise TypeError(
                    f"`images` must be the bytes of files, got pixels {pixels.dtype}"
                    f"{list(pixels.shape)}, which need no decoding: iterators.RandomAccess takes "
                    "items of uint8 pixels, InMemory an array uint8[n, h, w, 3]."
                )
        addresses = np.array([view.__array_interface__["data"][0] for view in views], np.uint64)
        lengths = np.array([view.size for view in views], np.uint64)
        return cls(addresses, lengths, views)

    def checked(self) -> "Encoded":
        """Return the same images with columns of uint64.

        Raises:
          ValueError: these are not two columns of equal length.
        """
        addresses = np.asarray(self.addresses, np.uint64)
        lengths = np.asarray(self.lengths, np.uint64)
        if addresses.ndim != 1 or addresses.shape != lengths.shape:
            raise ValueError(
                "`encoded` must have one address and one length per image, got addresses of shape "
                f"{addresses.shape} and lengths of shape {lengths.shape}."
            )
        if addresses is self.addresses and lengths is self.lengths:
            return self
        return self._replace(addresses=addresses, lengths=lengths)

    def __reduce__(self):
        views = map(self.view, range(len(self.lengths)))
        lengths = np.asarray(self.lengths, np.uint64)
        return _rebuild_encoded, (b"".join(views), lengths, self.span, self.begins)

    def take(self, rows: "slice | np.ndarray") -> "Encoded":
        """Return some of the images."""
        span = None if self.span is None else self.span.take(rows)
        begins = None if self.begins is None else self.begins[rows]
        return Encoded(self.addresses[rows], self.lengths[rows], self.owner, span, begins)

    @classmethod
    def join(cls, parts: "Sequence[Encoded]") -> "Encoded":
        """Return the images of several parts, one after the other.

        Raises:
          ValueError: some have spans in frames, others in seconds.
        """
        addresses = np.concatenate([part.addresses for part in parts])
        lengths = np.concatenate([part.lengths for part in parts])
        begins = None
        if any(part.begins is not None for part in parts):
            begins = np.concatenate([part.first_bytes for part in parts])
        owners = [part.owner for part in parts]
        return cls(addresses, lengths, owners, _join_spans(parts), begins)

    @property
    def first_bytes(self) -> np.ndarray:
        """The byte of each file that its bytes begin with, int64[n]."""
        return np.zeros(len(self.lengths), np.int64) if self.begins is None else self.begins

    def view(self, row: int) -> memoryview:
        """Return the bytes of image `row`, which are readable as long as the owner lives."""
        return memory_view(int(self.addresses[row]), int(self.lengths[row]))


class Ragged(NamedTuple):
    """Arrays that differ in their first axis, or lists of encoded values, one for each record.

    In a batch they are padded to `max_length`, and "<name>_length" tells how long each is.

    Attributes:
      values: [sum(lengths), ...], the records' arrays one after the other; or `Encoded` of as many.
      lengths: int64[n], how long each is.
      max_length: the longest of all records, the same in every read; a longer one is cut.
      fill: the value behind the end.

    Example:
      >>> ragged = Ragged(np.array([1, 2, 3]), np.array([2, 0, 1]), max_length=2)
      >>> ragged.padded().tolist(), ragged.take(np.array([2, 0])).values.tolist()
      ([[1, 2], [0, 0], [3, 0]], [3, 1, 2])
    """

    values: Any
    lengths: np.ndarray
    max_length: int
    fill: int = 0

    @classmethod
    def join(cls, parts: "Sequence[Ragged]") -> "Ragged":
        """Return the records of several parts, one after the other, of the largest `max_length`."""
        values = [part.values for part in parts]
        encoded = isinstance(values[0], Encoded)
        return parts[0]._replace(
            values=Encoded.join(values) if encoded else np.concatenate(values),
            lengths=np.concatenate([part.lengths for part in parts]),
            max_length=max(part.max_length for part in parts),
        )

    @classmethod
    def from_padded(cls, padded: np.ndarray, lengths: np.ndarray, fill: int = 0) -> "Ragged":
        """Return records [n, most, ...] without their padding; none is longer than `most`."""
        most = padded.shape[1]
        kept = np.minimum(np.asarray(lengths, np.int64), most)
        return cls(padded[np.arange(most) < kept[:, None]], kept, most, fill)

    def take(self, rows: "slice | np.ndarray") -> "Ragged":
        """Return some of the records."""
        lengths = self.lengths[rows]
        starts = (np.cumsum(self.lengths) - self.lengths)[rows]
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        chosen = np.repeat(starts, lengths) + within
        encoded = isinstance(self.values, Encoded)
        values = self.values.take(chosen) if encoded else self.values[chosen]
        return self._replace(values=values, lengths=lengths)

    def padded(self) -> np.ndarray:
        """Return the records as one array [n, max_length, ...]."""
        shape = (len(self.lengths), self.max_length, *self.values.shape[1:])
        padded = np.full(shape, self.fill, self.values.dtype)
        places = np.arange(self.lengths.sum()) - np.repeat(
            np.cumsum(self.lengths) - self.lengths, self.lengths
        )
        kept = places < self.max_length
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
        padded[rows[kept], places[kept]] = self.values[kept]
        return padded

    @property
    def padded_lengths(self) -> np.ndarray:
        """The lengths in a batch, int32[n]."""
        return np.minimum(self.lengths, self.max_length).astype(np.int32)


class ImageBatch(NamedTuple):
    """Decoded images on their devices.

    Attributes:
      pixels: uint8[n, H, W, channels] on one device (3 channels, or 1 of a gray Decoder), or a list
        of one such array per device, n / devices rows each.
      size: int32[n, 2], (height, width) of the used top-left part of each canvas; the rest is zero.
      original_size: int32[n, 2], (height, width) of the upright image before it was shrunk to the
        canvas.
      valid: bool[n], False where the image could not be decoded; such a row is zero.

    Example:
      >>> import jax
      >>> from jaxaug.decode import Decoder
      >>> with Decoder((8, 9), devices=jax.devices()[:1], on_error="mask") as decoder:
      ...     batch = decoder.decode(Encoded.from_bytes([b"no image"]))
      >>> batch.pixels.shape, batch.valid.tolist()
      ((1, 8, 9, 3), [False])
    """

    pixels: "Array | list[Array]"
    size: np.ndarray
    original_size: np.ndarray
    valid: np.ndarray


def _join_spans(parts: Sequence[Encoded]) -> Span | None:
    """Return the spans of several parts; what has none is whole."""
    units = {part.span.unit for part in parts if part.span is not None}
    if not units:
        return None
    if len(units) > 1:
        raise ValueError(
            "spans of one column must be in one unit, got frames and seconds: give all sources "
            "the same."
        )
    counts = [len(part.lengths) for part in parts]
    whole = [(np.zeros(count), np.full(count, np.inf)) for count in counts]
    bounds = [part.span[:2] if part.span else each for part, each in zip(parts, whole)]
    start, end = (np.concatenate(each) for each in zip(*bounds))
    channels = [None if part.span is None else part.span.channel for part in parts]
    channel = None
    if any(each is not None for each in channels):
        every = [np.full(n, -1) if each is None else each for each, n in zip(channels, counts)]
        channel = np.concatenate(every)
    return Span(start, end, units.pop(), channel)


def _rebuild_encoded(
    data: bytes, lengths: np.ndarray, span: Span | None, begins: np.ndarray | None
) -> Encoded:
    """Return images that lie one after the other in `data`."""
    first = np.uint64(np.frombuffer(data, np.uint8).ctypes.data if data else 0)
    addresses = np.cumsum(lengths, dtype=np.uint64) - lengths + first
    return Encoded(addresses, lengths, data, span, begins)


_EMPTY = np.zeros(0, np.uint8)
_PyMemoryView_FromMemory = ctypes.pythonapi.PyMemoryView_FromMemory
_PyMemoryView_FromMemory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_PyMemoryView_FromMemory.restype = ctypes.py_object


def memory_view(address: int, length: int) -> memoryview:
    """Return the bytes at an address, read-only; the caller keeps that memory alive."""
    pybuf_read = 0x100
    return _PyMemoryView_FromMemory(address, length, pybuf_read) if length else memoryview(b"")


def view_of(data: Any) -> memoryview:
    """Return the bytes of one file that the user gave.

    Raises:
      TypeError: it is not bytes-like.
    """
    try:
        return memoryview(data).cast("B")
    except TypeError:
        raise TypeError(
            f"`data` must be the bytes of a file, got {type(data).__name__}: read them, as by"
            " `pathlib.Path.read_bytes`."
        ) from None
