"""The tf.Example protocol buffer, read by hand: names to numbers, and to places of bytes.

    message Example   { Features features = 1; }
    message Features  { map<string, Feature> feature = 1; }    // an entry has key = 1 and value = 2
    message Feature   { BytesList bytes_list = 1; or FloatList float_list = 2; or Int64List
    int64_list = 3; } each list         { repeated <type> value = 1; }           // numbers packed
    or one by one

Reference: tensorflow/core/example/{example,feature}.proto; the protocol buffer encoding guide.
"""

from functools import lru_cache
from typing import TypeAlias

import numpy as np

# wire types
_VARINT = 0
_FIXED64 = 1
_LENGTH = 2
_FIXED32 = 5
_SHORT_BYTES = 64

ByteRanges: TypeAlias = list[tuple[int, int]]  # (start, stop) of each value of a bytes feature
Feature: TypeAlias = "ByteRanges | np.ndarray"  # int64[k] or float32[k] for numbers


def parse_example(data: memoryview, start: int, stop: int) -> dict[str, Feature]:
    """Return the features of a tf.Example that lies in data[start:stop].

    Args:
      data: bytes; nothing outside [start, stop) is read.

    Returns:
      By name, the numbers as an array, or for bytes the places of the values in `data`.

    Raises:
      ValueError: the bytes are no tf.Example.

    Example:
      Key "k" with an Int64List of one 7:

      >>> entry = b"\\x0a\\x01k\\x12\\x05\\x1a\\x03\\x0a\\x01\\x07"
      >>> example = b"\\x0a\\x0c\\x0a\\x0a" + entry
      >>> parse_example(memoryview(example), 0, len(example))
      {'k': array([7])}
    """
    features: dict[str, Feature] = {}
    for field, wire, begin, end in _fields(data, start, stop):
        if field != 1 or wire != _LENGTH:
            continue
        for inner, inner_wire, entry_start, entry_stop in _fields(data, begin, end):
            if inner == 1 and inner_wire == _LENGTH:
                name, feature = _entry_at(data, entry_start, entry_stop)
                features[name] = feature
    return features


def _entry_at(data: memoryview, start: int, stop: int) -> tuple[str, Feature]:
    """Return a feature; short ones, such as labels, are looked up, as many records share them."""
    if stop - start > _SHORT_BYTES:
        return _entry(data, start, stop)
    name, feature = _short_entry(data[start:stop].tobytes())
    if isinstance(feature, list):
        feature = [(start + begin, start + end) for begin, end in feature]
    return name, feature


@lru_cache(maxsize=4096)
def _short_entry(data: bytes) -> tuple[str, Feature]:
    name, feature = _entry(memoryview(data), 0, len(data))
    if isinstance(feature, np.ndarray):
        feature.flags.writeable = False  # all records have this one
    return name, feature


def _entry(data: memoryview, start: int, stop: int) -> tuple[str, Feature]:
    name = ""
    feature = []
    for number, wire, begin, end in _fields(data, start, stop):
        if wire != _LENGTH:
            continue
        if number == 1:
            name = str(data[begin:end], "utf-8")  # UnicodeDecodeError is a ValueError
        elif number == 2:
            feature = _feature(data, begin, end)
    return name, feature


def _feature(data: memoryview, start: int, stop: int) -> Feature:
    feature: Feature = []
    for kind, wire, begin, end in _fields(data, start, stop):
        if wire != _LENGTH:
            continue
        if kind == 1:
            found = _fields(data, begin, end)
            feature = [(at, until) for number, _, at, until in found if number == 1]
        elif kind == 2:
            feature = _floats(data, begin, end)
        elif kind == 3:
            feature = _integers(data, begin, end)
    return feature


def _floats(data: memoryview, start: int, stop: int) -> np.ndarray:
    pieces = []
    for number, wire, begin, end in _fields(data, start, stop):
        if number == 1 and wire in (_LENGTH, _FIXED32):
            pieces.append(np.frombuffer(data[begin:end], "<f4").astype(np.float32))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def _integers(data: memoryview, start: int, stop: int) -> np.ndarray:
    values = []
    for number, wire, begin, end in _fields(data, start, stop):
        if number == 1 and wire in (_LENGTH, _VARINT):
            while begin < end:
                value, begin = _varint(data, begin, end)
                values.append(value)
    # Negative numbers are stored as their 64-bit complement.
    return np.array(values, np.uint64).view(np.int64)


def _fields(data: memoryview, start: int, stop: int) -> list[tuple[int, int, int, int]]:
    """Return (field number, wire type, start, stop) of the payload of every field of a message."""
    fields = []
    at = start
    while at < stop:
        tag, at = (data[at], at + 1) if data[at] < 128 else _varint(data, at, stop)
        wire = tag & 7
        if wire == _LENGTH:
            length, at = _varint(data, at, stop)
            end = at + length
        elif wire == _VARINT:
            _, end = _varint(data, at, stop)
        elif wire in (_FIXED64, _FIXED32):
            end = at + (8 if wire == _FIXED64 else 4)
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if end > stop or tag < 8:
            raise ValueError(f"a field runs over its message at byte {at}")
        fields.append((tag >> 3, wire, at, end))
        at = end
    return fields


def _varint(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """Return a base-128 number of at most 64 bits, and the position behind it."""
    if at < stop and data[at] < 128:  # most are
        return data[at], at + 1
    value = 0
    for shift in range(0, 70, 7):
        if at >= stop:
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at
    raise ValueError(f"a number does not end at byte {at}")
