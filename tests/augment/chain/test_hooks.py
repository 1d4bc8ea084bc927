"""What an operator may do beside moving or changing pixels: `apply_rest`, `kept_boxes`, `steps`."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxaug import augment
from jaxaug.augment._base.operator import Drawn

KEYS = jax.random.split(jax.random.key(0), 8)


class FirstBox(augment.Geometric):
    """Keeps the first box alone, and moves nothing."""

    p = 0.5

    def make_params(self, key, info):
        return None

    def warp(self, params, info):
        return augment.Warp.identity(info)

    def kept_boxes(self, params, info):
        return jnp.arange(info.boxes.shape[0]) < 1


def test_kept_boxes_are_dropped_before_the_map_without_an_end_of_the_run():
    boxes = jnp.array([[0.0, 0.0, 2.0, 3.0], [1.0, 1.0, 4.0, 4.0]])
    sample = {"image": jnp.zeros((8, 8, 3)), "boxes": boxes, "box_labels": jnp.array([5, 6])}
    flip = augment.RandomHorizontalFlip(1.0)
    chain = augment.Compose([flip, FirstBox(), flip])
    assert chain.explain(augment.ImageInfo((8, 8), boxes=boxes)).startswith("1 pass ")

    labels = [chain(key, sample)["box_labels"].tolist() for key in KEYS]
    assert labels.count([5, -1]) + labels.count([5, 6]) == len(KEYS)
    assert 0 < labels.count([5, 6]) < len(KEYS)
    drawn = chain.make_params(KEYS[0], sample)
    kept = chain.apply(drawn, sample)["boxes"]
    np.testing.assert_array_equal(kept[0], boxes[0])
    np.testing.assert_array_equal(kept[1], jnp.where(drawn[1].applied, 0.0, boxes[1]))


class Relabeled(augment.Transform):
    """Adds one to the label, and to the masks by `kinds`."""

    p = 0.5

    def make_params(self, key, info):
        return None

    def apply_rest(self, params, rest, kinds, info):
        masks = {name: rest[name] + 1 for name, kind in kinds.items() if kind == "mask"}
        return {**rest, **masks, "label": rest["label"] + 1}


def test_apply_rest_changes_what_is_beside_the_image_by_the_coin():
    mask = jnp.arange(16).reshape(4, 4)
    sample = {"image": jnp.zeros((4, 4, 3)), "mask": mask, "other": mask, "label": 3}
    flip = augment.RandomHorizontalFlip(1.0)
    chain = augment.Compose([flip, Relabeled(), flip], targets={"other": "mask"})
    found = set()
    for key in KEYS:
        out = chain(key, sample)
        applied = int(out["label"]) - 3
        found.add(applied)
        np.testing.assert_array_equal(out["mask"], mask + applied)
        np.testing.assert_array_equal(out["other"], mask + applied)
    assert found == {0, 1}


class TurnedTwice(augment.Transform):
    """Two flips that share their parameters."""

    def make_params(self, key, info):
        flip = augment.RandomHorizontalFlip(0.5)
        return flip.draw(key, info)

    def steps(self, drawn):
        flip = augment.RandomHorizontalFlip(0.5)
        return [(flip, drawn.params), (augment.RandomVerticalFlip(0.5), drawn.params)]


def test_steps_run_in_their_order_and_tell_what_is_left():
    image = jnp.arange(48.0).reshape(4, 4, 3) / 48
    boxes = jnp.array([[0.0, 0.0, 1.0, 2.0]])
    chain = augment.Compose([TurnedTwice()])
    found = set()
    for key in KEYS:
        drawn = chain.make_params(key, {"image": image, "boxes": boxes})
        turned = bool((chain.apply(drawn, image) == image[::-1, ::-1]).all())
        found.add(turned)
        info = augment.ImageInfo((4, 4), boxes=boxes)
        expected = [[3.0, 2.0, 4.0, 4.0]] if turned else boxes
        np.testing.assert_array_equal(chain.after(Drawn(drawn), info).boxes, expected)
    assert found == {False, True}
