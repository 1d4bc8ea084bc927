"""Several sources as one, and orders that mix them."""

import gc
import weakref

import jax
import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Encoded
from jaxaug.iterators import Concat, ImageFolder, InMemory, Mix, RandomAccess, Repeat, Subset
from jaxaug.iterators.samplers import mix
from jaxaug.sharding import batch_sharding
from tests.images import jpegs


def labelled(count, start=0, **columns):
    images = jpegs(count, seed=start)
    labels = np.arange(start, start + count)
    return InMemory(images, {"label": labels, **columns}), images


def one_device():
    return batch_sharding(jax.devices("cpu")[:1])


def test_records_of_all_sources_one_after_another():
    (first, images), (second, more), (third, rest) = (
        labelled(n, s) for n, s in ((3, 0), (2, 10), (4, 20))
    )
    source = Concat([first, second, third])
    every = images + more + rest
    indices = np.array([8, 0, 4, 3, 2, 8, 5])
    features = dict(source.read(indices))
    encoded = features.pop("image")
    assert [bytes(encoded.view(row)) for row in range(7)] == [every[i] for i in indices.tolist()]
    assert features["label"].tolist() == [23, 0, 11, 10, 2, 23, 20]
    assert len(source) == 9 and source.lengths == (3, 2, 4)
    assert source.features["label"].tolist() == [0, 1, 2, 10, 11, 20, 21, 22, 23]
    assert source.describe(4) == {"record": 4, "source": 1, "record_in_source": 1}
    assert repr(source) == "Concat(9 images in 3 sources, ['label'])"


def test_no_records_are_no_records():
    source = Concat([labelled(3)[0], labelled(2)[0]])
    features = dict(source.read(np.zeros(0, np.int64)))
    encoded = features.pop("image")
    assert encoded.lengths.size == 0 and features["label"].shape == (0,)
    for wrong in (5, -1):
        with pytest.raises(IndexError, match=r"`indices` must lie in \[0, 5\)"):
            source.read(np.array([wrong]))


def test_pixels_of_one_size_are_joined():
    pixels = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), np.uint8)
    images = Concat([InMemory(pixels[:2]), InMemory(pixels[2:])]).read(np.array([4, 0, 2]))["image"]
    np.testing.assert_array_equal(images, pixels[[4, 0, 2]])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: [], "at least one source"),
        (lambda: [labelled(2)[0], InMemory(jpegs(2))], r"source 1 has no column 'label'"),
        (lambda: [InMemory(jpegs(2)), labelled(2)[0]], r"source 1 has a column 'label', source 0"),
        (
            lambda: [labelled(2, x=np.zeros(2))[0], labelled(2, x=np.zeros((2, 3)))[0]],
            r"column 'x' as float64\[\] in source 0 and float64\[3\] in source 1",
        ),
        (
            lambda: [InMemory(np.zeros((2, 4, 6, 3), np.uint8)), InMemory(jpegs(2))],
            r"column 'image' as uint8\[4, 6, 3\] in source 0 and encoded bytes in source 1",
        ),
        (
            lambda: [InMemory(np.zeros((2, 4, n, 3), np.uint8)) for n in (6, 7)],
            r"column 'image' as uint8\[4, 6, 3\] in source 0 and uint8\[4, 7, 3\] in source 1",
        ),
    ],
)
def test_sources_that_do_not_fit(make, message):
    with pytest.raises(ValueError, match=message):
        Concat(make())


def test_dtypes_become_common():
    narrow = InMemory(jpegs(2), {"x": np.array([1, 2], np.int8)})
    wide = InMemory(jpegs(2), {"x": np.array([300, 4], np.int16)})
    source = Concat([narrow, wide])
    for indices in ([0, 1], [2, 3], [0, 3]):
        assert source.read(np.array(indices))["x"].dtype == np.int16


def test_integers_beyond_32_bits_are_kept_for_the_loader_to_refuse():
    wide = InMemory(jpegs(2), {"x": np.array([1, 2**40])})
    source = Concat([InMemory(jpegs(1), {"x": np.array([7])}), wide])
    assert source.features["x"].tolist() == [7, 1, 2**40]
    assert source.read(np.array([2, 0]))["x"].tolist() == [2**40, 7]


