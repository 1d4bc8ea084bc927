"""Data sets of other libraries: anything with items, and TFDS without tensorflow."""

import copy
import io
import pathlib
import pickle
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators.sources.tfds import TFDS
from tests.iterators.sources import containers


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A tiny data set, written by TFDS as ArrayRecord: the root of data_dir."""
    tfds = pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")
    root = tmp_path_factory.mktemp("tfds")

    class TinyPictures(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = pathlib.Path(root)
        # nothing is downloaded; TFDS would need importlib_resources to find that out
        url_infos: ClassVar = {}

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3), encoding_format="jpeg"),
                    "label": tfds.features.ClassLabel(names=["cat", "dog"]),
                    "weight": tfds.features.Scalar(np.float32),
                    "name": tfds.features.Text(),
                }
            )
            return self.dataset_info_from_configs(features=features)

        def _split_generators(self, manager):
            return {
                "train": self._generate_examples(range(6)),
                "test": self._generate_examples(range(6, 8)),
            }

        def _generate_examples(self, numbers):
            for i in numbers:
                image = io.BytesIO(containers.jpegs(8)[i])
                yield i, {"image": image, "label": i % 2, "weight": i / 2, "name": f"n{i}"}

    TinyPictures(data_dir=str(root), file_format="array_record").download_and_prepare()
    TinyPictures(data_dir=str(root / "parquet"), file_format="parquet").download_and_prepare()
    return root


def test_a_prepared_data_set_is_read_without_tensorflow(prepared):
    source = TFDS(prepared / "tiny_pictures" / "1.0.0", split="train")
    assert len(source) == 6 and source.classes == ("cat", "dog") and "tensorflow" not in sys.modules
    features = dict(source.read(np.arange(6)))
    encoded = features.pop("image")
    weights = features["weight"]
    assert sorted(weights.tolist()) == [0, 0.5, 1, 1.5, 2, 2.5]  # TFDS shuffles what it writes
    for row, number in enumerate((2 * weights).astype(int).tolist()):
        assert bytes(encoded.view(row)) == containers.jpegs(8)[number]
        assert features["label"][row] == number % 2 and source.describe(row)["name"] == f"n{number}"


READ = """
import pickle, sys
import numpy as np
source = pickle.load(sys.stdin.buffer)
features = dict(source.read(np.arange(3)))
encoded = features.pop("image")
images = [bytes(encoded.view(row)) for row in range(3)]
found = images, features["weight"].tolist(), source.classes, source.fingerprint(), repr(source)
pickle.dump(found, sys.stdout.buffer)
"""


def test_a_data_set_travels_to_a_fresh_process(prepared):
    source = TFDS(prepared / "tiny_pictures" / "1.0.0", split="train[:50%]")
    child = subprocess.run(
        [sys.executable, "-c", READ],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=300,
    )
    assert child.returncode == 0, child.stderr.decode()
    images, weights, *about = pickle.loads(child.stdout)
    features = dict(source.read(np.arange(3)))
    encoded = features.pop("image")
    assert images == [bytes(encoded.view(row)) for row in range(3)]
    assert weights == features["weight"].tolist()
    assert about == [source.classes, source.fingerprint(), repr(source)]
    assert copy.deepcopy(source).read(np.arange(3))["weight"].tolist() == weights


def test_splits_of_tfds_are_other_data_sets(prepared):
    folder = prepared / "tiny_pictures" / "1.0.0"
    parts = [TFDS(folder, split=split) for split in ("train", "train[:50%]", "train[50%:]", "test")]
    assert [len(part) for part in parts] == [6, 3, 3, 2]
    assert len({part.fingerprint() for part in parts}) == 4


def test_slices_that_tfds_does_not_take_are_an_error(prepared):
    """Of Parquet it gives the whole split: training data would be in the validation."""
    folder = prepared / "parquet" / "tiny_pictures" / "1.0.0"
    assert len(TFDS(folder, split="train")) == 6 and len(TFDS(folder, split="train+test")) == 8
    with pytest.raises(SourceError, match=r"'train\[:50%\]', has 3 records, but TFDS gives 6"):
        TFDS(folder, split="train[:50%]")


def test_data_sets_that_are_not_there(prepared):
    for folder in (prepared, prepared / "missing"):
        with pytest.raises(SourceError, match=r"folder '.*' has no dataset_info\.json: give the"):
            TFDS(folder, split="train")
    with pytest.raises(SourceError, match="'no_such_data_set' is no data set that TFDS knows"):
        TFDS("no_such_data_set", split="train", data_dir=prepared)
    with pytest.raises(
        SourceError, match=r"'mnist' is not prepared: there is no '.*mnist.*'; give the `data_dir`"
    ):
        TFDS("mnist", split="train", data_dir=prepared)
    with pytest.raises(SourceError, match="split 'valid', cannot be opened"):
        TFDS(prepared / "tiny_pictures" / "1.0.0", split="valid")
