"""MP3 by its frames: their places, what an encoder added, and windows of what they hold.

A frame is decoded with what the ones before it left: up to 511 bytes of data that lie in them (the
"bit reservoir"), and the overlap of one more. So a window is decoded from a few frames before it,
with frames of silence before these which only fill the reservoir, and has the bits of the whole
file.

References: ISO/IEC 11172-3 section 2.4 and 13818-3 section 2.4 (layers 1 to 3); G. Bouvigne, "Mp3
info tag rev 1" (Xing, Info and LAME); Fraunhofer, "VBRI".
"""

import functools
import itertools
from typing import Any, NamedTuple

import numpy as np

from jaxaug.decode.audio.libraries import miniaudio
from jaxaug.errors import DecodeError

_MONO = 3  # of the two bits of a mode
_FIXED = 0xFFFE0C00  # bits of a header that all frames of a stream share: version, layer, rate
_KIND = 0x001E0CC0  # version, layer, rate and mode
_BLOCK = 1 << 19  # bytes in which headers are looked for at once
_MAX_SEARCHED = 1 << 20  # bytes without a frame
_FIRST_SEARCHED = 1 << 11  # of them, more than a frame; then twice as many, and so on
_RUN = 5  # frames of one kind, by which MP3 is known behind something else
_RUN_SEARCHED = 1 << 16  # bytes in which these begin
_RESERVOIR = 511
_DECODER_DELAY = 529  # samples, which gapless players take off too: 528 and one
_GAPLESS = (b"LAME", b"Lavf", b"Lavc")  # encoders that tell how many samples they added
_RATES = (44_100, 48_000, 32_000)
_MPEG1 = {
    1: (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    2: (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    3: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
}
_MPEG2 = {
    1: (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    3: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}


class Stream(NamedTuple):
    """The frames of a file.

    Attributes:
      rate, channels: of all frames.
      layer: 1 to 3.
      samples: of each channel in a frame.
      starts, ends: int64[n], the places of the frames.
      skipped: samples that the encoder and the decoder put before the sound.
      frames: samples of the sound.
      word: the header of the first frame of sound.
    """

    rate: int
    channels: int
    layer: int
    samples: int
    starts: np.ndarray
    ends: np.ndarray
    skipped: int
    frames: int
    word: int


def find_frames(data: memoryview) -> Stream:
    """Return the frames of a file.

    Raises:
      DecodeError: there are none, or fewer than the file says, or their rate or channels change.
    """
    place = _find_frame(data, behind_tags(data))
    if place < 0:
        raise DecodeError("it is no MP3 that can be decoded: it has no frames of a known length")
    word = _word(data, place)
    format_ = _format(word & _KIND)
    places = _walk(data, place, format_)
    _check_others(data, places, format_)
    told, skipped, added = None, 0, 0
    if len(places):
        tag = bytes(data[int(places[0, 0]) : int(places[0, 1])])
        told, skipped, added = _read_tag(tag, format_.side)
        if told is not None:  # it holds no sound
            places = places[1:]
    if len(places):
        word = _word(data, int(places[0, 0]))  # a tag may have another mode
        format_ = _format(word & _KIND)
    modes = np.frombuffer(data, np.uint8)[places[:, 0] + 3] >> 6
    if ((modes == _MONO) != (format_.channels == 1)).any():
        raise DecodeError("its frames have one channel and two: decode it to a file of one kind")
    if told and len(places) < told - 1:
        raise DecodeError(f"it is cut off: {len(places)} of {told} frames are there")
    frames = max(0, len(places) * format_.samples - skipped - added)
    return Stream(
        format_.rate,
        format_.channels,
        format_.layer,
        format_.samples,
        places[:, 0],
        places[:, 1],
        skipped,
        frames,
        word,
    )


def _check_others(data: memoryview, places: np.ndarray, format_: "_Format") -> None:
    """Raise DecodeError where frames of another kind lie between those of a stream, or behind."""
    begins, ends = places[:, 1], np.append(places[:, 0], len(data))[1:]
    for gap in np.flatnonzero(ends - begins > _FIRST_SEARCHED):
        part = data[int(begins[gap]) : int(ends[gap])]
        place = _find_frame(part, 0)
        other = _format(_word(part, place) & _KIND) if place >= 0 else None
        if other is not None and _follow(_walk(part, place, other)):
            raise DecodeError(
                f"its frames are of layer {format_.layer} at {format_.rate} Hz and layer"
                f" {other.layer} at {other.rate} Hz: decode it to a file of one kind"
            )


def _follow(places: np.ndarray) -> bool:
    """Return True where three frames follow each other: what looks like one does not."""
    joined = places[1:, 0] == places[:-1, 1]
    return bool((joined[1:] & joined[:-1]).any())


class _Format:
    """What a frame's header tells of all frames.

    Attributes:
      lengths: bytes of a frame by the bits of rate and padding, 0 for what is none.
      side: bytes behind the header before the data of layer 3.
    """

    def __init__(self, word: int):
        version = word >> 19 & 3  # 3: MPEG-1, 2: MPEG-2, 0: 2.5
        self.layer = 4 - (word >> 17 & 3)
        self.rate = _RATES[word >> 10 & 3] >> {3: 0, 2: 1, 0: 2}[version]
        self.channels = 1 if word >> 6 & 3 == _MONO else 2
        first = version == 3
        self.samples = {1: 384, 2: 1152, 3: 1152 if first else 576}[self.layer]
        self.side = (17, 32)[self.channels - 1] if first else (9, 17)[self.channels - 1]
        unit = 4 if self.layer == 1 else 1
        self.lengths = [0] * 32
        for number, kilobits in enumerate((_MPEG1 if first else _MPEG2)[self.layer], 1):
            units = self.samples // (8 * unit) * kilobits * 1000 // self.rate
            self.lengths[2 * number] = units * unit
            self.lengths[2 * number + 1] = (units + 1) * unit

    def length(self, word: int) -> int:
        """Return the bytes of the frame of a header."""
        return self.lengths[word >> 11 & 0x1E | word >> 9 & 1]


@functools.cache
def _format(word: int) -> _Format:
    return _Format(word)


def is_frame(word: Any) -> Any:
    """Return True for the header of a frame of a known length; of an array, an array."""
    return (
        (word >> 21 == 0x7FF)
        & (word >> 19 & 3 != 1)
        & (word >> 17 & 3 != 0)
        & (word >> 12 & 15 != 0)
        & (word >> 12 & 15 != 15)
        & (word >> 10 & 3 != 3)
    )


@functools.cache
def _lengths() -> np.ndarray:
    """Return the bytes of a frame by its bits of version and layer, bit rate, rate, padding."""
    table = np.zeros((16, 16, 4, 2), np.int64)
    for version, layer, rate in itertools.product((0, 2, 3), (1, 2, 3), (0, 1, 2)):
        format_ = _Format(version << 19 | layer << 17 | rate << 10)
        lengths = np.array(format_.lengths).reshape(16, 2)
        table[version << 2 | layer, :, rate] = lengths
    return table


def _word(data: memoryview, place: int) -> int:
    return int.from_bytes(data[place : place + 4], "big") if place + 4 <= len(data) else 0


def behind_tags(data: memoryview) -> int:
    """Return where the tags of ID3v2 at the beginning end."""
    place = 0
    while bytes(data[place : place + 3]) == b"ID3" and place + 10 <= len(data):
        place = end_of_tag(data, place)
    return place


def end_of_tag(data: memoryview, place: int) -> int:
    """Return where the tag of ID3v2 at a place ends."""
    size = 0
    for digit in data[place + 6 : place + 10]:
        size = size << 7 | digit & 0x7F
    footer = 10 if data[place + 5] & 0x10 else 0
    return place + 10 + size + footer


def find_run(data: memoryview, place: int = 0) -> int:
    """Return the first place of a frame that four more of its kind follow, or fewer, but one at
    least, up to the end of the file; -1 where none is within 64 KiB.

    By it MP3 is known behind zeros, or behind what is no sound.
    """
    starts, words = _candidates(data, place, min(place + _RUN_SEARCHED, len(data) - 3))
    ends = _ends(starts, words)
    first = len(data)
    for number in range(2, _RUN + 1):
        following = _words(data, ends)
        follows = _agree(words, following)
        starts, words = starts[follows], following[follows]
        ends = _ends(ends[follows], words)
        enough = starts if number == _RUN else starts[ends == len(data)]
        first = min([first, *enough[:1].tolist()])
    return first if first < len(data) else -1


def _find_frame(data: memoryview, place: int) -> int:
    """Return the next place of a frame that another one, or the end, follows; -1 for none.

    A frame at the place itself may be the only one, before something else, and one that holds a tag
    tells of others. Another one that none follows is text, or damage, where there are more.
    """
    word = _word(data, place)
    alone = False
    if is_frame(word):
        format_ = _format(word & _KIND)
        end = place + format_.length(word)
        alone = end <= len(data)
        tag = bytes(data[place:end])
        if _agree(word, _word(data, end)) or (
            alone and _read_tag(tag, format_.side)[0] is not None
        ):
            return place
    run = find_run(data, place)
    if run >= 0:
        return run
    return place if alone else _find_pair(data, place)


def _find_pair(data: memoryview, place: int) -> int:
    """Return the next place of a frame that another one, or the end, follows; -1 for none."""
    end = min(place + _MAX_SEARCHED, len(data) - 3)
    size = _FIRST_SEARCHED
    while place < end:
        stop = min(place + size, end)
        starts, words = _candidates(data, place, stop)
        ends = _ends(starts, words)
        found = np.flatnonzero(_agree(words, _words(data, ends)) | (ends == len(data)))
        if len(found):
            return int(starts[found[0]])
        place, size = stop, 2 * size
    return -1


def _candidates(data: memoryview, place: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places between two at which there is a header, and these headers."""
    values = np.frombuffer(data[place : max(place, stop) + 3], np.uint8)
    starts = place + np.flatnonzero((values[:-3] == 0xFF) & (values[1:-2] >= 0xE0))
    words = _words(data, starts)
    good = is_frame(words)
    return starts[good], words[good]


def _ends(starts: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return where the frames of headers end."""
    table = _lengths()
    return starts + table[words >> 17 & 15, words >> 12 & 15, words >> 10 & 3, words >> 9 & 1]


def _agree(word: Any, other: Any) -> Any:
    """Return True where another header is of the kind of a header; of arrays, an array."""
    return is_frame(other) & ((other ^ word) & _FIXED == 0)


def _words(data: memoryview, places: np.ndarray) -> np.ndarray:
    """Return the four bytes at each of some places, int64; 0 where the file ends before."""
    values = np.frombuffer(data, np.uint8)
    inside = places + 4 <= len(values)
    places = np.where(inside, places, 0)
    words = np.zeros(len(places), np.int64)
    for k in range(4 if len(values) >= 4 else 0):
        words = words << 8 | values[places + k]
    return np.where(inside, words, 0)


def _walk(data: memoryview, place: int, format_: _Format) -> np.ndarray:
    """Return the places of the frames from one on, int64[n, 2]: where each begins and ends.

    All headers are found at once, then what lies between frames, or looks like one inside of one.
    """
    starts, ends = _headers(data, place, format_)
    following = np.searchsorted(starts, ends)
    follows = np.append(starts, -1)[following] == ends
    jumps = np.flatnonzero(~follows | (following != np.arange(1, len(starts) + 1)))
    good = np.flatnonzero(follows | (ends == len(data)))
    parts = [slice(0, 0)]
    first = 0
    while first < len(starts):
        jump = jumps[np.searchsorted(jumps, first)]
        parts.append(slice(first, jump + 1))
        first = int(following[jump])
        if not follows[jump]:  # tags at the end, or damage
            after = int(np.searchsorted(good, first))
            first = int(good[after]) if after < len(good) else len(starts)
            if first < len(starts) and starts[first] - ends[jump] > _MAX_SEARCHED:
                break
    found = np.concatenate([np.stack([starts[part], ends[part]], axis=1) for part in parts])
    return found[found[:, 1] <= len(data)]


def _headers(data: memoryview, place: int, format_: _Format) -> tuple[np.ndarray, np.ndarray]:
    """Return the places int64[n] of what looks like headers of a stream, and where frames end."""
    fixed = _word(data, place) & _FIXED
    second, third = fixed >> 16 & 0xFF, fixed >> 8 & 0xFF
    lengths = np.repeat(np.array(format_.lengths), 2)  # the last bit is private
    starts, ends = [], []
    for begin in range(place, len(data) - 3, _BLOCK):
        values = np.frombuffer(data[begin : begin + _BLOCK + 3], np.uint8)
        found = np.flatnonzero((values[:-3] == 0xFF) & (values[1:-2] & 0xFE == second))
        bits = values[found + 2]
        size = lengths[bits >> 2 & 0x3C | bits & 3]
        good = (bits & 0x0C == third) & (size > 0)
        starts.append(begin + found[good])
        ends.append(starts[-1] + size[good])
    return np.concatenate(starts), np.concatenate(ends)


def _read_tag(frame: bytes, side: int) -> tuple[int | None, int, int]:
    """Return what a first frame tells instead of sound, if it does.

    Returns:
      How many frames follow, 0 for unknown and None for a frame of sound; samples before and behind
      the sound that are none of it.
    """
    place = 4 + side
    if frame[place : place + 4] in (b"Xing", b"Info"):
        flags = int.from_bytes(frame[place + 4 : place + 8], "big")
        count = int.from_bytes(frame[place + 8 : place + 12], "big") if flags & 1 else 0
        end = place + 8 + sum(size for bit, size in enumerate((4, 4, 100, 4)) if flags >> bit & 1)
        if frame[end : end + 4] not in _GAPLESS or len(frame) < end + 24:
            return count, 0, 0
        both = int.from_bytes(frame[end + 21 : end + 24], "big")
        return count, (both >> 12) + _DECODER_DELAY, max(0, (both & 0xFFF) - _DECODER_DELAY)
    if frame[36:40] == b"VBRI":
        return int.from_bytes(frame[50:54], "big"), 0, 0
    return None, 0, 0


def read_window(data: memoryview, stream: Stream, first: int, count: int) -> np.ndarray:
    """Return samples int16[count, channels] of a stream, from one on.

    Raises:
      DecodeError: frames cannot be decoded.
    """
    size = stream.samples
    begin = first + stream.skipped
    wanted = begin // size
    end = -(-(begin + count) // size)
    lead = _lead(data, stream, wanted)
    filler, fillers = _filler(stream)
    frames = filler + _bytes_of(data, stream, slice(lead, end))
    expected = (fillers + end - lead) * size
    decoded = _decode(frames, expected, stream.channels)
    if len(decoded) != expected:
        raise DecodeError("it is damaged: some of its frames cannot be decoded")
    start = begin + (fillers - lead) * size
    samples = decoded[start : start + count]
    if lead == 0:
        samples[: max(0, _unknown(data, stream) * size - begin)] = 0
    return samples


def _data_bytes(data: memoryview, stream: Stream, frame: int) -> int:
    """Return the bytes of a frame that are data of layer 3: what may serve as a reservoir."""
    start = int(stream.starts[frame])
    checked = 0 if data[start + 1] & 1 else 2  # a checksum lies behind the header
    return int(stream.ends[frame]) - start - 4 - checked - _format(stream.word & _KIND).side


def _lead(data: memoryview, stream: Stream, frame: int) -> int:
    """Return the frame from which to decode so that those from `frame` on have all that they need:
    two whole frames of overlap, and a full reservoir for the first of these.
    """
    lead = max(0, frame - 2)
    missing = _RESERVOIR if stream.layer == 3 else 0
    while missing > 0 and lead > 0:
        lead -= 1
        missing -= _data_bytes(data, stream, lead)
    return lead


def _unknown(data: memoryview, stream: Stream) -> int:
    """Return how many frames at the beginning use data from before the file, as where it was cut
    out of a longer one: players are silent there.
    """
    if stream.layer != 3:
        return 0
    before = unknown = 0
    for frame in range(len(stream.starts)):
        start = int(stream.starts[frame]) + (4 if data[int(stream.starts[frame]) + 1] & 1 else 6)
        begin = data[start]  # "main_data_begin": 9 bits of MPEG-1, 8 of MPEG-2
        if stream.samples == 1152:
            begin = begin << 1 | data[start + 1] >> 7
        if begin > before:
            unknown = frame + 1
        before += _data_bytes(data, stream, frame)
        if before >= _RESERVOIR:
            break
    return unknown


def _filler(stream: Stream) -> tuple[bytes, int]:
    """Return frames of silence that fill the reservoir with zeros, and how many these are.

    Without them the decoder leaves out frames for which it has no reservoir, and nothing tells
    which.
    """
    if stream.layer != 3:
        return b"", 0
    format_ = _format(stream.word & _KIND)
    highest = 14
    word = stream.word & ~0xF200 | 0x10000 | highest << 12  # neither padding nor checksum
    length = format_.lengths[2 * highest]
    count = -(-_RESERVOIR // (length - 4 - format_.side))
    return (word.to_bytes(4, "big") + bytes(length - 4)) * count, count


def _bytes_of(data: memoryview, stream: Stream, frames: slice) -> bytes:
    """Return frames one behind the other, without what lies between them."""
    starts, ends = stream.starts[frames], stream.ends[frames]
    if (starts[1:] == ends[:-1]).all():
        return bytes(data[int(starts[0]) : int(ends[-1])])
    return b"".join(data[start:end] for start, end in zip(starts.tolist(), ends.tolist()))


def _decode(frames: bytes, count: int, channels: int) -> np.ndarray:
    """Return up to so many samples int16[count, channels] of frames."""
    library = miniaudio()
    lib, ffi = library.lib, library.ffi
    decoder = ffi.new("ma_dr_mp3 *")
    source = ffi.from_buffer(frames)
    if not lib.ma_dr_mp3_init_memory(decoder, source, len(frames), ffi.NULL):
        raise DecodeError("it is no MP3 that can be decoded")
    try:
        if decoder.channels != channels:
            raise DecodeError("it is damaged: its channels change")
        samples = np.empty((count, channels), np.int16)
        place = ffi.cast("ma_int16 *", samples.ctypes.data)
        found = lib.ma_dr_mp3_read_pcm_frames_s16(decoder, count, place)
    finally:
        lib.ma_dr_mp3_uninit(decoder)
    return samples[:found]
