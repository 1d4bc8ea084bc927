"""The Python of the README runs as it stands."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.training  # a user's session has jax's own promotions
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(BLOCKS[number], f"README.md, block {number}", "exec"), {})

    if "for epoch in range(2)" in BLOCKS[number]:
        lines = printed.getvalue().splitlines()
        assert len(lines) == 2
        assert all(line.endswith("of 51 images") for line in lines), lines


def test_there_are_blocks():
    assert len(BLOCKS) == 2
