"""`decode.Volume` beside nibabel, NumPy, tifffile and zarr."""

import gzip
import io
import struct
import types
import zlib

import jax
import numpy as np
import pytest

from jaxaug import augment, decode, iterators
from jaxaug.decode.image.deep import tiff_tags
from jaxaug.decode.volume import stored
from jaxaug.decode.volume.stored import open_volume
from jaxaug.decode.volume.tiff_stack import read_stack
from jaxaug.errors import DecodeError

DEVICES = jax.device_count()
RNG = np.random.default_rng(0)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def nifti(array, affine=None, packed=False, version=1, **header):
    """The bytes of array [z, y, x(, c)] as NIfTI stores it, [x, y, z(, c)]."""
    nib = pytest.importorskip("nibabel")
    kind = nib.Nifti1Image if version == 1 else nib.Nifti2Image
    stored = array.transpose([2, 1, 0, *range(3, array.ndim)])
    image = kind(stored, np.diag([1.5, 2.0, 3.0, 1.0]) if affine is None else affine)
    if header:
        image.header.set_slope_inter(**header)
    data = image.to_bytes()
    return gzip.compress(data, 1) if packed else data


def whole(data, canonical=True):
    volume = open_volume(memoryview(data), canonical)
    return volume, volume.read(tuple(slice(None) for _ in volume.shape))


def loader_of(columns, decoders, **options):
    source = iterators.Arrays(columns)
    options = {"shuffle": False, **options}
    return iterators.Loader(source, DEVICES, decode=decoders, **options)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "float32", ">i2", ">f4"])
@pytest.mark.parametrize("form", ["npy", "fortran", "nii", "nii.gz", "nii2", "tiff"])
def test_numbers_are_those_of_the_file(dtype, form):
    array = (RNG.random((4, 5, 6)) * 250).astype(dtype)
    if form == "tiff":
        tifffile = pytest.importorskip("tifffile")
        file = io.BytesIO()
        tifffile.imwrite(file, array, photometric="minisblack", metadata=None)
        data = file.getvalue()
    elif form in ("npy", "fortran"):
        data = npy(np.asfortranarray(array) if form == "fortran" else array)
    else:
        data = nifti(array, packed=form == "nii.gz", version=2 if form == "nii2" else 1)
    volume, voxels = whole(data)
    assert voxels.dtype == volume.dtype == np.dtype(dtype).newbyteorder("=")
    np.testing.assert_array_equal(voxels, array)
    window = (slice(1, 3), slice(0, 5), slice(2, 6))
    np.testing.assert_array_equal(volume.read(window), array[window])
    if form.startswith("nii"):
        assert volume.spacing == (3.0, 2.0, 1.5)


@pytest.mark.parametrize("compression", [None, "lerc"])  # this Decoder's parts, and tifffile's
def test_each_directory_of_a_tiff_is_passed_once(compression, monkeypatch):
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    array = np.arange(40 * 6, dtype=np.uint8).reshape(40, 2, 3)
    file = io.BytesIO()
    options = {"metadata": None, "contiguous": False, "compression": compression}
    with tifffile.TiffWriter(file) as writer:
        for page in array:
            writer.write(page, photometric="minisblack", **options)
    passed = []
    following = tiff_tags._next
    monkeypatch.setattr(tiff_tags, "_next", lambda *of: passed.append(of[-1]) or following(*of))
    monkeypatch.setattr(tifffile.TiffPages, "__getitem__", None)
    _, voxels = whole(file.getvalue())
    np.testing.assert_array_equal(voxels, array)
    assert len(passed) == len(set(passed)) == 40


