"""The canvas that a Loader picks."""

import warnings

import numpy as np
import pytest

from jaxaug import Loader
from jaxaug.decode import Encoded, Image
from jaxaug.decode.image import canvas as canvas_module
from jaxaug.decode.image.canvas import canvas_of, join_sides, sides_of
from jaxaug.iterators import FromIterable, InMemory, Sequential, WebDataset
from jaxaug.iterators.loader.reader import RecordReader, SourceColumn
from jaxaug.iterators.loader.stream_reader import StreamReader
from jaxaug.iterators.sources.subset import Subset
from tests.images import encode, picture
from tests.iterators.loaders import one_device
from tests.iterators.sources import containers

TURNED = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"


@pytest.fixture
def packed(tmp_path):
    """40 images: 38 of 30 x 50, one of 130 x 200 that is upright as 200 x 130, one broken."""
    images = [encode(picture(i, 30, 50)) for i in range(38)]
    images += [encode(picture(1, 130, 200), exif=TURNED), b"no image"]
    files = {f"{i:02d}.jpg": image for i, image in enumerate(images)}
    (tmp_path / "a.tar").write_bytes(containers.tar(files))
    return WebDataset(tmp_path / "a.tar"), images


def pick_canvas(source, seed):
    kind = StreamReader if isinstance(source, FromIterable) else RecordReader
    sampler = {} if kind is StreamReader else {"sampler": Sequential(len(source))}
    reader = kind(source=source, **sampler)
    column = SourceColumn("image", Encoded.from_bytes([b""]), reader, seed)
    return canvas_module.pick_canvas(column, Image().form)[0]


def test_sides_are_percentiles_rounded_up():
    sizes = np.stack([np.arange(1, 101), np.full(100, 64)], axis=1)
    assert canvas_of(sizes) == ((128, 64), False)  # the 95th percentile of 1..100 is 96
    assert canvas_of(sizes[:64]) == ((64, 64), False)
    assert canvas_of(sizes[:0]) == ((512, 512), True)


def test_equal_sizes_are_the_canvas():
    assert canvas_of(np.array([[32, 33]] * 3)) == ((32, 33), True)
    assert canvas_of(np.array([[32, 33], [32, 33], [33, 33]])) == ((64, 64), False)


def test_the_canvas_has_at_most_1024_a_side_and_says_where_that_shrinks():
    with pytest.warns(UserWarning, match=r"fit 4000 x 1000 .* shrunk to 1024 x 1024"):
        assert canvas_of(np.array([[4000, 1000], [4000, 900]])) == ((1024, 1024), False)
    with pytest.warns(UserWarning, match=r"fit 3000 x 4000 .* shrunk to 768 x 1024"):
        assert canvas_of(np.array([[3000, 4000]] * 2)) == ((768, 1024), True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        canvas_of(np.array([[1024, 1000], [1000, 1024]]))
        canvas_of(np.array([[800, 600]] * 99 + [[4000, 3000]]))  # rare ones do not choose


def test_the_warning_of_a_shrunk_data_set_is_at_the_callers_line():
    source = InMemory([encode(picture(0, 1100, 8))])
    with pytest.warns(UserWarning, match="fit 1100 x 8 pixels") as warned:
        Loader(source, 1, sharding=one_device()).close()
    assert [each.filename for each in warned] == [__file__]


@pytest.mark.parametrize("masks", [False, True])
def test_sizes_that_differ_are_told_where_no_mask_shows_them(masks):
    features = {"mask": np.zeros((2, 30, 30), np.uint8)} if masks else {}
    source = InMemory([encode(picture(0, 20, 30)), encode(picture(1, 30, 20))], features)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Loader(source, 2, sharding=one_device()).close()
    told = [each for each in caught if "lie on canvases of 64 x 64" in str(each.message)]
    assert len(told) == (0 if masks else 1)


def test_an_index_gives_all_headers_and_no_byte_is_read(packed, monkeypatch):
    source, images = packed
    in_memory = InMemory(images)
    assert pick_canvas(in_memory, 0) == pick_canvas(source, 0) == (64, 64)
    rare = Subset(source, np.array([38, 38, 39, 0]))
    monkeypatch.setattr(source, "read", lambda indices: pytest.fail("the index knows all"))
    monkeypatch.setattr("jaxaug.decode.image.canvas._SAMPLED_RECORDS", 1)
    monkeypatch.setattr("jaxaug.iterators.loader.reader._CHUNK_RECORDS", 7)
    assert pick_canvas(source, 0) == (64, 64)
    assert pick_canvas(Subset(source, range(20)), 0) == (30, 50)
    assert pick_canvas(rare, 0) == (256, 192)  # upright
    assert pick_canvas(Subset(rare, range(2, 4)), 0) == (30, 50)  # one size
    assert pick_canvas(Subset(source, np.array([39] * 30 + [0])), 0) == (
        30,
        50,
    )  # broken ones do not count
    assert pick_canvas(Subset(source, np.array([39])), 0) == (512, 512)


def test_without_an_index_headers_are_sampled(packed):
    _, images = packed
    subset = Subset(InMemory(images), np.array([38, 0, 38]))
    assert subset.headers(np.arange(3)) == {} and pick_canvas(subset, 0) == (256, 192)
    assert pick_canvas(FromIterable([(image, {}) for image in images[38:]]), 0) == (200, 130)


def test_images_are_read_a_few_at_a_time():
    images = [encode(picture(0, 30, 50))] * 149 + [encode(picture(0, 300, 40))] * 8

    class Counted(InMemory):
        asked = ()

        def read(self, indices):
            self.asked += (len(indices),)
            return super().read(indices)

    source = Counted(images)
    assert pick_canvas(source, 0) == (320, 64)
    assert sum(source.asked) == 157 and max(source.asked) <= 64
    assert pick_canvas(FromIterable([(image, {}) for image in images]), 0) == (320, 64)


def test_a_sample_of_records_is_spread_over_the_source(monkeypatch):
    """Half of the images are larger: the last ones."""
    monkeypatch.setattr(canvas_module, "_SAMPLED_RECORDS", 10)
    small, large = (encode(picture(0, height, 50)) for height in (30, 60))

    class Asked(InMemory):
        asked = ()

        def read(self, indices):
            self.asked += (*indices.tolist(),)
            return super().read(indices)

    chosen = []
    for seed in (0, 0, 1):
        source = Asked([small] * 50 + [large] * 50)
        assert pick_canvas(source, seed) == (64, 64)
        assert len({*source.asked}) == 10 and list(source.asked) == sorted(source.asked)
        chosen.append(source.asked)
    assert chosen[0] == chosen[1] != chosen[2]


def test_an_index_tells_the_canvas_without_the_headers(packed, monkeypatch):
    source, _ = packed
    monkeypatch.setattr(WebDataset, "headers", lambda self, indices: pytest.fail("were read"))
    assert pick_canvas(source, 0) == (64, 64)
    generator = np.random.default_rng(0)
    for count in (1, 2, 20, 21, 39, 40, 41, 1000):
        sizes = generator.integers(1, 30, (count, 2))
        parts = join_sides([sides_of(sizes[: count // 3]), sides_of(sizes[count // 3 :])])
        wanted = np.percentile(sizes, 95, axis=0, method="higher").astype(int)
        assert parts.quantile(0.95) == tuple(wanted)
        assert parts.heights[:, 1].sum() == parts.widths[:, 1].sum() == count
