"""Containers of samples that are not compressed, or by a fixed ratio: what their headers tell.

WAV with RF64 and W64, AIFF and AIFF-C, CAF, AU, and NIST's SPHERE. Each says where the samples
begin and how many bytes they take, so that a file which is cut is told before anything is decoded.

References:
  Microsoft, "Multimedia Programming Interface and Data Specifications 1.0"; EBU Tech 3306 (RF64);
  Sony, "Wave64"; Apple, "Audio Interchange File Format AIFF-C" and "Core Audio Format Specification
  1.0"; Sun, au(4); NIST, "SPHERE" header.
"""

import struct
from collections.abc import Iterator

from jaxaug.decode.audio.header import (
    G711,
    Header,
    check_end,
    plain_header,
    width_of,
)
from jaxaug.errors import DecodeError

_UNTIL_THE_END = (0, 0xFFFFFFFF)  # what recorders to a pipe write for a length
_IN_DS64 = 0xFFFFFFFF  # RF64: the length is in the chunk "ds64"
_EXTENSIBLE = 0xFFFE
_BLOCKS = (2, 0x11)  # ADPCM of Microsoft and of IMA
_W64_NAME = bytes.fromhex("f3acd3118cd100c04f8edb8a")  # behind the first four bytes of a name
_MAX_CHUNKS = 10_000  # looked at

# By bits, and by the format of WAV: PCM, float, A-law, mu-law.
_WAV = {
    1: {8: "|u1", 16: "<i2", 24: "<i3", 32: "<i4"},
    3: {32: "<f4", 64: "<f8"},
    6: {8: "alaw"},
    7: {8: "ulaw"},
}
# By the type of AIFF-C; what is None depends on the bits.
_AIFC = {
    b"NONE": None,
    b"twos": None,
    b"in24": ">i3",
    b"in32": ">i4",
    b"42n1": "<i3",  # libsndfile's, as the next
    b"23ni": "<i4",
    b"raw ": "|u1",
    b"fl32": ">f4",
    b"FL32": ">f4",
    b"fl64": ">f8",
    b"FL64": ">f8",
    b"alaw": "alaw",
    b"ALAW": "alaw",
    b"ulaw": "ulaw",
    b"ULAW": "ulaw",
}
_CAF = ("i1", "i2", "i3", "i4", "f4", "f8")
_AU_HEADER = 24  # bytes, with no annotation
_AU = {1: "ulaw", 2: "|i1", 3: "i2", 4: "i3", 5: "i4", 6: "f4", 7: "f8", 27: "alaw"}


def wav(data: memoryview) -> Header:
    """Return the header of a WAV or RF64 file."""
    lengths = {}
    found = None
    for name, start, length in _chunks(data, 12, "<4sI", 2):
        if name == b"ds64":
            lengths[b"data"] = struct.unpack_from("<Q", data, start + 8)[0]
        if name == b"fmt ":
            found = start, length
        if name == b"data":
            if length == _IN_DS64 and b"data" in lengths:
                length = lengths[b"data"]
            elif length in _UNTIL_THE_END:
                length = None
            return _wav_header(data, found, start, length)
    raise DecodeError("it is a WAV file without samples")


def w64(data: memoryview) -> Header:
    """Return the header of a Wave64 file."""
    found = None
    for name, start, length in _chunks(data, 40, "<16sQ", 8, counted=True):
        if name[4:] != _W64_NAME:
            continue
        if name[:4] == b"fmt ":
            found = start, length
        if name[:4] == b"data":
            return _wav_header(data, found, start, length)
    raise DecodeError("it is a W64 file without samples")


def aiff(data: memoryview) -> Header:
    """Return the header of an AIFF or AIFF-C file, whose chunks may have any order."""
    chunks: dict[bytes, tuple[int, int]] = {}
    for name, start, length in _chunks(data, 12, ">4sI", 2):
        chunks.setdefault(name, (start, length))
        if b"COMM" in chunks and b"SSND" in chunks:
            return _aiff_header(data, *chunks[b"COMM"], *chunks[b"SSND"])
    raise DecodeError("it is an AIFF file without samples, or without their format")


def _aiff_header(data: memoryview, form: int, size: int, start: int, length: int) -> Header:
    """Return the header of a chunk COMM at `form` and a chunk SSND at `start`."""
    channels, frames, bits = struct.unpack_from(">hIh", data, form)
    rate = _extended(bytes(data[form + 8 : form + 18]))
    coding = _aiff_coding(bytes(data[form + 18 : form + 22]) if size > 18 else b"NONE", bits)
    first = start + 8 + struct.unpack_from(">I", data, start)[0]
    check_end(start, length, len(data))
    if coding == "ima4":
        return Header("blocks", rate, channels, 0, 16)
    integers = bits if coding[1] == "i" else 0
    samples = start + length - first
    header = plain_header(coding, channels, rate, first, samples, len(data), bits=integers)
    if frames > header.frames:
        raise DecodeError(f"it is cut off: {header.frames} of {frames} samples are there")
    return header._replace(frames=frames)


