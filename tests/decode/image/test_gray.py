"""Decoders of gray canvases."""

import io

import numpy as np
import pytest
import simplejpeg
from PIL import Image

from jaxaug.decode import Decoder, Encoded, decode_image, read_headers
from jaxaug.decode.image.nvjpeg.dispatch import ENGINE, HOST, assign_backends
from tests.decode.fake_gpu import CANVAS, WHOLE, check, check_fitted, decoder, turned
from tests.decode.samples import JPEGS
from tests.images import encode, jpegs, picture

OTHERS = [
    encode(picture(1, 30, 20), "PNG"),
    encode(picture(2, 30, 20)[..., 0], "PNG"),
    encode(picture(3, 30, 20), "WEBP"),
]
NARROW = [encode(picture(4, height, width)) for height, width in [(1, 1), (9, 1), (9, 2), (1, 3)]]


@pytest.fixture
def host(cpu_devices):
    with Decoder(CANVAS, "host", cpu_devices[:1], channels="gray") as one:
        yield one


def luma(image):
    """Y of a YCbCr or gray JPEG by TurboJPEG, of any other image 0.299 R + 0.587 G + 0.114 B."""
    opened = Image.open(io.BytesIO(image))
    red, green, blue = np.moveaxis(np.asarray(opened.convert("RGB")).astype(float), -1, 0)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_the_host_decodes_luma(host):
    files = [*jpegs(6), *JPEGS.values(), *OTHERS, *NARROW]
    batch = host.decode(files)
    pixels = np.asarray(batch.pixels)
    assert host.form.count == 1 and pixels.shape == (len(files), *CANVAS, 1)
    assert pixels.dtype == np.uint8 and batch.valid.all()
    for row, file in enumerate(files):
        expected = decode_image(file, "gray")
        height, width = expected.shape
        assert batch.size[row].tolist() == [height, width]
        np.testing.assert_array_equal(pixels[row, :height, :width, 0], expected)
        assert not pixels[row, height:].any() and not pixels[row, :, width:].any()
        assert np.abs(expected - luma(file)).mean() < 1.5


def test_y_is_libjpeg_turbos_and_near_pils_conversion_of_rgb():
    """`convert("L")` weighs RGB values that were rounded, and clipped to 0..255."""
    rng = np.random.default_rng(0)
    worst = 0
    for seed in range(20):
        grain = rng.normal(0, 12, (97, 131, 1))
        pixels = np.clip(picture(seed, 97, 131) + grain, 0, 255).astype(np.uint8)
        file = simplejpeg.encode_jpeg(pixels, 90, colorsubsampling=("444", "420")[seed % 2])
        found = decode_image(file, "gray").astype(int)
        np.testing.assert_array_equal(found, simplejpeg.decode_jpeg(file, "GRAY")[..., 0])
        converted = np.asarray(Image.open(io.BytesIO(file)).convert("L")).astype(int)
        difference = np.abs(found - converted)
        assert difference.mean() < 1
        worst = max(worst, int(difference.max()))
    assert 0 < worst < 60  # where colors are clipped


def test_larger_gray_images_are_shrunk_on_the_host(host):
    files = [encode(picture(seed, 100 + 40 * seed, 230), quality=95) for seed in range(6)]
    batch = host.decode(files)
    for row, file in enumerate(files):
        height, width = batch.size[row].tolist()
        whole = Image.fromarray(decode_image(file, "gray"))
        expected = np.asarray(whole.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
        found = np.asarray(batch.pixels)[row, :height, :width, 0]
        assert np.abs(found - expected).mean() < 1.5
    assert host.stats["shrunk"] == 6


def test_several_devices_and_bad_images(cpu_devices):
    files = [*jpegs(3), b"no image"]
    with Decoder((40, 56), "host", cpu_devices[:2], "mask", channels="gray") as two:
        batch = two.decode(files)
    assert [pixels.shape for pixels in batch.pixels] == [(2, 40, 56, 1)] * 2
    assert batch.valid.tolist() == [True] * 3 + [False]
    assert not np.asarray(batch.pixels[1])[1].any()


@pytest.mark.parametrize("channels", ["grey", "y", 0, 1.0])
def test_other_channels_are_refused(channels):
    with pytest.raises(ValueError, match=r"`channels` must be .*rgb.*gray"):
        Decoder(CANVAS, "host", channels=channels)


# ---- on the engines


@pytest.mark.parametrize("options", [{"deterministic": True}, {}])
def test_the_engines_decode_luma(gpu, options):
    rgb = JPEGS["RGB"]
    files = [*jpegs(30), JPEGS["gray"], JPEGS["progressive"], rgb, *OTHERS, *NARROW, *jpegs(9, 20)]
    with decoder(channels="gray", **options) as one:
        for _ in range(2):  # in a used buffer
            batch = one.decode(files)
            assert np.asarray(batch.pixels).shape == (len(files), *CANVAS, 1) and batch.valid.all()
            check(one, files)
        gpu.memory.check_guards()
        assert one.stats["refused"] == 0


@pytest.mark.parametrize("options", [{"deterministic": True}, {}])
def test_larger_and_turned_gray_images_go_through_slots(gpu, options):
    images = [*jpegs(30, 40, 50), *WHOLE, *NARROW, turned(3, 300, 5, 1), turned(3, 5, 300, 6)]
    with decoder(channels="gray", **options) as one:
        check_fitted(one, images)
        check_fitted(one, images[::-1])
        gpu.memory.check_guards()
        if options:
            # `NARROW`, and the two that become so narrow
            assert one.stats["host"] == 2 * 6 and one.stats["refused"] == 0


def test_refused_and_skipped_gray_images_are_decoded_again(gpu):
    images = [*jpegs(20), *WHOLE]
    gpu.refused = {images[3], WHOLE[2]}
    gpu.skipped = {images[5], WHOLE[5]}
    with decoder(channels="gray", deterministic=True) as one:
        check_fitted(one, images)
        assert one.stats["refused"] == 4


def test_bad_images_are_zero_on_gray_canvases(gpu):
    with decoder(channels="gray", deterministic=True) as one:
        batch = one.decode([jpegs(1)[0], b"no image", OTHERS[0][:200], NARROW[0]])
        assert batch.valid.tolist() == [True, False, False, True]
        assert not np.asarray(batch.pixels)[1:3].any()
        assert np.count_nonzero(np.asarray(batch.pixels)[3]) <= 1


def test_images_narrower_than_the_sentinel_go_to_the_host():
    headers = read_headers(
        Encoded.from_bytes([encode(picture(0, 40, 1)), encode(picture(0, 40, 3))])
    )
    gray = headers._replace(sampling=np.full(2, 0x11111100, np.uint32))
    size = headers.original_size()
    assert assign_backends(gray, size, 2**20, 1).tolist() == [HOST, ENGINE]
    assert assign_backends(gray, size, 2**20, 3).tolist() == [ENGINE, ENGINE]