STACKS = [
    ("ImageJ", {"imagej": True, "metadata": {"axes": "ZYX"}}, (4, 5, 6), "ZYX"),
    ("ImageJ", {"imagej": True, "metadata": {"axes": "ZCYX"}}, (4, 3, 5, 6), "ZCYX"),
    ("ImageJ", {"imagej": True, "metadata": {"axes": "TCYX"}}, (4, 3, 5, 6), "ZCYX"),
    ("ImageJ", {"imagej": True, "metadata": {"axes": "ZYXS"}}, (4, 5, 6, 3), "ZYXC"),
    ("OME", {"ome": True, "metadata": {"axes": "ZCYX"}}, (4, 3, 5, 6), "ZCYX"),
    ("OME", {"ome": True, "metadata": {"axes": "CZYX"}}, (3, 4, 5, 6), "CZYX"),
    ("OME", {"ome": True, "metadata": {"axes": "TYX"}}, (4, 5, 6), "ZYX"),
    ("tifffile", {"metadata": {"axes": "CZYX"}}, (3, 4, 5, 6), "CZYX"),
    ("tifffile", {"metadata": {}}, (1, 4, 1, 5, 6), "CZTYX"),
]


@pytest.mark.parametrize("truncate", [False, True], ids=["pages", "one directory"])
@pytest.mark.parametrize("writer, options, shape, axes", STACKS)
def test_pages_are_what_their_writer_says(writer, options, shape, axes, truncate):
    tifffile = pytest.importorskip("tifffile")
    array = RNG.integers(0, 60000, shape).astype(np.uint16)
    file = io.BytesIO()
    color = "rgb" if axes.endswith("C") else "minisblack"
    if writer == "ImageJ" and color == "rgb":
        array = array.astype(np.uint8)
    if truncate and writer != "OME":
        options = options | {"truncate": True}
    tifffile.imwrite(file, array, photometric=color, **options)
    expected = tifffile.imread(io.BytesIO(file.getvalue())).reshape(shape)
    if "C" in axes:
        expected = np.moveaxis(expected, axes.index("C"), -1)
    expected = expected.reshape(4, 5, 6, *((3,) if expected.size > 120 else ()))
    volume, voxels = whole(file.getvalue())
    np.testing.assert_array_equal(voxels, expected)
    window = (slice(1, 3), slice(0, 2), slice(2, 6), slice(1, 3))[: voxels.ndim]
    np.testing.assert_array_equal(volume.read(window), expected[window])


@pytest.mark.parametrize("options", [{"imagej": True}, {"ome": True}, {}])
def test_pages_that_are_no_volume_are_refused_by_name(options):
    tifffile = pytest.importorskip("tifffile")
    file = io.BytesIO()
    array = np.zeros((2, 3, 4, 5), np.uint16)
    axes = {} if not options else {"axes": "TZYX"}
    tifffile.imwrite(file, array, photometric="minisblack", metadata=axes, **options)
    with pytest.raises(DecodeError, match=r"pages are 2 .* x 3 .*store each as a file"):
        whole(file.getvalue())


def test_ome_tells_the_spacing_and_of_missing_pages():
    tifffile = pytest.importorskip("tifffile")
    file = io.BytesIO()
    sides = {"PhysicalSizeZ": 2.5, "PhysicalSizeY": 500.0, "PhysicalSizeX": 0.5}
    units = {"PhysicalSizeYUnit": "nm"}
    array = RNG.integers(0, 255, (3, 4, 5)).astype(np.uint8)
    tifffile.imwrite(file, array, ome=True, metadata={"axes": "ZYX", **sides, **units})
    volume, voxels = whole(file.getvalue())
    np.testing.assert_array_equal(voxels, array)
    np.testing.assert_allclose(volume.spacing, (0.0025, 0.0005, 0.0005))
    more = file.getvalue().replace(b'SizeZ="3"', b'SizeZ="4"')
    with pytest.raises(DecodeError, match="some of which are not among the 3 of this file"):
        whole(more)


def test_pages_that_ome_claims_take_no_memory():
    page = types.SimpleNamespace(height=4, width=5, samples=1)
    told = " ".join(f'Size{axis}="{10**6}"' for axis in "ZCT")
    pixels = f'<Pixels DimensionOrder="XYZCT" {told}><TiffData IFD="0" PlaneCount="3"/></Pixels>'
    with pytest.raises(DecodeError, match=f"tells of {10**18} pages"):
        read_stack(f"<OME><Image>{pixels}</Image></OME>", 3, page)


