"""The rules by which the headers of a JPEG file are good: ITU-T T.81 as libjpeg-turbo enforces it.

The rules see the `Checks` of a file, not its bytes.
"""

from functools import lru_cache
from typing import NamedTuple

from jaxaug.decode.image.parse.jpeg_checks import (
    CHECKS_STRUCT,
    MAX_SIDE,
    SIDE_TOO_LARGE,
    SIDE_ZERO,
    Checks,
    Component,
)

# Color models as the file stores them.
GRAY = 1
YCBCR = 2
RGB = 3
CMYK = 4
YCCK = 5

LOSSLESS = 3  # SOF number
# SOF number -> bits a sample: baseline, extended, progressive, lossless; 9 and 10 arithmetic.
_PRECISIONS = {0: (8,), 1: (8, 12), 2: (8, 12), LOSSLESS: range(2, 17), 9: (8, 12), 10: (8, 12)}
_PROGRESSIVE = (2, 10)
_FIRST_ARITHMETIC = 8  # SOF number from which entropy coding is arithmetic
_ARITHMETIC_LOSSLESS = 11

MAX_INTERLEAVED_BLOCKS = 10  # blocks in one interleaved MCU, T.81 B.2.3
_MAX_BIT = 13  # successive approximation, as libjpeg-turbo bounds it


class JpegLayout(NamedTuple):
    """What follows from the checks of a good file; all but the last are columns of `Headers`."""

    coding: int = 0
    precision: int = 0
    components: int = 0
    scan_components: int = 0
    sampling: int = 0
    color: int = 0
    plain: int = 0
    several_scans: int = 0


@lru_cache(2**12)
def validate(packed: bytes) -> JpegLayout | str:
    """Return the layout of a good file, or what is wrong with it.

    Args:
      packed: the checks of the file, as `CHECKS_STRUCT` packs them.
    """
    checks = Checks(*CHECKS_STRUCT.unpack(packed))
    components = checks.components()
    for rule in _RULES:
        fault = rule(checks, components)
        if fault:
            return fault

    count = len(components)
    color = _color(checks, components)
    # What a parser other than libjpeg's may read differently.
    unclear_color = color == YCBCR and (_has_letters(components) or checks.adobe == 1)
    # T.81 B.2.3 for sequential scans, and its table B.5 for two Huffman tables of each class.
    all_coefficients = checks.scan_parameters == b"\0\x3f\0"
    usual_tables = {*checks.scan_tables} <= {0, 1, 0x10, 0x11}
    return JpegLayout(
        coding=checks.coding,
        precision=checks.precision,
        components=count,
        scan_components=checks.scan_count,
        sampling=sum(each.factors << 24 - 8 * i for i, each in enumerate(components)),
        color=color,
        plain=all_coefficients and usual_tables and not unclear_color and not checks.unusual,
        several_scans=checks.coding in _PROGRESSIVE or checks.scan_count < count,
    )


# ---- rules: each returns what is wrong, or None. A rule may rely on those before it.


def _check_frame_length(checks: Checks, components: list[Component]) -> str | None:
    if not checks.frames:
        return "no JPEG frame header (SOF)"
    if checks.frames > 1:
        return "more than one JPEG frame header (SOF)"
    if checks.frame_length != 8 + 3 * checks.component_count:
        return "a JPEG frame header of the wrong length"
    return None


def _check_scan_length(checks: Checks, components: list[Component]) -> str | None:
    if not checks.scan_length:
        return "no JPEG scan (SOS)"
    if checks.scan_length != 6 + 2 * checks.scan_count or not 1 <= checks.scan_count <= 4:
        return "a JPEG scan header of the wrong length"
    return None


def _check_scan_components(checks: Checks, components: list[Component]) -> str | None:
    known = [each.identity for each in components]
    scanned = checks.scan_identities
    repeated = len(set(scanned)) < len(scanned)
    if repeated or any(known.count(each) != 1 for each in scanned):
        return "a JPEG scan whose components are not those of the frame"
    if list(scanned) != [each for each in known if each in scanned]:  # T.81 B.2.3
        return "a JPEG scan whose components are not in the order of the frame"
    return None


def _check_table_segments(checks: Checks, components: list[Component]) -> str | None:
    if checks.bad_quantization:
        return "a malformed JPEG quantization table"
    if checks.bad_huffman > (checks.coding == LOSSLESS):
        return "a malformed JPEG Huffman table"
    return None


def _check_coding(checks: Checks, components: list[Component]) -> str | None:
    if checks.coding not in _PRECISIONS:
        lossless = checks.coding == _ARITHMETIC_LOSSLESS
        name = "an arithmetic lossless" if lossless else "a hierarchical"
        return f"{name} JPEG (SOF{checks.coding})"
    if checks.precision not in _PRECISIONS[checks.coding]:
        return f"a JPEG (SOF{checks.coding}) of {checks.precision} bits a sample"
    return None


def _check_sides(checks: Checks, components: list[Component]) -> str | None:
    if SIDE_ZERO in checks.sides:
        return "a JPEG without height or width"
    if SIDE_TOO_LARGE in checks.sides:
        return f"a JPEG side above {MAX_SIDE} pixels"
    return None