def test_headers_and_classes_are_known_where_all_sources_know_them(tmp_path):
    for root in ("a", "b"):
        for name, image in zip(("cat", "dog"), jpegs(2)):
            (tmp_path / root / name).mkdir(parents=True)
            (tmp_path / root / name / "1.jpg").write_bytes(image)
    source = Concat([ImageFolder(tmp_path / "a"), ImageFolder(tmp_path / "b")])
    assert source.classes == ("cat", "dog") and source.headers(np.arange(4)) == {}
    assert source.path(2) == str(tmp_path / "b" / "cat" / "1.jpg")
    with pytest.raises(AttributeError, match="`classes`"):
        _ = Concat([labelled(2)[0]]).classes
    with pytest.raises(AttributeError, match="`features`"):
        _ = Concat([RandomAccess([{"image": b"x", "label": 1}])]).features


def test_the_memory_of_all_sources_lives_as_long_as_what_was_read():
    lent = []

    class Fresh(InMemory):
        def read(self, indices):
            columns = super().read(indices)
            data = [np.array(columns["image"].view(row)) for row in range(len(indices))]
            lent.extend(map(weakref.ref, data))
            return columns | {"image": Encoded.from_bytes(data)}

    source = Concat([Fresh(jpegs(2)), Fresh(jpegs(2))])
    lent.clear()
    encoded = source.read(np.array([3, 0, 1]))["image"]
    gc.collect()
    assert len(lent) == 3 and all(each() is not None for each in lent)
    del encoded
    gc.collect()
    assert all(each() is None for each in lent)


def test_fingerprints_know_sources_and_their_order():
    first, second = labelled(2)[0], labelled(3)[0]
    prints = [
        Concat(sources).fingerprint() for sources in ([first, second], [second, first], [first])
    ]
    assert len({*prints, first.fingerprint()}) == 4
    assert Concat([first, second]).fingerprint() == prints[0]
    for source in (first, second):  # as those of users may
        source.fingerprint = lambda: "the same"
    assert Concat([first]).fingerprint() != Concat([second]).fingerprint()


def records_of(order, epochs):
    return [order.records(epoch, np.arange(order.length)) for epoch in range(epochs)]


def test_a_mix_has_the_shares_of_its_weights_in_every_epoch():
    order = Mix([1000, 10, 500], [0.7, 0.1, 0.2], seed=3, num_samples=600)
    for records in records_of(order, 4):
        counts = np.histogram(records, [0, 1000, 1010, 1510])[0]
        assert counts.tolist() == [420, 60, 120]


def test_a_mix_takes_each_source_without_replacement_across_epochs():
    order = Mix([50, 7, 20], [2, 1, 1], seed=1, num_samples=40)
    epochs = records_of(order, 25)
    drawn = np.concatenate(epochs)
    # 25 epochs of 20, 10 and 10 records: 500 = 10 passes of 50, 250 = 35.7 of 7, 250 = 12.5 of 20.
    assert np.bincount(drawn, minlength=77)[:50].tolist() == [10] * 50
    assert set(np.bincount(drawn, minlength=77)[50:57].tolist()) == {35, 36}
    assert set(np.bincount(drawn, minlength=77)[57:].tolist()) == {12, 13}
    for end in range(1, 26):
        counts = np.bincount(np.concatenate(epochs[:end]), minlength=77)
        assert all(np.ptp(counts[start:stop]) <= 1 for start, stop in ((0, 50), (50, 57), (57, 77)))


def test_a_mix_is_a_pure_function_of_the_position():
    order = Mix([50, 7], [3, 1], seed=5, num_samples=64)
    whole = order.records(2, np.arange(64))
    chosen = np.array([63, 0, 17, 17])
    np.testing.assert_array_equal(order.records(2, chosen), whole[chosen])
    same = Mix((50, 7), np.array([3.0, 1.0]), seed=5, num_samples=64)
    np.testing.assert_array_equal(same.records(2, np.arange(64)), whole)
    assert (Mix([50, 7], [3, 1], seed=6, num_samples=64).records(2, np.arange(64)) != whole).any()
    assert (order.records(3, np.arange(64)) != whole).any()


def test_sources_are_spread_over_the_epoch():
    order = Mix([1000, 1000], [1, 1], num_samples=1000)
    records = order.records(0, np.arange(1000))
    assert 30 < (records[:100] < 1000).sum() < 70


