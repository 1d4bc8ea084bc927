"""The kinds of transform as users derive from them, and what they are told of an image."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxaug import augment as A
from jaxaug.augment import matrix, random
from tests.images import picture

KEY = jax.random.key(0)
IMAGE = picture(0, 20, 26)
SIZE = jnp.array([17, 23], jnp.int32)
BOXES = jnp.array([[2.0, 3.0, 9.0, 8.0]], jnp.float32)


def run(transform, sample=IMAGE):
    return jax.jit(transform)(KEY, sample)


@dataclass(frozen=True)
class Invert(A.Pointwise):
    """Each pixel by itself."""

    p: float = 1.0

    def make_params(self, key, info):
        """Nothing."""

    def apply(self, params, image, info):
        return 1 - image


@dataclass(frozen=True)
class Shrink(A.ImageOp):
    """A function that changes the shape."""

    tells: bool = True

    def make_params(self, key, info):
        """Nothing."""

    def apply(self, params, image, info):
        return image[::2, ::2]

    def after(self, drawn, info):
        return A.ImageInfo((10, 13)) if self.tells else info


@dataclass(frozen=True)
class Swap(A.SampleOp):
    """The mask into the red of the image, and a label."""

    p: float = 1.0

    def make_params(self, key, info):
        return random.uniform(key)

    def apply(self, params, sample, info):
        red = sample["mask"][:, :, None].astype(jnp.float32) / 255
        image = jnp.concatenate([red, sample["image"][:, :, 1:]], axis=2)
        return {**sample, "image": image, "label": sample["label"] + 1}


# ---- fusion


def barriers(*transforms):
    return str(jax.make_jaxpr(A.Compose(transforms))(KEY, IMAGE)).count("optimization_barrier")


def test_pointwise_steps_have_no_barrier():
    assert barriers(Invert(), Invert(p=0.5), A.RandomGrayscale(0.5), A.ToFloat()) == 0
    turn = A.RandomRotation(5)
    assert barriers(turn, Invert(), A.ToFloat()) == barriers(turn)
    # A gray value reads the resample three times.
    assert barriers(turn, Invert(), A.RandomGrayscale(0.5)) > barriers(turn)


def test_a_pointwise_step_keeps_the_shape():
    class Halve(Invert):
        def apply(self, params, image, info):
            return image[::2]

    with pytest.raises(TypeError, match=r"Halve.apply must keep the shape .* `augment.ImageOp`"):
        run(Halve())


# ---- p


@pytest.mark.parametrize(
    "transform", [A.RandomRotation(30, p=0.4), Invert(p=0.4), A.ColorJitter(0.5, p=0.4)]
)
def test_where_the_coin_says_no_nothing_changes(transform):
    keys = jax.random.split(KEY, 60)
    out = jax.jit(jax.vmap(transform, (0, None)))(keys, IMAGE)
    changed = (np.asarray(out) != IMAGE).any(axis=(1, 2, 3))
    drawn = jax.vmap(lambda key: transform.draw(jax.random.fold_in(key, 0), A.ImageInfo((20, 26))))(
        keys
    )
    if drawn.applied is not None:
        np.testing.assert_array_equal(changed, drawn.applied)
    assert 10 < changed.sum() < 40


def test_p_below_1_needs_one_shape():
    @dataclass(frozen=True)
    class Crop(A.CenterCrop):
        p: float = 0.5

    with pytest.raises(ValueError, match=r"`p` of Crop must be 1: .* from \(20, 26\) to \(8, 8\)"):
        run(Crop(8))

    @dataclass(frozen=True)
    class Half(Shrink):
        p: float = 0.5

    with pytest.raises(ValueError, match=r"\(20, 26\) to \(10, 13\): `p` must be 1 then"):
        run(Half())


def test_p_below_1_broadcasts_nothing():
    """One channel where three came, or [2, 2] soft labels where int[2] came, would be broadcast."""

    @dataclass(frozen=True)
    class First(A.ImageOp):
        p: float = 0.5

        def make_params(self, key, info):
            return None

        def apply(self, params, image, info):
            return image[:, :, :1]

    @dataclass(frozen=True)
    class Soft(A.SampleOp):
        p: float = 0.5

        def make_params(self, key, info):
            return None

        def apply(self, params, sample, info):
            return {**sample, "label": jax.nn.one_hot(sample["label"], 2)}

    @dataclass(frozen=True)
    class SoftGroup(A.GroupOp):
        p: float = 0.5
        group_size = 2

        def make_params(self, key, info):
            return None

        def apply(self, params, group, info):
            return {**group, "label": jax.nn.one_hot(group["label"], 2)}

    assert run(First(p=1.0)).shape == (20, 26, 1)
    with pytest.raises(
        ValueError, match=r"`p` of First must be 1: .* 'image' from \(20, 26, 3\) to"
    ):
        run(First())
    with pytest.raises(ValueError, match=r"`p` of Soft must be 1: .* 'label' from \(\) to \(2,\)"):
        run(Soft(), {"image": IMAGE, "label": jnp.int32(1)})
    group = {"image": jnp.stack([IMAGE, IMAGE]), "label": jnp.arange(2, dtype=jnp.int32)}
    with pytest.raises(ValueError, match=r"`p` of SoftGroup must be 1: .* from \(2,\) to \(2, 2\)"):
        SoftGroup()(KEY, group)


# ---- shapes and channels


def test_a_change_of_shape_is_told_to_those_that_draw_later():
    chain = A.Compose([Shrink(), A.RandomCrop(8)])
    drawn = chain.make_params(KEY, A.ImageInfo((20, 26)))
    np.testing.assert_array_equal(chain.apply(drawn, IMAGE), chain(KEY, IMAGE))
    with pytest.raises(ValueError, match=r"Shrink.after tells of \(20, 26\): override it"):
        run(Shrink(tells=False))
    halve = A.Compose([A.Lambda(lambda key, image: image[::2, ::2]), A.RandomCrop(8)])
    drawn = halve.make_params(KEY, A.ImageInfo((20, 26)))
    np.testing.assert_array_equal(halve.apply(drawn, IMAGE), halve(KEY, IMAGE))


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_geometry_takes_any_number_of_channels(channels):
    image = np.random.default_rng(0).uniform(0, 1, (20, 26, channels)).astype(np.float32)
    chain = A.Compose([A.RandomResizedCrop(12), A.RandomRotation(20), Invert(), A.ToFloat()])
    out = run(chain, image)
    planes = [run(chain, image[:, :, i : i + 1]) for i in range(channels)]
    np.testing.assert_allclose(out, np.concatenate(planes, axis=2), atol=1e-6)


def test_color_says_that_it_needs_three():
    for transform in (A.ColorJitter(0.1), A.Grayscale()):
        with pytest.raises(ValueError, match=r"needs an image of 3 channels, got \(20, 26, 1\)"):
            run(transform, IMAGE[:, :, :1])
    with pytest.raises(ValueError, match=r"`mean` of Normalize must be one number, or one per"):
        run(A.Normalize((0.5, 0.4, 0.3), 0.5), IMAGE[:, :, :2])
    with pytest.raises(ValueError, match=r"`fill` must be one number, or one per channel"):
        run(A.RandomRotation(5, fill=(0.1, 0.2)), IMAGE)


# ---- samples and groups


def test_a_sample_op_sees_the_whole_sample():
    mask = np.full((20, 26), 51, np.uint8)
    sample = {"image": IMAGE, "mask": mask, "size": SIZE, "label": jnp.int32(3)}
    chain = A.Compose([A.RandomHorizontalFlip(1.0), Swap(), A.RandomVerticalFlip(1.0)])
    out = run(chain, sample)
    assert out["label"] == 4 and out["image"].dtype == jnp.uint8
    assert (np.asarray(out["image"])[:17, :23, 0] == 51).all()
    assert not np.asarray(out["image"])[17:].any()
    flipped = IMAGE[:17, :23][::-1, ::-1]
    np.testing.assert_array_equal(np.asarray(out["image"])[:17, :23, 1:], flipped[:, :, 1:])
    kept = run(Swap(p=0.0), sample)
    assert kept["label"] == 3
    np.testing.assert_array_equal(kept["image"][:17, :23], IMAGE[:17, :23])


@dataclass(frozen=True)
class Mix(A.GroupOp):
    """Half of the next image."""

    p: float = 1.0
    group_size = 2

    def make_params(self, key, info):
        return random.uniform(key, 0.4, 0.6)

    def apply(self, params, group, info):
        assert info.canvas == (20, 26)
        image = group["image"]
        return {**group, "image": params * image + (1 - params) * image[::-1]}


@dataclass(frozen=True)
class Corner(A.SampleOp):
    """Keep rows and columns at the top left, with a "size" as `told` says."""

    side: int
    told: str = "new"
    told_after: str = "new"

    def make_params(self, key, info):
        return None

    def apply(self, params, sample, info):
        cut = {**sample, "image": sample["image"][: self.side, : self.side]}
        if self.told == "new":
            cut["size"] = jnp.minimum(sample["size"], self.side)
        if self.told == "none":
            del cut["size"]
        return cut

    def after(self, drawn, info):
        sizes = {"new": jnp.minimum(info.size, self.side), "none": None, "same": info.size}
        canvas = info.canvas
        if self.told_after != "same":
            canvas = (min(self.side, canvas[0]), min(self.side, canvas[1]))
        return info._replace(canvas=canvas, size=sizes[self.told_after])


FLIP = A.RandomHorizontalFlip(1.0)


def test_a_sample_op_that_changes_the_size_says_so():
    ramp = np.broadcast_to(np.arange(0, 200, 2, dtype=np.uint8)[None, :, None], (50, 100, 3))
    sample = {"image": jnp.asarray(ramp), "size": jnp.array([40, 90], jnp.int32)}
    for side, told, used in [(64, "new", (40, 64)), (40, "new", (40, 40)), (32, "none", (32, 32))]:
        chain = A.Compose([Corner(side, told, told), FLIP])
        out = jax.jit(chain)(KEY, sample)
        flipped = np.zeros((min(side, 50), side, 3), np.uint8)
        flipped[: used[0], : used[1]] = ramp[: used[0], : used[1]][:, ::-1]
        np.testing.assert_array_equal(out["image"], flipped)
        assert out.get("size", jnp.array(used)).tolist() == list(used)
        assert ("size" in out) == (told == "new")
        drawn = chain.make_params(KEY, A.ImageInfo((50, 100), sample["size"]))
        np.testing.assert_array_equal(chain.apply(drawn, sample)["image"], out["image"])


@pytest.mark.parametrize("told", ["same", "new", "none"])
@pytest.mark.parametrize("told_after", ["same", "new", "none"])
def test_a_size_that_a_sample_op_leaves_as_it_was_is_refused(told, told_after):
    sample = {"image": jnp.zeros((50, 100, 3)), "size": jnp.array([40, 90], jnp.int32)}
    chain = A.Compose([Corner(32, told, told_after), FLIP])
    if told == told_after != "same":
        assert jax.eval_shape(chain, KEY, sample)["image"].shape == (32, 32, 3)
        return
    message = r"Corner.apply returned .*\(32, 32\) with.* Corner.after tells of .*info._replace"
    if told == "same":
        message = r"Corner.apply changed .* from \(50, 100\) to \(32, 32\), but not the 'size'"
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(chain, KEY, sample)


def test_a_size_beyond_its_image_is_refused_where_it_can_be_read():
    sample = {"image": jnp.zeros((50, 60, 3)), "size": np.array([50, 61], np.int32)}
    with pytest.raises(ValueError, match=r"`size`, .* within the image's \(50, 60\), got \[50, 61"):
        FLIP(KEY, sample)


def test_a_group_op_mixes_groups():
    images = np.random.default_rng(0).uniform(0, 1, (6, 20, 26, 3)).astype(np.float32)
    for groups in (images.reshape(3, 2, 20, 26, 3), images.reshape(3, 2, 3, 20, 26)):
        keys = jax.random.split(KEY, 3)
        out = jax.jit(jax.vmap(Mix()))(keys, {"image": groups})["image"]
        shares = jax.vmap(lambda key: Mix().make_params(key, None))(keys).reshape(3, 1, 1, 1, 1)
        np.testing.assert_allclose(out, shares * groups + (1 - shares) * groups[:, ::-1], atol=1e-6)
        never = jax.vmap(Mix(p=0.0))(keys, {"image": groups})["image"]
        np.testing.assert_array_equal(never, groups)
    with pytest.raises(ValueError, match="Mix mixes groups of 2, got 6 images"):
        Mix()(KEY, {"image": images})
    for chain in (A.Compose, A.RandomChoice):
        with pytest.raises(TypeError, match=r"Mix mixes .* Loader\(batch.* MixUpOrCutMix chooses"):
            chain([Mix()])  # pyright: ignore


# ---- what a transform is told


@dataclass(frozen=True)
class Look(A.Geometric):
    """To the corner of the first box, by as many pixels more as there were epochs."""

    def make_params(self, key, info):
        return info.boxes[0, :2] + info.epoch.astype(jnp.float32)

    def warp(self, params, info):
        return A.Warp.framing(info, matrix.translation(params[0], params[1]))


@pytest.mark.parametrize("fuse", [True, False])
def test_boxes_in_info_are_those_moved_so_far(fuse):
    sample = {"image": IMAGE, "boxes": BOXES, "epoch": jnp.int32(2)}
    chain = A.Compose([A.RandomHorizontalFlip(1.0), A.CenterCrop((18, 20)), Look()], fuse=fuse)
    out = run(chain, sample)
    # 26 - 9 - 3 = 14 and 3 - 1 = 2 are the corner, to which Look goes and 2 further.
    np.testing.assert_allclose(out["boxes"], [[-2.0, -2.0, 5.0, 3.0]], atol=1e-5)
    assert out["epoch"] == 2
    params = chain.make_params(KEY, A.ImageInfo((20, 26), None, BOXES, jnp.int32(2)))
    np.testing.assert_array_equal(params[2].params, [16.0, 4.0])


def test_a_chain_draws_for_a_sample_as_for_its_info():
    sample = {"image": IMAGE, "size": jnp.array([18, 21]), "boxes": BOXES, "epoch": jnp.int32(2)}
    chain = A.Compose([A.RandomHorizontalFlip(), A.CenterCrop(12), Look(), A.ColorJitter(0.3)])
    params = chain.make_params(KEY, sample)
    info = A.ImageInfo((20, 26), sample["size"], BOXES, jnp.int32(2), 3)
    jax.tree.map(np.testing.assert_array_equal, params, chain.make_params(KEY, info))
    replayed = jax.jit(chain.apply)(params, sample)
    jax.tree.map(np.testing.assert_array_equal, replayed, jax.jit(chain)(KEY, sample))
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(params))

    converted = A.Compose([Look()], box_format="xywh").make_params(KEY, sample)
    np.testing.assert_array_equal(converted[0].params, chain.transforms[2].make_params(KEY, info))
    keys = jax.random.split(KEY, 3)
    batch = jnp.stack([IMAGE] * 3)
    batched = jax.vmap(A.Compose([A.RandomCrop(8)]).make_params)(keys, batch)
    assert all(leaf.shape[0] == 3 for leaf in jax.tree.leaves(batched))
    with pytest.raises(TypeError, match="the arguments are swapped"):
        chain.make_params(sample, KEY)


@pytest.mark.parametrize("mode", ["edge", "reflect", "symmetric", "wrap"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_the_border_is_that_of_numpy(mode, length):
    index = np.arange(-9, length + 9)
    padded = np.pad(np.arange(length), 9, mode=mode)
    for info in (
        A.ImageInfo((length, 30)),
        A.ImageInfo((20, 30), jnp.array([length, 3], jnp.int32)),
    ):
        np.testing.assert_array_equal(info.border(0, jnp.asarray(index), mode), padded)


def test_random_numbers_are_uniform():
    keys = jax.random.split(KEY, 3000)

    def draw(function, *arguments):
        return np.asarray(jax.vmap(lambda key: function(key, *arguments))(keys))

    numbers = draw(random.uniform, -2.0, 4.0)
    assert numbers.dtype == np.float32 and abs(numbers.mean() - 1) < 0.1
    assert -2 <= numbers.min() < -1.9 and 3.9 < numbers.max() < 4
    _, counts = np.unique(draw(random.integers, 3, 6), return_counts=True)
    assert len(counts) == 3 and np.abs(counts - 1000).max() < 100
    _, counts = np.unique(draw(random.permutation, 3), axis=0, return_counts=True)
    assert len(counts) == 6 and np.abs(counts - 500).max() < 90
    assert abs(draw(random.coin, 0.3).mean() - 0.3) < 0.03
    shares = np.bincount(draw(random.choice, [1.0, 0.0, 3.0])) / 3000
    np.testing.assert_allclose(shares, [0.25, 0, 0.75], atol=0.03)
    assert np.abs(np.bincount(draw(random.choice, 4)) - 750).max() < 90
