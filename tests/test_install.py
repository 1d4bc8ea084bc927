"""The commands in messages about missing packages, and what an installed jaxaug says of itself."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

from jaxaug._install import install_command, install_gpu_command

ROOT = Path(__file__).parent.parent
REQUIREMENTS = [
    "jax>=0.10",
    "pyarrow; extra == 'parquet'",
    'jaxaug[tfds]; extra == "examples"',
    "flax; extra == 'examples'",
    "tensorflow-datasets; extra == 'tfds'",
    "array-record; extra == 'tfds'",
    "jax[cuda12]>=0.10; extra == 'cuda12'",
    "jax[cuda13]>=0.10; extra == 'cuda13'",
]


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIREMENTS)


def test_the_packages_of_an_extra_are_named(installed):
    assert install_command("parquet") == 'pip install "pyarrow"'
    expected = 'pip install "tensorflow-datasets" "array-record" "flax"'
    assert install_command("examples") == expected
    expected = 'pip install "jax[cuda13]>=0.10", or for CUDA 12 pip install "jax[cuda12]>=0.10"'
    assert install_gpu_command() == expected


def test_a_clone_that_was_not_installed_installs_itself(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert install_command("tfds") == 'pip install -e ".[tfds]" in the clone of jaxaug'


def test_no_message_sends_users_to_an_index_for_jaxaug():
    for path in (ROOT / "jaxaug").rglob("*.py"):
        if path.name != "_install.py":
            assert "jaxaug[" not in path.read_text(), path


def test_the_classifiers_name_the_versions_that_ci_tries():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = (ROOT / ".github/workflows/package.yml").read_text()
    prefix = "Programming Language :: Python :: 3."
    for classifier in project["classifiers"]:
        if classifier.startswith(prefix):
            assert f'"3.{classifier.removeprefix(prefix)}"' in workflow
