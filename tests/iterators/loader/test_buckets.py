"""Batches of buckets: each has the form of its bound, and is a part of the longest form."""

import warnings

import jax
import numpy as np
import pytest

from jaxaug import Loader, augment, decode
from jaxaug.decode import Encoded, Mask, Ragged, Tokenized
from jaxaug.decode import Image as Images
from jaxaug.iterators import Buckets, InMemory, Renamed
from jaxaug.iterators.loader.compile import _WhenCalled
from jaxaug.iterators.loader.reader import BatchPlan, RecordReader
from jaxaug.iterators.loader.state import Cursor
from jaxaug.sharding import batch_sharding
from tests.images import encode, picture
from tests.iterators.loaders import one_device

COUNT = 24
BOUNDS = [3, 6, 12]


class Texts:
    """Texts of one to twelve words, and as many numbers."""

    lengths = np.arange(COUNT) * 5 % 12 + 1

    def __len__(self):
        return COUNT

    def read(self, indices):
        lengths = self.lengths[indices]
        texts = [" ".join(str(i + k) for k in range(self.lengths[i])).encode() for i in indices]
        numbers = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths])
        return {
            "text": Encoded.from_bytes(texts),
            "numbers": Ragged(numbers, lengths, 12, -1),
            "label": np.asarray(indices, np.int32),
        }

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "texts"


TOKENS = {"text": Tokenized(lambda text: list(map(int, text.split())), 12)}


def order(of, lengths=Texts.lengths, bounds=BOUNDS, batch_size=4):
    return Buckets(lengths, bounds, batch_size, seed=1, of=of)


def texts(of="text", shuffle=None, batch_size=4, sharding=None, **options):
    options = {"decode": TOKENS, "last_batch": "pad", "epochs": 2, **options}
    shuffle = order(of) if shuffle is None else shuffle
    sharding = one_device() if sharding is None else sharding
    return Loader(Texts(), batch_size, shuffle=shuffle, sharding=sharding, **options)


def assert_parts(loader, longest, axes):
    """Each batch is the first part of the longest form, zero or `fill` behind it; return shapes."""
    shapes = set()
    for batch, whole in zip(loader.steps(), longest.steps(), strict=True):
        assert batch.keys() == whole.keys()
        for name, value in jax.device_get(batch).items():
            expected = np.asarray(whole[name])
            part = expected[:, : value.shape[1]] if name in axes else expected
            np.testing.assert_array_equal(value, part, err_msg=name)
            assert value.dtype == expected.dtype
            if name in axes and value.shape[1] < expected.shape[1]:
                assert len(np.unique(expected[:, value.shape[1] :])) == 1
                shapes.add(value.shape[1])
    return shapes


@pytest.mark.parametrize("of", ["text", "numbers"])
def test_texts_and_numbers_have_the_length_of_their_bound(of):
    with texts(of) as loader, texts(None) as longest:
        assert assert_parts(loader, longest, {of}) == {3, 6}
        assert loader.element_spec == longest.element_spec
        lengths = {bound: spec[of].shape[1] for bound, spec in loader.bucket_specs.items()}
        assert lengths == {3: 3, 6: 6, 12: 12} and not longest.bucket_specs


@pytest.mark.parametrize("of", ["text", "numbers"])
def test_bounds_that_cut_nothing_are_warned_of(of):
    milliseconds = order(of, 1000 * Texts.lengths, [3000, 6000, 12_000])
    with pytest.warns(UserWarning, match=rf"first of its bounds, 3000, .* longest '{of}'") as told:
        texts(shuffle=milliseconds).close()
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        texts(shuffle=order(of)).close()
        texts(shuffle=order(of, bounds=[12])).close()  # one form is meant


def test_each_batch_has_the_bound_that_the_order_tells():
    shuffle = order("text")
    with texts(shuffle=shuffle) as loader:
        for _ in range(12):
            state = loader.get_state()
            bound = shuffle.bound(state["epoch"], state["position"])
            assert next(loader)["text"].shape == (4, bound)


def test_sounds_of_several_rates_have_the_length_of_their_bound():
    pytest.importorskip("soundfile")
    from tests.decode.audio.sounds import encoded, wave

    rates = np.array([8000, 16_000, 11_025])[np.arange(12) % 3]
    frames = (rates * (0.05 + np.arange(12) / 80)).astype(int)
    kinds = ("wav16", "wav24", "vorbis")
    files = [
        encoded(
            kinds[i % 2 if i % 3 == 0 else 0], wave(i, frames[i], 1 + i % 2, rates[i]), rates[i]
        )
        for i in range(12)
    ]
    source = Renamed(InMemory(files), {"image": "audio"})
    lengths = frames / rates
    bounds = [lengths[3], 0.13, lengths.max()]  # one that is a length itself

    def loader(of):
        return Loader(
            source,
            3,
            shuffle=order(of, lengths, bounds, 3),
            decode={"audio": decode.Audio(seconds=lengths.max())},
            sharding=one_device(),
            epochs=2,
        )

    with loader("audio") as some, loader(None) as longest:
        expected = {round(16_000 * bound) for bound in bounds[:2]}
        assert assert_parts(some, longest, {"audio"}) == expected


