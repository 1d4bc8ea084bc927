"""Masks, boxes and keypoints of a geometric transform against an oracle in float64."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference import points as reference

ROOM = (12, 9)  # rows and columns of garbage below and beside the image


def on_canvas(image, rest, room=ROOM):
    """A sample of `image` in the top left of a canvas, everything else `rest`."""
    height, width = image.shape[:2]
    canvas = np.full((height + room[0], width + room[1], *image.shape[2:]), rest, image.dtype)
    canvas[:height, :width] = image
    return {"image": canvas, "size": np.array([height, width], np.int32)}


def check_targets(transform, key, size, pull, point_error, box_error, room=ROOM):
    """Check `transform(key, ...)` of an image of `size` beside garbage.

    `pull` takes points of the output to the source in float64. The label map as an image, read with
    "nearest", is the mask; keypoints come back through `pull`; boxes are hulls of their sides, and
    not smaller than those by more than rounding.
    """
    rng = np.random.default_rng(0)
    height, width = size
    labels = rng.integers(0, 250, size, dtype=np.uint8)
    corners = rng.uniform(0, 1, (6, 2, 2)) * [width, height]
    boxes = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1).astype(np.float32)
    boxes[-1] = 0
    keypoints = (rng.uniform(0, 1, (50, 2)) * [width, height]).astype(np.float32)

    names = {field.name for field in dataclasses.fields(transform)}
    settings = {"interpolation": "nearest", "fill": 1.0}  # 1.0 is 255, as `mask_fill`
    changes = {name: value for name, value in settings.items() if name in names}
    transform = dataclasses.replace(transform, **changes)
    outs = []
    for rest in (0, 200):
        sample = on_canvas(np.repeat(labels[:, :, None], 3, axis=2), rest, room)
        mask = on_canvas(labels, rest, room)["image"]
        sample.update(mask=mask, boxes=boxes, keypoints=keypoints)
        outs.append(jax.device_get(jax.jit(transform)(key, jax.tree.map(jnp.asarray, sample))))
    jax.tree.map(np.testing.assert_array_equal, *outs)

    out = outs[0]
    rendered = out["image"][:, :, 0]
    used = np.ones(rendered.shape, bool)
    if "size" in out:
        used[out["size"][0] :] = False
        used[:, out["size"][1] :] = False
        assert (rendered[~used] == 0).all() and (out["mask"][~used] == 255).all()
    np.testing.assert_array_equal(out["mask"][used], rendered[used])

    np.testing.assert_allclose(pull(out["keypoints"].astype(float)), keypoints, atol=point_error)
    for before, after in zip(boxes[:-1], out["boxes"]):
        expected = reference.hull(pull, before.astype(float))
        np.testing.assert_allclose(after, expected, atol=box_error)
        assert (after[:2] <= expected[:2] + point_error).all()
        assert (after[2:] >= expected[2:] - point_error).all()
    assert (out["boxes"][-1] == 0).all()
    return out
