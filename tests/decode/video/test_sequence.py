"""Parameters of H.264 and fields, written bit by bit as ITU-T H.264 section 7.3 has them."""

import pytest

from jaxaug.decode.video.fields import SecondFields
from jaxaug.decode.video.sequence import Parameters, read_sequence

FRAME_BITS = 5
SLICE, IDR, SEQUENCE, PICTURE = 1, 5, 7, 8  # types of NAL units
FLAT = "0"  # a list of scales that is not there
# Deltas of 127 and 121 lead from 8 to 256, which is 0: the rest of a list repeats. So does -8.
TO_256, TO_ZERO = "1{}{}", "1{}"


def number(value):
    """Return ue(v): section 9.1."""
    bits = f"{value + 1:b}"
    return "0" * (len(bits) - 1) + bits


def signed(value):
    """Return se(v): section 9.1.1."""
    return number(2 * value - 1 if value > 0 else -2 * value)


def packed(bits):
    """Return bits as bytes, with the one that ends a unit, and threes that prevent start codes."""
    bits += "1"
    bits += "0" * (-len(bits) % 8)
    out = bytearray()
    for byte in int(bits, 2).to_bytes(len(bits) // 8, "big"):
        if out[-2:] == b"\0\0" and byte <= 3:
            out.append(3)
        out.append(byte)
    return bytes(out)


def buffer_of(coders):
    """Return hrd_parameters: section E.1.2."""
    return number(coders - 1) + "0" * 8 + (number(9) + number(7) + "1") * coders + "1" * 20


def usability():
    """Return vui_parameters with all that there may be: section E.1.1."""
    aspect = f"1{255:08b}{4:016b}{3:016b}"
    signal = f"1{5:03b}11{1:08b}{1:08b}{9:08b}"
    place = "1" + number(2) + number(2)
    clock = f"1{1:032b}{50:032b}1"
    buffers = f"1{buffer_of(2)}1{buffer_of(1)}0"
    limits = "11" + "".join(map(number, (2, 1, 15, 14, 3, 40_000)))
    return aspect + "11" + signal + place + clock + buffers + "1" + limits


def sequence(*, separate=True, crop=(1, 2, 3, 4), chroma=3, colors="0"):
    """Return a sequence parameter set of pictures of 80 x 96 that may be fields."""
    lists = [
        TO_ZERO.format(signed(-8)),
        TO_256.format(signed(127), signed(121)),
        *[FLAT] * 8,
        "1" + signed(1) * 64,
        FLAT,
    ]
    form = number(chroma) + (str(int(separate)) if chroma == 3 else "") + number(2) + number(1)
    form += "01" + "".join(lists[: 12 if chroma == 3 else 8])
    bits = f"{244:08b}{0:016b}" + number(3) + form
    bits += number(FRAME_BITS - 4) + number(0) + number(2) + number(4) + "0"
    bits += number(4) + number(2) + "0" + "01" + "1" + "".join(map(number, crop)) + colors
    return packed(bits)


@pytest.mark.parametrize("chroma, columns, rows", [(1, 2, 4), (2, 2, 2), (3, 1, 2)])
def test_a_sequence_with_all_that_there_may_be(chroma, columns, rows):
    data = sequence(chroma=chroma, colors="1" + usability())
    expected = Parameters(
        frame_bits=FRAME_BITS,
        fields=True,
        separate=chroma == 3,
        chroma=chroma,
        depths=(10, 9),
        height=96 - 7 * rows,
        width=80 - 3 * columns,
        space=9,
        full_range=True,
        chroma_location=3,
        whole=True,
    )
    assert read_sequence(data) == (3, expected)
    assert read_sequence(data[:-2]) == (3, expected._replace(whole=False))


def slice_of(kind, frame, field):
    """Return the begin of a slice: section 7.3.3, behind the header of its unit."""
    told = number(0) + number(7) + number(1) + "10" + f"{frame:0{FRAME_BITS}b}"
    return bytes([0x60 | kind]) + packed(told + ("0" if field is None else f"1{field}"))


def packet(*units):
    return b"".join(b"\0\0\1" + unit for unit in units)


HEADER = packet(
    bytes([0x60 | SEQUENCE]) + sequence(), bytes([0x60 | PICTURE]) + packed(number(1) + number(3))
)
TOP, BOTTOM = 0, 1


@pytest.mark.parametrize(
    "slices, expected",
    [
        ([(SLICE, 6, TOP), (SLICE, 6, BOTTOM), (SLICE, 7, TOP), (SLICE, 7, BOTTOM)], [0, 1, 0, 1]),
        ([(SLICE, 6, TOP), (SLICE, 7, BOTTOM)], [0, 0]),
        ([(SLICE, 6, TOP), (SLICE, 6, TOP), (SLICE, 6, BOTTOM)], [0, 0, 1]),  # another slice
        ([(SLICE, 6, BOTTOM), (SLICE, 6, TOP), (SLICE, 6, BOTTOM)], [0, 1, 0]),
        ([(SLICE, 6, TOP), (SLICE, 6, None), (SLICE, 6, BOTTOM)], [0, 0, 0]),  # a frame between
        ([(IDR, 0, TOP), (SLICE, 0, BOTTOM)], [0, 1]),
        ([(IDR, 0, TOP), (IDR, 0, BOTTOM)], [0, 0]),  # section 7.4.1.2.4: none is a second field
    ],
)
def test_second_fields_are_those_of_the_same_number(slices, expected):
    fields = SecondFields("h264", HEADER)
    assert fields.possible
    assert [fields.complete(packet(slice_of(*each))) for each in slices] == expected


def test_a_packet_is_what_it_begins_with():
    both = packet(slice_of(SLICE, 6, TOP), slice_of(SLICE, 6, BOTTOM))
    fields = SecondFields("h264", HEADER)
    assert [fields.complete(both), fields.complete(both)] == [False, False]