@pytest.mark.parametrize("axis", "ZCT")
def test_ome_begins_at_no_page_below_the_first(axis):
    page = types.SimpleNamespace(height=4, width=5, samples=1)
    blocks = f'<TiffData IFD="0" PlaneCount="3"/><TiffData First{axis}="-1" IFD="0"/>'
    pixels = f'<Pixels DimensionOrder="XYZCT" SizeZ="3" SizeC="1" SizeT="1">{blocks}</Pixels>'
    with pytest.raises(DecodeError, match=f"First{axis}=-1, below 0"):
        read_stack(f"<OME><Image>{pixels}</Image></OME>", 3, page)


def test_smaller_copies_and_masks_are_no_slices():
    tifffile = pytest.importorskip("tifffile")
    array = RNG.integers(0, 60000, (2, 32, 48)).astype(np.uint16)
    after, within = io.BytesIO(), io.BytesIO()
    with tifffile.TiffWriter(after) as writer:  # as GDAL writes overviews
        for page in array:
            writer.write(page, metadata=None)
        writer.write(array[0, ::2, ::2], subfiletype=1, metadata=None)
        writer.write(array[0] > 100, subfiletype=4, metadata=None)
    with tifffile.TiffWriter(within, ome=True) as writer:  # as OME writes pyramids
        writer.write(array, subifds=1, metadata={"axes": "ZYX"})
        writer.write(array[:, ::2, ::2], subfiletype=1)
    for file in (after, within):
        expected = tifffile.imread(io.BytesIO(file.getvalue()))
        np.testing.assert_array_equal(whole(file.getvalue())[1], expected.reshape(array.shape))


def test_compressed_slices_without_directories_are_refused():
    tifffile = pytest.importorskip("tifffile")
    file = io.BytesIO()
    array = np.zeros((1, 4, 5), np.uint16)
    options = {"metadata": None, "compression": "zlib", "description": '{"shape": [3, 4, 5]}'}
    tifffile.imwrite(file, array, **options)
    with pytest.raises(DecodeError, match="3 slices behind one directory"):
        whole(file.getvalue())


def test_axes_are_those_of_nibabel():
    nib = pytest.importorskip("nibabel")
    array = RNG.random((4, 5, 6, 2)).astype(np.float32)
    for codes in ("RAS", "LPS", "PIR", "SAL", "IRA"):
        sides = nib.orientations.axcodes2ornt(codes)
        affine = nib.orientations.inv_ornt_aff(sides, array.shape[2::-1]) @ np.diag([2, 3, 4, 1.0])
        data = nifti(array, affine)
        there = nib.as_closest_canonical(nib.Nifti1Image.from_bytes(data))
        volume, voxels = whole(data)
        np.testing.assert_array_equal(voxels, there.get_fdata().transpose(2, 1, 0, 3))
        assert volume.spacing == tuple(float(z) for z in there.header.get_zooms()[2::-1])
        np.testing.assert_array_equal(whole(data, canonical=False)[1], array)


def test_scaled_numbers_are_floats():
    nib = pytest.importorskip("nibabel")
    image = nib.Nifti1Image(RNG.integers(0, 4000, (3, 4, 5)).astype(np.int16), np.eye(4))
    image.header.set_slope_inter(0.25, -1024)
    data = image.to_bytes()
    expected = nib.Nifti1Image.from_bytes(data).get_fdata(dtype=np.float32).transpose(2, 1, 0)
    volume, voxels = whole(data)
    assert volume.dtype == np.float32
    np.testing.assert_array_equal(voxels, expected)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("version", [1, 2])
def test_extensions_of_a_header_are_passed_over(version, packed):
    """As AFNI writes them: longer than the bytes that are read of a header."""
    nib = pytest.importorskip("nibabel")
    array = RNG.integers(0, 99, (3, 4, 5)).astype(np.int16)
    image = (nib.Nifti1Image if version == 1 else nib.Nifti2Image)(array, np.eye(4))
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"afni " * 200))
    data = image.to_bytes()
    _, voxels = whole(gzip.compress(data, 1) if packed else data)
    np.testing.assert_array_equal(voxels, array.transpose(2, 1, 0))


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "no volume"),
        (b"GIF89a" * 100, "no volume"),
        (npy(np.zeros((3, 4, 5)))[:-1], "truncated"),
        (npy(np.zeros((3, 4))), r"numbers \[D, H, W\]"),
        (npy(np.zeros((3, 0, 5))), r"numbers \[D, H, W\]"),
        (npy(np.zeros((3, 4, 5))).replace(b"(3, 4, 5), }   ", b"(-1, 1, 1), }  "), "numbers"),
        (b"\0zarr\0/etc", "no source of this process"),
    ],
)
def test_what_is_no_volume_is_told(data, words):
    if words == "no volume":
        pytest.importorskip("nibabel")
    with pytest.raises(DecodeError, match=words):
        whole(data)


