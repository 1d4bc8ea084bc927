"""Writers of the container files that the tests read: plain Python, nothing shared with jaxaug."""

import functools
import io
import struct
import tarfile

import numpy as np
from PIL import Image


@functools.cache
def jpegs(count: int) -> list[bytes]:
    """Different small JPEGs of different sizes."""
    generator = np.random.default_rng(0)
    out = []
    for index in range(count):
        height, width = 8 + index % 5, 8 + index % 7
        pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=50 + index % 40)
        out.append(buffer.getvalue())
    return out


def crc32c(data: bytes) -> int:
    """CRC-32C one bit at a time, from its definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_OF_BYTE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_CRC_OF_BYTE = [_crc_of_byte(byte) for byte in range(256)]


def varint(value: int) -> bytes:
    value = value % 2**64
    out = b""
    while value > 127:
        out = out + bytes([value & 127 | 128])
        value = value >> 7
    return out + bytes([value])


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def feature(value, packed: bool = True) -> bytes:
    """A Feature of bytes, a list of bytes, floats, or ints (by the dtype of the array)."""
    if isinstance(value, (bytes, list)):
        values = [value] if isinstance(value, bytes) else value
        return field(1, b"".join(field(1, item) for item in values))
    array = np.atleast_1d(value)
    if array.dtype.kind == "f":
        items = [struct.pack("<f", item) for item in array]
        kind = 2
        tag = varint(1 << 3 | 5)
    else:
        items = [varint(int(item)) for item in array]
        kind = 3
        tag = varint(1 << 3)
    return field(
        kind, field(1, b"".join(items)) if packed else b"".join(tag + item for item in items)
    )


def example(features: dict, packed: bool = True) -> bytes:
    entries = (
        field(1, field(1, name.encode()) + field(2, feature(value, packed)))
        for name, value in features.items()
    )
    return field(1, b"".join(entries))


def tfrecord(records: list[bytes]) -> bytes:
    """The bytes of a TFRecord file."""
    return b"".join(_sealed(struct.pack("<Q", len(record))) + _sealed(record) for record in records)


def _sealed(data: bytes) -> bytes:
    crc = crc32c(data)
    return data + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32)


def tar(files: dict[str, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    """The bytes of a tar file."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def labelled_examples(count: int) -> list[bytes]:
    return [
        example({"image/encoded": image, "image/class/label": label})
        for label, image in enumerate(jpegs(count))
    ]


def labelled_files(count: int) -> dict[str, bytes]:
    files = {}
    for label, image in enumerate(jpegs(count)):
        files |= {f"{label:04d}.jpg": image, f"{label:04d}.cls": b"%d" % label}
    return files


def images_by_label(source) -> dict[int, bytes]:
    """Everything in a source, through one `read`."""
    features = dict(source.read(np.arange(len(source))))
    encoded = features.pop("image")
    return {int(label): bytes(encoded.view(row)) for row, label in enumerate(features["label"])}


def mutate(data: bytes, generator: np.random.Generator) -> bytes:
    """One random damage: bytes overwritten, removed or put in, or the end cut off."""
    at = int(generator.integers(0, len(data)))
    length = int(generator.integers(1, 16))
    noise = generator.bytes(length)
    return [
        data[:at] + bytes([data[at] ^ 1 << int(generator.integers(0, 8))]) + data[at + 1 :],
        data[:at] + noise + data[at + length :],
        data[:at] + bytes(length) + data[at + length :],
        data[:at] + data[at + length :],
        data[:at] + noise + data[at:],
        data[:at],
    ][int(generator.integers(0, 6))]
