"""RandomRotate90, RandomTranspose and RandomD4 against numpy's rot90."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxaug import augment as A
from jaxaug.augment import functional as F
from tests.augment.targets import check_targets, on_canvas
from tests.reference.points import matrix_pull

KEY = jax.random.key(0)
KEYS = [jax.random.fold_in(KEY, number) for number in range(12)]
SHAPES = [(65, 97), (1, 1), (1, 9)]
IMAGE = {
    shape: np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8) for shape in SHAPES
}


def element(transform, key):
    """What `transform(key, ...)` draws."""
    if isinstance(transform, A.RandomTranspose):
        return 4
    return int(transform.make_params(jax.random.fold_in(key, 0), A.ImageInfo((9, 9))).element)


def expected(image, element):
    return np.rot90(np.swapaxes(image, 0, 1) if element >= 4 else image, element % 4)


MOVES = [F.horizontal_flip, F.vertical_flip, F.rot90, F.transpose]


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_a_batch_is_not_taken_for_an_image(move):
    with pytest.raises(ValueError, match=r"expected one image .* got \(2, 4, 5, 3\): batches go"):
        move(jnp.zeros((2, 4, 5, 3)))
    plane = np.arange(20, dtype=np.uint8).reshape(4, 5)
    np.testing.assert_array_equal(move(plane), move(plane[:, :, None])[:, :, 0])


ALWAYS = [A.RandomRotate90(p=1.0), A.RandomTranspose(p=1.0), A.RandomD4()]


@pytest.mark.parametrize("transform", ALWAYS, ids=lambda t: type(t).__name__)
@pytest.mark.parametrize("shape", SHAPES)
def test_on_a_canvas_pixel_for_pixel(transform, shape):
    image = IMAGE[shape]
    room = (100 - shape[0], 100 - shape[1])
    run = jax.jit(transform)
    for key in KEYS:
        out = run(key, jax.tree.map(jnp.asarray, on_canvas(image, 200, room)))
        turned = expected(image, element(transform, key))
        height, width = turned.shape[:2]
        assert out["size"].tolist() == [height, width]
        np.testing.assert_array_equal(out["image"][:height, :width], turned)


@pytest.mark.parametrize("transform", ALWAYS, ids=lambda t: type(t).__name__)
def test_a_plain_square_image(transform):
    image = IMAGE[65, 97][:, :65]
    run = jax.jit(transform)
    for key in KEYS[:4]:
        turned = expected(image, element(transform, key))
        np.testing.assert_array_equal(run(key, image), turned)


@pytest.mark.parametrize("key", KEYS[:5])
def test_the_targets_move(key):
    transform = A.RandomD4()
    height, width = 65, 97
    drawn = element(transform, key)
    turns = [
        np.eye(3),
        np.array([[0, -1, width], [1, 0, 0], [0, 0, 1]]),
        np.array([[-1, 0, width], [0, -1, height], [0, 0, 1]]),
        np.array([[0, 1, 0], [-1, 0, height], [0, 0, 1]]),
    ]
    swap = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    if drawn >= 4:
        turns[1] = np.array([[0, -1, height], [1, 0, 0], [0, 0, 1]])
        turns[2] = np.array([[-1, 0, height], [0, -1, width], [0, 0, 1]])
        turns[3] = np.array([[0, 1, 0], [-1, 0, width], [0, 0, 1]])
    pull = swap @ turns[drawn - 4] if drawn >= 4 else turns[drawn]
    check_targets(transform, key, (height, width), matrix_pull(pull), 1e-3, 1e-3, (35, 3))


@pytest.mark.parametrize("transform, count", [(A.RandomRotate90(p=1.0), 4), (A.RandomD4(), 8)])
def test_each_symmetry_is_as_likely(transform, count):
    draw = jax.vmap(lambda key: transform.make_params(key, A.ImageInfo((9, 9))).element)
    counts = np.bincount(draw(jax.random.split(KEY, 20_000)), minlength=count)
    assert len(counts) == count and stats.chisquare(counts).pvalue > 1e-4


def test_an_array_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="RandomD4 swaps height and width and needs a square"):
        A.RandomD4()(KEY, IMAGE[65, 97])


def test_a_run_with_crops_stays_exact():
    chain = A.Compose([A.CenterCrop(32), A.RandomD4(), A.RandomHorizontalFlip(1.0)])
    assert "1 read per pixel" in chain.explain(A.ImageInfo((65, 97)))


def test_the_pure_halves_are_numpys():
    image = IMAGE[65, 97]
    for k in (-1, 0, 1, 2, 3):
        np.testing.assert_array_equal(F.rot90(image, k), np.rot90(image, k))
    np.testing.assert_array_equal(F.transpose(image), np.swapaxes(image, 0, 1))
