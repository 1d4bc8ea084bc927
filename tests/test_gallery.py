"""The gallery of the site, and the scene and the pictures that it is made of."""

import inspect
import io
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image

from jaxaug import augment
from jaxaug._demo.draws import draws, normalization, pictures
from jaxaug._demo.scene import NAMES, draw_scene
from jaxaug.augment import recipes

sys.path.append(str(Path(__file__).parents[1] / "docs"))

import site_gallery

ENTRIES = site_gallery.entries()
SCENE = draw_scene(160)


def tiles(content: bytes) -> list[np.ndarray]:
    """Return the tiles of a strip."""
    pixels = np.asarray(Image.open(io.BytesIO(content)), np.float32)
    height, width = site_gallery.TILE
    assert pixels.shape[0] == height
    return [
        pixels[:, left : left + width]
        for left in range(0, pixels.shape[1], width + site_gallery.GAP)
    ]


# ---- the scene


def test_the_boxes_of_the_scene_are_those_of_its_mask():
    for label, box in enumerate(SCENE.boxes, 1):
        rows, columns = np.nonzero(SCENE.mask == label)
        hull = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        np.testing.assert_array_equal(box, hull)
    assert len(SCENE.boxes) == len(NAMES) - 1


def test_the_keypoints_of_the_scene_lie_on_the_child():
    x, y = np.floor(SCENE.keypoints).astype(int).T
    assert (SCENE.mask[y, x] == NAMES.index("child")).all()


def test_the_scene_is_the_same_at_every_size():
    large = Image.fromarray(draw_scene(320).image).resize((160, 120), Image.Resampling.BOX)
    assert np.abs(np.asarray(large, float) - SCENE.image).mean() < 6
    np.testing.assert_array_equal(draw_scene(160).image, SCENE.image)
    np.testing.assert_allclose(2 * SCENE.keypoints, draw_scene(320).keypoints)


# ---- pictures of results


def test_draws_are_those_of_the_keys():
    keys = jax.random.split(jax.random.key(3), (2, 3))
    transform = augment.RandomCrop((100, 120))
    images = [SCENE.image, 255 - SCENE.image]
    results = draws(transform, [{"image": image} for image in images], keys)
    for row, image in enumerate(images):
        for column, drawn in enumerate(results[row]):
            expected = transform(keys[row, column], image)
            np.testing.assert_array_equal(drawn["image"], expected)


def test_a_picture_is_the_used_part_as_it_was_before_it_was_normalized():
    chain = augment.Compose([augment.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4), layout="CHW")])
    values = chain(jax.random.key(0), SCENE.image)
    (shown,) = pictures({"image": values, "size": np.array([20, 30])}, *normalization(chain))
    np.testing.assert_array_equal(shown, SCENE.image[:20, :30])


def test_targets_are_drawn_where_they_are():
    sample = {
        "image": np.zeros((20, 30, 3), np.uint8),
        "mask": np.zeros((20, 30), np.uint8),
        "boxes": np.array([[4.0, 3.0, 14.0, 9.0], [0.0] * 4], np.float32),
        "keypoints": np.array([[24.0, 12.0, 1.0], [6.0, 15.0, 0.0]], np.float32),
    }
    sample["mask"][16:, :5] = 3
    (shown,) = pictures(sample)
    drawn = shown.any(axis=2)
    expected = np.zeros((20, 30), bool)
    expected[3:9, 4:14] = True
    expected[4:8, 5:13] = False  # the inside of the box
    expected[16:, :5] = True
    np.testing.assert_array_equal(drawn[:, :20], expected[:, :20])
    assert drawn[12, 24] and not drawn[15, 6]  # the second point is not visible


def test_views_are_pictures_each():
    chain = augment.Compose([augment.RandomCrop(24), augment.Normalize(0.5, 0.5)])
    views = augment.MultiView({"large": (chain, 2), "small": (augment.RandomCrop(16), 3)})
    ((result,),) = draws(
        views, [{"image": SCENE.image}], jax.random.split(jax.random.key(0), (1, 1))
    )
    shapes = [shown.shape for shown in pictures(result, *normalization(views))]
    assert shapes == [(24, 24, 3)] * 2 + [(16, 16, 3)] * 3


# ---- the page


def is_transform(value) -> bool:
    kinds = (augment.Transform, augment.GroupOp, augment.MultiView, augment.FiveCrop)
    if value is augment.Transform or not inspect.isclass(value):
        return False
    return issubclass(value, kinds) and not inspect.isabstract(value)


def test_every_transform_and_recipe_stands_in_the_gallery():
    exported = {name for name in dir(augment) if is_transform(getattr(augment, name))}
    shown = [entry.name for entry in ENTRIES if entry.family != site_gallery.RECIPES]
    assert sorted(shown) == sorted(exported)

    functions = {name for name, value in vars(recipes).items() if inspect.isfunction(value)}
    public = {name for name in functions if not name.startswith("_")} - {"check_positive_int"}
    assert {entry.name for entry in ENTRIES} - exported == public - {*site_gallery.OF_VIDEOS}


def test_the_tables_name_nothing_that_is_gone():
    names = {entry.name for entry in ENTRIES}
    assert names >= {*site_gallery.ARGUMENTS, *site_gallery.RECIPE_ARGUMENTS}
    families = {*site_gallery.FAMILIES, site_gallery.RECIPES} - {site_gallery.VIDEOS}
    assert {entry.family for entry in ENTRIES} == families


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_can_be_drawn(entry):
    """Of a result that is traced, not computed: the site in CI draws one entry of each family."""
    transform = entry.build()
    sample = site_gallery.sample_for(entry, transform)
    traced = jax.eval_shape(transform, jax.random.key(0), sample)
    if isinstance(transform, augment.GroupOp):
        traced = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), traced)
    result = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), traced)
    assert pictures(result, *normalization(transform))


def test_the_page_describes_and_shows_every_entry():
    page = site_gallery.page()
    for entry in ENTRIES:
        _, _, section = page.partition(f"### [{entry.name}][{entry.path}]\n")
        summary, code, picture = section.split("\n\n")[:3]
        assert summary.strip().endswith((".", ":"))
        assert code == f"`{entry.code}`"
        assert picture.startswith(f"![{entry.name}](gallery/{entry.name}.webp)")


def test_a_strip_shows_the_input_and_different_draws():
    (entry,) = [entry for entry in ENTRIES if entry.name == "RandomInvert"]
    given, drawn, *empty = tiles(site_gallery.strip(entry))
    scene = draw_scene(site_gallery.TILE[1]).image
    assert np.abs(given - scene).mean() < 8  # as WebP keeps it
    assert np.abs(drawn - (255.0 - scene)).mean() < 8
    assert all((tile > 250).all() for tile in empty)  # one result for all keys
