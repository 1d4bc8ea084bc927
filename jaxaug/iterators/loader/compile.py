"""The compilation of a batch function, shared by Loaders whose functions are equal in value.

Also that of the functions by which records that are kept move on the devices.
"""

import dataclasses
import functools
import hashlib
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from jaxaug._mesh_context import no_mesh
from jaxaug._typing import Device
from jaxaug.iterators.loader.batch_function import BatchFunction
from jaxaug.iterators.loader.rows import RowPacking, RowSchema
from jaxaug.sharding._assemble import RowLayout
from jaxaug.sharding._mesh import auto_mesh

_MAX_SHARED_CALLS = 8  # compiled calls that outlive their Loader

# The settings that a trace depends on; `with jax.enable_x64():` and its like are thread-local.
_TRACE_CONFIG = (
    "jax_enable_x64",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_matmul_precision",
    "jax_threefry_partitionable",
    "jax_debug_nans",
)

# JAX's errors for a function that brings a mesh of its own into ours.
_OTHER_MESH = ("Context mesh", "no mesh axis_types are", "Closing over inputs to shard_map")


class CompiledBatch(NamedTuple):
    """A compiled `BatchFunction`.

    Attributes:
      call: (seed words, arrays on the devices, packed rows) -> (batch, ready), on the rows of all
        local devices; of a run of several batches, (list of batches, ready); with a `RowGather`
        it takes that one's arrays behind the seed.
      packing: of the rows but those arrays.
      shapes: the local batch as a tree of jax.ShapeDtypeStruct.
    """

    call: Callable[..., tuple[dict[str, Any], Array]]
    packing: RowPacking
    shapes: dict[str, Any]


class RowGather(NamedTuple):
    """How a compiled call finds its rows in what lies on the devices.

    Attributes:
      rows: (arrays) -> rows, in the form of `RowSchema.shapes`; traced.
      shapes: of these arrays, in a tuple of trees; each device has a share of all.
    """

    rows: Callable[..., dict[str, Any]]
    shapes: tuple[Any, ...]


def compile_batch(
    function: BatchFunction,
    schema: RowSchema,
    count: int,
    devices: Sequence[Device],
    run: int = 1,
    output: NamedSharding | None = None,
    eager: bool = True,
    gather: RowGather | None = None,
) -> CompiledBatch:
    """Compile a function for rows of this form, on our own mesh, whatever mesh the caller set.

    A function that is equal in value to an earlier one shares its call. Functions of the user's
    are equal if they are the same object, as for `jax.jit`, and hold values that compare.

    Args:
      function: the function.
      schema: the form of the rows.
      count: the rows of this process.
      devices: those that share the rows, in their order.
      run: the batches that one call makes. Each device has those rows of the first batch that are
        its own, then those of the second, and so on.
      output: the sharding of batches, over the same devices in the same order; None for our own.
      eager: compile now, or when it is first called; traced is it now, with the settings of the
        caller's thread.
      gather: gives the rows, behind a barrier, so that they are transformed as in a call without
        it; not for CPUs, where it would not hold. The call takes its arrays for those of rows.

    Raises:
      Exception: whatever the transforms raise when they are traced.
    """
    rows = schema.shapes(count * run)
    functions: list[_SameFunction] = []
    value = None if gather else value_key(function, functions)  # which knows one store alone
    if value is None:
        return _compile(function, schema, rows, devices, run, output, eager, gather)

    leaves, tree = jax.tree.flatten(rows)
    shapes = tuple((leaf.shape, np.dtype(leaf.dtype).str) for leaf in leaves)
    config = tuple(str(getattr(jax.config, name, None)) for name in _TRACE_CONFIG)
    key = (value, str(tree), shapes, tuple(devices), run, output, config)
    call = _SHARED.get(key, lambda: _compile(function, schema, rows, devices, run, output, eager))
    for each in functions:
        each.watch(functools.partial(_SHARED.drop, key))
    return call