def test_a_mix_is_as_long_as_all_its_sources():
    assert Mix([50, 7], [3, 1]).length == 57


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([], []), "`lengths` must be"),
        (([3, 0], [1, 1]), "`lengths` must be"),
        ((Repeat([1]), [1, 1]), r"`lengths` must be .* got Repeat.*: give .lengths. of Concat"),
        (([3, 4], [1]), "`weights` must be 2 finite numbers"),
        (([3, 4], [-1, 2]), "`weights` must be 2 finite numbers"),
        (([3, 4], [0, 0]), "`weights` must be 2 finite numbers"),
        (([3, 4], [np.nan, 1]), "`weights` must be 2 finite numbers"),
    ],
)
def test_mixes_that_are_none(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mix(*arguments)


@pytest.mark.parametrize("factors", [[1, 2, 0, 3, 1], [0.5, 1.25, 2.75, 0.0, 1.5]])
def test_records_are_repeated_by_their_factors(factors):
    order = Repeat(factors, seed=2)
    assert order.length == round(sum(factors))
    counts = np.array([np.bincount(r, minlength=5) for r in records_of(order, 400)])
    assert (counts >= np.floor(factors)).all() and (counts <= np.ceil(factors)).all()
    share = order.length / sum(factors)
    np.testing.assert_allclose(counts.mean(0), np.array(factors) * share, atol=0.1)
    orders = {tuple(order.records(epoch, np.arange(order.length))) for epoch in range(20)}
    assert len(orders) > 10


@pytest.mark.parametrize(
    "factors", [[1, 1, 0.3], [1, 2.75, 1, 1], [0.9, 0.6, 0], [2, 2, 0.4], [1.0] * 9 + [1.26] * 5]
)
def test_a_factor_is_rounded_down_or_up_where_their_sum_is_no_integer(factors):
    order = Repeat(factors, seed=2)
    assert order.length == round(sum(factors))
    for records in records_of(order, 200):
        counts = np.bincount(records, minlength=len(factors))
        assert (counts >= np.floor(factors)).all() and (counts <= np.ceil(factors)).all()


def test_an_occurrence_begins_where_the_one_before_ends(monkeypatch):
    """Without a shuffle, and at the offset 0, where each position lies on the end of a stretch."""
    monkeypatch.setattr(mix, "permute", lambda seed, epoch, positions, n: positions)
    order = Repeat([1, 0, 2, 3])
    assert order.records(0, np.arange(6)).tolist() == [0, 2, 2, 3, 3, 3]


def test_rounding_leaves_no_position_behind_the_last_record():
    order = Repeat(np.full(10**6, 0.1))
    assert abs(order._stops[-1] - order.length) < 2**-33  # half of the step of offsets


@pytest.mark.parametrize("factors", [[], [-1, 2], [0, 0.2], [[1]], [np.inf]])
def test_repeat_factors_that_are_none(factors):
    with pytest.raises(ValueError, match="`factors` must be"):
        Repeat(factors)
    with pytest.raises(ValueError, match=r"finite numbers, one for each record, .* got 3"):
        Repeat(3)  # pyright: ignore


def test_an_order_for_other_records_is_refused():
    source = Concat([labelled(3)[0], labelled(5)[0]])
    for order in (Mix([3, 4], [1, 1]), Repeat([1] * 7)):
        with pytest.raises(ValueError, match="`shuffle` must be for 8 records"):
            Loader(source, 2, shuffle=order, sharding=one_device())


@pytest.mark.parametrize("batch_size", [4, 3])
def test_a_mix_resumes_exactly(batch_size):
    parts = [labelled(6)[0], labelled(10, 100)[0]]
    source = Concat(parts)
    order = Mix(source.lengths, [1, 3], seed=4, num_samples=12)
    options = {"shuffle": order, "sharding": one_device(), "last_batch": "pad", "epochs": 3}
    with Loader(source, batch_size, **options) as loader:
        whole = [batch["index"].tolist() for batch in loader.steps()]
    with Loader(source, batch_size, **options) as loader:
        for _ in range(5):
            next(loader)
        state = loader.get_state()
    with Loader(source, batch_size, **options) as loader:
        loader.set_state(state)
        assert [batch["index"].tolist() for batch in loader.steps()] == whole[5:]


def test_parts_of_joined_sources():
    source = Concat([labelled(3)[0], labelled(5, 10)[0]])
    part = Subset(source, source.features["label"] >= 10)
    assert part.read(np.arange(len(part)))["label"].tolist() == [10, 11, 12, 13, 14]


def test_integers_stay_integers():
    unsigned = np.arange(2, dtype=np.uint64)
    source = Concat([InMemory(jpegs(2), {"label": unsigned}) for _ in range(2)])
    with Loader(source, 2, shuffle=False, sharding=one_device()) as loader:
        assert next(loader)["label"].dtype == np.int32

    signed = InMemory(jpegs(2), {"label": np.arange(2)})
    with pytest.raises(ValueError, match=r"'label' as int64.* uint64.* in source 1.*convert one"):
        Concat([signed, InMemory(jpegs(2), {"label": unsigned})])


def folder(path, names):
    for name, image in zip(names, jpegs(len(names))):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(image)
    return path


def test_classes_of_one_name_are_one_class(tmp_path):
    first = ImageFolder(folder(tmp_path / "a", ["cat/0.jpg", "dog/1.jpg"]))
    second = ImageFolder(folder(tmp_path / "b", ["dog/2.jpg", "owl/3.jpg", "owl/4.jpg"]))
    source = Concat([first, second])
    assert source.classes == ("cat", "dog", "owl")
    assert source.features["label"].tolist() == [0, 1, 1, 2, 2]
    assert source.features["label"].dtype == np.int32
    assert source.read(np.array([4, 0, 2]))["label"].tolist() == [2, 0, 1]
    with Loader(source, 5, shuffle=False, sharding=one_device()) as loader:
        labels = next(loader)["label"].tolist()
    assert [source.classes[label] for label in labels] == [
        source.describe(record)["class"] for record in range(5)
    ]
    turned = Concat([second, first])
    assert turned.classes == ("dog", "owl", "cat")
    assert turned.features["label"].tolist() == [0, 1, 1, 2, 0]
    part = Concat([first, Subset(second, [2, 0])])
    assert part.features["label"].tolist() == [0, 1, 2, 1]


def test_what_labels_mean_is_part_of_the_fingerprint():
    def named(*classes):
        source = InMemory([b"x", b"y"], {"label": np.array([0, 1])})
        source.classes = classes
        return source

    one, other, same = named("a", "b"), named("b", "c"), named("a", "b")
    prints = [Concat(pair).fingerprint() for pair in ([one, same], [one, other], [other, one])]
    assert len(set(prints)) == 3
    assert Concat([one, other]).fingerprint() == Concat([one, other]).fingerprint()


def test_labels_of_8_bits_count_through_more_classes_than_they_could():
    sources = []
    for start in (0, 256):
        source = InMemory([b"x"], {"label": np.array([255], np.uint8)})
        source.classes = tuple(map(str, range(start, start + 256)))
        sources.append(source)
    assert Concat(sources).read(np.arange(2))["label"].tolist() == [255, 511]


def test_padding_of_several_labels_stays(tmp_path):
    sources = []
    for classes in (("a", "b"), ("b", "c")):
        labels = np.array([[0, -1], [0, 1]])
        source = InMemory([b"x", b"y"], {"label": labels, "box_labels": labels})
        source.classes = classes
        sources.append(source)
    features = Concat(sources).read(np.arange(4))
    for name in ("label", "box_labels"):
        assert features[name].tolist() == [[0, -1], [0, 1], [1, -1], [1, 2]]


def _named(classes, labels=(0, 1), name="label", **options):
    source = InMemory(jpegs(2), {name: np.array(labels)}, **options)
    if classes is not None:
        source.classes = classes
    return source


@pytest.mark.parametrize(
    "other, message",
    [
        (_named(None), r"source 1 has no `classes`, source 0 has 2.*source\.classes = "),
        (_named(("b", "c"), [0.0, 1.0]), "label.*float64"),
        (_named(("b", "c"), [0, 2]), r"label.*2 in record 1 of source 1.*2 classes"),
        (_named(("b", "c"), masks=[b"m", b"m"]), "masks.*the same classes"),
    ],
)
def test_labels_that_cannot_be_told_apart_are_refused(other, message):
    masks = {"masks": [b"m", b"m"]} if "masks" in message else {}
    first = _named(("a", "b"), **masks)
    with pytest.raises(ValueError, match=message):
        Concat([first, other]).read(np.arange(4))


def test_numbers_beside_classes_need_no_names():
    """Without labels there is nothing to number; the same classes are not looked at twice."""
    sources = [_named(("a", "b"), name="x"), _named(None, name="x")]
    assert Concat(sources).read(np.arange(4))["x"].tolist() == [0, 1, 0, 1]
    masks = {"masks": [b"m", b"m"]}
    pair = [_named(("a", "b"), **masks), _named(("a", "b"), **masks)]
    Concat(pair).read(np.arange(4))
    for source, classes in zip(pair, ("ab", "bc")):
        source.mask = "objects"  # as Coco has it: numbers of boxes
        source.classes = tuple(classes)
    assert Concat(pair).read(np.arange(4))["label"].tolist() == [0, 1, 1, 2]
