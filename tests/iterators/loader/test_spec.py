"""The columns of a batch: no value changes in silence, every batch has the form of the first."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxaug import Loader, augment, decode
from jaxaug.iterators import FromIterable, InMemory
from jaxaug.iterators.loader.columns import narrow
from jaxaug.sharding import batch_sharding
from tests.images import encode, jpegs, picture
from tests.iterators.loaders import one_device

N = 8


def first_batch(features, **options):
    source = InMemory(jpegs(N), features)
    options = {"shuffle": False, "sharding": one_device()} | options
    with Loader(source, N, **options) as loader:
        batch = next(loader)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), batch) == jax.tree.map(
            lambda x: (x.shape, x.dtype), loader.element_spec
        )
    return batch


@pytest.mark.parametrize(
    "name, column, dtype",
    [
        ("uid", np.array([-(2**31), 2**31 - 1] * 4, np.int64), np.int32),
        ("uid", np.array([0, 2**31 - 1] * 4, np.uint64), np.int32),
        ("uid", np.array([0, 2**32 - 1] * 4, np.uint32), np.uint32),
        ("uid", np.array([0, 255] * 4, np.uint8), np.uint8),
        ("uid", np.array([-5, 5] * 4, ">i8"), np.int32),
        ("flag", np.array([True, False] * 4), np.bool_),
        ("label", np.array([0, 255] * 4, np.uint8), np.int32),
        ("label", np.array([0, 7] * 4, np.uint32), np.int32),
        ("label", np.array([0.25, 0.75] * 4, np.float32), np.float32),
        ("score", np.array([2.0**24, -7.0] * 4), np.float32),
        ("score", np.array([np.inf, np.nan] * 4), np.float32),
        ("score", np.array([2.0**40, 0.5] * 4), np.float32),  # a power of two is exact
        ("half", np.array([0.5, 2] * 4, np.float16), np.float16),
        ("brain", np.array([0.5, 2] * 4, ml_dtypes.bfloat16), jnp.bfloat16),
    ],
)
def test_columns_keep_their_values_in_at_most_32_bits(name, column, dtype):
    found = first_batch({name: column})[name]
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.asarray(column, np.float64))


def test_floats_are_rounded_to_float32():
    column = np.linspace(0, 1, N) + 1e9 + 0.1  # such as seconds: no whole numbers
    np.testing.assert_array_equal(first_batch({"time": column})["time"], column.astype(np.float32))


@pytest.mark.parametrize(
    "name, column, message",
    [
        ("uid", [1, 2, 2**31], r"'uid' must fit int32, got 2147483648 in record 2: split it"),
        ("uid", [1, 2, -(2**31) - 1], r"'uid' must fit int32, got -2147483649 in record 2"),
        (
            "uid",
            np.array([1, 2**63], np.uint64),
            r"'uid' must fit int32, got 9223372036854775808 in record 1",
        ),
        (
            "label",
            np.array([1, 2**31], np.uint32),
            r"'label' must fit int32, got 2147483648 in record 1",
        ),
        ("score", [0.5, 1e300], r"'score' must fit float32, got 1e\+300 in record 1"),
        (
            "score",
            [0.5, 2.0**24 + 1],
            r"'score' must be exact in float32, got 16777217.0 in record 1: pass whole",
        ),
        ("pair", [[1, 2], [3, 2**40]], r"'pair' must fit int32, got 1099511627776 in record 1"),
        (
            "text",
            np.array(["a", "b"]),
            r"'text' must be numbers, got dtype <U1: leave text to `source.texts",
        ),
        ("when", np.array(["2020-01-01"], "M8[D]"), r"'when' must be numbers.*float seconds"),
        ("wave", np.array([1j]), r"'wave' must be numbers.*real and imaginary"),
        ("odd", np.array([[1], None], object), r"'odd' must be numbers.*differ in shape"),
        ("tiny", np.zeros(2, ml_dtypes.float4_e2m1fn), r"'tiny' must be numbers, got dtype float4"),
    ],
)
def test_what_would_change_or_has_no_number_is_named(name, column, message):
    column = np.asarray(column)
    with pytest.raises((ValueError, TypeError), match=f"feature {message}"):
        narrow(name, column, np.arange(len(column)))


def test_a_value_that_does_not_fit_is_named_by_its_record_in_the_source():
    uid = np.arange(N, dtype=np.int64)
    uid[5] = 2**40
    with Loader(
        InMemory(jpegs(N), {"uid": uid}), 2, shuffle=False, sharding=one_device()
    ) as loader:
        next(loader), next(loader)
        with pytest.raises(
            ValueError, match=r"'uid' must fit int32, got 1099511627776 in record 5"
        ):
            next(loader)


def test_features_of_rows_of_different_lengths_are_named():
    with pytest.raises(ValueError, match=r"`features\['points'\]` must have rows of one shape"):
        InMemory(jpegs(2), {"points": [[1, 2], [3]]})


class Changing(InMemory):
    """Honest at construction, then as told."""

    change = staticmethod(lambda columns: columns)
    reads = 0

    def read(self, indices):
        columns = super().read(indices)
        self.reads += 1
        return columns if self.reads <= 2 else self.change(columns)


def without(columns, name):
    return {key: values for key, values in columns.items() if key != name}


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda c: c | {"x": c["x"].astype(np.float32)},
            r"'x' as int32\[\] .* got float32\[\]",
        ),
        (lambda c: c | {"x": c["x"][:, None]}, r"'x' as int32\[\] .* got int32\[1\]"),
        (
            lambda c: c | {"y": c["x"]},
            r"same columns in every read, got \['image', 'x', 'y'\] after \['image', 'x'\]",
        ),
        (lambda c: without(c, "x"), r"got \['image'\] after \['image', 'x'\]"),
        (lambda c: c | {"x": c["x"][1:]}, r"one row of column 'x' for each of 4 records, got 3"),
        (lambda c: c | {"image": c["image"].take(slice(1, None))}, r"'image' .* 4 records, got 3"),
        (lambda c: c["image"], r"must return a dict of columns .* got Encoded"),
        (lambda c: None, r"must return a dict of columns .* got NoneType"),
        (lambda c: {}, r"must return a dict of columns .* got \{\}"),
        (lambda c: c | {"x": 3}, r"one row of column 'x' for each of 4 records, got 1"),
        (lambda c: c | {"mask": c["image"]}, r"same columns in every read, .* 'mask'"),
        (
            lambda c: c | {"image": np.zeros((4, 9, 9, 3), np.uint8)},
            r"column 'image' as encoded bytes in every read.* got uint8\[9, 9, 3\]",
        ),
    ],
)
def test_a_source_is_held_to_what_it_showed_first(change, message):
    source = Changing(jpegs(N), {"x": np.arange(N)})
    source.change = change
    with Loader(source, 4, sharding=one_device()) as loader:
        with pytest.raises((ValueError, TypeError), match=message):
            next(loader)


class ChangingPixels(InMemory):
    """Its fourth record and those behind it are as told."""

    late = np.zeros((1, 9, 9, 3), np.uint8)

    def read(self, indices):
        return {"image": self.late} if indices.max() > 2 else super().read(indices)


@pytest.mark.parametrize(
    "shape, dtype, message",
    [
        ((1, 9, 8, 3), np.uint8, r"as uint8\[9, 9, 3\] in every read.* got uint8\[9, 8, 3\]"),
        ((1, 9, 9, 3), np.int8, r"as uint8\[9, 9, 3\] in every read.* got int8\[9, 9, 3\]"),
        ((1, 9), np.uint8, r"as uint8\[9, 9, 3\] in every read.* got uint8\[9\]"),
    ],
)
def test_pixels_are_held_to_their_form(shape, dtype, message):
    source = ChangingPixels(np.zeros((4, 9, 9, 3), np.uint8))
    source.late = np.zeros(shape, dtype)
    with Loader(source, 1, shuffle=False, sharding=one_device()) as loader:
        assert [next(loader)["index"].tolist() for _ in range(3)] == [[0], [1], [2]]
        with pytest.raises(ValueError, match=message):
            next(loader)


@pytest.mark.parametrize(
    "items, message",
    [
        ([{"label": 1}, {"label": 2.5}], r"'label' as int32\[\] .* got float32\[\]"),
        (
            [{"label": 1}, {"other": 2}],
            r"same columns.*got \['image', 'other'\] after \['image', 'label'\]",
        ),
        ([{"p": [1, 2]}, {"p": [1]}], r"'p' .* got int32\[1\]|'p' in one shape"),
    ],
)
def test_a_stream_is_held_to_what_it_showed_first(items, message):
    stream = FromIterable([(image, item) for image, item in zip(jpegs(2), items)])
    for batch_size in (1, 2):
        with Loader(stream, batch_size, shuffle=False, sharding=one_device()) as loader:
            with pytest.raises(ValueError, match=message):
                list(loader)


def test_nested_dicts_and_tuples_are_welcome():
    def views(key, sample):
        image = sample["image"].astype(jnp.float32)
        return {"views": (image, {"half": image[::2, ::2]}), "label": sample["label"]}

    with Loader(
        InMemory(jpegs(6), {"label": np.arange(6)}),
        4,
        transform=views,
        shuffle=False,
        last_batch="pad",
        sharding=batch_sharding(jax.devices("cpu")[:2]),
    ) as loader:
        spec = loader.element_spec
        assert spec["views"][1]["half"].shape == (4, 20, 28, 3)
        _, last = loader
    whole, half = last["views"]
    assert whole.shape == (4, 40, 56, 3) and half["half"].shape == (4, 20, 28, 3)
    np.testing.assert_array_equal(np.asarray(half["half"]), np.asarray(whole)[:, ::2, ::2])
    assert np.asarray(whole)[:2].any() and not np.asarray(whole)[2:].any()
    assert last["label"].tolist() == [4, 5, -1, -1]


class Target(NamedTuple):
    labels: jax.Array
    area: jax.Array


def test_blank_rows_of_nested_entries_are_those_of_their_names():
    """As detection models take targets: a label of 0 would be a class."""

    def target(key, sample):
        label = sample["label"]
        classes = {"fine": label, "coarse": label // 2}
        entries = {"labels": label, "area": label, "mask": sample["mask"], "label": classes}
        return {"image": sample["image"], "target": [entries], "fields": Target(label, label)}

    features = {"label": np.arange(3), "mask": np.ones((3, 40, 56), np.uint8)}
    options = {"decode": {"mask": decode.Mask(fill=7)}, "last_batch": "pad", "shuffle": False}
    source = InMemory(jpegs(3), features)
    with Loader(source, 2, transform=target, sharding=one_device(), **options) as loader:
        _, last = loader
    assert last["fields"].labels.tolist() == [2, -1] and last["fields"].area.tolist() == [2, 0]
    (found,) = last["target"]
    assert found["labels"].tolist() == [2, -1] and found["area"].tolist() == [2, 0]
    assert found["label"]["fine"].tolist() == [2, -1]
    assert found["label"]["coarse"].tolist() == [1, -1]
    assert (np.asarray(found["mask"][1]) == 7).all()


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            lambda key, sample: {"image": sample["image"], "valid": True},
            r"`transform` must not return 'valid'",
        ),
        (
            lambda key, sample: {"image": sample["image"], "index": 1},
            r"`transform` must not return 'index'",
        ),
        (lambda key, sample: {}, r"`transform` must return a dict of names and arrays, got \{\}"),
        (
            lambda key, sample: {"name": "x"},
            r"`transform` must return arrays and numbers, got 'x' as output\['name'\]",
        ),
        (
            lambda key, sample: {"name": "int8"},
            r"`transform` must return arrays and numbers, got 'int8' as output\['name'\]",
        ),
        (
            lambda key, sample: {"rng": key},
            r"got a key as output\['rng'\]: return `jax.random.key_data\(key\)`",
        ),
        (
            lambda key, sample: sample["image"],
            r"`transform` must return a dict, .* got an array: .* \{\*\*sample, \"image\": image\}",
        ),
    ],
)
def test_wrong_outputs_of_a_transform_are_named_at_construction(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Loader(InMemory(jpegs(4)), 4, transform=wrong, sharding=one_device())


def sized(size):
    def mix(key, group):
        return {"image": group["image"]}

    mix.group_size = size
    return mix


def mosaic(key, group):
    return {"image": group["image"].mean(0).astype(jnp.uint8)}


mosaic.group_size = 4


@pytest.mark.parametrize(
    "wrong, message",
    [
        (
            mosaic,
            r"as many rows as it gets, `group_size` = 4, got shape \[40, 56, 3\] "
            r"as output\['image'\]",
        ),
        (
            lambda key, group: group | {"image": group["image"][:1]},
            r"`group_size` = 2, got shape \[1, 40, 56, 3\]",
        ),
        (
            lambda key, group: (group["image"], group["size"]),
            r"`batch_transform` must return a dict.*got tuple",
        ),
        (lambda key, group: group["image"], r"`batch_transform` must return a dict"),
        (lambda key, group: None, r"`batch_transform` must return a dict"),
        (sized(0), r"`batch_transform.group_size` must be an int of at least 1, got 0"),
        (sized(2.0), r"`batch_transform.group_size` must be an int of at least 1, got 2.0"),
    ],
)
def test_wrong_outputs_of_a_batch_transform_are_named_at_construction(wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Loader(InMemory(jpegs(8)), 8, batch_transform=wrong, sharding=one_device())


def test_rows_that_are_not_valid_stay_blank_whatever_the_batch_transform_does():
    def swap(key, group):
        return {"image": group["image"][::-1], "label": group["label"][::-1]}

    images = [*jpegs(3), b"no image"]
    source = InMemory(images, {"label": np.arange(4)})
    with Loader(
        source, 4, batch_transform=swap, on_error="mask", shuffle=False, sharding=one_device()
    ) as loader:
        batch = next(loader)
    assert batch["valid"].tolist() == [True, True, True, False]
    assert batch["label"].tolist() == [1, 0, -1, -1]  # record 3 is blank for its partner, too
    assert not np.asarray(batch["image"])[3].any()


def test_a_batch_transform_gets_entries_without_numbers_too():
    source = InMemory(jpegs(8), {"boxes": np.zeros((8, 0, 4), np.float32)})

    def swap(key, group):
        return {"boxes": group["boxes"][::-1], "image": group["image"][::-1]}

    with Loader(source, 4, batch_transform=swap, sharding=one_device()) as loader:
        assert next(loader)["boxes"].shape == (4, 0, 4)


def test_blank_rows_by_the_kind_of_column():
    features = {
        "label": np.arange(1, 7, dtype=np.uint8),
        "labels": np.ones((6, 3), np.int64),
        "box_labels": np.ones((6, 2), np.int32),
        "score": np.ones(6),
        "uid": np.ones(6, np.int64),
        "flag": np.ones(6, bool),
    }
    source = InMemory([*jpegs(5), b"no image"], features)
    options = {"last_batch": "pad", "on_error": "mask", "shuffle": False, "sharding": one_device()}
    with Loader(source, 8, **options) as loader:
        batch = next(loader)
    for row in (5, 6, 7):
        assert batch["label"][row] == -1 and batch["labels"][row].tolist() == [-1] * 3
        assert batch["box_labels"][row].tolist() == [-1] * 2
        assert batch["score"][row] == 0 and batch["uid"][row] == 0 and not batch["flag"][row]
    assert batch["label"].tolist()[:5] == [1, 2, 3, 4, 5]


def test_images_of_one_size_are_the_canvas_and_say_nothing(recwarn):
    source = InMemory([encode(picture(i, 33, 47), "PNG") for i in range(4)])
    transform = augment.Compose([augment.ToFloat()])
    with Loader(source, 4, transform=transform, sharding=one_device()) as loader:
        assert next(loader)["image"].shape == (4, 33, 47, 3)
    assert not [w for w in recwarn if "canvas" in str(w.message)]


def test_padding_that_reaches_the_model_is_told_once():
    source = InMemory([encode(picture(i, 33 + i, 47), "PNG") for i in range(4)])
    chain = [augment.ToFloat()]
    with pytest.warns(UserWarning, match=r"canvases of 64 x 64.*CenterCrop, Resize") as caught:
        Loader(source, 4, transform=augment.Compose(chain), sharding=one_device()).close()
    assert len(caught) == 1 and caught[0].filename == __file__
    quiet = augment.Compose([augment.CenterCrop(32), *chain])
    Loader(source, 4, transform=quiet, sharding=one_device()).close()
    Loader(
        source, 4, decode=decode.Image(canvas=(64, 64)), sharding=one_device()
    ).close()  # the user's own choice


def test_padding_that_a_mask_marks_is_not_told(recwarn):
    images = [encode(picture(i, 33 + i, 47), "PNG") for i in range(4)]
    source = InMemory(images, {"mask": np.zeros((4, 36, 47), np.uint8)})
    with Loader(source, 4, shuffle=False, sharding=one_device()) as loader:
        assert (next(loader)["mask"][0, 33:] == 255).all()
    assert not [w for w in recwarn if "canvas" in str(w.message)]


def test_canvas_is_an_argument_and_the_decoder_can_be_seen():
    with Loader(
        InMemory(jpegs(4)), 4, decode=decode.Image(canvas=(20, 30)), sharding=one_device()
    ) as loader:
        assert loader.decoders["image"] is not None and loader.decoders["image"].canvas == (20, 30)
        assert next(loader)["image"].shape == (4, 20, 30, 3)
        assert loader.stats["shrunk"] == 4
    with pytest.raises(ValueError, match=r"`canvas` must be \(height, width\)"):
        Loader(InMemory(jpegs(4)), 4, decode=decode.Image(canvas=20), sharding=one_device())


def test_columns_without_numbers_are_split_over_devices_too():
    column = np.zeros((N, 0, 4), np.float32)  # such as the boxes of images without any
    batch = first_batch({"boxes": column}, sharding=batch_sharding(jax.devices("cpu")[:4]))
    assert [shard.data.shape for shard in batch["boxes"].addressable_shards] == [(2, 0, 4)] * 4