def _compile(
    function: BatchFunction,
    schema: RowSchema,
    rows: dict[str, Any],
    devices: Sequence[Device],
    run: int,
    output: NamedSharding | None,
    eager: bool,
    gather: RowGather | None = None,
) -> CompiledBatch:
    host, device = schema.split(rows)
    packing = RowPacking(host)
    shapes = (device, packing.shapes) if gather is None else gather.shapes

    def call(seed: Array, *arrays: Any) -> tuple[Any, Array]:
        if gather is None:
            rows = schema.join(packing.unpack(arrays[1]), arrays[0])
        else:
            rows = lax.optimization_barrier(gather.rows(*arrays))
        batch, ready = function(seed, rows)
        batch |= {"valid": rows["valid"], "index": rows["index"]}
        return batch if run == 1 else _cut(batch, run), ready

    mesh = auto_mesh(devices)
    mapped = jax.shard_map(
        call,
        mesh=mesh,
        in_specs=(PartitionSpec(), *[PartitionSpec("batch")] * len(shapes)),
        out_specs=PartitionSpec("batch"),
        check_vma=False,  # per-sample mathematics: nothing varies or is shared across devices
    )
    replicated = NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec("batch"))
    seed_shape = jax.ShapeDtypeStruct((2,), np.uint32, sharding=replicated)
    shapes = jax.tree.map(
        lambda each: jax.ShapeDtypeStruct(each.shape, each.dtype, sharding=split), shapes
    )
    # What is compiled stays so: `jax.disable_jit` would unroll its loops, and refuse to call it.
    with no_mesh(), jax.disable_jit(False):
        shardings = (split if output is None else output, split)
        lowered = _lower(mapped, shardings, seed_shape, *shapes)
        compiled = lowered.compile() if eager else _WhenCalled(lowered)

    found = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), lowered.out_info[0])
    return CompiledBatch(jax.disable_jit(False)(compiled), packing, found)


def compile_rows(
    function: Callable[..., Any],
    layout: RowLayout,
    arguments: Sequence[Any],
    replicated: Sequence[int] = (),
    donate: int | None = None,
) -> Callable[..., Any]:
    """Return a function that each device computes on its own rows, compiled.

    Args:
      function: of trees of arrays, to a tree of them.
      layout: the devices.
      arguments: trees of arrays, or of their shapes, like those that it will be called with.
      replicated: the numbers of those that each device has whole; it has its rows of the others.
      donate: the number of the one whose memory it may write to.
    """
    shardings = [
        layout.replicated if number in replicated else layout.split
        for number in range(len(arguments))
    ]
    shapes = [
        jax.tree.map(
            lambda x, there=there: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), each
        )
        for each, there in zip(arguments, shardings)
    ]
    mapped = jax.shard_map(
        function,
        mesh=layout.split.mesh,
        in_specs=tuple(there.spec for there in shardings),
        out_specs=layout.split.spec,
        check_vma=False,
    )
    with no_mesh(), jax.disable_jit(False):
        # Kept, or the memory of one that is not read would not be written to.
        jitted = jax.jit(mapped, donate_argnums=donate, keep_unused=donate is not None)
        compiled = jitted.lower(*shapes).compile()
    return jax.disable_jit(False)(compiled)


class _WhenCalled:
    """What is compiled by its first call, whichever of the threads that build comes first."""

    def __init__(self, lowered: jax.stages.Lowered):
        self._lowered: jax.stages.Lowered | None = lowered
        self._compiled: Any = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        with self._lock:
            if self._lowered is not None:
                with no_mesh():
                    self._compiled = self._lowered.compile()
                self._lowered = None
        return self._compiled(*args)


def _cut(batch: dict[str, Any], run: int) -> list[dict[str, Any]]:
    """Return a run of batches one by one.

    A row has the same bits in any number of rows, but where XLA fuses it with the cut, which would
    round otherwise: hence the barrier.
    """
    rows = lax.optimization_barrier(batch)
    return [jax.tree.map(lambda x, i=i: jnp.split(x, run)[i], rows) for i in range(run)]