def _check_sampling(checks: Checks, components: list[Component]) -> str | None:
    if checks.component_count not in (1, 3, 4):
        return "a JPEG whose components are not 1, 3 or 4"
    horizontal = [each.horizontal for each in components]
    vertical = [each.vertical for each in components]
    for factors in (horizontal, vertical):
        if not all(1 <= each <= 4 and max(factors) % each == 0 for each in factors):
            return "JPEG sampling factors that do not fit"
    return None


def _check_lossless_color(checks: Checks, components: list[Component]) -> str | None:
    # libjpeg-turbo converts no colors of a lossless file.
    if checks.coding == LOSSLESS and _color(checks, components) in (YCBCR, YCCK):
        return "a lossless JPEG whose colors are not RGB, CMYK or gray"
    return None


def _check_interleaving(checks: Checks, components: list[Component]) -> str | None:
    if checks.scan_count == 1:
        return None
    coded = _scanned(checks, components)
    if sum(each.horizontal * each.vertical for each in coded) > MAX_INTERLEAVED_BLOCKS:
        return "JPEG sampling factors too large for an interleaved scan"
    return None


def _check_quantization_tables(checks: Checks, components: list[Component]) -> str | None:
    if checks.coding == LOSSLESS:
        return None
    for each in _scanned(checks, components):
        if each.table >= 4 or not checks.tables[each.table]:
            return "a JPEG component without its quantization table"
    return None


def _check_progression(checks: Checks, components: list[Component]) -> str | None:
    """Check the spectral selection and successive approximation, T.81 G.1.1.1."""
    if checks.coding not in _PROGRESSIVE:
        return None
    first, last, bits = checks.scan_parameters
    only_dc = first == 0 and last == 0
    only_ac = 0 < first <= last <= 63 and checks.scan_count == 1
    high = bits >> 4
    low = bits & 15
    approximates = high in (0, low + 1) and low <= _MAX_BIT
    if not (only_dc or only_ac) or not approximates:
        return "a progressive JPEG scan with wrong parameters"
    return None


def _check_lossless_scan(checks: Checks, components: list[Component]) -> str | None:
    """Check the predictor and the point transform, T.81 H.1.2."""
    if checks.coding != LOSSLESS:
        return None
    predictor, zero, transform = checks.scan_parameters
    if not (1 <= predictor <= 7 and zero == 0 and transform < checks.precision):
        return "a lossless JPEG scan with wrong parameters"
    if checks.scan_count < len(components):  # libjpeg-turbo 3 does not decode all of these
        return "a lossless JPEG of several scans"
    return None


def _check_huffman_tables(checks: Checks, components: list[Component]) -> str | None:
    if checks.coding >= _FIRST_ARITHMETIC:
        return None
    # A progressive scan codes either DC or AC coefficients, a lossless one has only "DC" tables.
    progressive = checks.coding in _PROGRESSIVE
    only_ac = progressive and checks.scan_parameters[0] > 0
    only_dc = checks.coding == LOSSLESS or (progressive and not only_ac)

    dc_numbers = [] if only_ac else [each >> 4 for each in checks.scan_tables]
    ac_numbers = [] if only_dc else [each & 15 for each in checks.scan_tables]
    has_dc = _are_defined(dc_numbers, checks.tables[4:8])
    has_ac = _are_defined(ac_numbers, checks.tables[8:12])
    return None if has_dc and has_ac else "a JPEG scan without its Huffman table"


def _are_defined(numbers: list[int], tables: bytes) -> bool:
    return all(number < len(tables) and tables[number] for number in numbers)


def _check_other_segments(checks: Checks, components: list[Component]) -> str | None:
    if checks.bad_restart:
        return "a JPEG restart interval of the wrong length"
    if checks.bad_conditioning:
        return "a malformed JPEG arithmetic conditioning table"
    return None


_RULES = (
    _check_frame_length,
    _check_scan_length,
    _check_scan_components,
    _check_table_segments,
    _check_coding,
    _check_sides,
    _check_sampling,
    _check_lossless_color,
    _check_interleaving,
    _check_quantization_tables,
    _check_progression,
    _check_lossless_scan,
    _check_huffman_tables,
    _check_other_segments,
)


# ---- the layout, and what the rules need of it


def _scanned(checks: Checks, components: list[Component]) -> list[Component]:
    """Return the components of the first scan."""
    return [each for each in components if each.identity in checks.scan_identities]


def _has_letters(components: list[Component]) -> bool:
    return bytes(each.identity for each in components) == b"RGB"


def _color(checks: Checks, components: list[Component]) -> int:
    """Return the color model, guessed as by libjpeg from JFIF, Adobe's flag and component ids."""
    if len(components) == 1:
        return GRAY
    if len(components) == 4:
        return YCCK if checks.adobe == 2 else CMYK

    if checks.jfif:
        return YCBCR
    if checks.adobe:
        return RGB if checks.adobe == 1 else YCBCR
    return RGB if _has_letters(components) or checks.coding == LOSSLESS else YCBCR
