"""A plugin of pytest for the examples of docstrings: a transform that is called is one program.

Eagerly it is some hundred of them, most of the processor time of an example. Eager calls are what
`tests/augment` makes. Where an example shows nothing but the shapes that come out, the transform is
traced: the laws compile every one.
"""

import functools
import itertools
import re

import jax
import pytest

from jaxaug import augment

CALL = r"\w[\w.]*\(.*\)\(.*\)"  # of what has been built
SHAPE_OF_A_CALL = re.compile(rf"^({CALL}.*)\.shape\n")
RESULT_OF_A_CALL = re.compile(rf"^(\w+) = ({CALL})\n")
SHAPES = re.compile(r'(\w+\["\w+"\]\.shape(, |\n))+')


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


def pytest_collection_modifyitems(items):
    trace = "__import__('jax').eval_shape"
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            examples = item.dtest.examples
            for example in examples:
                traced = rf"{trace}(lambda: \1).shape\n"
                example.source = SHAPE_OF_A_CALL.sub(traced, example.source)
            for example, shown in itertools.pairwise(examples):
                if SHAPES.fullmatch(shown.source):
                    traced = rf"\1 = {trace}(lambda: \2)\n"
                    example.source = RESULT_OF_A_CALL.sub(traced, example.source)
