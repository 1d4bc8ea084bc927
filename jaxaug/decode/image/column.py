"""The decoder of a column of images: its canvas, and the entries that it makes of a sample."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug._checks import check_choice, check_positive_int, check_size
from jaxaug._typing import Array, Device, Values
from jaxaug._warn import warn_user
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, valid_rows
from jaxaug.decode._types import Encoded
from jaxaug.decode.image.decoder import Decoder
from jaxaug.decode.image.fit import fit_size
from jaxaug.decode.image.host.decode_image import decode_image
from jaxaug.decode.image.parse.headers import BAD, MAX_PIXELS, Headers, read_headers

_SAMPLED_RECORDS = 1000  # looked at where no index holds all headers
_PERCENTILE = 95
_MULTIPLE = 64
_MAX_SIDE = 1024  # 256 canvases of 1,024 x 1,024 take 0.8 GB; photographs of phones would take 12
_DEFAULT_CANVAS = (512, 512)  # of a column without a good image
_CHANNELS = {"rgb": 3, "gray": 1}


@dataclasses.dataclass(frozen=True)
class Image(ColumnDecoder):
    """Images on static canvases: the description that `Loader(decode=)` takes, and sources declare.

    A column of encoded images becomes `<name>` uint8[B, H, W, channels], each upright at the
    top-left of a canvas of zeros, "size" int32[B, 2], its used (height, width), and
    "original_size", that of the upright image before it was shrunk to the canvas. Of a column named
    otherwise than "image" the latter are called "<name>_size" and "<name>_original_size", unless it
    is `like` another one.

    A column that is an array [n, H, W(, C)] goes to the device as it is, without sizes; gray uint8
    is repeated to three channels there unless `output` is "gray".

    Args:
      canvas: (H, W) in pixels; larger images are shrunk to it, antialiased, with their aspect kept.
        None: the size of the images where all have one, else what fits 95 per cent of them on each
        side, rounded up to 64, at most 1,024.
      output: "rgb", or "gray" for one channel.
      like: another column of images, whose canvas this one has, and whose size each of its images:
        one of another size is a bad record. None for none.
      backend, num_threads, max_pixels, truncated, deterministic: see `Decoder`; `deterministic`
        None is True where several processes decode the same records, else False.

    Raises:
      ValueError: an argument is wrong.

    Example:
      >>> import io, jax, PIL.Image
      >>> from jaxaug.iterators import InMemory, Loader
      >>> buffer = io.BytesIO()
      >>> PIL.Image.new("RGB", (40, 30)).save(buffer, "JPEG")
      >>> source = InMemory([buffer.getvalue()] * jax.device_count())
      >>> with Loader(source, jax.device_count(), decode=Image(canvas=(64, 64))) as loader:
      ...     next(loader)["image"].shape[1:]
      (64, 64, 3)
    """

    canvas: tuple[int, int] | None = None
    output: str = "rgb"
    like: str | None = None
    # Not part of what processes compare: hosts may differ.
    backend: str = dataclasses.field(default="auto", repr=False)
    num_threads: int | None = dataclasses.field(default=None, repr=False)
    max_pixels: int = MAX_PIXELS
    truncated: str = "error"
    deterministic: bool | None = None
    # Set by `fit`: True where the canvas was picked, and images of different sizes lie on it.
    sizes_vary: bool = dataclasses.field(default=False, repr=False)

    on_device = ("pixels",)
    counted = ("shrunk",)

    def __post_init__(self):
        if isinstance(self.canvas, (list, np.ndarray)):
            object.__setattr__(self, "canvas", tuple(int(side) for side in self.canvas))
        if self.canvas is not None:
            check_size("canvas", self.canvas)
        check_choice("output", self.output, tuple(_CHANNELS))
        check_choice("backend", self.backend, ("auto", "nvjpeg", "host"))
        check_choice("truncated", self.truncated, ("error", "accept"))
        check_choice("deterministic", self.deterministic, (None, False, True))
        check_positive_int("max_pixels", self.max_pixels)
        if self.num_threads is not None:
            check_positive_int("num_threads", self.num_threads)

    def follows(self) -> str | None:
        """Return the column that this one is like."""
        return self.like

    @property
    def channels(self) -> int:
        """Channels of a canvas."""
        return _CHANNELS[self.output]

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> ColumnDecoder:
        """Return the decoder with its canvas, or the one of arrays of pixels."""
        if isinstance(column.example, np.ndarray):
            return _fit_array(self, column)
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be encoded images or an array of pixels, got "
                f"{type(column.example).__name__}."
            )
        if self.like is not None:
            return self._fit_like(column.name, siblings[self.like])
        if self.canvas is not None:
            return self
        canvas, uniform = pick_canvas(column)
        return dataclasses.replace(self, canvas=canvas, sizes_vary=not uniform)

    def _fit_like(self, name: str, other: ColumnDecoder) -> "Image":
        if self.canvas is not None:
            raise ValueError(
                f"`canvas` of column {name!r} must be left out beside `like`={self.like!r}, whose "
                f"canvas it has, got {self.canvas}."
            )
        if not isinstance(other, Image):
            raise ValueError(
                f"`like` of column {name!r} must name a column of encoded images, got "
                f"{self.like!r}, whose decoder is {type(other).__name__}."
            )
        return dataclasses.replace(self, canvas=other.canvas)

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of a canvas, of its sizes and of the EXIF orientation."""
        assert self.canvas is not None
        return {
            "pixels": jax.ShapeDtypeStruct((*self.canvas, self.channels), np.uint8),
            "size": jax.ShapeDtypeStruct((2,), np.int32),
            "original_size": jax.ShapeDtypeStruct((2,), np.int32),
            "orientation": jax.ShapeDtypeStruct((), np.uint8),
        }

    def open(self, devices: Sequence[Device], deterministic: bool) -> "ImageReader":
        """Return a running `Decoder` behind the methods that a Loader calls."""
        assert self.canvas is not None
        decoder = Decoder(
            self.canvas,
            self.backend,
            devices,
            num_threads=self.num_threads,
            max_pixels=self.max_pixels,
            deterministic=deterministic if self.deterministic is None else self.deterministic,
            output=self.output,
            truncated=self.truncated,
        )
        return ImageReader(decoder, self.like)

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the image, and its sizes unless it is like another one.

        A row that is not valid has the canvas as its size, so that no transform divides by zero.
        """
        del siblings
        entries = {name: row["pixels"]}
        if self.like is None:
            prefix = _prefix(name)
            canvas = jnp.asarray(self.canvas, jnp.int32)
            entries[f"{prefix}size"] = jnp.where(valid, row["size"], canvas)
            entries[f"{prefix}original_size"] = jnp.where(valid, row["original_size"], 0)
        return entries

    def entries(self, name: str) -> tuple[str, ...]:
        """Return the names of the image and of its sizes."""
        sizes = () if self.like is not None else ("size", "original_size")
        return (name, *(f"{_prefix(name)}{size}" for size in sizes))

    def blanks(self, name: str) -> Mapping[str, None]:
        """Return that sizes stay as they are in rows that are not valid."""
        return {f"{_prefix(name)}size": None}  # the canvas already

    def original(self, values: Values) -> np.ndarray:
        """Return the whole upright image of one record."""
        assert isinstance(values, Encoded)
        return decode_image(values.view(0), self.output, self.max_pixels, truncated=self.truncated)

    def notes(
        self, name: str, spec: Mapping[str, Any], ignores: Callable[[str, str], bool]
    ) -> list[str]:
        """Return a warning where images of different sizes may be taken for their canvas."""
        if not self.sizes_vary or name != "image":
            return []
        if "size" not in spec and name in spec and ignores(name, "size"):
            return [
                'the images have different sizes, and the "image" that `transform` returns does '
                'not depend on "size": it takes the black padding of the canvas for image. Give a '
                'chain the whole sample, as in `crop(key, sample)`, not `sample["image"]` alone, '
                'or use "size" yourself.'
            ]
        if "size" not in spec or "mask" in spec:
            return []  # a mask says where there is no image
        assert self.canvas is not None
        height, width = self.canvas
        return [
            f"the images have different sizes and lie on canvases of {height} x {width}, zero "
            'outside of their "size", which is still in the batch: let the transform end at one '
            "size, with CenterCrop, Resize or RandomResizedCrop, or have the model use "
            '"size" (`decode=Image(canvas=...)` of your own says that it does).'
        ]


def _prefix(name: str) -> str:
    """Return what the names of an image's sizes begin with."""
    return "" if name == "image" else f"{name}_"


