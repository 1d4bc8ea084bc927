"""From planes to RGB: float64 definitions, FFmpeg's scaler, and the same bits in NumPy and JAX."""

import dataclasses

import jax
import numpy as np
import pytest
from PIL import Image, ImageOps

from jaxaug.decode import decode_video
from jaxaug.decode.video import convert
from jaxaug.decode.video.color import to_rgb, whole_chroma
from jaxaug.decode.video.convert import _whole, frames_to_rgb
from jaxaug.decode.video.planes import (
    Color,
    Planes,
    color_of,
    fit_planes,
    plane_sizes,
    planes_of,
    write_planes,
)
from jaxaug.decode.video.table import Codec
from tests.reference import video as reference
from tests.videos import INTERLACED, all_frames, av, kind, picture, video

MATRICES = ["601", "709", "2020"]
# swscale's SWS_BILINEAR, SWS_FULL_CHR_H_INT and SWS_ACCURATE_RND
EXACT = 2 | 0x2000 | 0x40000


def planes(size, half, seed=0):
    rng = np.random.default_rng(seed)
    chroma = tuple(-(-side // 2) for side in size) if half else size
    return rng.integers(0, 256, size, np.uint8), rng.integers(0, 256, (2, *chroma), np.uint8)


@pytest.mark.parametrize("size", [(6, 8), (5, 7), (1, 1), (2, 3)])
@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("matrix", range(3))
@pytest.mark.parametrize("full", [0, 1])
def test_rgb_is_that_of_float64(size, half, matrix, full):
    luma, chroma = planes(size, half)
    for siting in [(0, 0), (0, -1), (0, 1), (-1, 0), (1, -1)]:
        expected = reference.rgb(luma, chroma, MATRICES[matrix], bool(full), *siting)
        cb, cr = whole_chroma(chroma, size, siting)
        found = to_rgb(luma, cb, cr, matrix, full)
        assert found.dtype == np.uint8 and np.abs(found - expected).max() <= 0.51


@pytest.mark.parametrize("size", [(16, 8), (8, 7), (6, 8), (10, 3), (9, 4), (3, 2)])
def test_interlaced_rgb_is_that_of_float64(size):
    """Each field by itself, also where one has a row of chroma more than the other."""
    luma, chroma = planes(size, True)
    for siting in [(0, -1), (0, 0), (-1, -1), (1, 0)]:
        expected = reference.rgb(luma, chroma, "709", False, *siting, interlaced=True)
        cb, cr = whole_chroma(chroma, size, siting, interlaced=True)
        assert np.abs(to_rgb(luma, cb, cr, 1, 0) - expected).max() <= 0.51


def test_jax_gives_the_bits_of_numpy():
    luma, chroma = planes((33, 46), True)

    @jax.jit
    def convert(luma, chroma, color):
        cb, cr = whole_chroma(chroma, luma.shape, color[2:])
        return to_rgb(luma, cb, cr, color[0], color[1])

    for color in [(0, 0, 0, 0), (1, 1, 0, -1), (2, 0, 1, 0)]:
        cb, cr = whole_chroma(chroma, luma.shape, color[2:])
        expected = to_rgb(luma, cb, cr, *color[:2])
        np.testing.assert_array_equal(convert(luma, chroma, np.array(color, np.int32)), expected)


@pytest.mark.parametrize("name", ["h264", "mpeg4", "vp9", "hevc", "10 bits", "4:4:4", "full range"])
def test_within_three_levels_of_swscale(name):
    frame = all_frames(kind(name))[11]
    # of odd sides swscale spreads ceil(w / 2) values of chroma over w pixels; 4:4:4 has none
    expected = frame.reformat(format="rgb24", interpolation=EXACT).to_ndarray()
    found = decode_video(kind(name), frames=[11])[0]
    assert np.abs(found.astype(int) - expected).max() <= 3


@pytest.mark.parametrize("name", INTERLACED)
def test_interlaced_frames_are_within_three_levels_of_swscale(name):
    """Which converts each field by itself where a frame says that it has two."""
    frame = all_frames(kind(name))[11]
    expected = frame.reformat(format="rgb24", interpolation=EXACT).to_ndarray()
    found = decode_video(kind(name), frames=[11])[0]
    assert np.abs(found.astype(int) - expected).max() <= 3


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("place", [1, 2, 3, 5])
def test_chroma_lies_where_a_stream_says(place, interlaced):
    """Top left, as videos in BT.2020 have it, at the top, below; swscale sees to it, too."""
    options = {"x264-params": f"chromaloc={place}" + ":tff=1" * interlaced}
    container = "mpegts" if interlaced else "mp4"
    if interlaced and not hasattr(av.CodecContext.create("h264", "r"), "chroma_sample_location"):
        pytest.skip("this PyAV does not tell it, and headers are read of progressive MP4 alone")
    data = video(3, interlaced=interlaced, container=container, **options)
    expected = all_frames(data)[1].reformat(format="rgb24", interpolation=EXACT).to_ndarray()
    assert np.abs(decode_video(data, frames=[1])[0].astype(int) - expected).max() <= 3


@pytest.mark.parametrize("interlaced", [False, True])
def test_chroma_of_dv_lies_on_the_upper_row(interlaced):
    data = video(1, (576, 720), codec="dvvideo", container="avi", interlaced=interlaced)
    expected = all_frames(data)[0].reformat(format="rgb24", interpolation=EXACT).to_ndarray()
    assert np.abs(decode_video(data, frames=[0])[0].astype(int) - expected).max() <= 3


def test_fields_in_pictures_of_their_own_are_no_interlaced_frames():
    """FFmpeg calls each field of HEVC a frame, and interlaced."""
    options = {"codec": "libx265", "x265-params": "interlace=tff:log-level=none"}
    frame = all_frames(video(3, container="mpegts", **options))[0]
    assert frame.interlaced_frame and not planes_of(frame, Codec("hevc")).interlaced
    assert planes_of(frame, Codec("h264")).interlaced


def test_odd_sides_are_those_of_the_picture_as_it_is_coded():
    """Which is even; swscale spreads the chroma of an odd one over its pixels."""
    odd = all_frames(kind("odd"))[11]
    height, width = odd.height, odd.width
    even = av.VideoFrame(width + width % 2, height + height % 2, "yuv420p")
    for plane, source in zip(even.planes, odd.planes):
        values = np.frombuffer(source, np.uint8).reshape(source.height, -1)[:, : source.width]
        more = ((0, plane.height - source.height), (0, plane.line_size - source.width))
        plane.update(np.pad(values, more, mode="edge").tobytes())
    expected = even.reformat(format="rgb24", interpolation=EXACT).to_ndarray()[:height, :width]
    found = decode_video(kind("odd"), frames=[11])[0]
    assert np.abs(found.astype(int) - expected).max() <= 3


@pytest.mark.parametrize("name", ["h264", "hevc", "vp9", "odd", "4:2:2", "full range"])
def test_colors_are_those_that_were_encoded(name):
    frames = decode_video(kind(name), frames=[0, 17])
    for frame, number in zip(frames, (0, 17)):
        original = picture(number, *frame.shape[:2]).astype(int)
        assert np.abs(frame - original).mean() < 8


def test_more_bits_are_rounded():
    frame = all_frames(kind("10 bits"))[3]
    wide = frame.to_ndarray()[: frame.height].astype(float)
    luma = planes_of(frame, Codec()).luma
    assert np.abs(luma - wide / 4).max() <= 0.5


@pytest.mark.parametrize("form, bits", [("rgb555le", (5, 5, 5)), ("rgb565le", (5, 6, 5))])
def test_fewer_bits_are_stretched_to_all_levels(form, bits):
    """As MSVideo1 and QuickTime's animations have them: their white is 255, not 248."""
    words = np.random.default_rng(0).integers(0, 2 ** sum(bits), (48, 64)).astype("<u2")
    words[0, 0] = 2 ** sum(bits) - 1
    frame = av.VideoFrame(64, 48, form)
    frame.planes[0].update(words.tobytes())
    shifts = (bits[1] + bits[2], bits[2], 0)
    levels = [(words >> at & 2**k - 1) * 255 / (2**k - 1) for at, k in zip(shifts, bits)]
    luma, (cb, cr), color = planes_of(frame, Codec())[:3]
    found = to_rgb(luma, *whole_chroma(np.stack([cb, cr]), luma.shape), *color[:2])
    assert np.abs(found - np.stack(levels, axis=-1)).max() < 3


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["h264", "odd", "4:4:4"])
def test_a_frame_on_a_canvas_is_the_frame_alone(name, whole):
    """The chroma of the edge is interpolated as if nothing were beside it."""
    found = planes_of(all_frames(kind(name))[5], Codec(chroma_left=True))
    size = found.luma.shape
    if name == "4:4:4" and not whole:
        pytest.skip("its chroma is shrunk to half")
    fitted = fit_planes(found, size, whole)
    canvas = (size[0] + 9, size[1] + 6)
    luma = np.zeros(canvas, np.uint8)
    sides = canvas if whole else tuple(-(-side // 2) for side in canvas)
    chroma = np.full((2, *sides), 77, np.uint8)
    write_planes(fitted, luma, chroma)

    color = fitted.color
    cb, cr = whole_chroma(chroma, canvas, color[2:])
    on_canvas = to_rgb(luma, cb, cr, color.matrix, color.full_range)[: size[0], : size[1]]
    cb, cr = whole_chroma(found.chroma, size, found.color[2:])
    alone = to_rgb(found.luma, cb, cr, color.matrix, color.full_range)
    assert np.abs(on_canvas.astype(int) - alone).max() <= (2 if whole else 0)


@pytest.mark.parametrize("size", [(48, 20), (10, 6), (9, 7), (7, 4)])
@pytest.mark.parametrize("more", [(0, 0), (1, 3), (2, 0), (9, 6)])
def test_an_interlaced_frame_on_a_canvas_is_the_frame_alone(size, more):
    frame = Planes(*planes(size, True), Color(0, 0, 0, -1), interlaced=True)
    canvas = (size[0] + more[0], size[1] + more[1])
    luma = np.zeros(canvas, np.uint8)
    chroma = np.full((2, *(-(-side // 2) for side in canvas)), 77, np.uint8)
    write_planes(fit_planes(frame, size, False), luma, chroma)
    found = whole_chroma(chroma, canvas, frame.color[2:], interlaced=True)
    alone = whole_chroma(frame.chroma, size, frame.color[2:], interlaced=True)
    np.testing.assert_array_equal(found[:, : size[0], : size[1]], alone)


@pytest.mark.parametrize("whole", [False, True])
def test_interlaced_chroma_is_shrunk_from_the_rows_of_its_fields(whole):
    luma, chroma = planes((48, 64), True)
    small = fit_planes(Planes(luma, chroma, Color(0, 0, 0, 0), interlaced=True), (40, 54), whole)
    columns = np.arange(32.0) if not whole else (np.arange(64) - 0.5) / 2
    width = 54 if whole else 27
    for found, plane in zip(small.chroma, chroma):
        tall = reference.in_fields(plane.astype(float), 48, columns).astype(np.float32)
        shrunk = Image.fromarray(tall).resize(
            (width, 40 if whole else 20), Image.Resampling.BILINEAR
        )
        assert np.abs(found - np.asarray(shrunk)).max() <= 1.5  # of four roundings
    assert not small.interlaced


def test_large_frames_are_shrunk_as_pillow_shrinks_them():
    luma = planes((90, 120), True)[0]
    chroma = np.full((2, 45, 60), 128, np.uint8)
    small = fit_planes(Planes(luma, chroma, Color(0, 0, 0, -1)), (30, 40), False)
    expected = Image.fromarray(luma).resize((40, 30), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(small.luma, expected)
    assert small.chroma.shape == (2, 15, 20) and small.color == Color(0, 0, 0, 0)


@pytest.mark.parametrize("canvas", [(6, 8), (5, 7)])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("told", [False, True])
def test_stages_for_cpus_give_what_one_computation_gives(canvas, whole, told):
    """Of frames that are interlaced or not, in one clip."""
    rng = np.random.default_rng(0)
    height, width = canvas
    halves = canvas if whole else (-(-height // 2), -(-width // 2))
    luma = rng.integers(0, 256, (2, 3, *canvas), np.uint8)
    chroma = rng.integers(0, 256, (2, 3, 2, *halves), np.uint8)
    shown = np.array([[True, True, False], [True, False, True]])
    size = np.array([height - 1, width], np.int32)
    inside = (np.arange(height) < height - 1)[:, None] & np.ones(width, bool)
    interlaced = np.array([[True, False, True], [False, False, True]]) if told else None
    stages = jax.jit(frames_to_rgb)
    for color in ([0, 0, 0, -1], [1, 1, 1, 0], [2, 0, -1, 1]):
        color = np.array(color, np.int32)
        large = whole_chroma(chroma, canvas, color[2:].astype(np.int64))
        if told:
            large[interlaced] = whole_chroma(chroma[interlaced], canvas, color[2:], interlaced=True)
        planes = large[..., 0, :, :], large[..., 1, :, :]
        mask = shown[..., None, None] & inside
        expected = to_rgb(luma, *planes, color[0], color[1], mask)
        given = (luma, chroma, shown, size, color, interlaced)
        np.testing.assert_array_equal(stages(*given), expected)
        np.testing.assert_array_equal(_whole(*given), expected)


@pytest.mark.parametrize("told", [False, True])
def test_stages_of_a_batch_are_those_of_each_clip(told):
    rng = np.random.default_rng(0)
    clips = [rng.integers(0, 256, (2, 3, *form), np.uint8) for form in ((6, 8), (2, 3, 4))]
    rows = (*clips, np.ones((2, 3), bool), np.array([[6, 8], [5, 7]]), np.zeros((2, 4), np.int32))
    rows += (np.array([[True, False, False], [False, True, True]]),) if told else ()
    batch = jax.jit(jax.vmap(frames_to_rgb))
    for row, found in enumerate(batch(*rows)):
        np.testing.assert_array_equal(found, frames_to_rgb(*(each[row] for each in rows)))
    single, several = (
        str(jax.make_jaxpr(function)(*arguments)).count("cond[")
        for function, arguments in ((frames_to_rgb, [each[0] for each in rows]), (batch, rows))
    )
    assert single == several == 4  # the platform, and three stages


def test_large_clips_are_converted_on_gpus_one_after_the_other(monkeypatch):
    """Or the chroma of a batch, as large as luma, would take more memory than its canvases."""
    luma = np.random.default_rng(0).integers(0, 256, (4, 3, 24, 32), np.uint8)
    rows = (luma, luma[:, :, None, ::2, ::2].repeat(2, 2), np.ones((4, 3), bool))
    rows += (np.tile([24, 32], (4, 1)), np.zeros((4, 4), np.int32))
    monkeypatch.setattr(
        convert.lax, "platform_dependent", lambda *given, cpu, default: default(*given)
    )
    found, bytes_taken = [], []
    for bound in (2**25, 0):
        monkeypatch.setattr(convert, "_MAX_CHROMA", bound)
        made = jax.jit(jax.vmap(lambda *row: frames_to_rgb(*row))).lower(*rows).compile()
        found.append(made(*rows))
        bytes_taken.append(made.memory_analysis().temp_size_in_bytes)
    np.testing.assert_array_equal(*found)
    assert bytes_taken[0] >= 4 * luma.size > 2 * bytes_taken[1]


def frame_of(pixels, values):
    """Return a frame of 4 x 4 whose planes are filled with a number."""
    frame = av.VideoFrame(4, 4, pixels)
    for plane in frame.planes:
        plane.update(np.full(plane.buffer_size // values.itemsize, values).tobytes())
    return frame


def test_white_is_white_at_any_depth():
    """Rounded to 8 bits, the highest number of more is no level; of fewer it is the highest."""
    for depth in (10, 12):
        highest = frame_of(f"yuv420p{depth}le", np.uint16(2**depth - 1))
        assert (planes_of(highest, Codec()).luma == 255).all()
    assert (planes_of(frame_of("rgb555le", np.uint16(2**15 - 1)), Codec()).luma == 235).all()


def test_palettes_are_blue_green_red():
    palette = np.zeros((256, 4), np.uint8)
    palette[7] = (0, 0, 255, 255)
    codec = Codec(pixels="pal8", palette=palette.tobytes())
    found = planes_of(frame_of("pal8", np.uint8(7)), codec)
    expected = planes_of(frame_of("bgra", np.frombuffer(palette[7].tobytes(), "<u4")[0]), Codec())
    np.testing.assert_array_equal(found.luma, expected.luma)
    np.testing.assert_array_equal(found.chroma, expected.chroma)
    assert (found.chroma[1] == 240).all()  # red


def test_spaces_of_colors_have_their_matrices():
    """AVColorSpace: 1 is BT.709, 4 FCC, 5 and 6 BT.601, 7 SMPTE 240M, beside BT.709; 9 BT.2020."""
    found = {space: color_of(Codec(space=space)).matrix for space in (1, 2, 4, 5, 6, 7, 9)}
    assert found == {1: 1, 2: 0, 4: 0, 5: 0, 6: 0, 7: 1, 9: 2}


@pytest.mark.parametrize("mirrored", [False, True])
def test_orientations_are_those_of_pillow(mirrored):
    """What turns a frame is told as EXIF, by which masks and boxes follow."""
    stored = np.arange(16, dtype=np.uint8).reshape(4, 4)
    for rotation in (0, 90, 180, 270):
        frame = frame_of("gray", np.uint8(0)).reformat(format="yuv444p")
        frame.planes[0].update(
            np.pad(stored, ((0, 0), (0, frame.planes[0].line_size - 4))).tobytes()
        )
        found = planes_of(frame, Codec(rotation=rotation, mirrored=mirrored))
        image = Image.fromarray(stored)
        image.getexif()[274] = found.orientation
        np.testing.assert_array_equal(found.luma, np.asarray(ImageOps.exif_transpose(image)))


@pytest.mark.parametrize("size", [(4, 5), (5, 4)])
def test_turned_frames_of_odd_sides_have_chroma_for_each_pixel(size):
    codec = Codec(height=size[0], width=size[1], pixels="yuv420p")
    assert plane_sizes(codec) == (size, (-(-size[0] // 2), -(-size[1] // 2)))
    turned = size[::-1]
    assert plane_sizes(dataclasses.replace(codec, rotation=90)) == (turned, turned)
