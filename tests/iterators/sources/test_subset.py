"""Parts of a source: chosen records, and splits that leave nothing out."""

import itertools

import numpy as np
import pytest

from jaxaug.errors import SourceError
from jaxaug.iterators import FileList, ImageFolder, InMemory, RandomAccess, Source, balanced_weights
from jaxaug.iterators.sources.split import split
from jaxaug.iterators.sources.subset import Subset


def numbered(count):
    return InMemory([b"%d" % number for number in range(count)], {"label": np.arange(count)})


def labels(source):
    features = dict(source.read(np.arange(len(source))))
    encoded = features.pop("image")
    assert [int(bytes(encoded.view(row))) for row in range(len(source))] == features[
        "label"
    ].tolist()
    return features["label"].tolist()


@pytest.mark.parametrize("records", [range(3, 9, 2), range(8, 2, -3), np.array([5, 0, 5])])
def test_a_subset_reads_its_records(records):
    source = Subset(numbered(10), records)
    assert isinstance(source, Source)
    assert labels(source) == list(records) == source.records.tolist()
    assert source.describe(1) == {"record": list(records)[1]}
    with pytest.raises(IndexError, match=r"`indices` must lie in \[0, 3\)|\[0, 2\)"):
        source.read(np.array([3]))


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_a_mask_of_zeros_and_ones_is_refused(dtype):
    """It is what a column of JSON or CSV is; as numbers it would be records 0 and 1, repeated."""
    source = InMemory([b"a", b"b", b"c", b"d"])
    with pytest.raises(ValueError, match=r"0 and 1 alone, 4 times, .* must be bools"):
        Subset(source, np.array([0, 1, 1, 0], dtype))
    assert len(Subset(source, np.array([0, 1, 1], dtype))) == 3
    assert len(Subset(source, np.zeros(4, dtype))) == 4


def test_a_subset_of_a_subset():
    assert labels(split(Subset(numbered(10), np.array([9, 4, 1, 0])), "[1:3]")) == [4, 1]


def test_wrong_records_are_refused():
    ranges = (range(5, 11), range(-1, 3), range(10, 3, -1), range(3, -2, -1))
    for wrong in (*ranges, np.array([0, 10]), np.array([-1]), [2**63]):
        with pytest.raises(ValueError, match=r"`records` must lie in \[0, 10\)"):
            Subset(numbered(10), wrong)
    for none in (range(4, 4), np.zeros(0, int), [], np.zeros(10, bool)):
        with pytest.raises(SourceError, match="`records` must hold at least one"):
            Subset(numbered(10), none)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", "list"])
def test_records_are_ints_of_any_width(dtype):
    chosen = [3, 1, 9]
    records = chosen if dtype == "list" else np.array(chosen, dtype)
    assert labels(Subset(numbered(10), records)) == chosen


@pytest.mark.parametrize("listed", [True, False])
def test_a_mask_chooses_its_true_records(listed):
    values = np.arange(10) % 3
    source = InMemory([b"%d" % value for value in values], {"label": values})
    mask = (values == 2).tolist() if listed else values == 2
    part = Subset(source, mask)
    assert len(part) == 3 and labels(part) == [2, 2, 2]
    assert part.features["label"].tolist() == [2, 2, 2]
    assert part.fingerprint() == Subset(source, np.array([2, 5, 8])).fingerprint()


@pytest.mark.parametrize(
    "wrong, found",
    [
        (np.ones(9, bool), "got 9 bools"),
        (np.ones(11, bool), "got 11 bools"),
        ([1.9, 2.9], r"got float64\[2\]"),
        (np.zeros((2, 2), int), r"got int64\[2, 2\]"),
        (np.ones((10, 1), bool), r"got bool\[10, 1\]"),
        (3, r"got 3\."),
        ("012", r"got '012'\."),
        (slice(0, 3), r"got slice\(0, 3, None\)\."),
        (["0", "1"], r"got <U1\[2\]"),
        ([[0], [1, 2]], "got list: .*inhomogeneous"),
    ],
)
def test_what_is_neither_a_mask_nor_numbers_is_refused(wrong, found):
    wanted = r"`records` must be ints \[n\] in \[0, 10\), or a mask of 10 bools, " + found
    with pytest.raises(ValueError, match=wanted):
        Subset(numbered(10), wrong)


