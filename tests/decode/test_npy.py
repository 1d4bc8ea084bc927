"""Headers of NPY files, beside NumPy's own reader."""

import gc
import io
import threading
import time

import numpy as np
import pytest

from jaxaug.decode._npy import read_npy_header
from jaxaug.errors import DecodeError


def saved(array, version=None):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return file.getvalue()


def numpy_header(data):
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        found = np.lib.format.read_array_header_1_0(file)
    else:
        found = np.lib.format.read_array_header_2_0(file)
    return (*found, file.tell())


DTYPES = ["?", "i1", "u1", "<i2", ">u2", "<i4", ">i8", "<f2", ">f4", "<f8", "<c8", ">c16"]


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
@pytest.mark.parametrize("dtype", [*DTYPES, "<g", "<U3", "<M8[ns]"])
def test_what_numpy_writes_is_read_as_numpy_reads_it(dtype, version):
    for shape in [(), (0,), (7,), (3, 4), (2, 1, 5), (1, 2, 3, 4)]:
        for order in ("C", "F"):
            data = saved(np.zeros(shape, dtype, order), version)
            file = io.BytesIO(data)
            assert (*read_npy_header(file), file.tell()) == numpy_header(data)


@pytest.mark.filterwarnings("ignore:Reading:UserWarning")
@pytest.mark.parametrize(
    "text",
    [
        "{'fortran_order': False, 'descr': '<f4', 'shape': (3, 4)}",  # other keys first
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L), }",  # Python 2
        "{'descr':'<f4','fortran_order':False,'shape':(3,4)}",
        "{'descr': '=f4', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '<f3', 'fortran_order': False, 'shape': (3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (03, 4), }",
        "{'descr': '<f4', 'fortran_order': 1, 'shape': (3, 4), }",
        "{'descr': '<f4', 'shape': (3, 4), }",
        "{",
        "",
    ],
)
def test_other_texts_are_judged_as_numpy_judges_them(text):
    line = text.encode() + b"\n"
    data = b"\x93NUMPY\1\0" + len(line).to_bytes(2, "little") + line
    try:
        expected = numpy_header(data)
    except Exception as error:  # mostly a ValueError
        with pytest.raises(type(error)):
            read_npy_header(io.BytesIO(data))
    else:
        file = io.BytesIO(data)
        assert (*read_npy_header(file), file.tell()) == expected


def test_arrays_of_fields_are_refused():
    data = saved(np.zeros(3, [("ä", "<f4")]), (3, 0))
    with pytest.raises(DecodeError, match="of fields"):
        read_npy_header(io.BytesIO(data))


class _Yields:
    """Garbage whose collection lets other threads run."""

    def __init__(self):
        self.self = self

    def __del__(self):
        time.sleep(1e-4)


def test_threads_read_headers_at_a_time():
    """Before Python 3.11.8 `ast`, by which NumPy reads them, fails so."""
    failures = []

    def read(first, depth=0):
        if depth < first // 50:  # so that the threads' stacks differ
            return read(first, depth + 1)
        for side in range(first, first + 250):
            _Yields()
            try:
                shape = read_npy_header(io.BytesIO(saved(np.zeros((side, 2), "u1")))).shape
                assert shape == (side, 2)
            except Exception as error:
                failures.append(error)

    threads = [threading.Thread(target=read, args=(250 * k,)) for k in range(4)]
    thresholds = gc.get_threshold()
    gc.set_threshold(7)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
    assert not failures