def test_a_packed_bomb_is_refused_by_its_header():
    nib = pytest.importorskip("nibabel")
    header = nib.Nifti1Header()
    header.set_data_shape((30000, 30000, 30000))
    header.set_data_dtype(np.uint8)
    header["magic"] = b"n+1"
    header["vox_offset"] = 352
    data = gzip.compress(bytes(header.binaryblock) + bytes(1000))
    with pytest.raises(DecodeError, match="when unpacked, more than"):
        whole(data)
    short = nifti(np.zeros((3, 4, 5), np.uint8))
    with pytest.raises(DecodeError, match="truncated"):
        whole(gzip.compress(short[:-3]))
    with pytest.raises(DecodeError, match="truncated"):
        whole(short[:-3])


def test_damage_that_gzip_tells_is_told():
    data = bytearray(gzip.compress(nifti(np.zeros((9, 9, 9), np.uint8)), 0))
    data[600] ^= 1
    with pytest.raises(DecodeError, match="incorrect data check"):
        try:
            whole(bytes(data))
        except zlib.error as error:  # `VolumeReader` does so, too
            raise DecodeError(str(error)) from error


def test_many_members_of_gzip_are_read_by_pieces(monkeypatch):
    data = nifti(RNG.random((9, 20, 30)).astype(np.float32))
    members = b"".join(gzip.compress(data[k : k + 100], 0) for k in range(0, len(data), 100))
    members = gzip.compress(b"") * 9_000 + members
    sizes = []

    class Counted:
        def __init__(self, wbits):
            self._unpack = zlib.decompressobj(wbits)

        def decompress(self, piece, size):
            sizes.append(len(piece))  # what it copies of the rest, for each member
            return self._unpack.decompress(piece, size)

        def __getattr__(self, name):
            return getattr(self._unpack, name)

    counted = types.SimpleNamespace(decompressobj=Counted, MAX_WBITS=zlib.MAX_WBITS)
    monkeypatch.setattr(stored, "zlib", counted)
    np.testing.assert_array_equal(whole(members)[1], whole(data)[1])
    assert len(members) > 2 * max(sizes)


def header_of(data, **fields):
    """NIfTI-1 with other numbers in its header."""
    nib = pytest.importorskip("nibabel")
    header = nib.Nifti1Header.from_fileobj(io.BytesIO(data[:348]), check=False)
    for name, value in fields.items():
        header[name] = value
    return header.binaryblock + data[348:]


def test_spacing_is_finite_and_in_millimeters():
    data = nifti(np.zeros((3, 4, 5), np.uint8))
    sides = [1, 1500, 2000, 3000, 1, 1, 1, 1]
    for unit, expected in ((3, (3.0, 2.0, 1.5)), (3 | 8, (3.0, 2.0, 1.5)), (2, (3e3, 2e3, 1.5e3))):
        found = whole(header_of(data, xyzt_units=unit, pixdim=sides))[0].spacing
        np.testing.assert_allclose(found, expected)
    assert whole(header_of(data, xyzt_units=1))[0].spacing == (3000, 2000, 1500)
    sides = [1, np.nan, np.inf, 0, 1, 1, 1, 1]
    assert whole(header_of(data, pixdim=sides))[0].spacing == (1, 1, 1)


@pytest.mark.parametrize("offset", [0, -352, 100, -1e30])
def test_voxels_begin_behind_the_header(offset):
    data = header_of(nifti(np.zeros((3, 4, 5), np.uint8)), vox_offset=offset)
    with pytest.raises(DecodeError, match="begin inside of its header"):
        whole(data)


