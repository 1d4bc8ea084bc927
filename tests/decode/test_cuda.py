"""Errors of the CUDA runtime, on a runtime that fails as one without a driver does."""

import enum
from types import SimpleNamespace

import pytest

from jaxaug.decode.native import cuda


class Status(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorInsufficientDriver = 35


def use(monkeypatch, **results):
    """A runtime whose functions return these, or fail with these statuses."""

    def function(result):
        if isinstance(result, Status):
            return lambda *arguments: (result, None, None)
        return lambda *arguments: (Status.cudaSuccess, *result)

    functions = {name: function(result) for name, result in results.items()}
    monkeypatch.setattr(cuda, "runtime", lambda: SimpleNamespace(**functions))


def test_a_call_gives_what_the_function_gives(monkeypatch):
    use(monkeypatch, cudaMalloc=(7,), cudaFree=(), cudaMemGetInfo=(1, 2))
    found = [cuda.call(name) for name in ("cudaMalloc", "cudaFree", "cudaMemGetInfo")]
    assert found == [7, None, (1, 2)]


@pytest.mark.parametrize(
    "status", [Status.cudaErrorInsufficientDriver, Status.cudaErrorInvalidValue]
)
def test_a_failure_is_a_cuda_error_with_its_name(monkeypatch, status):
    use(
        monkeypatch,
        cudaMalloc=status,
        cudaMemGetInfo=status,
        cudaDeviceGetStreamPriorityRange=status,
    )
    for call in (lambda: cuda.allocate(2**20), cuda.create_stream):
        with pytest.raises(cuda.CudaError, match=status.name) as caught:
            call()
        assert caught.value.status == status


def test_only_missing_memory_is_called_so(monkeypatch):
    full = Status.cudaErrorMemoryAllocation
    use(monkeypatch, cudaMalloc=full, cudaMemGetInfo=(2**20, 2**30))
    with pytest.raises(
        MemoryError, match=r"of 3 MiB.*cudaErrorMemoryAllocation; 1 of 1024 MiB.*MEM_FRACTION"
    ):
        cuda.allocate(3 * 2**20)
    use(monkeypatch, cudaMalloc=full, cudaMemGetInfo=Status.cudaErrorInsufficientDriver)
    with pytest.raises(MemoryError, match="cudaMemGetInfo: cudaErrorInsufficientDriver"):
        cuda.allocate(3 * 2**20)