def _aiff_coding(kind: bytes, bits: int) -> str:
    if kind == b"ima4":
        return "ima4"
    if kind == b"sowt" and 8 < bits <= 16:
        return "<i2"
    if kind not in _AIFC or not 0 < bits <= 64:
        raise DecodeError(f"its encoding {kind!r} of {bits} bits is not read")
    coding = _AIFC[kind]
    if coding is None and bits > 32:
        raise DecodeError(f"its encoding {kind!r} of {bits} bits is not read")
    return coding or ("|i1", ">i2", ">i3", ">i4")[(bits - 1) // 8]


def _extended(number: bytes) -> int:
    """Return a float of 80 bits, as SANE has it, rounded."""
    exponent, mantissa = struct.unpack(">HQ", number)
    shift = 16383 + 63 - (exponent & 0x7FFF)
    return 0 if exponent & 0x8000 or not 0 <= shift < 64 else round(mantissa / (1 << shift))


def au(data: memoryview) -> Header:
    """Return the header of Sun's, or NeXT's, .au."""
    order = ">" if bytes(data[:4]) == b".snd" else "<"
    start, length, encoding, rate, channels = struct.unpack_from(f"{order}5I", data, 4)
    if encoding not in _AU:
        raise DecodeError(f"its encoding {encoding} is not read: PCM, float, A-law and mu-law are")
    coding = _AU[encoding]
    coding = order + coding if len(coding) == 2 else coding
    if start < _AU_HEADER:
        raise DecodeError(f"its header is damaged: its samples begin inside of it, at byte {start}")
    return plain_header(
        coding, channels, rate, start, None if length == 0xFFFFFFFF else length, len(data)
    )


def caf(data: memoryview) -> Header:
    """Return the header of a Core Audio file."""
    found = None
    for name, start, length in _chunks(data, 8, ">4sq", 1):
        if name == b"desc":
            found = struct.unpack_from(">d4s5I", data, start)
        if name == b"data":
            if found is None:
                raise DecodeError("its samples come before their format")
            check_end(start, length, len(data))
            return _caf_header(found, start + 4, None if length == -1 else length - 4, len(data))
    raise DecodeError("it is a CAF file without samples")


def _caf_header(found: tuple, start: int, length: int | None, there: int) -> Header:
    exact_rate, kind, flags, block, _, channels, bits = found
    rate = round(exact_rate) if 0 < exact_rate < 1e9 else 0
    if kind in (b"alac", b"aac "):
        return Header("av", rate, channels, 0)
    order = "<" if flags & 2 else ">"
    pcm = f"{order}{'f' if flags & 1 else 'i'}{bits // 8}"
    coding = {b"lpcm": pcm, b"alaw": "alaw", b"ulaw": "ulaw"}.get(kind, "")
    if coding not in G711 and (coding[1:] not in _CAF or bits % 8):
        raise DecodeError(f"its encoding {kind!r} of {bits} bits is not read")
    if block != channels * width_of(coding):
        raise DecodeError(f"its encoding {kind!r} of {bits} bits in {block} bytes is not read")
    return plain_header(coding, channels, rate, start, length, there)


def sphere(data: memoryview) -> Header:
    """Return the header of a SPHERE file of NIST."""
    size = int(bytes(data[8:16]))
    if size < 16:
        raise DecodeError(f"its header is damaged: it has {size} bytes")
    fields = {}
    for line in bytes(data[16:size]).decode("ascii", "replace").splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "end_head":
            break
        fields[name] = value.partition(" ")[2]
    channels = int(fields.get("channel_count", "1"))
    rate = int(fields.get("sample_rate", "0"))
    coding = fields.get("sample_coding", "pcm")
    width = int(fields.get("sample_n_bytes", "2"))
    little = fields.get("sample_byte_format", "01").startswith("01")
    if coding == "pcm" and 1 <= width <= 4:
        coding = f"{'<' if little else '>'}i{width}"
    if coding not in (*G711, "<i1", ">i1") and coding[1:] not in ("i2", "i3", "i4"):
        raise DecodeError(f"its encoding {coding!r} is not read: pcm, alaw and ulaw are")
    frames = int(fields.get("sample_count", "-1"))
    length = frames * channels * width_of(coding) if frames >= 0 else None
    return plain_header(coding, channels, rate, size, length, len(data))


def _wav_header(
    data: memoryview, found: tuple[int, int] | None, start: int, length: int | None
) -> Header:
    """Return what the chunk "fmt " at `found` tells of samples; a length of None is unknown."""
    if found is None:
        raise DecodeError("its samples come before their format")
    encoding, channels, rate, _, block, bits = struct.unpack_from("<HHIIHH", data, found[0])
    if encoding == _EXTENSIBLE:
        encoding = struct.unpack_from("<H", data, found[0] + 24)[0]
    if encoding in _BLOCKS:
        check_end(start, length or 0, len(data))
        return Header("blocks", rate, channels, 0, 16)
    stored = -(-bits // 8) * 8 if encoding == 1 else bits  # they are the upper ones of whole bytes
    coding = _WAV.get(encoding, {}).get(stored)
    if coding is None or block != channels * width_of(coding):
        raise DecodeError(
            f"its encoding {encoding:#x} of {bits} bits is not read: PCM, float, A-law, mu-law, and"
            " the ADPCM of IMA and Microsoft are"
        )
    return plain_header(coding, channels, rate, start, length, len(data))


def _chunks(
    data: memoryview, first: int, form: str, even: int, counted: bool = False
) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, length) of the chunks of a file.

    Args:
      data: the file.
      first: where they begin.
      form: of a chunk's name and length.
      even: chunks begin at multiples of it, from the first on.
      counted: a length holds that of name and length.
    """
    head = struct.calcsize(form)
    place = first
    for _ in range(_MAX_CHUNKS):
        if place + head > len(data):
            return
        name, length = struct.unpack_from(form, data, place)
        if counted:
            length -= head
        yield name, place + head, length
        if length < 0:
            raise DecodeError(f"its chunks are damaged at byte {place}")
        place += head + length + -length % even
