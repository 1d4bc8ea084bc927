"""The decoder of a column of images: its canvas, and the entries that it makes of a sample."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from jaxaug._checks import check_choice, check_positive_int, check_size
from jaxaug._install import installed_versions
from jaxaug._typing import Device, Values
from jaxaug.decode._column import Column, ColumnDecoder, Decoded, valid_rows
from jaxaug.decode._libraries import IMAGE_PACKAGES
from jaxaug.decode._types import Encoded, Ragged
from jaxaug.decode.image.canvas import fit_size, pick_canvas, rows_within, sizes_in
from jaxaug.decode.image.decoder import Decoder
from jaxaug.decode.image.form import AS_STORED, COLORS, PixelForm, pixel_form
from jaxaug.decode.image.host.decode_image import decode_as
from jaxaug.decode.image.list import EachImage, ImageList
from jaxaug.decode.image.parse.headers import MAX_PIXELS, Headers
from jaxaug.errors import DecodeError

_MAX_TRIES = 100  # records looked at for the first good image


@dataclasses.dataclass(frozen=True)
class Image(ColumnDecoder):
    """Images on static canvases: the description that `Loader(decode=)` takes, and sources declare.

    A column of encoded images becomes `<name>` [B, H, W, channels], each upright at the
    top-left of a canvas of zeros, "size" int32[B, 2], its used (height, width), and
    "original_size", that of the upright image before it was shrunk to the canvas. Of a column named
    otherwise than "image" the latter are called "<name>_size" and "<name>_original_size", unless it
    is `like` another one.

    A column of lists of images, `Ragged` of `Encoded`, becomes [B, k, H, W, channels], k its
    `max_length`, with sizes [B, k, 2] and "<name>_length" int32[B]; see `augment.Compose` for one
    draw for all of them, or one for each.

    A column that is an array [n, H, W(, C)] goes to the device as it is, without sizes; gray uint8
    is repeated to three channels there where `channels` is "rgb".

    Args:
      canvas: (H, W) in pixels; larger images are shrunk to it, antialiased, with their aspect kept.
        None: the size of the images where all have one, else what fits 95 per cent of them on each
        side, rounded up to 64, at most 1,024.
      channels: "rgb", "gray", "rgba", n numbers a pixel, or "as stored" for as many as the first
        good image has: another number is a bad record. None is "rgb", or with `bands` their number.
      dtype: "uint8", "uint16" or "float32", also as `numpy.uint16`: they hold a file's numbers as
        they are; see `Decoder`.
      bands: the numbers of a pixel that are taken, counted from 0, such as (3, 2, 1).
      page: of a file of several images, counted from 0.
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
    channels: str | int | None = None
    dtype: DTypeLike = "uint8"
    bands: tuple[int, ...] | None = None
    page: int = 0
    like: str | None = None
    # Not part of what processes compare: hosts may differ.
    backend: str = dataclasses.field(default="auto", repr=False)
    num_threads: int | None = dataclasses.field(default=None, repr=False)
    max_pixels: int = MAX_PIXELS
    truncated: str = "error"
    deterministic: bool | None = None
    # Set by `fit`: True where the canvas was picked, and images of different sizes lie on it.
    sizes_vary: bool = dataclasses.field(default=False, repr=False)
    # Set by `within`: the rows of the canvas that images of a bucket use.
    rows: int | None = dataclasses.field(default=None, repr=False)

    on_device = ("pixels",)
    counted = ("shrunk",)

    def __post_init__(self):
        if isinstance(self.canvas, (list, np.ndarray)):
            object.__setattr__(self, "canvas", tuple(int(side) for side in self.canvas))
        if self.canvas is not None:
            check_size("canvas", self.canvas)
        form = self.form
        object.__setattr__(self, "channels", form.channels)
        object.__setattr__(self, "dtype", form.dtype)
        object.__setattr__(self, "bands", form.bands)
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
    def form(self) -> PixelForm:
        """What the pixels of a canvas are."""
        return pixel_form(self.channels, self.dtype, self.bands, self.page)

    def fit(self, column: Column, siblings: Mapping[str, ColumnDecoder]) -> ColumnDecoder:
        """Return the decoder with its canvas, or the one of arrays of pixels."""
        if isinstance(column.example, np.ndarray):
            return _fit_array(self, column)
        if isinstance(column.example, Ragged) and isinstance(column.example.values, Encoded):
            return self._fit_list(column)
        if not isinstance(column.example, Encoded):
            raise TypeError(
                f"column {column.name!r} must be encoded images or an array of pixels, got "
                f"{type(column.example).__name__}."
            )
        fitted = self
        if self.channels == AS_STORED:
            fitted = dataclasses.replace(self, channels=_first_count(column, self))
        if fitted.like is not None:
            return fitted._fit_like(column.name, siblings[fitted.like])
        if fitted.canvas is not None:
            return fitted
        canvas, uniform = pick_canvas(column, fitted.form)
        return dataclasses.replace(fitted, canvas=canvas, sizes_vary=not uniform)

    def _fit_list(self, column: Column) -> ImageList:
        """Return the decoder of lists of such images."""
        if self.like is not None:
            raise ValueError(
                f"`like` of column {column.name!r} must be left out for lists of images, got "
                f"{self.like!r}."
            )
        image = self.fit(EachImage(column), {})
        most = column.example.max_length
        return ImageList(dataclasses.replace(image, sizes_vary=False), most)

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

    def within(self, bound: float) -> "Image":
        """Return the decoder of images that are at most `bound` times as high as wide."""
        assert self.canvas is not None
        return dataclasses.replace(self, rows=rows_within(self.canvas, bound))

    def exceeds(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """Return where an image uses more rows."""
        assert self.canvas is not None
        return arrays["size"][:, 0] > (self.rows or self.canvas[0])

    def extents(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sizes of the images on their canvases."""
        return {"pixels": arrays["size"]}

    def expected_extents(self, column: Column) -> dict[str, np.ndarray]:
        """Return the sizes by an index, or of a sample of the records."""
        assert self.canvas is not None
        return {"pixels": fit_size(sizes_in(column, self.form), self.canvas)}

    def forms(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the forms of a canvas, of its sizes and of the EXIF orientation."""
        assert self.canvas is not None
        return {
            "pixels": jax.ShapeDtypeStruct((*self.canvas, self.form.count), np.dtype(self.dtype)),
            "size": jax.ShapeDtypeStruct((2,), np.int32),
            "original_size": jax.ShapeDtypeStruct((2,), np.int32),
            "orientation": jax.ShapeDtypeStruct((), np.uint8),
        }

    def made_by(self, platform: str) -> dict[str, str]:
        """Return the versions of the libraries of host threads, and of the engines' one."""
        from jaxaug.decode.native import libnvjpeg
        from jaxaug.decode.native.load_library import LibraryError

        versions = installed_versions(*IMAGE_PACKAGES)
        if platform == "gpu" and self.backend != "host":
            with contextlib.suppress(LibraryError):  # host threads decode without it
                versions["nvjpeg"] = libnvjpeg.version()
        return versions

    def open(self, devices: Sequence[Device], deterministic: bool) -> "Decoder | LikeReader":
        """Return a running `Decoder`."""
        assert self.canvas is not None
        decoder = Decoder(
            self.canvas,
            self.backend,
            devices,
            num_threads=self.num_threads,
            max_pixels=self.max_pixels,
            deterministic=deterministic if self.deterministic is None else self.deterministic,
            channels=self.channels,
            dtype=self.dtype,
            bands=self.bands,
            page=self.page,
            truncated=self.truncated,
        )
        return decoder if self.like is None else LikeReader(decoder, self.like)

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        """Return the image, and its sizes unless it is like another one.

        A row that is not valid has the canvas as its size, so that no transform divides by zero.
        """
        entries = {name: row["pixels"][: self.rows]}
        if self.like is None:
            prefix = _prefix(name)
            canvas = jnp.asarray(entries[name].shape[:2], jnp.int32)
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
        pixels = decode_as(values, self.form, self.max_pixels, self.truncated)
        return pixels[..., 0] if pixels.shape[2] == 1 else pixels

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


class LikeReader:
    """A `Decoder` whose images must have the sizes of those in another column.

    Args:
      decoder: decodes.
      like: the column.
    """

    def __init__(self, decoder: Decoder, like: str):
        self.running = decoder
        self.in_flight = decoder.in_flight
        self.check_rows = decoder.check_rows
        self.close = decoder.close
        self._like = like

    def decode_rows(
        self,
        values: Encoded,
        checked: Headers,
        siblings: Mapping[str, Decoded],
        wanted: np.ndarray,
        keys: np.ndarray,
    ) -> Decoded:
        """Return the canvases of n images; see `ColumnDecoder`."""
        decoded = self.running.decode_rows(values, checked, siblings, wanted, keys)
        return _with_sizes_of(decoded, siblings[self._like], self._like)


def describe(decoder: Decoder, deterministic: bool) -> Image:
    """Return the description of a running decoder.

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
    return Image(
        canvas=decoder.canvas,
        channels=decoder.form.channels,
        dtype=decoder.form.dtype,
        bands=decoder.form.bands,
        page=decoder.form.page,
        backend=decoder.backend,
        max_pixels=decoder.max_pixels,
        truncated=decoder.truncated,
        deterministic=decoder.deterministic,
    )


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
      bands: channels that are taken; None for all.
    """

    shape: tuple[int, ...]
    dtype: str
    channels: int
    bands: tuple[int, ...] | None = None

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
        assert isinstance(values, np.ndarray)
        return Decoded({"pixels": values}, valid_rows({}, wanted), {})

    def place(
        self, name: str, row: Mapping[str, Array], siblings: Mapping[str, Any], valid: Array
    ) -> dict[str, Array]:
        image = row["pixels"]
        if image.ndim == 2:
            image = image[..., None]
        if self.bands is not None:
            image = image[..., jnp.asarray(self.bands)]
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
    _check_array(image, column.name, channels, dtype)
    if image.bands is not None:
        return ImageArray(shape, dtype.name, len(image.bands), image.bands)
    if channels == 1 and dtype == np.uint8 and image.channels == "rgb":
        channels = 3
    return ImageArray(shape, dtype.name, channels)


def _check_array(image: Image, name: str, channels: int, dtype: np.dtype) -> None:
    """Raise ValueError where a form is asked for that an array of pixels has not."""
    form = image.form
    reason = "" if form.channels in COLORS else form.misfit(channels)
    if form.dtype not in ("uint8", dtype.name):
        reason = f"it is {dtype.name}, and dtype={form.dtype!r} was asked for: cast the array"
    if form.page:
        reason = f"it has no pages, and page={form.page} was asked for"
    if reason:
        raise ValueError(f"column {name!r} is an array of pixels, which are not decoded: {reason}.")


def _first_count(column: Column, image: Image) -> int:
    """Return how many numbers a pixel of the first good image has.

    Raises:
      ValueError: none of the first records is one.
    """
    for values in column.first(_MAX_TRIES):
        assert isinstance(values, Encoded)
        try:
            return decode_as(values, image.form, image.max_pixels, image.truncated).shape[2]
        except DecodeError:
            continue
    raise ValueError(
        f"`channels` of column {column.name!r} must be a number, as none of the first "
        f"{_MAX_TRIES} records is a good image that would tell it, got {AS_STORED!r}."
    )