def _lower(function: Callable[..., Any], shardings: Any, *shapes: Any) -> jax.stages.Lowered:
    """Trace and lower a function; say what is wrong where it uses another mesh than ours."""
    try:
        return jax.jit(function, out_shardings=shardings).lower(*shapes)
    except (ValueError, NotImplementedError) as error:
        if not any(words in str(error) for words in _OTHER_MESH):
            raise
        raise ValueError(
            "`transform` and `batch_transform` run on each device by itself and must not use "
            f"arrays or shardings of a mesh, got: {str(error).splitlines()[0]} Give them "
            "np.asarray(array) of what was made inside of `jax.set_mesh`, or put on a mesh."
        ) from error


class _SharedCalls:
    """The last few compiled calls, by the value of their functions."""

    def __init__(self, limit: int):
        self._limit = limit
        self._calls: dict[Any, CompiledBatch] = {}

    def get(self, key: Any, make: Callable[[], CompiledBatch]) -> CompiledBatch:
        """Return the call of `key`, made here if there is none."""
        call = self._calls.pop(key, None) or make()
        self._calls[key] = call  # the newest last
        while len(self._calls) > self._limit:
            self._calls.pop(next(iter(self._calls)), None)
        return call

    def drop(self, key: Any) -> None:
        """Forget the call of `key`, if there is one."""
        self._calls.pop(key, None)


_SHARED = _SharedCalls(_MAX_SHARED_CALLS)


class _SameFunction:
    """Stands for a function in the key of a call; equal to itself while the function lives.

    It does not keep the function alive, and no later one at the same address takes its place.
    """

    def __init__(self, function: Any):
        self._function = weakref.ref(function)
        self._hash = hash(id(function))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        function = self._function()
        return self is other or (
            function is not None
            and isinstance(other, _SameFunction)
            and function is other._function()
        )

    def watch(self, at_end: Callable[[], None]) -> None:
        """Call `at_end` when the function is gone."""
        function = self._function()
        if function is not None:
            weakref.finalize(function, at_end).atexit = False


def value_key(value: Any, functions: "list[_SameFunction] | None" = None) -> Any:
    """Return a hashable that is equal for equal configurations.

    It is None for a value that may hold a function or an array. With a list `functions`, a Python
    function is part of the key by its identity, and is added to the list. Values are told apart by
    type, so that 1, 1.0 and True are three.

    Example:
      >>> value_key((1, "a")) == value_key((1, "a")), value_key((1,)) == value_key((1.0,))
      (True, False)
      >>> value_key((1, print)) is None
      True
    """
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return type(value), repr(value)
    if isinstance(value, tuple):
        fields = value
    elif functions is not None and isinstance(value, types.FunctionType):
        if _SameFunction(value) in functions:  # it refers to itself
            return value.__qualname__
        functions.append(_SameFunction(value))
        # What it holds may be set anew, as the trace would not be; its globals count as constants.
        held = inspect.getclosurevars(value).nonlocals.values()  # those that have a value
        fields = (*held, value.__defaults__, *(value.__kwdefaults__ or {}).values())
    elif _is_frozen(value):
        fields = [getattr(value, field.name) for field in dataclasses.fields(value)]
    else:
        return None

    kind = functions[-1] if isinstance(value, types.FunctionType) and functions else type(value)
    keys = [value_key(field, functions) for field in fields]
    return None if None in keys else (kind, tuple(keys))


def configuration(transform: Any) -> str:
    """Return a text that is equal on all processes for transforms that are equal in value.

    It is the name of the type, and a hash unless the transform may hold a function or an array.

    Example:
      >>> configuration((1, 2.0)), configuration(print)
      ('tuple 842d8566', 'builtin_function_or_method')
    """
    kind = type(transform).__name__
    key = value_key(transform)
    if key is None:
        return kind
    return f"{kind} {hashlib.blake2b(str(key).encode(), digest_size=4).hexdigest()}"


def _is_frozen(value: Any) -> bool:
    """Return True for an instance of a frozen dataclass that has its fields and nothing else."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or not parameters.eq:
        return False
    names = {field.name for field in dataclasses.fields(value)}
    return getattr(value, "__dict__", {}).keys() <= names
