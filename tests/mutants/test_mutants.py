"""Every fault of `mutants.py` is noticed by the test that it names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.mutants.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
FAILED_ASSERTION = ("AssertionError", "assert ")  # as pytest begins the message of one


def put_into(folder: Path, mutant: Mutant) -> None:
    """Write a copy of the package and its tests that has the fault."""
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("jaxaug", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", folder)

    file = folder / "jaxaug" / mutant.file
    source = file.read_text()
    if source.count(mutant.before) != 1:
        raise LookupError(
            f"{mutant.file} must hold {mutant.before!r} once, found {source.count(mutant.before)}:"
            " write the mutant anew for the changed source."
        )
    file.write_text(source.replace(mutant.before, mutant.after))


def outcome_of(folder: Path, test: str) -> ElementTree.Element:
    """Return the report of a test in `folder`, run until its first failure."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-x", "-o", "addopts=", "-p", "no:cacheprovider"]
    command += [f"--junitxml={report}", f"tests/{test}"]
    environment = os.environ | {"PYTHONPATH": str(folder), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert report.exists(), done.stdout + done.stderr
    return ElementTree.parse(report).getroot()


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_is_noticed(name, tmp_path):
    put_into(tmp_path, MUTANTS[name])
    report = outcome_of(tmp_path, MUTANTS[name].test)
    assert report.findall(".//error") == []
    messages = [failure.attrib["message"] for failure in report.iter("failure")]
    assert len(messages) == 1, "the fault was not noticed"
    assert messages[0].startswith(FAILED_ASSERTION)


@pytest.mark.slow
def test_without_a_fault_nothing_fails(tmp_path):
    test = "augment/chain/test_transform.py::test_random_numbers_are_uniform"
    put_into(tmp_path, Mutant("__init__.py", '"""\n\n', '"""\n\n\n', test))
    report = outcome_of(tmp_path, test)
    assert len(report.findall(".//testcase")) == 1
    assert report.findall(".//failure") == report.findall(".//error") == []


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fault_can_be_put_into_the_package(name):
    source = (ROOT / "jaxaug" / MUTANTS[name].file).read_text()
    assert source.count(MUTANTS[name].before) == 1
    assert MUTANTS[name].before != MUTANTS[name].after