def test_pages_that_no_memory_holds_are_refused():
    entries = [(256, 4, 2**31 - 1), (257, 4, 2**31 - 1), (258, 3, 8), (262, 3, 1)]
    entries += [(273, 4, 0), (278, 4, 2**31 - 1), (279, 4, 0)]  # GDAL: never written
    tags = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    data = struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + tags + bytes(4)
    with pytest.raises(DecodeError, match="a page of 4611686014132420609 bytes"):
        whole(data)


def test_larger_files_give_windows_and_smaller_are_padded(tmp_path):
    array = RNG.integers(1, 99, (9, 3, 8)).astype(np.int16)
    np.save(tmp_path / "a.npy", array)
    with loader_of(
        {"volume": [tmp_path / "a.npy"] * DEVICES}, {"volume": decode.Volume((5, 6, 8), fill=-7)}
    ) as loader:
        batch = jax.device_get(next(loader))
    assert batch["volume"].dtype == np.int16
    np.testing.assert_array_equal(batch["volume"][0, :, 1:4], array[2:7])
    assert (batch["volume"][0, :, [0, 4, 5]] == -7).all()
    assert batch["volume_start"][0].tolist() == [2, -1, 0]
    assert batch["volume_size"][0].tolist() == [9, 3, 8]
    assert batch["spacing"][0].tolist() == [1, 1, 1]


def folders(tmp_path):
    """Volumes and labels as Zarr arrays in folders."""
    zarr = pytest.importorskip("zarr")
    columns = {"volume": [], "labels": []}
    arrays = []
    for record in range(4 * DEVICES):
        array = RNG.random((20, 22 + record % 3, 24)).astype(np.float32)
        arrays.append(array)
        for name, values in (("volume", array), ("labels", (array > 0.5).astype(np.uint8))):
            folder = tmp_path / f"{name}{record}.zarr"
            stored = zarr.create_array(
                folder, shape=array.shape, chunks=(8, 8, 8), dtype=values.dtype
            )
            stored[...] = values
            columns[name].append(str(folder))
    return columns, arrays


def test_patches_of_zarr_are_drawn_by_seed_epoch_and_record(tmp_path):
    columns, arrays = folders(tmp_path)
    decoders = {
        "volume": decode.Volume((8, 10, 12), window="random"),
        "labels": decode.Volume(of="volume"),
    }
    seen = {}
    for size in (1, 2):
        found = {}
        source = iterators.Arrays(columns)
        with iterators.Loader(source, size * DEVICES, decode=decoders, seed=3, epochs=2) as loader:
            assert loader.decoders["labels"].dtype == "int32"
            for epoch in range(2):
                for batch in loader:
                    batch = jax.device_get(batch)
                    for row, index in enumerate(batch["index"].tolist()):
                        z, y, x = start = tuple(batch["volume_start"][row].tolist())
                        patch = arrays[index][z : z + 8, y : y + 10, x : x + 12]
                        np.testing.assert_array_equal(batch["volume"][row], patch)
                        np.testing.assert_array_equal(batch["labels"][row], patch > 0.5)
                        found[epoch, index] = start
        seen[size] = found
    assert seen[1] == seen[2]
    assert len(set(seen[1].values())) > len(arrays)


def test_volumes_go_through_transforms_with_their_spacing(tmp_path):
    array = RNG.random((6, 7, 8)).astype(np.float32)
    paths = [tmp_path / f"{k}.nii.gz" for k in range(DEVICES)]
    for path in paths:
        path.write_bytes(nifti(array, packed=True))
    chain = augment.Compose([augment.volume.Resize((6, 14, 8))])
    with loader_of({"volume": paths}, {"volume": decode.Volume()}, transform=chain) as loader:
        batch = jax.device_get(next(loader))
    assert batch["volume"].shape == (DEVICES, 6, 14, 8)
    assert batch["spacing"][0].tolist() == [3.0, 1.0, 1.5]


