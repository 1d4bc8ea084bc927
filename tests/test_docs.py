"""The pages of `docs`: every block of Python runs, and prints what the page says.

The `python` blocks of a page run one after the other in one namespace, in a folder with a few small
images. A `text` block behind one is what it prints. Code of other libraries stands in `py` blocks,
which only have to compile.
"""

import contextlib
import importlib.util
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxaug.__main__ import main
from tests.images import encode, picture

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if path.parent.name != "dev"]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
FOREIGN = re.compile(r"^```py\n(.*?)^```", re.MULTILINE | re.DOTALL)
OPTIONAL = (
    "torch",
    "lightning",
    "tqdm",
    "orbax",
    "grain",
    "tensorflow",
    "keras",
    "h5py",
    "matplotlib",
)
NAMES = [str(path.relative_to(DOCS)) for path in PAGES]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Return a folder as the pages assume it: class folders, and a tar of one of them."""
    root = tmp_path_factory.mktemp("data")
    for part, count in (("train", 32), ("val", 20)):
        for label, name in enumerate(("cat", "dog", "owl")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                image = encode(picture(1000 * label + number, 48, 64), quality=90)
                (folder / f"{number:03d}.jpg").write_bytes(image)

    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["pack", str(root / "train"), str(root / "train.tar")]) == 0
    return root


@pytest.mark.training  # a user's session has jax's own promotions
@pytest.mark.parametrize("name", NAMES)
def test_the_code_of_a_page_runs(name, data, monkeypatch):
    blocks = BLOCK.findall((DOCS / name).read_text())
    for module in OPTIONAL:
        needed = any(
            re.search(rf"^\s*(?:import|from) {module}\b", code, re.M) for code, _ in blocks
        )
        if needed and importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")

    monkeypatch.chdir(data)
    namespace = {"__name__": "docs"}
    for number, (code, expected) in enumerate(blocks):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}, block {number}", "exec"), namespace)
        if expected:
            assert printed.getvalue() == expected, f"{name}, block {number}"


@pytest.mark.parametrize("name", NAMES)
def test_the_code_of_other_libraries_compiles(name):
    for number, code in enumerate(FOREIGN.findall((DOCS / name).read_text())):
        compile(code, f"{name}, foreign block {number}", "exec")


def test_pages_are_found():
    assert len(PAGES) > 20
    runnable = sum(len(BLOCK.findall(path.read_text())) for path in PAGES)
    fences = sum(path.read_text().count("```python") for path in PAGES)
    assert runnable == fences > 40


def test_the_navigation_names_every_page():
    listed = set(re.findall(r": ([\w/]+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(), re.M))
    assert set(NAMES) <= listed


def test_the_figures_of_the_readme_are_those_of_the_results():
    readme = (DOCS.parent / "README.md").read_text()
    results = (DOCS.parent / "benchmarks" / "RESULTS.md").read_text()
    section = readme.partition("## How fast")[2].partition("\n## ")[0]
    cells = re.findall(r"\| ([\d,.]+) (?=\|)", section)
    assert len(cells) >= 16
    for number in cells:
        assert re.search(rf"(?<![\d,.]){re.escape(number)}(?![,.]?\d)", results), number


def test_the_pictures_of_the_pages_are_there():
    pictures = re.compile(r"!\[[^]]*\]\(([^)]*)\)")
    for path in [*PAGES, DOCS.parent / "README.md"]:
        for target in pictures.findall(path.read_text()):
            assert (path.parent / target).is_file(), f"{path.name}: {target}"


@pytest.mark.slow
def test_the_picture_of_the_readme_is_drawn_by_preview(tmp_path):
    assert main(["preview", "--out", str(tmp_path / "sheet.webp")]) == 0
    drawn = np.asarray(Image.open(tmp_path / "sheet.webp"), int)
    stored = np.asarray(Image.open(DOCS / "contact_sheet.webp"), int)
    assert drawn.shape == stored.shape
    assert np.abs(drawn - stored).mean() < 2
