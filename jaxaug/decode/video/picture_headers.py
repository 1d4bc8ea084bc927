"""What the first bytes of packets tell where a container says otherwise, or nothing.

Reference: ITU-T H.263 section 5.1; RFC 6386 section 9.1 (VP8); VP9 Bitstream Specification section
7.2 and annex B.
"""

_EXTENDED = 7  # the size of a picture of H.263 that is told behind


def is_predicted(codec: str, content: bytes) -> bool:
    """Return True if a packet's picture is known to need others: recorders mark such ones, too."""
    return codec == "h263" and _h263_type(int.from_bytes(content[:8].ljust(8, b"\0"), "big")) != 0


def is_hidden(codec: str, content: bytes) -> bool:
    """Return True if a packet's picture is not shown: others refer to it."""
    if codec == "vp8":
        return not content[0] & 16
    if codec != "vp9" or _joins_frames(content):
        return False
    profile = (content[0] >> 5 & 1) + 2 * (content[0] >> 4 & 1)
    shows_another, _, shown = (content[0] << (profile == 3) >> bit & 1 for bit in (3, 2, 1))
    return not (shows_another or shown)


def _h263_type(bits: int) -> int:
    """Return the type of a picture, 0 if it needs no other, by the first 64 bits of its packet."""
    if bits >> 26 & 7 != _EXTENDED:
        return bits >> 25 & 1
    of_all = bits >> 23 & 7 == 0  # what holds for all pictures is not said again
    return bits >> (20 if of_all else 2) & 7


def _joins_frames(content: bytes) -> bool:
    """Return True if a packet of VP9 holds several frames, of which the last is shown."""
    marker = content[-1]
    size = 2 + ((marker >> 3 & 3) + 1) * ((marker & 7) + 1)
    return marker >> 5 == 0b110 and content[-size:][:1] == bytes([marker])
