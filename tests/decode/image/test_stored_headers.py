"""Headers that an index has stored, and indexes that lie."""

import numpy as np
import pytest

from jaxaug.decode import Decoder, Encoded, Headers, read_headers
from jaxaug.decode.image import decoder as decoder_module
from jaxaug.decode.image.nvjpeg import nvjpeg_backend
from jaxaug.decode.image.parse import stored_headers
from jaxaug.decode.image.parse.headers import BAD, JPEG, OTHER
from jaxaug.decode.image.parse.stored_headers import confirm_headers
from tests.decode.fake_gpu import WHOLE, decoder, turned
from tests.decode.samples import JPEGS, insert, patch_sof, segment
from tests.images import encode, jpegs, picture

FILES = [
    *jpegs(20),
    *JPEGS.values(),
    *WHOLE,
    encode(picture(1, 30, 20), "PNG"),
    encode(picture(1, 30, 20), "WEBP"),
    b"",
    b"not an image at all",
    jpegs(1)[0][:-40],
]


def changed(headers, name, rows, value):
    column = getattr(headers, name).copy()
    column[rows] = value
    return headers._replace(**{name: column})


def assert_equal(found, expected):
    for name, column in expected._asdict().items():
        np.testing.assert_array_equal(getattr(found, name), column, name)
        assert getattr(found, name).dtype == column.dtype, name


@pytest.mark.parametrize("count", [3, len(FILES)])
def test_confirmed_headers_are_those_of_the_files(count):
    encoded = Encoded.from_bytes(FILES[-count:])
    expected = read_headers(encoded)
    assert_equal(confirm_headers(encoded, expected), expected)


LIES = {
    "height": [0, 1, 41, 4000, 65535],
    "width": [0, 1, 41, 4000, 65535],
    "coding": [0, 2, 3],
    "precision": [0, 12],
    "components": [1, 3, 4],
    "scan_components": [1, 3],
    "sampling": [0, 0x11000000, 0x11111100, 0x22111100],
    "scan_offset": [0, 100, 2**40, -5],
    "kind": [BAD, OTHER],
    "orientation": [0, 9, 255],
}


@pytest.mark.parametrize("name, value", [(name, value) for name in LIES for value in LIES[name]])
def test_a_lie_about_a_jpeg_costs_a_reading_and_changes_nothing(name, value):
    files = [file for file in FILES if file[:2] == b"\xff\xd8"]
    encoded = Encoded.from_bytes(files)
    expected = read_headers(encoded)
    lying = changed(expected, name, slice(None), value)
    assert_equal(confirm_headers(encoded, lying), expected)


@pytest.mark.parametrize("name, value", [("height", 0), ("width", -1), ("orientation", 0)])
def test_a_lie_about_another_format_that_no_file_has_costs_a_reading(name, value):
    encoded = Encoded.from_bytes([encode(picture(1, 30, 20), "PNG")] * 20)
    expected = read_headers(encoded)
    lying = changed(expected, name, slice(None), value)
    assert_equal(confirm_headers(encoded, lying), expected)


def test_records_that_were_exchanged_get_their_own_headers():
    encoded = Encoded.from_bytes(FILES)
    expected = read_headers(encoded)
    order = np.random.default_rng(0).permutation(len(FILES))
    exchanged = type(expected)(*(column[order] for column in expected))
    found = confirm_headers(encoded, exchanged)
    jpeg = expected.kind == JPEG
    for name in ("kind", "height", "width", "coding", "components", "sampling", "scan_offset"):
        np.testing.assert_array_equal(getattr(found, name)[jpeg], getattr(expected, name)[jpeg])


@pytest.mark.parametrize("between", [b"\x00\x01", b"\xff\x01", b"\xff\xdc\x00\x04\x00\x10"])
def test_a_file_that_parsers_read_differently_is_read_in_full(between):
    """Other bytes, TEM and DNL: the index may call such a file plain."""
    file = jpegs(1)[0]
    encoded = Encoded.from_bytes([file[:2] + between + file[2:]] * 20)
    expected = read_headers(encoded)
    assert not expected.plain.any()
    assert_equal(confirm_headers(encoded, changed(expected, "plain", slice(None), 1)), expected)


def test_a_second_frame_header_is_noticed():
    file = jpegs(1)[0]
    at = file.index(b"\xff\xc0")
    frame = file[at : at + 19]
    small = Encoded.from_bytes([file] * 20)
    two = patch_sof(file, 5, b"\x01\x00\x01\x00")
    two = two[:at] + frame + two[at:]
    headers = read_headers(small)
    headers = changed(headers, "scan_offset", slice(None), headers.scan_offset[0] + len(frame))
    assert (confirm_headers(Encoded.from_bytes([two] * 20), headers).kind == BAD).all()


def test_a_longer_frame_header_is_noticed():
    """Its scan begins where that of the indexed file did: a comment is shorter by as much."""
    file = jpegs(1)[0]
    at = file.index(b"\xff\xc0")
    longer = file[:at] + b"\xff\xc0\0\x14" + file[at + 4 : at + 19] + bytes(3) + file[at + 19 :]
    indexed = Encoded.from_bytes([insert(file, segment(0xFE, bytes(8)))] * 20)
    now = Encoded.from_bytes([insert(longer, segment(0xFE, bytes(5)))] * 20)
    assert (confirm_headers(now, read_headers(indexed)).kind == BAD).all()


