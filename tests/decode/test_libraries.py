"""Optional libraries: where one is missing, the error says what needs it and what installs it."""

import sys

import pytest

from jaxaug.decode import decode_audio, decode_video

_STREAMINFO = (16_000 << 44 | 15 << 36 | 4096).to_bytes(8, "big")  # mono, of 16 bits
_FLAC = b"fLaC\x80\0\0\x22" + bytes(10) + _STREAMINFO + bytes(16)
_ADTS = b"\xff\xf1" + bytes(30)
_MP4 = b"\0\0\0\x10ftypisom\0\0\0\0"


@pytest.mark.parametrize(
    ("name", "read", "data", "text"),
    [
        ("av", decode_video, _MP4, "videos need av: pip install "),
        ("av", decode_audio, _ADTS, "AAC, M4A and the sound of a video need av: pip install "),
        ("miniaudio", decode_audio, _FLAC, "FLAC and MP3 need miniaudio: pip install "),
    ],
)
def test_a_missing_library_is_named_with_what_needs_it(monkeypatch, name, read, data, text):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=text):
        read(data)