def test_features_of_a_bucket_are_those_of_the_longest_form():
    pytest.importorskip("soundfile")
    from tests.decode.audio.sounds import encoded, wave

    files = [encoded("wav16", wave(i, 1600 * (1 + i % 2))) for i in range(8)]
    source = Renamed(InMemory(files), {"image": "audio"})
    chain = augment.Compose([augment.audio.AddNoise(), augment.audio.LogMel(n_mels=8)])
    seen = []
    for of in ("audio", None):
        shuffle = order(of, [0.1, 0.2] * 4, [0.1, 0.2], 4)
        options = {"shuffle": shuffle, "transform": chain, "sharding": one_device(), "epochs": 1}
        with Loader(source, 4, decode={"audio": decode.Audio()}, **options) as loader:
            seen.append([jax.device_get(batch) for batch in loader])
    assert {batch["audio"].shape for batch in seen[0]} == {(4, 11, 8), (4, 21, 8)}
    for batch, whole in zip(*seen):
        frames = batch["audio"].shape[1]
        np.testing.assert_array_equal(batch["audio_length"], whole["audio_length"])
        np.testing.assert_allclose(batch["audio"], whole["audio"][:, :frames], atol=1e-3)


class Pictures:
    """Images of different aspects with masks of their size, and boxes."""

    sizes = tuple((20 + 7 * i % 50, 30 + 11 * i % 40) for i in range(16))

    def __len__(self):
        return len(self.sizes)

    def read(self, indices):
        images = [encode(picture(i, *self.sizes[i])) for i in indices]
        masks = [encode(picture(i, *self.sizes[i])[..., 0], "PNG") for i in indices]
        numbers = np.stack([picture(i, 80, 80)[..., 0] for i in indices])
        boxes = np.tile(np.float32([1, 2, 8, 9]), (len(indices), 1, 1))
        return {
            "image": Encoded.from_bytes(images),
            "mask": Encoded.from_bytes(masks),
            "marks": numbers,
            "boxes": boxes,
        }

    def describe(self, index):
        return {"record": index}

    def fingerprint(self):
        return "pictures"


ASPECTS = np.array([h / w for h, w in Pictures.sizes])


def pictures(of, **options):
    shuffle = order(of, ASPECTS, [0.7, 1.0, ASPECTS.max()], 4)
    columns = {"image": Images(canvas=(32, 32)), "mask": Mask(), "marks": Mask()}
    options = {"decode": columns, "sharding": one_device(), "epochs": 2, **options}
    return Loader(Pictures(), 4, shuffle=shuffle, **options)


def test_images_and_what_follows_them_have_the_rows_of_their_bound():
    with pictures("image") as loader, pictures(None) as longest:
        assert assert_parts(loader, longest, {"image", "mask", "marks"}) == {22}


def test_bounds_that_cut_canvases_are_not_warned_of():
    source = InMemory([encode(picture(i, *size)) for i, size in enumerate(Pictures.sizes)])
    options = {"decode": Images(canvas=(32, 32)), "sharding": one_device()}

    def open_with(bounds):
        Loader(source, 4, shuffle=order("image", ASPECTS, bounds), **options).close()

    with pytest.warns(UserWarning, match=r"first of its bounds, 1\.5, .* longest 'image'"):
        open_with([1.5, 2])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "`shuffle`")
        open_with([0.7, 2])


def test_a_chain_takes_images_of_each_bucket():
    operators = [augment.RandomHorizontalFlip(), augment.Resize((24, 24))]
    chain = augment.Compose(operators, targets={"marks": "mask"})
    with pictures("image", transform=chain) as loader, pictures(None, transform=chain) as longest:
        for batch, whole in zip(loader, longest, strict=True):
            assert batch["image"].shape == (4, 24, 24, 3)
            one, other = np.int32(batch["image"]), np.int32(whole["image"])
            assert np.abs(one - other).max() <= 1


