"""CRC-32C, the checksum of the TFRecord format, of many byte ranges at once.

google-crc32c computes it by instructions of the processor, where it is installed; else numpy does.
A CRC without its initial and final complement is linear over GF(2). So a message is cut into lanes
of equal length, all lanes advance together, two bytes a step by one table, and each result is then
moved to its place by the linear map "append n zero bytes". Zeros in front of a message change
nothing: they pad its first lane.
"""

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli's, bit-reversed: RFC 3720, appendix B.4
_LANE_BYTES = (
    512  # bytes; with _MAX_LANES lanes at a time the working set stays in the cache (measured)
)
_MAX_LANES = 16384
_ONES = np.uint32(0xFFFFFFFF)


def crc32c(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the CRC-32C of each range of `data`.

    Args:
      data: uint8[m].
      starts: int64[k], where each range begins.
      lengths: int64[k], its bytes; the range lies within `data`.

    Returns:
      uint32[k].

    Example:
      >>> message = np.frombuffer(b"123456789", np.uint8)  # the check value of every CRC catalogue
      >>> hex(crc32c(message, np.array([0]), np.array([9]))[0])
      '0xe3069283'
    """
    starts = np.asarray(starts, np.int64)
    lengths = np.asarray(lengths, np.int64)
    native = native_crc32c()
    if native is not None:
        fixed = data.view()
        fixed.flags.writeable = False  # it takes no other memory without a copy
        ranges = zip(starts.tolist(), (starts + lengths).tolist())
        return np.array([native(fixed[start:stop]) for start, stop in ranges], np.uint32)
    lane_counts = -(-lengths // _LANE_BYTES)
    first_lane = np.cumsum(lane_counts) - lane_counts
    message = np.repeat(np.arange(lengths.size), lane_counts)
    from_end = np.repeat(first_lane + lane_counts, lane_counts) - np.arange(message.size) - 1
    lane_starts = (starts + lengths)[message] - (from_end + 1) * _LANE_BYTES
    padded = np.concatenate([np.zeros(_LANE_BYTES, np.uint8), data])
    lanes = np.concatenate(
        [_NOTHING]
        + [
            _lane_crcs(
                padded,
                lane_starts[part] + _LANE_BYTES,
                np.maximum(0, starts[message[part]] - lane_starts[part]),
            )
            for part in (slice(at, at + _MAX_LANES) for at in range(0, message.size, _MAX_LANES))
        ]
    )
    moved = _append_zeros(lanes, from_end * _LANE_BYTES)
    crcs = _append_zeros(np.full(lengths.size, _ONES), lengths) ^ _ONES
    filled = np.flatnonzero(lane_counts)
    if filled.size:
        crcs[filled] ^= np.bitwise_xor.reduceat(moved, first_lane[filled])
    return crcs


@lru_cache(maxsize=1)
def native_crc32c() -> Callable[[Any], int] | None:
    """Return google-crc32c's function of read-only memory; None where its compiled part lacks."""
    try:
        google_crc32c = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    return google_crc32c.value if google_crc32c.implementation == "c" else None


_NOTHING = np.zeros(0, np.uint32)


def _lane_crcs(padded: np.ndarray, starts: np.ndarray, foreign: np.ndarray) -> np.ndarray:
    """Return the linear CRC of a lane at each start, its first `foreign` bytes taken as zeros."""
    rows = np.lib.stride_tricks.sliding_window_view(padded, _LANE_BYTES)[starts]
    partial = np.flatnonzero(foreign)
    rows[partial] *= np.arange(_LANE_BYTES) >= foreign[partial, None]
    words = np.ascontiguousarray(rows.view("<u2").T)
    table = _two_byte_table()
    crc = np.zeros(starts.size, np.uint32)
    index = np.empty_like(crc)
    entry = np.empty_like(crc)
    for word in words:
        np.bitwise_xor(crc, word, out=index)
        np.bitwise_and(index, 0xFFFF, out=index)
        np.take(
            table, index, out=entry, mode="clip"
        )  # "clip" because "raise" makes take buffer its output
        np.right_shift(crc, 16, out=crc)
        np.bitwise_xor(crc, entry, out=crc)
    return crc


def _append_zeros(crcs: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the linear CRC after `counts` further zero bytes, by the bits of the counts."""
    crcs = crcs.copy()
    for bit, tables in enumerate(_zero_tables()):
        rows = np.flatnonzero(counts >> bit & 1)
        crcs[rows] = _look_up(tables, crcs[rows])
        if not np.any(counts >> bit):
            break
    return crcs


def _look_up(tables: np.ndarray, crcs: np.ndarray) -> np.ndarray:
    """Apply a linear map of 32-bit words, given as one table of 256 images for each byte."""
    one, two, three, four = (
        tables[byte][crcs >> np.uint32(8 * byte) & np.uint32(255)] for byte in range(4)
    )
    return one ^ two ^ three ^ four


@lru_cache(maxsize=1)
def _byte_table() -> np.ndarray:
    """Return uint32[256], the linear CRC of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * _POLYNOMIAL
    return table


@lru_cache(maxsize=1)
def _two_byte_table() -> np.ndarray:
    """Return uint32[65536], the linear CRC of each little-endian pair of bytes."""
    table = _byte_table()
    state = np.arange(65536, dtype=np.uint32)
    for _ in range(2):
        state = table[state & np.uint32(255)] ^ (state >> np.uint32(8))
    return state


@lru_cache(maxsize=1)
def _zero_tables() -> np.ndarray:
    """Return uint32[63, 4, 256], the maps "append 2^k zero bytes", each the square of the last."""
    words = np.arange(256, dtype=np.uint32)
    first = np.stack([_byte_table(), words, words << np.uint32(8), words << np.uint32(16)])
    maps = [first]
    while len(maps) < 63:
        maps.append(_look_up(maps[-1], maps[-1]))
    return np.stack(maps)
