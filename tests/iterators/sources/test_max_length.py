"""Columns of lists that get a length: padded, cut, and counted."""

import json
import pickle

import numpy as np
import pytest

from jaxaug.iterators import Parquet, TFRecord, WebDataset
from tests.iterators.sources import containers

TOKENS = [[1, 2, 3], [], [4], [5, 6, 7, 8, 9]]
PAIRS = [[1, 2], [3, 4], [5, 6], [7, 8]]


def expected(rows, length):
    """Padded and cut one by one."""
    column = np.zeros((len(rows), length), np.int32)
    for row, numbers in zip(column, rows):
        kept = numbers[:length]
        row[: len(kept)] = kept
    return column


def write(tmp_path, kind):
    images = containers.jpegs(4)
    if kind is WebDataset:
        files = {}
        for row, image in enumerate(images):
            files[f"{row}.jpg"] = image
            text = json.dumps({"tokens": TOKENS[row], "pairs": PAIRS[row], "n": row})
            files[f"{row}.json"] = text.encode()
        (tmp_path / "a.data").write_bytes(containers.tar(files))
    elif kind is TFRecord:
        records = []
        for row, image in enumerate(images):
            numbers = {"tokens": np.array(TOKENS[row], int), "pairs": np.array(PAIRS[row])}
            records.append(
                containers.example({"image/encoded": image, "n": np.int64(row)} | numbers)
            )
        (tmp_path / "a.data").write_bytes(containers.tfrecord(records))
    else:
        pa = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pa.table({"image": images, "tokens": TOKENS, "pairs": PAIRS, "n": list(range(4))})
        parquet.write_table(table, tmp_path / "a.data")
    return tmp_path / "a.data"


def opened(path, kind, max_length):
    image = {"image": "image"} if kind is Parquet else {}
    features = ["tokens", "pairs", "n"]
    return kind(path, label=None, features=features, max_length=max_length, **image)


@pytest.mark.parametrize("kind", [WebDataset, TFRecord, Parquet])
def test_lists_get_the_length_that_is_asked_for(tmp_path, kind):
    path = write(tmp_path, kind)
    counts = [3, 0, 1, 5]
    prints = set()
    for length in (None, 2, 5, 7, {"tokens": 4}, {"tokens": 3, "pairs": 1}):
        source = opened(path, kind, length)
        prints.add(source.fingerprint())
        for each in (source, pickle.loads(pickle.dumps(source))):
            features = dict(each.read(np.arange(4)))
            features.pop("image")
            tokens = (
                {None: 5}.get(length, length) if not isinstance(length, dict) else length["tokens"]
            )
            found = features["tokens"]
            np.testing.assert_array_equal(found.padded(), expected(TOKENS, tokens))
            assert found.lengths.tolist() == np.minimum(counts, tokens).tolist()
            assert each.features["tokens_length"].tolist() == counts  # as they were, cut or not
            assert features["n"].tolist() == [0, 1, 2, 3]
            pairs = length.get("pairs", 2) if isinstance(length, dict) else 2
            ragged = pairs == 1
            found = features["pairs"].padded() if ragged else features["pairs"]
            np.testing.assert_array_equal(found, expected(PAIRS, pairs))
    assert len(prints) == 5  # that of 5 numbers has what None has


@pytest.mark.parametrize("kind", [WebDataset, TFRecord, Parquet])
def test_lengths_that_will_not_do(tmp_path, kind):
    path = write(tmp_path, kind)
    for wrong in (0, -1, 2.5, {"tokens": 0}):
        with pytest.raises(ValueError, match="max_length"):
            opened(path, kind, wrong)
    with pytest.raises(ValueError, match=r"`max_length` must name columns, got \['text'\]; found"):
        opened(path, kind, {"text": 3})
