"""CUDA C++ as a step of a traced program: compiled to PTX by NVRTC, started by XLA itself.

XLA takes PTX in a custom call of its own (`__gpu$xla.gpu.ptx`), so a kernel is a part of the
compiled program as any other: in its order on XLA's stream, in its CUDA graphs, in its cache. The
PTX is for the oldest architecture that the instructions need and runs on all newer ones.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._nvrtc import compile_to_ptx
from jaxaug._typing import Scalar

_TARGET = "__gpu$xla.gpu.ptx"
_OLDEST_ARCHITECTURE = 70  # Volta, for the shuffles; NVRTC 13 begins with 75
_PTX_VERSION = ".version 7.0"  # of CUDA 11: drivers refuse a version newer than themselves
_MAX_IMAGES = 65_535  # of a launch: the most blocks along z; none is refused, too


class CudaKernel(NamedTuple):
    """A kernel that computes the rows of a batch: one image for each value of `blockIdx.z`.

    Attributes:
      source: CUDA C++ with the kernel as `extern "C"`; its parameters are the addresses of the
        operands, then of the results.
      name: of the kernel.
      results: (shape, dtype name) of each result, without the axis of the batch.
      blocks: numbers of blocks along x and y.
      threads: threads of a block along x and y.
    """

    source: str
    name: str
    results: tuple[tuple[tuple[int, ...], str], ...]
    blocks: tuple[int, int]
    threads: tuple[int, int]


def call(kernel: CudaKernel, *operands: Array) -> list[Array]:
    """Return the results for one image; under `jax.vmap` a launch computes all images."""
    _show_devices()
    results = _kernel_call.bind(*(operand[None] for operand in operands), kernel=kernel)
    return [result[0] for result in results]


def with_constants(constants: Mapping[str, Any], source: str) -> str:
    """Return CUDA C++ with a `#define` for each constant before it."""
    lines = [f"#define {name} {value}" for name, value in constants.items()]
    return "\n".join(lines) + source


def as_row(numbers: Sequence[Scalar]) -> Array:
    """Return float32[n] of n numbers.

    A sum: one number may be of each image and another of the whole batch, which on an explicit mesh
    are split differently, and arrays that are stacked may not be.
    """
    places = np.eye(len(numbers), dtype=np.float32)
    terms = [jnp.asarray(number, jnp.float32) * place for number, place in zip(numbers, places)]
    return functools.reduce(jnp.add, terms)


_kernel_call = Primitive("jaxaug_kernel")
_kernel_call.multiple_results = True


@_kernel_call.def_abstract_eval
def _abstract(*operands: Any, kernel: CudaKernel) -> list[Any]:
    first = operands[0]
    results = []
    for shape, dtype in kernel.results:
        spec = PartitionSpec(first.sharding.spec[0], *(None for _ in shape))
        results.append(
            first.update(
                shape=(first.shape[0], *shape),
                dtype=np.dtype(jnp.dtype(dtype)),
                sharding=first.sharding.update(spec=spec),
            )
        )
    return results


@_kernel_call.def_impl
def _compute(*operands: Array, kernel: CudaKernel) -> list[Array]:
    return jax.jit(functools.partial(_kernel_call.bind, kernel=kernel))(*operands)


def _batch(
    operands: Sequence[Array], axes: Sequence[Any], *, kernel: CudaKernel
) -> tuple[Any, Any]:
    """Return the results of a batch of batches: one batch of all their rows."""
    size = next(operand.shape[axis] for operand, axis in zip(operands, axes) if axis is not None)
    merged = []
    rows = 0
    for operand, axis in zip(operands, axes):
        if axis is None:
            operand = jnp.broadcast_to(operand, (size, *operand.shape))
        else:
            operand = jnp.moveaxis(operand, axis, 0)
        rows = operand.shape[1]
        merged.append(operand.reshape(size * rows, *operand.shape[2:]))

    results = _kernel_call.bind(*merged, kernel=kernel)
    split = [result.reshape(size, rows, *result.shape[1:]) for result in results]
    return split, [0] * len(split)


batching.primitive_batchers[_kernel_call] = _batch


def _compute_rows(kernel: CudaKernel, *operands: Array) -> Sequence[Array]:
    """Return the results of the rows that one device holds, in as few launches as CUDA takes."""
    rows = operands[0].shape[0]
    if 0 < rows <= _MAX_IMAGES:
        return _launch(kernel, *operands)

    empty = [jnp.zeros((0, *shape), dtype) for shape, dtype in kernel.results]
    parts = [
        _launch(kernel, *(operand[start : start + _MAX_IMAGES] for operand in operands))
        for start in range(0, rows, _MAX_IMAGES)
    ]
    return [jnp.concatenate(pieces) for pieces in zip(empty, *parts)]


def _launch(kernel: CudaKernel, *operands: Array) -> Sequence[Array]:
    rows = operands[0].shape[0]
    results = [jax.ShapeDtypeStruct((rows, *shape), dtype) for shape, dtype in kernel.results]
    start = jax.ffi.ffi_call(_TARGET, results)
    return start(
        *operands,
        name=kernel.name,
        kernel_type="ptx",
        kernel_data=_ptx(kernel.source),
        grid_x=kernel.blocks[0],
        grid_y=kernel.blocks[1],
        grid_z=rows,
        block_x=kernel.threads[0],
        block_y=kernel.threads[1],
        block_z=1,
        shared_mem_bytes=0,
    )


@functools.cache
def _ptx(source: str) -> str:
    """Return the PTX of a kernel, of a version that old drivers take."""
    lines = compile_to_ptx(source, _OLDEST_ARCHITECTURE).splitlines()
    return "\n".join(_PTX_VERSION if line.startswith(".version") else line for line in lines)


@functools.partial(custom_partitioning, static_argnums=(0,))
def _on_devices(kernel: CudaKernel, *operands: Array) -> Sequence[Array]:
    return _compute_rows(kernel, *operands)


def _partition(kernel: CudaKernel, mesh: Any, operands: Any, results: Any) -> tuple[Any, ...]:
    """Return the launch on each device, with the rows split as those of the first operand."""
    rows = operands[0].sharding.spec[0]

    def split(shapes: Any) -> tuple[NamedSharding, ...]:
        return tuple(
            NamedSharding(mesh, PartitionSpec(rows, *(None for _ in shape.shape[1:])))
            for shape in shapes
        )

    def launch(*rows: Array) -> Sequence[Array]:
        # The rows of one device are split no further, whatever mesh is set.
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):
            return _compute_rows(kernel, *rows)

    return mesh, launch, list(split(results)), split(operands)


def _rule(kernel: CudaKernel, mesh: Any, operands: Any, results: Any) -> str:
    """Return the rule by which a split of the rows spreads: all share their first axis."""
    number = iter(range(1000))

    def factors(types: Any) -> str:
        return ", ".join(
            " ".join(["rows", *(f"f{next(number)}" for _ in kind.shape[1:])]) for kind in types
        )

    return f"{factors(operands)} -> {factors(results)}"


_on_devices.def_partition(partition=_partition, sharding_rule=_rule)


def _lower(ctx: Any, *operands: Any, kernel: CudaKernel) -> Any:
    # Of several devices each is given its rows; one needs no partitioning, nor does an export.
    several = getattr(ctx.module_context.axis_context, "num_devices", 2) > 1
    start = _on_devices if several else _compute_rows
    lowered = mlir.lower_fun(functools.partial(start, kernel), multiple_results=True)
    return lowered(ctx, *operands)


# For all platforms: a program for several holds each branch of `choice.on_gpu` lowered for all of
# them. Before it is compiled for one the others are dropped.
mlir.register_lowering(_kernel_call, _lower)


@functools.cache
def _show_devices() -> None:
    """Let JAX show devices to `_lower`, as it does to `custom_partitioning` itself.

    JAX shows them only to the primitives that it knows of, and has no public name for that list:
    the one use of its private modules here, which comes with the first kernel and not before.
    """
    from jax._src import dispatch

    dispatch.prim_requires_devices_during_lowering.add(_kernel_call)