def test_a_resume_with_smaller_batches_and_more_devices_gives_the_same():
    def rows(loader, count):
        seen = {}
        for batch in loader.steps(count):
            for row, index in enumerate(np.asarray(batch["index"])):
                seen[int(index)] = np.asarray(batch["text"][row])
        return seen

    shuffle = order("text", batch_size=8)
    with texts(shuffle=shuffle, batch_size=8) as loader:
        first = rows(loader, 1)
        state = loader.get_state()
        expected = rows(loader, 2)
    assert not first.keys() & expected.keys()
    two = batch_sharding(jax.devices("cpu")[:2])
    with texts(shuffle=shuffle, sharding=two) as loader:
        loader.set_state(state)
        found = rows(loader, 4)
    assert found.keys() == expected.keys()
    for index, row in found.items():
        np.testing.assert_array_equal(row, expected[index])


def test_a_batch_of_two_buckets_has_the_larger_form():
    """After a resume with larger batches one may begin in the middle of a bucket's."""
    shuffle = order("text", batch_size=4)
    with texts(shuffle=shuffle, batch_size=2) as loader:
        next(loader)
        state = loader.get_state()
    with texts(shuffle=shuffle) as loader:
        loader.set_state(state)
        for position in range(2, 22, 4):
            bound = max(shuffle.bound(0, position), shuffle.bound(0, position + 3))
            assert next(loader)["text"].shape == (4, bound)


def test_processes_agree_on_the_bucket_of_a_step():
    """Also one whose rows of the last batch are all padding."""
    lengths = Texts.lengths[:18]
    shuffle = Buckets(lengths, BOUNDS, 4, of="text")
    reader = RecordReader(source=Texts(), sampler=shuffle)
    bounds = []
    for local in (np.arange(2), np.arange(2, 4)):
        plan = BatchPlan(4, local, drop=False, epochs=1)
        bounds.append([read.bound for read in reader.batches(plan, Cursor(0, 0))])
    assert bounds[0] == bounds[1] == [shuffle.bound(0, start) for start in range(0, 18, 4)]


def test_a_bucket_is_compiled_when_its_first_batch_comes():
    def of_its_own(key, sample):  # no call of another test is shared
        return sample

    shuffle = order("text", np.full(COUNT, 12))
    with texts(shuffle=shuffle, transform=of_its_own) as loader:
        forms = loader._consumer._builder._forms
        calls = {bound: form.compiled.call.__wrapped__ for bound, form in forms.items()}
        assert calls.keys() == {None, 3.0, 6.0, 12.0}
        assert calls[12.0] is calls[None]
        assert all(type(call) is _WhenCalled and call._lowered for call in calls.values())
        list(loader)
        assert {bound for bound, call in calls.items() if call._lowered} == {3.0, 6.0}
        assert loader.sample(0)["sample"]["text"].shape == (12,)
    with texts(None) as loader:
        assert loader._consumer._builder._forms.keys() == {None}


def test_lengths_that_are_not_those_of_the_column():
    wrong = np.where(np.arange(COUNT) == 2, 1, Texts.lengths)
    for of in ("text", "numbers"):
        with texts(shuffle=order(of, wrong)) as loader:
            with pytest.raises(ValueError, match=f"column '{of}': record 2 is longer than 3, the"):
                list(loader)
    tall = np.where(ASPECTS == ASPECTS.max(), 0.7, ASPECTS)
    options = {"decode": {"image": Images(canvas=(32, 32))}, "sharding": one_device()}
    shuffle = order("image", tall, [0.7, ASPECTS.max()], 4)
    with Loader(Pictures(), 4, shuffle=shuffle, **options) as loader:
        with pytest.raises(ValueError, match=r"column 'image': record .* is longer than 0.7"):
            list(loader)


@pytest.mark.parametrize("of", ["mask", "marks", "boxes"])
def test_what_follows_images_has_no_lengths_of_its_own(of):
    """A mask would be cut without its image, and nothing would tell that it is longer."""
    columns = {"image": Images(canvas=(32, 32)), "mask": Mask(), "marks": Mask()}
    shuffle = order(of, ASPECTS, [0.7, 1.0, ASPECTS.max()], 4)
    with pytest.raises(ValueError, match=f"`of` must name 'image', .* got '{of}'"):
        Loader(Pictures(), 4, shuffle=shuffle, decode=columns, sharding=one_device())


@pytest.mark.parametrize(
    "of, options, message",
    [
        ("label", {}, "`of` must name a column with lengths, .* got 'label', which is int32"),
        ("sound", {}, "`of` must name a column with lengths, .* got 'sound', which is none"),
        ("text", {"on_error": "replace"}, "`on_error` must be 'raise' or 'mask' where"),
        ("text", {"keep": "host"}, "`keep` must be None where `shuffle` has buckets"),
    ],
)
def test_wrong_arguments(of, options, message):
    with pytest.raises(ValueError, match=message):
        texts(of, **options)