class Counted:
    """A source of a given length, of which nothing else is known."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


class Labelled(Counted):
    """A source whose labels are known without reading."""

    def __init__(self, values):
        super().__init__(len(values))
        self.features = {"label": np.asarray(values)}


def records(part):
    return part.records.tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 99, 1000])
@pytest.mark.parametrize("labelled", [True, False])
def test_parts_that_share_a_bound_leave_no_record_out_and_share_none(count, labelled):
    generator = np.random.default_rng(count)
    source = Labelled(generator.integers(0, 5, count)) if labelled else Counted(count)

    def taken(part):
        try:
            return records(split(source, part, seed=3))
        except SourceError:
            return []

    for bounds in (["90%"], ["33%", "66%"], ["12.5%", "50%", "99.9%"], ["0%", "100%"], ["-10%"]):
        parts = [f"[{start}:{stop}]" for start, stop in zip(["", *bounds], [*bounds, ""])]
        found = [record for part in parts for record in taken(part)]
        assert sorted(found) == list(range(count))
    assert taken("[:90%]") == taken("[:-10%]") and taken("[:]") == list(range(count))
    assert len(taken("[:90%]")) == int(np.floor(np.round(0.9 * count, 9) + 0.5))


def test_one_part_is_a_source_and_several_are_a_tuple():
    source = Labelled(np.arange(100) % 4)
    train, val = split(source, "90%", "10%")
    by_fraction = split(source, 0.9, 0.1)
    by_slice = split(source, "[:90%]", "[90%:]")
    for parts in (by_fraction, by_slice, (split(source, 0.9), split(source, "[-10%:]"))):
        assert [records(part) for part in parts] == [records(train), records(val)]
    assert isinstance(split(source, "90%"), Subset) and isinstance(by_slice, tuple)
    assert [len(part) for part in split(source, 1 / 3, 1 / 3, 1 / 3)] == [33, 34, 33]
    assert [len(part) for part in split(source, 5 / 6, np.float32(1 / 6))] == [83, 17]
    assert [len(part) for part in split(source, "10%", 0.2)] == [10, 20]


def test_a_smaller_share_lies_in_a_larger_one():
    source = Labelled(np.random.default_rng(0).integers(0, 7, 500))
    shares = [set(records(split(source, share))) for share in (0.01, 0.1, 0.5, 0.99)]
    assert all(small < large for small, large in itertools.pairwise(shares))


@pytest.mark.parametrize(
    "stratify, expected",
    [(True, [4, 7, 12, 17, 21, 23, 34, 36]), (False, [7, 12, 17, 21, 23, 26, 29, 36])],
)
def test_golden_records(stratify, expected):
    """Never change these: models would be tested on what they learned in an earlier version."""
    source = Labelled(np.arange(40) % 7)
    assert records(split(source, "[:20%]", seed=4, stratify=stratify)) == expected


def test_the_seed_alone_says_which_records():
    source = Labelled(np.zeros(1000, int))
    one, same, other = (records(split(source, 0.5, seed=seed)) for seed in (1, np.int64(1), 2))
    assert one == same and one == sorted(one)  # in the order of the source, which disks like
    assert 200 < len(set(one) & set(other)) < 300  # half of 500, as of two independent draws
    gaps = np.diff(one)
    assert gaps.max() > 3 and (gaps == 1).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    "sizes, most",
    [
        ([100] * 10, 1),
        ([100] * 100, 1),
        ([1000, 10, 10, 500, 37], 2),
        ([1] * 300 + [300, 200], 5),
        ([1] * 50, 1),
    ],
)
def test_every_class_has_its_share_of_each_part(sizes, most):
    values = np.repeat(np.arange(len(sizes)) * 3 - 1, sizes)
    source = Labelled(np.random.default_rng(0).permutation(values))
    for seed in range(5):
        for part, share in zip(split(source, 0.7, 0.2, 0.1, seed=seed), (0.7, 0.2, 0.1)):
            assert len(part) == pytest.approx(share * len(source), abs=1)
            found = np.bincount((part.features["label"] + 1) // 3, minlength=len(sizes))
            assert np.abs(found - share * np.array(sizes)).max() <= most


def test_a_folder_sorted_by_class_is_not_cut_by_class():
    source = Labelled(np.repeat(np.arange(10), 100))
    assert np.bincount(split(source, "[90%:]").features["label"]).tolist() == [10] * 10
    free = np.bincount(split(source, "[90%:]", stratify=False).features["label"], minlength=10)
    assert free.sum() == 100 and set(free.tolist()) != {10}


@pytest.mark.parametrize("labels_of", [np.zeros((10, 2), int), np.linspace(0, 1, 10)])
def test_labels_that_are_no_classes_do_not_matter(labels_of):
    assert records(split(Labelled(labels_of), 0.5)) == records(split(Counted(10), 0.5))


@pytest.mark.parametrize(
    "part, first, last",
    [
        ("[2:5]", 2, 5),
        ("[-3:]", 7, 10),
        ("[:-3]", 0, 7),
        ("[8:99]", 8, 10),
        (" [ 1 : 5 ] ", 1, 5),
        ("[:]", 0, 10),
    ],
)
def test_plain_numbers_are_records_by_number(part, first, last):
    assert labels(split(numbered(10), part)) == list(range(first, last))


@pytest.mark.parametrize(
    "part",
    ["", "[90%]", "[a:]", "[1:2:3]", "[:90 percent]", "[:1.5]", "-10%", 90, True, -0.1, 1.5, b"9%"],
)
def test_wrong_parts_are_refused(part):
    with pytest.raises(ValueError, match=r"`parts` must be shares such as 0\.9.* got "):
        split(numbered(10), part)


@pytest.mark.parametrize(
    "parts, message",
    [
        ((), "`parts` must name at least one"),
        ((0.9, 0.2), "shares of 1 in all at most, got 0.9, 0.2"),
        (([0.8, 0.2],), r"got \[0.8, 0.2\]: write split\(source, 0.8, 0.2\)"),
        (("90%", "10.1%"), "shares of 1 in all"),
        (("[:50%]", 0.5), "all shares or all slices"),
        (("[100:90%]",), "both bounds as numbers or both in per cent"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        split(numbered(10), *parts)


@pytest.mark.parametrize("part", ["[5:5]", "[50%:50%]", 0.0, "1%"])
def test_an_empty_split_is_an_error(part):
    with pytest.raises(SourceError, match=r"`parts`: .* of 10 records holds none"):
        split(numbered(10), part)


def test_fingerprints_tell_parts_apart():
    source = numbered(10)
    parts = [source, split(numbered(11), "[:5]")]
    parts += [split(source, part) for part in ("[:5]", "[5:]", 0.5)]
    assert len({part.fingerprint() for part in parts}) == 5
    assert split(source, "50%").fingerprint() == parts[4].fingerprint()


def folder(path):
    for number in range(6):
        name = path / f"class{number % 2}" / f"{number}.jpg"
        name.parent.mkdir(exist_ok=True)
        name.write_bytes(b"image")
    return ImageFolder(path)


def test_parts_know_what_their_source_knows(tmp_path):
    source = folder(tmp_path)
    part = Subset(Subset(source, [5, 4, 0, 1]), [True, False, False, True])
    assert part.classes == source.classes == ("class0", "class1")
    assert part.labels.tolist() == part.features["label"].tolist() == [1, 0]
    assert [part.path(row) for row in (0, 1)] == [source.path(row) for row in (5, 1)]
    assert balanced_weights(part.labels).tolist() == [1, 1]
    with pytest.raises(IndexError, match=r"`indices` must lie in \[0, 2\)"):
        part.path(2)


def test_parts_say_what_their_source_does_not_know():
    part = Subset(Subset(RandomAccess([{"image": b"...", "label": 3}]), [0]), [0])
    for name in ("labels", "classes", "features"):
        assert not hasattr(part, name)
        with pytest.raises(AttributeError, match=rf"RandomAccess\(.*has no `{name}`"):
            getattr(part, name)
    with pytest.raises(AttributeError, match="has no `path`"):
        part.path(0)


def test_parts_of_a_list_without_labels(tmp_path):
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    assert Subset(FileList(tmp_path / "list.txt"), [1]).labels is None
