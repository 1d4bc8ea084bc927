"""Images computed one after the other read a part of their canvas, and give what all of it does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxaug import augment as A
from jaxaug.augment._base import axis
from jaxaug.augment._warp import interpolate, slices
from tests.images import picture

CANVAS = (48, 64)
SIZES = np.array([[1, 1], [9, 14], [20, 30], [40, 12], [35, 47], [48, 64]], np.int32)
KEYS = jax.random.split(jax.random.key(0), len(SIZES))
CHAINS = {
    "bicubic crop": A.RandomResizedCrop(24, interpolation="bicubic"),
    "resize": A.Compose([A.Resize((20, 12)), A.RandomHorizontalFlip()]),
    "around": A.RandomAffine(0, (0.4, 0.4), (0.3, 1.5), padding_mode="reflect"),
    "beyond": A.RandomAffine(0, (0.4, 0.4), (0.3, 1.5), fill=0.2),
    "turned": A.Compose([A.RandomResizedCrop(24), A.RandomRotation(30, fill=0.2)]),
    "turned, bicubic": A.Compose(
        [
            A.RandomResizedCrop(24, interpolation="bicubic"),
            A.RandomRotation(30, interpolation="bicubic"),
        ]
    ),
    "tilted": A.Compose([A.RandomResizedCrop(24), A.RandomPerspective(0.6, p=1.0)]),
    "bent": A.Compose([A.RandomResizedCrop(24), A.ElasticTransform(4.0, 3.0)]),
}


def samples(rest=0):
    """Return images of many sizes on one canvas; four of them fit a fraction of it."""
    pixels = np.full((len(SIZES), *CANVAS, 3), rest, np.uint8)
    for row, (height, width) in enumerate(SIZES):
        pixels[row, :height, :width] = picture(row, height, width)
    return {"image": jnp.asarray(pixels), "size": jnp.asarray(SIZES)}


def sequential(chain, keys, sample):
    return jax.jit(lambda *rows: lax.map(lambda row: chain(*row), rows))(keys, sample)


@pytest.mark.parametrize("name", CHAINS)
def test_a_part_gives_what_the_whole_canvas_gives(name, monkeypatch):
    chain = A.Compose([CHAINS[name], A.ToFloat()])
    monkeypatch.setattr(slices, "_MIN_PIXELS", 0)
    part = sequential(chain, KEYS, samples(rest=255))["image"]
    whole = jax.jit(jax.vmap(chain))(KEYS, samples())["image"]  # at once, of all of the canvas

    # Two programs; with XLA's optimizations their bits are equal.
    np.testing.assert_allclose(part, whole, atol=3e-5)


def test_each_image_reads_the_smallest_part_that_holds_it(monkeypatch):
    """The parts are marked by adding their height: the sides in SIZES say which one it must be."""
    monkeypatch.setattr(slices, "_MIN_PIXELS", 0)

    def read(image, rows, columns):
        del columns
        return jnp.zeros(rows.indices[0].shape) + image.shape[0]

    def height_read(size):
        taps = [axis.Taps([places], [jnp.ones(9)], jnp.ones(9), None) for places in size]
        return slices.read_part(read, jnp.zeros((*CANVAS, 3)), *taps)[0]

    places = [jnp.linspace(0, side - 1, 9).astype(jnp.int32) for side in SIZES.T.ravel()]
    rows, columns = jnp.stack(places[: len(SIZES)]), jnp.stack(places[len(SIZES) :])
    assert lax.map(height_read, (rows, columns)).tolist() == [12, 12, 24, 48, 36, 48]


def test_each_turned_image_reads_the_fewest_taps_that_hold_it(monkeypatch):
    """The colors are the numbers of taps: of 9 at most, 2 a source pixel for each of the output."""
    monkeypatch.setattr(slices, "_MIN_PIXELS", 0)
    monkeypatch.setattr(
        interpolate,
        "_read_plane",
        lambda image, rows, columns: jnp.zeros((4, 4, 3)) + len(rows.indices),
    )
    turn = A.matrix.rotation(20.0)

    def taps(scale):
        matrix = A.matrix.product(turn, A.matrix.scaling(scale, scale))
        warp = A.Warp(matrix, (4, 4), max_shrink=(4.5, 4.5))
        return interpolate.resample(jnp.zeros((*CANVAS, 3)), CANVAS, warp, padding_mode="edge")[
            0, 0, 0
        ]

    scales = jnp.array([0.5, 1.0, 1.4, 1.6, 2.4, 2.6, 3.4, 3.6, 4.5])
    assert lax.map(taps, scales).tolist() == [3, 3, 3, 5, 5, 7, 7, 9, 9]
    assert jax.vmap(taps)(scales).tolist() == [9] * 9


@pytest.mark.parametrize("name", ["bicubic crop", "turned"])
def test_gradients_are_those_of_the_whole_canvas(name, monkeypatch):
    chain = CHAINS[name]
    pixels = samples()["image"].astype(jnp.float32) / 255

    def gradients():
        def total(pixels):
            rows = (KEYS, {"image": pixels, "size": jnp.asarray(SIZES)})
            return jnp.sum(lax.map(lambda row: chain(*row)["image"], rows) ** 2)

        return jax.jit(jax.grad(total))(pixels)

    whole = gradients()
    monkeypatch.setattr(slices, "_MIN_PIXELS", 0)
    np.testing.assert_allclose(gradients(), whole, rtol=1e-5, atol=1e-5)  # up to 600


def test_small_canvases_have_no_branches():
    def program(height):
        image = jnp.zeros((height, 512, 3), jnp.uint8)
        return str(jax.make_jaxpr(A.Resize(24))(KEYS[0], image))

    assert "custom_vmap_call" not in program(511)
    assert "custom_vmap_call" in program(512)