def masked(tmp_path, files, **options):
    """The valid rows, and the reasons of the others, of one batch."""
    paths = [tmp_path / f"{k}.npy" for k in range(len(files))]
    for path, data in zip(paths, files):
        path.write_bytes(data)
    with iterators.Loader(
        iterators.Arrays({"volume": paths}),
        len(paths),
        shuffle=False,
        on_error="mask",
        decode={"volume": decode.Volume(**options)},
    ) as loader:
        valid = jax.device_get(next(loader)["valid"])
        return valid.tolist(), {b["index"]: b["reason"] for b in loader.stats["bad_records"]}


def test_bad_volumes_are_bad_records(tmp_path):
    good = np.zeros((3, 4, 5), np.uint8)
    contents = [good, good.astype(np.float32) + 0.5, good[..., None], good]
    files = [npy(each) for each in contents] * DEVICES
    files[3] = files[3][:-1]
    valid, reasons = masked(tmp_path, files, shape=(3, 4, 5))
    assert valid[:4] == [True, False, False, False]
    assert "its numbers are float32" in reasons[1]
    assert "it has 1 channels, the first record None" in reasons[2]
    assert "truncated" in reasons[3]


def test_a_damaged_first_volume_is_one_bad_record(tmp_path):
    files = [npy(np.zeros((3, 4, 5), np.int16))] * 2 * DEVICES
    files[0] = files[0][:-1]
    valid, _ = masked(tmp_path, files, shape=(3, 4, 5))
    assert valid == [False] + [True] * (2 * DEVICES - 1)


def test_numbers_just_above_those_of_a_dtype_are_refused(tmp_path):
    files = [npy(np.full((3, 4, 5), number, np.float32)) for number in (-(2.0**31), 2.0**31)]
    valid, reasons = masked(tmp_path, files * DEVICES, shape=(3, 4, 5), dtype="int32")
    assert valid[:2] == [True, False]
    assert "which int32 cannot hold" in reasons[1]


@pytest.mark.parametrize("fill", [-7, 256, 0.5, np.nan])
def test_a_fill_is_a_number_of_the_batch(fill, tmp_path):
    with pytest.raises(ValueError, match="`fill` must be a number of uint8"):
        masked(tmp_path, [npy(np.zeros((3, 4, 5), np.uint8))] * DEVICES, fill=fill)


def test_labels_have_the_axes_of_their_volume(tmp_path):
    array = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    paths = [tmp_path / "a.nii"] * DEVICES
    paths[0].write_bytes(nifti(array, np.diag([-1.0, 1, 1, 1])))
    decoders = {"volume": decode.Volume(canonical=False), "labels": decode.Volume(of="volume")}
    with loader_of({"volume": paths, "labels": paths}, decoders) as loader:
        batch = jax.device_get(next(loader))
    np.testing.assert_array_equal(batch["volume"][0], array)
    np.testing.assert_array_equal(batch["labels"], batch["volume"])


def test_one_shape_is_that_of_all(tmp_path):
    files = [npy(np.zeros((3, 4, 5), np.uint8))] * 32 + [npy(np.zeros((2, 4, 5), np.uint8))]
    files += files[: -len(files) % DEVICES]
    valid, reasons = masked(tmp_path, files)
    assert valid[:33] == [True] * 32 + [False]
    assert "it has (2, 4, 5) voxels, the first records (3, 4, 5)" in reasons[32]
    with pytest.raises(ValueError, match="`shape` must be given for column 'volume'"):
        masked(tmp_path, files[::-1])


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`shape` must be"):
        decode.Volume((3, 4))
    with pytest.raises(ValueError, match="`window` must be"):
        decode.Volume((3, 4, 5), window="corner")
    with pytest.raises(ValueError, match="`dtype` must be"):
        decode.Volume((3, 4, 5), dtype="float64")


def test_a_bad_record_is_called_no_image():
    files = [npy(np.zeros((2, 3, 4)))] * DEVICES + [b"GIF89a" * 9] * DEVICES
    source = iterators.Renamed(iterators.InMemory(files), {"image": "volume"})
    volume = {"volume": decode.Volume((2, 3, 4))}
    with iterators.Loader(source, DEVICES, decode=volume, shuffle=False) as loader:
        with pytest.raises(DecodeError, match=f"record {DEVICES} .*no volume") as caught:
            list(loader)
    assert "decode image" not in str(caught.value)