class ImageReader:
    """The host half of `Image`: a `Decoder`, which may be the user's own.

    Args:
      decoder: decodes.
      like: the column whose sizes these images must have; None for none.
      owned: `close` closes the decoder.
    """

    def __init__(self, decoder: Decoder, like: str | None = None, owned: bool = True):
        self.running = decoder
        self.in_flight = decoder.in_flight
        self._like = like
        self._owned = owned

    def check_rows(self, values: Encoded, stored: Any) -> tuple[Headers, dict[int, str]]:
        """Return the headers of n images; see `ColumnDecoder`."""
        headers = self.running.check_rows(values, stored)
        rows = (headers.kind == BAD).nonzero()[0].tolist()
        return headers, {row: str(headers.reason[row]) for row in rows}

    def decode_rows(
        self,
        values: Encoded,
        checked: Headers,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the canvases of n images; see `ColumnDecoder`."""
        decoded = self.running.decode_rows(values, checked, wanted)
        if self._like is None:
            return decoded
        return _with_sizes_of(decoded, siblings[self._like], self._like)

    def close(self) -> None:
        """Stop the threads of the decoder, unless it is the user's own."""
        if self._owned:
            self.running.close()


def share(decoder: Decoder, deterministic: bool) -> tuple[Image, ImageReader]:
    """Return the description and the host half of a running decoder, which stays the user's.

    Args:
      decoder: of one Loader or of several.
      deterministic: several processes decode the same records.

    Raises:
      ValueError: their pixels could differ: engines and host threads differ by one level, so that
        processes that decode the same rows must choose alike.
    """
    if deterministic and decoder.backend == "nvjpeg" and not decoder.deterministic:
        raise ValueError(
            "`decode` must be a deterministic Decoder where several processes hold the same rows, "
            "or their replicas would differ, got one that is not: make it with Decoder(..., "
            "deterministic=True)."
        )
    image = Image(
        canvas=decoder.canvas,
        output="rgb" if decoder.channels == 3 else "gray",
        backend=decoder.backend,
        max_pixels=decoder.max_pixels,
        truncated=decoder.truncated,
        deterministic=decoder.deterministic,
    )
    return image, ImageReader(decoder, owned=False)


def _with_sizes_of(decoded: Decoded, other: Decoded, like: str) -> Decoded:
    """Return images, of which those of another size than in another column are failures."""
    sizes = decoded.arrays["original_size"]
    wanted = other.arrays["original_size"]
    differs = decoded.valid & other.valid & (sizes != wanted).any(axis=1)
    failures = dict(decoded.failures)
    for row in np.flatnonzero(differs).tolist():
        found, expected = sizes[row].tolist(), wanted[row].tolist()
        failures[row] = (
            f"it is {found[0]} x {found[1]} pixels, {like!r} {expected[0]} x {expected[1]}"
        )
    return decoded._replace(valid=decoded.valid & ~differs, failures=failures)


@dataclasses.dataclass(frozen=True)
class ImageArray(ColumnDecoder):
    """Images that are arrays of one shape: they go to the device as they are.

    Attributes:
      shape: (H, W) or (H, W, C).
      dtype: by name.
      channels: of the entry, to which one channel is repeated.
    """

    shape: tuple[int, ...]
    dtype: str
    channels: int

    counted = ("shrunk",)

    @property
    def canvas(self) -> tuple[int, int]:
        """(H, W)."""
        return self.shape[0], self.shape[1]

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        return {"pixels": jax.ShapeDtypeStruct(self.shape, np.dtype(self.dtype))}

    def decode_rows(
        self,
        values: Values,
        checked: Any,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        del checked, siblings
        assert isinstance(values, np.ndarray)
        return Decoded({"pixels": values}, valid_rows({}, wanted), {})

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        del siblings, valid
        image = row["pixels"]
        if image.ndim == 2:
            image = image[..., None]
        return {name: jnp.broadcast_to(image, (*image.shape[:2], self.channels))}

    def original(self, values: Values) -> np.ndarray:
        assert isinstance(values, np.ndarray)
        return values[0]


def _fit_array(image: Image, column: Column) -> ImageArray:
    """Return the decoder of a column of pixels."""
    assert isinstance(column.example, np.ndarray)
    shape = column.example.shape[1:]
    dtype = column.example.dtype
    if len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(
            f"column {column.name!r} must be pixels [n, H, W] or [n, H, W, C], got "
            f"{list(column.example.shape)}."
        )
    if image.canvas is not None:
        raise ValueError(
            "`canvas` must be left out for a source of pixels, which are not decoded, got "
            f"{image.canvas}."
        )
    channels = shape[2] if len(shape) == 3 else 1
    if channels == 1 and dtype == np.uint8 and image.output == "rgb":
        channels = 3
    return ImageArray(shape, dtype.name, channels)


def pick_canvas(column: Column) -> tuple[tuple[int, int], bool]:
    """Return the canvas of a column of encoded images, and whether all looked at have its size.

    Where an index holds all headers, all are used; else those of 1,000 records.
    """
    stored = column.stored()
    if stored is None:
        stored = [read_headers(part) for part in column.sample(_SAMPLED_RECORDS)]
    return canvas_of(np.concatenate([_good_sizes(headers) for headers in stored]))


def _good_sizes(headers: Headers) -> np.ndarray:
    return headers.original_size()[headers.kind != BAD]


def canvas_of(sizes: np.ndarray, decoder: str = "Image") -> tuple[tuple[int, int], bool]:
    """Return the canvas of images of these sizes int32[n, 2] (height, width), and if all are equal.

    It is the size itself where all are equal; else the 95th percentile of each side, rounded up to
    64, at most 1,024, with a warning where that bound is met; 512 x 512 if there are none.

    Args:
      sizes: (height, width) of each.
      decoder: what the user gives a canvas to.

    Example:
      >>> canvas_of(np.array([[300, 400], [300, 401]]))
      ((320, 448), False)
    """
    if not len(sizes):
        return _DEFAULT_CANVAS, True

    uniform = bool((sizes == sizes[0]).all())
    # "higher": a side that an image really has
    sides = np.percentile(sizes, _PERCENTILE, axis=0, method="higher").astype(int).tolist()
    if uniform:
        height, width = fit_size(sizes[:1], (_MAX_SIDE, _MAX_SIDE))[0].tolist()
    else:
        height, width = (min(-(-side // _MULTIPLE) * _MULTIPLE, _MAX_SIDE) for side in sides)

    if max(sides) > _MAX_SIDE:
        warn_user(
            f"most {decoder.lower()}s fit {sides[0]} x {sides[1]} pixels, but the Loader's own "
            f"canvas has at most {_MAX_SIDE} a side: larger ones are shrunk to {height} x {width}. "
            f"Give the Loader `decode={decoder}(canvas=(height, width))` of your own, this one if "
            "it is right."
        )
    return (height, width), uniform
