"""A context without a mesh, in which jaxaug's own calls of jax run."""

import contextlib

import jax
import numpy as np

_NO_MESH = jax.sharding.Mesh(np.empty((), object), ())


def no_mesh() -> contextlib.AbstractContextManager:
    """Return a context in which jax sees no mesh, whatever the user has set with `jax.set_mesh`.

    Under a user's mesh jax takes every array for one on that mesh, so that a call on one device, or
    on a mesh of our own, is an error. The context belongs to the thread and costs a microsecond. It
    is entered without a user's mesh, too: jax would compile anew for the first one.

    Raises:
      ValueError: inside of a function that jax traces.

    Example:
      >>> with jax.set_mesh(jax.make_mesh((1,), ("batch",))), no_mesh():
      ...     jax.sharding.get_abstract_mesh().empty
      True
    """
    return jax.set_mesh(_NO_MESH)
