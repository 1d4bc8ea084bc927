"""Parts of a source: chosen records, and splits that leave nothing out."""

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import InMemory, Source
from jaxaug.iterators.sources.subset import Subset, split


def numbered(count):
    return InMemory([b"%d" % number for number in range(count)], {"label": np.arange(count)})


def labels(source):
    encoded, features = source.read(np.arange(len(source)))
    assert [int(bytes(encoded.view(row))) for row in range(len(source))] == features["label"].tolist()
    return features["label"].tolist()


@pytest.mark.parametrize("records", [range(3, 9, 2), range(8, 2, -3), np.array([5, 0, 5])])
def test_a_subset_reads_its_records(records):
    source = Subset(numbered(10), records)
    assert isinstance(source, Source)
    assert labels(source) == list(records)
    assert source.describe(1) == {"record": list(records)[1]}
    with pytest.raises(IndexError, match=r"`indices` must lie in \[0, 3\)|\[0, 2\)"):
        source.read(np.array([3]))


def test_a_subset_of_a_subset():
    assert labels(split(Subset(numbered(10), np.array([9, 4, 1, 0])), "[1:3]")) == [4, 1]


def test_wrong_records_are_refused():
    for wrong in (range(5, 11), range(-1, 3), np.array([0, 10]), np.array([-1])):
        with pytest.raises(ValueError, match=r"`records` must lie in \[0, 10\)"):
            Subset(numbered(10), wrong)
    for none in (range(4, 4), np.zeros(0, int)):
        with pytest.raises(SourceError, match="`records` must hold at least one"):
            Subset(numbered(10), none)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 99, 1000, 1281167])
def test_complementary_splits_partition(count):
    class Counted:
        def __len__(self):
            return count

    def size(part):
        try:
            return len(split(Counted(), part))
        except SourceError:
            return 0

    for bounds in (["90%"], ["33%", "66%"], ["12.5%", "50%", "99.9%"], ["0%", "100%"], ["1%"]):
        parts = [f"[{start}:{stop}]" for start, stop in zip(["", *bounds], [*bounds, ""])]
        assert sum(map(size, parts)) == count
    assert size("[-10%:]") + size("[:-10%]") == count
    assert abs(size("[:90%]") - 0.9 * count) <= 0.5


@pytest.mark.parametrize(
    "part, first, last",
    [
        ("[:90%]", 0, 9),
        ("[90%:]", 9, 10),
        ("[2:5]", 2, 5),
        ("[-3:]", 7, 10),
        ("[:-3]", 0, 7),
        ("[25%:]", 3, 10),  # 2.5 rounds up
        ("[8:99]", 8, 10),
        (" [ 1 : 50% ] ", 1, 5),
        ("[:]", 0, 10),
    ],
)
def test_split_strings(part, first, last):
    assert labels(split(numbered(10), part)) == list(range(first, last))


@pytest.mark.parametrize("part", ["", "90%", "[90%]", "[a:]", "[1:2:3]", "[:90 percent]", "[:1.5]"])
def test_wrong_split_strings_are_refused(part):
    with pytest.raises(ValueError, match=r"`part` must be \"\[start:stop\]\""):
        split(numbered(10), part)


def test_an_empty_split_is_an_error():
    with pytest.raises(SourceError, match=r"'\[5:5\]' of 10 records holds none"):
        split(numbered(10), "[5:5]")


def test_fingerprints_tell_parts_apart():
    source = numbered(10)
    parts = [split(source, "[:5]"), split(source, "[5:]"), split(numbered(11), "[:5]"), source]
    assert len({part.fingerprint() for part in parts}) == 4
    assert split(source, "[:50%]").fingerprint() == parts[0].fingerprint()
