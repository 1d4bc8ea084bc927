"""Random chains of public transforms on images of random sizes: laws that no table of cases has.

A failure names its seed and its chain; `pytest tests/test_random_chains.py -k "[SEED]"` runs it.
`-m slow` runs more of them.
"""

import random
from typing import Any

import jax
import numpy as np
import pytest

from jaxaug import augment
from tests.images import picture
from tests.test_contract import CASES, EXPORTED, FIXED, build, has_p

LONGEST = 64
IN_CI = 4
BY_HAND = 200
EAGER_EVERY = 4

# A difference of one ulp decides on a level, a count or a pixel there.
STEPS = {
    "AugMix",
    "AutoAugment",
    "CLAHE",
    "Dithering",
    "Downscale",
    "Halftone",
    "HistogramMatching",
    "JPEG",
    "LookupTable",
    "RandAugment",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomPosterize",
    "RandomSolarize",
    "ShotNoise",
    "Spatter",
    "Superpixels",
    "ThreeAugment",
    "TrivialAugmentWide",
}
STEPPED_SHARE = 0.05
STEPPED_PIXELS = 4
POINT_TOLERANCE = 5e-3
LEAVE_UNIT_RANGE = {"Normalize", "RandomErasing"}  # the latter where it paints normal noise
DROP_BOXES = {"RandomIoUCrop", "SanitizeBoxes"}
OUTPUTS = [name for name in EXPORTED if issubclass(getattr(augment, name), augment.Output)]
OTHERS = [name for name in EXPORTED if name not in OUTPUTS]


def drawn_chain(dice):
    """Return names and transforms: those that want a square array first, an output last."""
    names = dice.sample(OTHERS, dice.randint(1, 4))
    if any(CASES[name].mask for name in names):  # it comes with the boxes
        names = [name for name in names if CASES[name].boxes is not False]
    names.sort(key=lambda name: not CASES[name].square)
    if dice.random() < 0.2:
        names.append(dice.choice(OUTPUTS))
    chances = {name: {"p": dice.choice([0.5, 1.0])} for name in names if has_p(name)}
    return names, [build(name, **chances.get(name, {})) for name in names]


def drawn_sample(dice, names):
    """Return a tight sample, and the same on a canvas with other pixels beside it."""
    height, width = dice.randint(1, LONGEST), dice.randint(1, LONGEST)
    if "RandomCrop" in names:  # which does not pad
        height, width = max(height, FIXED[0]), max(width, FIXED[1])
    rows, columns = height + dice.randint(0, 20), width + dice.randint(1, 20)
    if any(CASES[name].square for name in names):
        height = width
        rows = columns
    channels_last = picture(dice.randint(0, 99), height, width)
    tight: dict[str, Any] = {"image": channels_last, "label": np.int32(3), "epoch": np.int32(4)}
    if all(CASES[name].boxes is not False for name in names):
        left, right = sorted((dice.uniform(0, width), dice.uniform(0, width)))
        top, bottom = sorted((dice.uniform(0, height), dice.uniform(0, height)))
        tight["mask"] = picture(dice.randint(0, 99), height, width)[:, :, 0] % 5
        tight["boxes"] = np.array([[left, top, right, bottom], [0] * 4], np.float32)
        if DROP_BOXES.isdisjoint(names):  # there they would have to belong to the boxes
            tight["keypoints"] = np.array([[left, bottom], [-3, 70]], np.float32)

    def wider(frame):
        canvas = np.full((rows, columns, *frame.shape[2:]), 77, np.uint8)
        canvas[:height, :width] = frame
        return canvas

    frames = {name: wider(tight[name]) for name in ("image", "mask") if name in tight}
    canvas = {**tight, **frames, "size": np.array([height, width], np.int32)}
    if dice.random() < 0.3:
        tight["image"], canvas["image"] = (
            np.float32(sample["image"]) / 255 for sample in (tight, canvas)
        )
    return tight, canvas


def check_alike(names, out, expected):
    """Raise where two results differ by more than rounding."""
    height, width = out["size"] if "size" in out else out["image"].shape[:2]
    stepped = not STEPS.isdisjoint(names)
    for entry in ("image", "mask"):
        if entry not in out:
            continue
        values, wanted = (np.float64(each[entry][:height, :width]) for each in (out, expected))
        assert np.isfinite(values).all()
        difference = np.abs(values - wanted)
        bound = 1.0 if out[entry].dtype == np.uint8 and entry == "image" else 6e-3
        differs = int((difference > bound).sum())
        # A mask takes the nearest pixel: between two, rounding decides.
        may_step = stepped or entry == "mask"
        allowed = STEPPED_PIXELS + STEPPED_SHARE * difference.size if may_step else 0
        assert differs <= allowed, (entry, differs, difference.size, difference.max())
    for entry in ("boxes", "keypoints"):
        if entry in out:
            np.testing.assert_allclose(
                out[entry], expected[entry], rtol=1e-4, atol=POINT_TOLERANCE, err_msg=entry
            )


def check_chain(seed):
    dice = random.Random(seed)
    names, transforms = drawn_chain(dice)
    chain = augment.Compose(transforms)
    tight, canvas = drawn_sample(dice, names)
    key = jax.random.key(seed)
    print(f"seed {seed}: {chain} of {tight['image'].shape} in {canvas['image'].shape}")

    expected = jax.device_get(jax.jit(chain)(key, tight))
    if seed % EAGER_EVERY == 0:  # each of its operations is compiled for each shape
        check_alike(names, jax.device_get(chain(key, tight)), expected)
    check_alike(names, jax.device_get(jax.jit(chain)(key, canvas)), expected)
    if LEAVE_UNIT_RANGE.isdisjoint(names) and expected["image"].dtype != np.uint8:
        assert -1e-5 <= expected["image"].min() and expected["image"].max() <= 1 + 1e-5


@pytest.mark.parametrize("seed", range(IN_CI))
def test_a_random_chain(seed):
    check_chain(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(IN_CI, BY_HAND))
def test_many_random_chains(seed):
    check_chain(seed)
