"""Loaders over sources whose index has stored the headers."""

import jax
import numpy as np
import pytest

from jaxaug import decode
from jaxaug.decode import Decoder
from jaxaug.decode.image import decoder
from jaxaug.decode.image.parse import stored_headers
from jaxaug.iterators import Loader, Subset, TFRecord
from tests.iterators.loaders import by_index, one_device
from tests.iterators.sources import containers

DEVICES = jax.devices("cpu")[:1]


@pytest.fixture
def source(tmp_path):
    examples = containers.labelled_examples(20)
    (tmp_path / "a.tfrecord").write_bytes(containers.tfrecord(examples))
    return TFRecord(tmp_path / "a.tfrecord")


def loader(source, **options):
    return Loader(source, 24, seed=0, last_batch="pad", sharding=one_device(), **options)


@pytest.mark.parametrize("on_error", ["mask", "replace"])
def test_the_headers_of_an_index_reach_the_decoder(source, monkeypatch, on_error):
    with loader(source, decode=decode.Image(canvas=(64, 64)), on_error=on_error) as plain:
        expected = by_index(plain, 1)
    given = []
    confirm = decoder.confirm_headers
    monkeypatch.setattr(
        decoder, "confirm_headers", lambda *each: given.append(each[1]) or confirm(*each)
    )
    read = []
    real = stored_headers.read_headers
    monkeypatch.setattr(
        stored_headers,
        "read_headers",
        lambda encoded, *limits: read.append(len(encoded.lengths)) or real(encoded, *limits),
    )
    with loader(source, decode=decode.Image(canvas=(64, 64)), on_error=on_error) as loaded:
        assert by_index(loaded, 1) == expected and len(expected) == 20
    assert given and all(headers is not None for headers in given)
    assert set(read) == {4}  # the padding rows alone


def test_rows_that_fill_up_a_batch_need_no_headers(source):
    part = Subset(source, np.arange(19, -1, -2))
    with loader(part, decode=decode.Image(canvas=(64, 64))) as padded:
        batch = next(padded)
    assert sorted(batch["index"].tolist()) == [-1] * 14 + [*range(10)]
    assert batch["valid"].sum() == 10


def test_a_source_that_lies_does_not_change_the_pixels(source, monkeypatch):
    with loader(source, decode=decode.Image(canvas=(64, 64))) as honest:
        expected = by_index(honest, 1)
    real = TFRecord.headers

    def headers(self, indices):
        found = real(self, indices)["image"]
        lie = found._replace(height=found.height + 1, coding=np.full_like(found.coding, 2))
        return {"image": lie}

    monkeypatch.setattr(TFRecord, "headers", headers)
    with loader(source, decode=Decoder((64, 64), "host", DEVICES)) as lying:
        assert by_index(lying, 1) == expected
