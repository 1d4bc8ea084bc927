"""Masks against the label map drawn as an image and read with nearest; boxes that are padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A

KEY = jax.random.key(0)
HEIGHT = 17
WIDTH = 23
LABELS = np.random.default_rng(0).integers(1, 200, (HEIGHT, WIDTH), dtype=np.uint8)
DRAWN = np.repeat(LABELS[:, :, None], 3, axis=2)
NEAREST = {"interpolation": "nearest"}

CHAINS = {
    "flip": [A.RandomHorizontalFlip(1.0), A.RandomVerticalFlip(1.0)],
    "turn": [A.RandomRotation((30, 30), **NEAREST)],
    "turn, reflect": [A.RandomRotation((30, 30), padding_mode="reflect", **NEAREST)],
    "resize": [A.Resize((12, 31), **NEAREST)],
    "resize onto a canvas": [A.Resize(12, canvas=(20, 24), **NEAREST)],
    "crop with padding": [A.RandomCrop(20, padding=6, pad_if_needed=True)],
    "crop beyond": [A.CenterCrop((30, 12))],
    "crop, resize, turn": [
        A.RandomResizedCrop(14, (0.5, 0.8), **NEAREST),
        A.RandomRotation((9, 9), **NEAREST),
    ],
    "color": [A.ColorJitter(0.3)],
}


def run(transform, sample):
    return jax.jit(transform)(KEY, sample)


def on_canvas(pixels, rest):
    """`pixels` at the top left of 26 x 30, beside `rest`."""
    canvas = np.full((26, 30, *pixels.shape[2:]), rest, pixels.dtype)
    canvas[:HEIGHT, :WIDTH] = pixels
    return canvas


def inside(chain, sample):
    """Return True where a chain of nearest reads shows the image: where ones stay ones."""
    ones = np.full_like(sample["image"], 1)
    geometric = [step for step in chain.transforms if isinstance(step, A.Geometric)]
    return (
        np.asarray(run(A.Compose(geometric, fuse=chain.fuse), {**sample, "image": ones})["image"])[
            :, :, 0
        ]
        > 0
    )


@pytest.mark.parametrize("canvas", [False, True])
@pytest.mark.parametrize(
    "name, fuse",
    [(name, True) for name in CHAINS] + [(name, False) for name in CHAINS if len(CHAINS[name]) > 1],
)
def test_masks_go_where_the_image_goes_and_are_filled_around_it(name, canvas, fuse):
    sample = {"image": DRAWN}
    if canvas:
        sample = {"image": on_canvas(DRAWN, 7), "size": jnp.array([HEIGHT, WIDTH], jnp.int32)}
    chain = A.Compose(CHAINS[name], fuse=fuse, mask_fill=255)
    mask = on_canvas(LABELS, 9) if canvas else LABELS
    out = run(chain, {**sample, "mask": mask})
    drawn = out["image"] if name != "color" else sample["image"]
    expected = np.where(inside(chain, sample), np.asarray(drawn)[:, :, 0], 255)
    assert out["mask"].dtype == jnp.uint8
    np.testing.assert_array_equal(out["mask"], expected)
    if canvas and "size" in out:
        height, width = np.asarray(out["size"])
        assert (np.asarray(out["mask"])[height:] == 255).all() and (
            np.asarray(out["mask"])[:, width:] == 255
        ).all()


@pytest.mark.parametrize(
    "dtype, fill, expected",
    [
        (np.int32, 255, 255),
        (np.int32, -1, -1),
        (np.uint8, 0, 0),
        (np.int8, -1, -1),
        (np.bool_, 255, False),
        (np.float32, 255, 0.0),
    ],
)
def test_the_fill_by_dtype(dtype, fill, expected):
    mask = np.ones((HEIGHT, WIDTH, 2), dtype)
    out = run(
        A.Compose([A.CenterCrop((HEIGHT + 4, WIDTH))], mask_fill=fill),
        {"image": DRAWN, "mask": mask},
    )
    assert out["mask"].dtype == dtype and out["mask"].shape == (HEIGHT + 4, WIDTH, 2)
    assert (np.asarray(out["mask"])[2:-2] == 1).all()
    assert (np.asarray(out["mask"])[[0, 1, -2, -1]] == expected).all()


def test_a_lone_transform_fills_with_255():
    out = run(A.CenterCrop((HEIGHT + 2, WIDTH)), {"image": DRAWN, "mask": LABELS})
    assert (np.asarray(out["mask"])[0] == 255).all() and not np.asarray(out["image"])[0].any()


@pytest.mark.parametrize(
    "shape", [(10, 12), (WIDTH, HEIGHT), (3, HEIGHT, WIDTH), (HEIGHT,), (HEIGHT + 1, WIDTH, 1)]
)
def test_a_mask_that_does_not_fit_is_refused(shape):
    with pytest.raises(ValueError) as error:
        A.RandomHorizontalFlip()(KEY, {"image": DRAWN, "mask": np.zeros(shape, np.int32)})
    assert "`mask` must be [H, W] or [H, W, C]" in str(error.value)
    assert str(shape) in str(error.value) and str(DRAWN.shape) in str(error.value)


def test_a_fill_that_does_not_fit_the_dtype_is_refused():
    sample = {"image": DRAWN, "mask": np.zeros((HEIGHT, WIDTH), np.int8)}
    with pytest.raises(
        ValueError, match=r"`mask_fill` must fit the mask's int8 \(-128 to 127\), got 255"
    ):
        A.CenterCrop(40)(KEY, sample)
    with pytest.raises(ValueError, match=r"`mask_fill` must be an int, .* got 0.5"):
        A.Compose([A.CenterCrop(4)], mask_fill=0.5)


def test_mask_fill_is_part_of_the_config():
    chain = A.Compose([A.CenterCrop(4)], mask_fill=7)
    assert "mask_fill=7" in repr(chain) and chain != A.Compose([A.CenterCrop(4)])
    assert chain == A.Compose([A.CenterCrop(4)], mask_fill=np.int64(7))
    assert A.CoarseDropout(mask_fill=np.int64(7)) == A.CoarseDropout(mask_fill=7)


@pytest.mark.parametrize("entry", [{"mask": LABELS}, {"boxes": np.zeros((1, 4), np.float32)}])
def test_a_function_that_leaves_targets_behind_is_refused(entry):
    halve = A.Lambda(lambda key, image: image[::2])
    change = r"Lambda changed the image's .* from \(17, 23\) to \(9, 23\)"
    message = f"{change}, but not those of '{next(iter(entry))}'"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(halve, KEY, {"image": DRAWN, **entry})


def test_boxes_that_are_padding_stay_zero():
    boxes = jnp.array(
        [[2.0, 3.0, 9.0, 8.0], [0.0, 0.0, 5.0, 4.0], [0.0, 0.0, 0.0, 0.0]], jnp.float32
    )
    chain = A.Compose([A.RandomHorizontalFlip(1.0), A.CenterCrop((9, 11)), A.Resize((18, 22))])
    for fuse in (True, False):
        out = run(A.Compose(chain.transforms, fuse=fuse), {"image": DRAWN, "boxes": boxes})["boxes"]
        # x -> 2 (23 - x - 6), y -> 2 (y - 4)
        expected = [[16.0, -2.0, 30.0, 8.0], [24.0, -8.0, 34.0, 0.0], [0.0] * 4]
        np.testing.assert_allclose(out, expected, atol=1e-5)
    turned = run(A.RandomPerspective(0.5, 1.0), {"image": DRAWN, "boxes": boxes})["boxes"]
    assert not np.asarray(turned)[2].any() and np.asarray(turned)[:2].any(axis=1).all()
