"""JPEG 2000, JPEG XL, AVIF, HEIC, DICOM, Netpbm and NPY, beside the formats' own libraries."""

import io
import struct
import sys
import warnings

import imagecodecs
import numpy as np
import PIL.Image
import PIL.ImageCms
import pillow_heif
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import (
    ExplicitVRLittleEndian,
    JPEGExtended12Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
)

from jaxaug.decode import Encoded, decode_image, read_headers
from jaxaug.decode._libraries import library
from jaxaug.decode.image.deep import jpegxl
from jaxaug.decode.image.parse.other_formats import format_of
from jaxaug.errors import DecodeError, PrecisionWarning
from tests.decode.image.deep.files import decode, numbers, reason, tiff
from tests.decode.samples import JPEGS, lossless, twelve_bits
from tests.images import encode, picture


def levels(bits: int, *shape: int) -> np.ndarray:
    """Numbers of so many bits."""
    return numbers(*shape, dtype="uint16") >> (16 - bits)


def npy(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, pixels)
    return file.getvalue()


def dicom(pixels: np.ndarray, bits: int = 16, **tags) -> bytes:
    """A DICOM of frames [n, h, w] without compression."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = meta.MediaStorageSOPInstanceUID = "1.2.3"
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    frames, dataset.Rows, dataset.Columns = pixels.shape
    dataset.NumberOfFrames = frames
    dataset.SamplesPerPixel = 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, bits, bits - 1
    for name, value in tags.items():
        setattr(dataset, name, value)
    dataset.PixelData = pixels.tobytes()
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


@pytest.mark.parametrize("bits", [10, 12, 16])
def test_numbers_are_those_that_were_written(bits):
    gray, color, clear = (levels(bits, *shape) for shape in ((9, 14), (9, 14, 3), (9, 14, 4)))
    bands = levels(bits, 9, 14, 13)
    files = []
    for stored in (gray, color, clear, bands):
        for codec in ("j2k", "jp2"):
            options = {"level": 0, "reversible": True, "codecformat": codec}
            files.append((imagecodecs.jpeg2k_encode(stored, bitspersample=bits, **options), stored))
        if stored.shape[-1] != 13:
            options = {"lossless": True, "bitspersample": bits}
            files.append((imagecodecs.jpegxl_encode(stored, **options), stored))
        if bits < 16 and stored.shape[-1] != 13:
            form = "400" if stored.ndim == 2 else "444"
            options = {"level": 100, "bitspersample": bits, "pixelformat": form}
            files.append((imagecodecs.avif_encode(stored, **options), stored))
    for file, stored in files:
        stored = stored.reshape(9, 14, -1)
        found = decode(file, channels=stored.shape[2], dtype="uint16")
        np.testing.assert_array_equal(found, stored)
        headers = read_headers(Encoded.from_bytes([file]))
        assert headers.precision[0] == bits or stored.shape[2] == 13
    for file in [file for file, stored in files if stored is color]:
        with pytest.warns(PrecisionWarning, match=f"{bits} bits"):
            found = decode_image(file)
        assert np.abs(found - (color / (2**bits - 1) * 255)).max() <= 1


def jp2() -> tuple[bytes, np.ndarray]:
    """A JPEG 2000 of 16 bits in its boxes, and its numbers."""
    stored = levels(16, 9, 14)
    options = {"level": 0, "reversible": True, "codecformat": "jp2", "bitspersample": 16}
    return imagecodecs.jpeg2k_encode(stored, **options), stored


def test_jpeg_2000_gives_no_8_bits_for_16():
    """Pillow converts colors with a profile; the numbers are those of the file."""
    file, stored = jp2()
    at = file.index(b"colr") + 4
    profiled = file[:at] + b"\2" + file[at + 1 :]
    assert "to 8 bits of 16: take dtype='uint8'" in reason(
        profiled, channels="gray", dtype="uint16"
    )
    found = decode(profiled, channels=1, dtype="uint16")[..., 0]
    np.testing.assert_array_equal(found, stored)


def test_colors_of_jpeg_2000_are_not_converted_by_their_profile():
    """imagecodecs applies it; Pillow does not, and neither are other formats converted."""
    stored = levels(16, 9, 14, 3)
    profile = PIL.ImageCms.ImageCmsProfile(PIL.ImageCms.createProfile("sRGB")).tobytes()
    swapped = profile.replace(b"rXYZ", b"....").replace(b"bXYZ", b"rXYZ").replace(b"....", b"bXYZ")
    header = struct.pack(">I4sIIHBBBB", 22, b"ihdr", 9, 14, 3, 15, 7, 0, 0)
    header += struct.pack(">I4sBBB", 11 + len(swapped), b"colr", 2, 0, 0) + swapped
    codestream = imagecodecs.jpeg2k_encode(stored, level=0, reversible=True, codecformat="j2k")
    file = struct.pack(">I4s4s", 12, b"jP  ", b"\r\n\x87\n")
    file += struct.pack(">I4s4sI4s", 20, b"ftyp", b"jp2 ", 0, b"jp2 ")
    file += struct.pack(">I4s", 8 + len(header), b"jp2h") + header
    file += struct.pack(">I4s", 8 + len(codestream), b"jp2c") + codestream
    np.testing.assert_array_equal(decode(file, dtype="uint16"), stored)
    np.testing.assert_array_equal(decode(file, dtype="uint16", channels=3), stored)


def test_the_codestream_of_jpeg_2000_is_that_of_its_box():
    """Not the one of a preview in another box before it."""
    file, stored = jp2()
    preview = imagecodecs.jpeg2k_encode(levels(12, 5, 6), level=0, codecformat="j2k")
    box = (24 + len(preview)).to_bytes(4, "big") + b"uuid" + bytes(16) + preview
    at = file.index(b"jp2c") - 4
    found = decode(file[:at] + box + file[at:], channels=1, dtype="uint16")[..., 0]
    np.testing.assert_array_equal(found, stored)


def with_palette(colors: np.ndarray, bits: int) -> tuple[bytes, np.ndarray]:
    """A JP2 of numbers of a palette of three columns, and these numbers."""

    def box(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I4s", 8 + len(content), name) + content

    stored = numbers(9, 14, dtype="uint8") % len(colors)
    columns = struct.pack(">HB3B", len(colors), 3, *[bits - 1] * 3)
    header = box(b"ihdr", struct.pack(">IIHBBBB", 9, 14, 1, 7, 7, 0, 0))
    header += box(b"colr", struct.pack(">BBBI", 1, 0, 0, 16))
    header += box(b"pclr", columns + colors.astype(">u2" if bits > 8 else "u1").tobytes())
    header += box(b"cmap", b"".join(struct.pack(">HBB", 0, 1, column) for column in range(3)))
    codestream = imagecodecs.jpeg2k_encode(stored, level=0, reversible=True, codecformat="j2k")
    start = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return start + box(b"jp2h", header) + box(b"jp2c", codestream), stored


def test_a_palette_of_jpeg_2000_has_8_or_16_bits():
    for bits in (8, 12, 16):
        colors = levels(bits, 5, 3)
        file, stored = with_palette(colors, bits)
        np.testing.assert_array_equal(imagecodecs.jpeg2k_decode(file), colors[stored])
        np.testing.assert_array_equal(decode(file, dtype="uint16"), colors[stored])
        headers = read_headers(Encoded.from_bytes([file]))
        assert headers.precision[0] == bits
        np.testing.assert_array_equal(decode(file, dtype="float32"), colors[stored])
    cut = file.replace(b"pclr", b"free").replace(b"cmap", b"free")
    np.testing.assert_array_equal(decode(cut, channels="gray", dtype="uint16")[..., 0], stored)
    mixed = file.replace(bytes([15] * 3), bytes([15, 11, 15]))
    assert "a palette of [12, 16] bits" in reason(mixed, dtype="uint16")


def test_floats_of_jpeg_xl_and_pfm():
    pixels = numbers(9, 14, 3, dtype="float32")
    found = decode(imagecodecs.jpegxl_encode(pixels, lossless=True), dtype="float32")
    np.testing.assert_array_equal(found, pixels)
    for order, scale in (("<", b"-1"), (">", b"1")):
        stored = pixels[::-1].astype(f"{order}f4").tobytes()
        np.testing.assert_array_equal(
            decode(b"PF\n14 9\n" + scale + b"\n" + stored, dtype="float32"), pixels
        )
    assert "float32, which uint16 does not hold" in reason(b"PF 14 9 1\n" + stored, dtype="uint16")
    assert "truncated" in reason(b"PF 14 9 1\n" + stored[:-1], dtype="float32")


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_jpeg_xl_is_upright(orientation):
    """As libjxl gives it: made of a JPEG, it has the orientation of its EXIF."""
    exif = PIL.Image.Exif()
    exif[274] = orientation
    jpeg = encode(picture(0, 20, 30), exif=exif)
    file = imagecodecs.jpegxl_encode_jpeg(jpeg, numthreads=1)
    found = decode(file, channels=3).astype(int)
    assert found.shape == decode(jpeg).shape
    assert np.abs(found - decode(jpeg)).mean() < 2


def jpeg_xl_head(kind, rest=()):
    """The header of 8 x 8 pixels of 8 bits with one channel beside the colors."""
    fields = [(1, 1), (0, 5), (1, 3)]  # 8 x 8 pixels
    fields += [(0, 1), (0, 1), (0, 1), (0, 2), (1, 1), (1, 2)]  # 8 bits, one more channel:
    fields += [(0, 1), (2, 2), (kind - 2, 4), (0, 1), (0, 2), (0, 2), (0, 2)]
    fields += [*rest, (0, 1), (1, 1), (0, 32)]
    number = place = 0
    for value, count in fields:
        number |= value << place
        place += count
    return b"\xff\x0a" + number.to_bytes((place + 7) // 8, "little")


def test_a_spot_color_of_jpeg_xl_is_no_channel():
    spot = memoryview(jpeg_xl_head(2, [(0, 64)]))
    assert jpegxl.read_layout(spot, 0).samples == 3
    assert jpegxl.read_layout(memoryview(jpeg_xl_head(3)), 0).samples == 4  # a selection


def test_inks_of_jpeg_xl_are_refused():
    """Its wrapper gives no black: the other three are no colors."""
    data = jpeg_xl_head(4)
    assert "inks (CMYK)" in reason(data, channels="rgb", dtype="uint16")
    assert "inks (CMYK)" in reason(data)


@pytest.mark.parametrize("bits", [8, 10, 12])
def test_heic_is_libheifs(bits):
    """Its wrapper fills 16 bits with zeros behind those of the file."""
    options = pillow_heif.options
    before = options.SAVE_HDR_TO_12_BIT
    options.SAVE_HDR_TO_12_BIT = bits == 12
    smooth = np.asarray(picture(0, 32, 48), np.uint16) << (bits - 8)
    try:
        pixels = smooth << (16 - bits) if bits > 8 else smooth.astype(np.uint8)
        mode = "RGB;16" if bits > 8 else "RGB"
        image = pillow_heif.from_bytes(mode=mode, size=(48, 32), data=pixels.tobytes())
        file = io.BytesIO()
        image.save(file, quality=-1, chroma=444, matrix_coefficients=0)
    finally:
        options.SAVE_HDR_TO_12_BIT = before
    found = decode(file.getvalue(), dtype="uint16")
    np.testing.assert_array_equal(found, smooth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        np.testing.assert_array_equal(decode_image(file.getvalue()), smooth >> (bits - 8))


def test_low_overhead_heif_is_known_by_its_version():
    for brand, name in ((b"heic", "HEIC"), (b"avif", "AVIF"), (b"abcd", None)):
        assert format_of(b"\0\0\0\x10ftypmif3" + brand + b"\0\0\0\x20mini") == name


@pytest.mark.parametrize("brand", [b"mif1", b"mif2"])
def test_heic_whose_brands_name_the_container_alone_is_known_by_its_images(brand):
    file = io.BytesIO()
    image = pillow_heif.from_pillow(PIL.Image.fromarray(picture(0, 24, 32)))
    image.save(file, quality=90)
    data = file.getvalue()
    size = int.from_bytes(data[:4], "big")
    bare = data[:8] + brand + data[12:16] + b"mif1" * ((size - 16) // 4) + data[size:]
    assert format_of(bare) == "HEIC"
    np.testing.assert_array_equal(decode_image(bare), decode_image(data))


@pytest.mark.parametrize("mode, channels", [("rgb", "rgb"), ("gray", "gray"), ("unchanged", 3)])
def test_one_image_at_full_depth(mode, channels):
    image = levels(16, 9, 14, 3)
    file = imagecodecs.png_encode(image)
    found = decode_image(file, mode, dtype="uint16", strict=True)
    expected = decode(file, channels=channels, dtype="uint16")
    np.testing.assert_array_equal(found, expected[..., 0] if mode == "gray" else expected)
    assert mode == "gray" or (found == image).all()
    with pytest.raises(DecodeError, match=rf"\({len(file) // 2} bytes\)"):
        decode_image(file[: len(file) // 2], mode, dtype="uint16", strict=True)
    with pytest.raises(ValueError, match="`dtype`"):
        decode_image(file, mode, dtype="uint32")


def test_one_image_in_any_form():
    scene = levels(16, 9, 14, 5)
    file = tiff(scene)
    np.testing.assert_array_equal(decode_image(file, channels="as stored", dtype="uint16"), scene)
    np.testing.assert_array_equal(decode_image(file, channels=5, dtype="float32"), scene)
    taken = decode_image(file, bands=(3, 1), dtype="uint16")
    np.testing.assert_array_equal(taken, scene[..., [3, 1]])
    pages = tiff(np.moveaxis(scene, 2, 0), photometric="minisblack")
    found = decode_image(pages, "unchanged", dtype="uint16", page=2)
    np.testing.assert_array_equal(found, scene[..., 2])
    with pytest.warns(PrecisionWarning, match="16 bits"):
        eight = decode_image(file, channels="as stored")
    np.testing.assert_array_equal(eight, scene >> 8)
    with pytest.raises(DecodeError, match=r"5 numbers a pixel are no colors: take .*'as stored'"):
        decode_image(file)
    with pytest.raises(ValueError, match="`channels`"):
        decode_image(file, channels="bgr")


def test_pages_of_a_heic_begin_with_the_primary_image():
    images = pillow_heif.HeifFile()
    for level in (50, 100, 200):
        images.add_from_pillow(PIL.Image.new("L", (64, 64), level))
    file = io.BytesIO()
    images.save(file, primary_index=1, quality=-1)
    pages = [decode(file.getvalue(), channels="gray", page=page)[0, 0, 0] for page in range(3)]
    np.testing.assert_allclose(pages, [100, 50, 200], atol=1)


def test_dicom_gives_frames_of_stored_values():
    """Not rescaled; MONOCHROME1 is inverted as a color; padding has no data."""
    frames = numbers(2, 9, 14, dtype="int16")
    for page in (0, 1):
        file = dicom(frames, RescaleSlope=2, RescaleIntercept=-1024)
        found = decode(file, channels=1, dtype="float32", page=page)[..., 0]
        np.testing.assert_array_equal(found, frames[page])
    assert "it has 2 frames, and page=2" in reason(file, channels=1, page=2)
    deep = levels(12, 1, 9, 14)
    file = dicom(deep, 12, PhotometricInterpretation="MONOCHROME1")
    np.testing.assert_array_equal(decode(file, channels=1, dtype="uint16")[..., 0], deep[0])
    found = decode(file, channels="gray", dtype="uint16")[..., 0]
    np.testing.assert_array_equal(found, 4095 - deep[0])
    half = np.full((1, 8, 8), 50, np.int16)
    half[:, :4] = -2000
    found = decode(dicom(half, PixelPaddingValue=-2000), (4, 4), channels=1, dtype="float32")
    assert (found[2:] == 50).all() and (found[0] == -2000).all()


@pytest.mark.parametrize(
    "name", ["CT_small.dcm", "JPEG2000.dcm", "SC_rgb_rle.dcm", "MR_small_RLE.dcm"]
)
def test_dicom_is_pydicoms(name):
    path = get_testdata_file(name)
    expected = pydicom.dcmread(path).pixel_array
    with open(path, "rb") as file:
        data = file.read()
    found = decode(
        data,
        expected.shape[:2],
        channels=expected.shape[2] if expected.ndim == 3 else 1,
        dtype="float32",
    )
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)


def test_a_frame_of_dicom_may_not_be_larger_than_its_header():
    with open(get_testdata_file("JPEG2000.dcm"), "rb") as file:
        data = bytearray(file.read())
    at = data.index(b"\xff\x4f\xff\x51") + 8  # Xsiz
    data[at : at + 4] = (60000).to_bytes(4, "big")
    with pytest.raises(DecodeError, match="an image inside of it has 60000 x "):
        decode(bytes(data), (64, 64), channels=1, dtype="float32")


def compressed(pixels: np.ndarray, bits: int, syntax: str, frames: list[bytes], **tags) -> bytes:
    """A DICOM whose frames are files of another format."""
    dataset = pydicom.dcmread(io.BytesIO(dicom(pixels, bits, **tags)))
    dataset.file_meta.TransferSyntaxUID = syntax
    dataset.PixelData = encapsulate(frames)
    dataset["PixelData"].VR = "OB"
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


@pytest.mark.parametrize(
    "dtype, bits", [("uint16", 16), ("uint16", 12), ("int16", 16), ("int16", 12)]
)
def test_lossless_frames_of_dicom_give_their_values(dtype, bits):
    frames = numbers(2, 9, 14, dtype=dtype) >> (16 - bits)
    stored = frames.view(np.uint16) & (2**bits - 1)
    jpegs = [lossless(frame, bits=bits) for frame in stored]
    others = [imagecodecs.jpegls_encode(frame) for frame in stored]
    for syntax, files in (
        (JPEGLossless, jpegs),
        (JPEGLosslessSV1, jpegs),
        (JPEGLSLossless, others),
    ):
        file = compressed(frames, bits, syntax, files)
        for page in (0, 1):
            found = decode(file, channels=1, dtype="float32", page=page)[..., 0]
            np.testing.assert_array_equal(found, frames[page])
    broken = compressed(frames, bits, JPEGLossless, [jpegs[0][:-9], jpegs[1]])
    with pytest.raises(DecodeError, match="DICOM: a truncated JPEG"):
        decode(broken, channels=1, dtype="float32")


def test_frames_of_dicom_may_be_jpegs_of_12_bits():
    jpeg = twelve_bits(JPEGS["gray"])
    expected = decode_image(jpeg, "unchanged")
    file = compressed(expected[None], 12, JPEGExtended12Bit, [jpeg])
    found = decode(file, channels=1, dtype="uint16")[..., 0]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("ids", [b"\1\2\3", b"\0\1\2", b"RGB"])
def test_colors_of_jpegs_of_12_bits_are_those_that_dicom_tells(ids):
    pixels = numbers(16, 24, 3, dtype="uint16") >> 4
    pixels[:] = pixels[:1, :1]  # one color, which the DCT keeps
    same = {"colorspace": "rgb", "outcolorspace": "rgb"}
    jpeg = imagecodecs.jpeg8_encode(pixels, level=100, bitspersample=12, **same)
    assert jpeg[2:4] == b"\xff\xee"  # Adobe's
    bare = renumbered(jpeg[:2] + jpeg[18:], ids)
    tags = {"PhotometricInterpretation": "RGB", "SamplesPerPixel": 3, "PlanarConfiguration": 0}
    file = compressed(pixels[None, ..., 0], 12, JPEGExtended12Bit, [bare], **tags)
    found = decode(file, channels=3, dtype="uint16")
    np.testing.assert_allclose(found, pixels, atol=2)


def renumbered(jpeg: bytes, ids: bytes) -> bytes:
    """A JPEG whose components have other numbers."""
    changed = bytearray(jpeg)
    for marker, first, step in ((b"\xff\xc1", 10, 3), (b"\xff\xda", 5, 2)):
        at = jpeg.index(marker) + first
        changed[at : at + 3 * step : step] = ids
    return bytes(changed)


def test_odd_dicom_files_are_named():
    whole = dicom(levels(12, 1, 9, 14), 12)
    form = {"channels": 1, "dtype": "uint16"}
    assert reason(whole, **form) == ""
    assert "not an image jaxaug knows" in reason(whole[128:], **form)
    no_preamble = reason(whole[132:], **form)
    assert "DICOM without its preamble" in no_preamble
    assert "DICOM" in reason(whole[:200], **form)
    empty = pydicom.dcmread(io.BytesIO(whole))
    del empty.PixelData
    file = io.BytesIO()
    empty.save_as(file)
    assert "it has no pixels" in reason(file.getvalue(), **form)


@pytest.mark.parametrize("highest", [1, 5, 255, 1023, 65535])
def test_netpbm_of_any_highest_number(highest):
    """As text and as bytes; colors of fewer than 8 bits fill 8, as Pillow has it."""
    rng = np.random.default_rng(0)
    for samples, kinds in ((1, (b"P2", b"P5")), (3, (b"P3", b"P6")), (5, (b"P7",))):
        pixels = rng.integers(0, highest + 1, (9, 14, samples), np.uint16)
        stored = pixels.astype(">u2" if highest > 255 else "u1").tobytes()
        for kind in kinds:
            if kind == b"P7":
                head = f"P7\nWIDTH 14\nHEIGHT 9\nDEPTH 5\nMAXVAL {highest}\nENDHDR\n".encode()
            else:
                head = kind + f" # a comment\n14 9\n{highest}\n".encode()
            text = " ".join(map(str, pixels.ravel())).encode()
            file = head + (text if kind in (b"P2", b"P3") else stored)
            found = decode(file, channels=samples, dtype="uint16")
            np.testing.assert_array_equal(found, pixels)
            assert kind in (b"P2", b"P3") or "truncated" in reason(file[:-1], channels=samples)
            if samples == 3 and highest < 256:
                expected = np.asarray(PIL.Image.open(io.BytesIO(file)))
                np.testing.assert_array_equal(
                    decode(file, channels="rgb", dtype="uint16"), expected
                )
    bits = rng.random((9, 13)) < 0.5
    packed = b"P4 13 9\n" + np.packbits(bits, axis=1).tobytes()
    text = b"P1 13 9\n" + b"".join(b"%d" % bit for bit in bits.ravel())
    for file in (packed, text):
        np.testing.assert_array_equal(decode(file, channels=1)[..., 0], bits)
        found = decode(file, channels="gray", dtype="uint16")[..., 0]
        np.testing.assert_array_equal(found, 255 * ~bits)


def test_netpbm_numbers_outside_of_their_range_are_damage():
    """Also those of a text that a byte would hold by its lower bits."""
    for file in (b"P2 2 1 255 256 0 ", b"P2 2 1 255 -1 0 ", b"P5 2 1 7 \x08\0"):
        with pytest.raises(DecodeError, match=r"PPM: it has numbers .* not 0 to (255|7)"):
            decode(file, channels=1)


def test_arrays_are_not_decoded():
    """NPY of any order, and the arrays of an NPZ by number."""
    for dtype in ("uint8", "uint16", ">u2", "int16", "float16", "float64"):
        pixels = numbers(9, 14, 5, dtype=np.dtype(dtype).newbyteorder("=")).astype(dtype)
        for stored in (pixels, np.asfortranarray(pixels)):
            found = decode(npy(stored), channels=5, dtype="float32")
            np.testing.assert_array_equal(found, pixels.astype(np.float32))
    deep = numbers(9, 14)
    np.testing.assert_array_equal(decode(npy(deep), channels=1, dtype="uint16")[..., 0], deep)
    np.testing.assert_array_equal(decode(npy(deep > 9), channels="gray")[..., 0], 255 * (deep > 9))
    file = io.BytesIO()
    np.savez_compressed(file, a=deep, b=deep[::-1, :, None])
    for page, expected in ((0, deep), (1, deep[::-1])):
        found = decode(file.getvalue(), channels=1, dtype="uint16", page=page)
        np.testing.assert_array_equal(found[..., 0], expected)
    assert "it has 2 arrays, and page=2" in reason(file.getvalue(), page=2)
    assert "truncated" in reason(npy(deep)[:-1], channels=1)
    assert "images are numbers [h, w]" in reason(npy(numbers(3)), channels=1)
    objects = io.BytesIO()
    np.save(objects, np.array([[None]]), allow_pickle=True)
    assert "images are numbers" in reason(objects.getvalue(), channels=1)


def test_a_missing_library_is_named(monkeypatch):
    """By the verdict on a file that needs it; 8 bits go on without."""
    deep = imagecodecs.png_encode(levels(16, 9, 14))
    jpeg = lossless(levels(16, 9, 14), bits=16)
    jpeg_xl = imagecodecs.jpegxl_encode(picture(0, 9, 14))
    frame = dicom(levels(12, 1, 9, 14))
    library.cache_clear()
    for name in ("imagecodecs", "tifffile", "pillow_heif", "pydicom"):
        monkeypatch.setitem(sys.modules, name, None)
    try:
        assert "PNG images of 16 bits need imagecodecs: pip install" in reason(deep, dtype="uint16")
        assert reason(encode(picture(0, 9, 14), "PNG"), dtype="uint16") == ""
        assert "JPEGs of 16 bits need imagecodecs: pip" in reason(jpeg, dtype="uint16")
        assert "JPEG XL images need imagecodecs" in reason(jpeg_xl)
        assert "DICOM images need pydicom" in reason(frame, channels=1)
    finally:
        library.cache_clear()


def test_headers_that_contradict_themselves_are_bad():
    """None of them ends a run: each is a bad image before it is decoded."""
    frame = levels(12, 1, 9, 14)
    form = {"channels": 1, "dtype": "float32"}
    assert "300 bits in each uint16" in reason(dicom(frame, BitsStored=300), **form)
    assert "14 x 0 pixels" in reason(dicom(frame, Rows=0), **form)
    file = io.BytesIO()
    header = {"descr": "<u2", "fortran_order": False, "shape": (-9, -14)}
    np.lib.format.write_array_header_1_0(file, header)
    assert "-14 x -9 pixels" in reason(file.getvalue() + bytes(252), **form)
    assert "14 x 0 pixels" in reason(b"P5 14 0 65535 ", **form)
    options = {"level": 0, "reversible": True, "codecformat": "jp2", "bitspersample": 12}
    color = imagecodecs.jpeg2k_encode(levels(12, 9, 14, 3), **options)
    srgb, cmyk = (b"colr\1\0\0\0\0\0" + bytes([code]) for code in (16, 12))
    assert color.count(srgb) == 1
    cut = reason(color.replace(srgb, cmyk), channels="rgb", dtype="uint16")
    assert "3 numbers a pixel, where cmyk takes 4" in cut


def test_an_animation_of_deep_colors_is_refused():
    file = imagecodecs.avif_encode(levels(10, 3, 9, 14, 3), level=100, bitspersample=10)
    assert "it is an animation" in reason(file, dtype="uint16")
    with pytest.raises(DecodeError, match="it is an animation"):
        decode(file, dtype="uint16")