def test_headers_that_are_read_anew_are_held_to_max_pixels():
    encoded = Encoded.from_bytes(jpegs(20))
    lying = changed(read_headers(encoded), "height", slice(None), 1)
    assert (confirm_headers(encoded, lying, 40 * 56).kind == JPEG).all()
    assert (confirm_headers(encoded, lying, 40 * 56 - 1).kind == BAD).all()


def test_neither_tables_nor_ends_nor_formats_are_checked_again(monkeypatch):
    encoded = Encoded.from_bytes([file for file in FILES if read_headers_of(file).kind[0] != BAD])
    expected = read_headers(encoded)
    monkeypatch.setattr(stored_headers, "read_headers", lambda *given: 1 / 0)
    odd = expected.plain == 0
    odd &= expected.kind == JPEG  # such files are read in full
    kept = encoded.take(~odd)
    stored = type(expected)(*(column[~odd] for column in expected))
    assert_equal(confirm_headers(kept, stored), stored)


def read_headers_of(file):
    return read_headers(Encoded.from_bytes([file]))


def test_stored_headers_are_held_to_max_pixels_and_stay_as_they_are(cpu_devices):
    encoded = Encoded.from_bytes([*jpegs(19), encode(picture(0, 100, 100), "PNG")])
    headers = read_headers(encoded)
    before = [column.copy() for column in headers]
    with Decoder((64, 64), "host", cpu_devices[:1], "mask", max_pixels=9999) as decode:
        decoded = decode.decode_rows(encoded, decode.check_rows(encoded, headers)[0])
        assert decoded.failures == decode.decode_rows(encoded).failures != {}
        with pytest.raises(
            ValueError, match="`stored` must be the headers of `encoded`, 3 rows, got 20"
        ):
            decode.check_rows(encoded.take(slice(3)), headers)
    for column, kept in zip(headers, before):
        np.testing.assert_array_equal(column, kept)


def test_other_formats_of_other_sides_are_bad_before_their_pixels_are_decoded(cpu_devices):
    files = [encode(picture(0, 30, 40), "PNG"), encode(picture(0, 31, 40), "WEBP")]
    encoded = Encoded.from_bytes(files * 10)
    headers = read_headers(encoded)
    lying = changed(headers, "height", slice(4), 7)
    with Decoder((64, 64), "host", cpu_devices[:1], "mask") as decode:
        decoded = decode.decode_rows(encoded, decode.check_rows(encoded, lying)[0])
        assert decoded.failures[0] == "PNG: 40 x 30, not 40 x 7"
        assert decoded.failures[1] == "WEBP: 40 x 31, not 40 x 7"
        assert decoded.valid.tolist() == [False] * 4 + [True] * 16


# ---- on the engines, which write by the file's own frame


def lying_headers(encoded, seed):
    """The headers of the files, with many facts replaced by those of others, or by chance."""
    rng = np.random.default_rng(seed)
    columns = read_headers(encoded)._asdict()
    for name, values in LIES.items():
        column = columns[name]
        drawn = rng.choice(values, len(column))
        of_others = drawn if name == "orientation" else rng.permutation(column)
        lies = np.where(rng.random(len(column)) < 0.5, of_others, drawn).astype(column.dtype)
        columns[name] = np.where(rng.random(len(column)) < 0.2, lies, column)
    columns["plain"] = np.ones_like(columns["plain"])
    return Headers(**columns)


@pytest.mark.parametrize("seed", range(6))
def test_indexes_that_lie_move_no_byte_out_of_its_slot(gpu, seed):
    images = [*jpegs(20), *WHOLE, turned(3, 50, 20, 6), *jpegs(20, 64, 64)]
    encoded = Encoded.from_bytes(images)
    with decoder(deterministic=True) as decode:
        expected = decode.decode_rows(encoded)
        decoded = decode.decode_rows(
            encoded, decode.check_rows(encoded, lying_headers(encoded, seed))[0]
        )
        assert decoded.valid.all() and decode.stats["engines"] > 60
        np.testing.assert_array_equal(decoded.arrays["pixels"][0], expected.arrays["pixels"][0])
        np.testing.assert_array_equal(decoded.arrays["size"], expected.arrays["size"])
        gpu.memory.check_guards()


@pytest.mark.parametrize("shape", [(64, 64), (90, 64)])
def test_the_guards_see_a_decoder_that_believes_its_index(gpu, monkeypatch, shape):
    """Written onto the canvas, and into slots."""
    monkeypatch.setattr(nvjpeg_backend, "_MAX_REGION", 20 * 90 * 64 * 3)
    monkeypatch.setattr(decoder_module, "confirm_headers", lambda encoded, stored, *_: stored)
    headers = read_headers(Encoded.from_bytes(jpegs(20, *shape)))
    large = Encoded.from_bytes(jpegs(20, 200, 300))
    with decoder(deterministic=True) as decode:
        decode.decode_rows(large, decode.check_rows(large, headers)[0])
        with pytest.raises(AssertionError, match="outside"):
            gpu.memory.check_guards()
