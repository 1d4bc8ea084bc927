"""A plugin of pytest for the examples of docstrings: a transform that is called is one program.

Eagerly it is some hundred of them, most of the processor time of an example. Eager calls are what
`tests/augment` makes.
"""

import functools

import jax

from jaxaug import augment


def one_program(call):
    @functools.wraps(call)
    def compiled(self, key, sample):
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((self, key, sample))):
            return call(self, key, sample)
        return jax.jit(functools.partial(call, self))(key, sample)

    return compiled


def compile_calls(setattr):
    for kind in (augment.Transform, augment.Compose, augment.GroupOp):
        setattr(kind, "__call__", one_program(kind.__call__))


def pytest_configure():
    compile_calls(setattr)
