"""The Python of the README runs as it stands."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.images import jpegs

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.training  # a user's session has jax's own promotions
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs(number, tmp_path, monkeypatch):
    for label in ("cat", "dog"):
        folder = tmp_path / "train" / label
        folder.mkdir(parents=True)
        for name, data in enumerate(jpegs(16)):
            (folder / f"{name}.jpg").write_bytes(data)
    monkeypatch.chdir(tmp_path)

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(BLOCKS[number], f"README.md, block {number}", "exec"), {})

    if "ImageFolder" in BLOCKS[number] and "jpeg(" not in BLOCKS[number]:
        assert printed.getvalue() == "(32, 224, 224, 3) (32,)\n"
    if "for epoch in range(2)" in BLOCKS[number]:
        lines = printed.getvalue().splitlines()
        assert len(lines) == 2
        assert all(line.endswith("of 51 images") for line in lines), lines


def test_there_are_blocks():
    assert len(BLOCKS) == 3
