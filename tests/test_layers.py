"""The layers of the package, and the cost of an import."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "jaxaug"
SHARED = {
    "_typing",
    "_cached",
    "_checks",
    "_install",
    "_mesh_context",
    "_hardware_queues",
    "_nvrtc",
    "_sinc",
    "_splitmix",
    "_warn",
    "errors",
}
MAY_IMPORT = {
    "augment": SHARED,
    "decode": SHARED,
    "sharding": SHARED,
    "iterators": SHARED | {"decode", "sharding"},
    "_typing": set(),
    "_cached": set(),
    "_checks": set(),
    "_install": set(),
    "_mesh_context": set(),
    "_hardware_queues": set(),
    "_nvrtc": set(),
    "_sinc": set(),
    "_splitmix": set(),
    "_warn": {"errors"},
    "errors": set(),
}


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("jaxaug.")}
    return found


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_a_layer_imports_only_what_lies_below_it(name):
    files = [path for path in PACKAGE.rglob("*.py") if layer(path) == name]
    assert files
    for path in files:
        assert imported_layers(path) <= MAY_IMPORT[name] | {name}, path


# The rooms of `augment`, each of which may import those before it, by what they export.
AUGMENT = ["_xla", "matrix", "random", "_base", "_cuda", "_warp", "_chain", "audio", "volume"]
AUGMENT += ["_ops", "recipes"]
DOORS = ("_base", "_warp", "_chain")


def imported_modules(path: Path) -> set[str]:
    """Return the modules of `augment` that a file imports, without "jaxaug.augment."."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = f"{node.module}."
            named = module == "jaxaug.augment."
            found |= {module + alias.name for alias in node.names} if named else {module[:-1]}
    prefix = "jaxaug.augment."
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


@pytest.mark.parametrize("room", AUGMENT)
def test_a_room_of_augment_imports_only_those_before_it(room):
    home = PACKAGE / "augment" / room
    files = list(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
    assert files
    for path in files:
        for module in imported_modules(path):
            other, _, inner = module.partition(".")
            if room == "recipes" and other not in AUGMENT:
                continue  # imported when they are used, they name operators as users do
            assert AUGMENT.index(other) <= AUGMENT.index(room), (path, module)
            assert other == room or other not in DOORS or not inner, (path, module)


# The rooms of the Loader, which know columns and no medium.
LOADER = sorted((PACKAGE / "iterators" / "loader").glob("*.py"))
MEDIA = {"mask", "masks", "canvas", "canvases", "pixels", "orientation", "boxes", "image", "images"}
MEDIA |= {"keypoints", "jpeg", "video", "videos", "clip", "clips", "audio", "sound", "sounds"}
MEDIA |= {"waveform", "volume", "volumes", "tokens"}


def words_of(tree: ast.AST) -> set[str]:
    """The words of all names in the code, without those of texts."""
    found = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                found |= set(name.lower().split("_"))
    return found


@pytest.mark.parametrize("path", LOADER, ids=lambda path: path.stem)
def test_the_rooms_of_the_loader_know_no_medium(path):
    assert not words_of(ast.parse(path.read_text())) & MEDIA


def test_native_libraries_are_called_in_three_places():
    libraries = PACKAGE / "decode" / "native"
    others = (PACKAGE / "iterators/sources/storage/libc.py", PACKAGE / "_nvrtc.py")
    for path in PACKAGE.rglob("*.py"):
        native = "ctypes.CDLL" in path.read_text() or "cuda" in imported(path)
        assert not native or path.parent == libraries or path in others, path


def imported(path: Path) -> set[str]:
    """Return the packages that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def test_no_file_imports_private_modules_of_jax_at_its_top():
    """They move without notice: who does not use what needs them must not meet that."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            assert "jax._src" not in ast.unparse(node).split("\n")[0], path


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_jaxaug_creates_no_client_and_imports_and_loads_nothing_but_jax():
    code = """
import sys, jax
def maps():
    return {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
before, modules = maps(), set(sys.modules)
import jaxaug
from jaxaug import augment, decode, sharding, iterators, errors
jaxaug.Loader, jaxaug.Decoder
from jax._src import xla_bridge
assert not xla_bridge._backends, "a device client exists"
imported = {name.split(".")[0] for name in set(sys.modules) - modules}
assert not imported - set(sys.stdlib_module_names) - {"jaxaug", "jax"}, imported
# Python's own extension modules do not count.
new = {path for path in maps() - before if "lib-dynload" not in path}
assert not new, new
print("clean")
"""
    assert run(code) == "clean"


QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.mark.parametrize(
    ("given", "before", "queues", "warned"),
    [
        ({}, "import jax", "32", False),
        ({QUEUES: "1"}, "import jax", "1", False),
        ({}, "import jax; jax.devices()", "32", True),
        ({QUEUES: "8"}, "import jax; jax.devices()", "8", False),
    ],
)
def test_importing_jaxaug_asks_for_hardware_queues_and_notices_if_it_is_late(
    given, before, queues, warned
):
    code = f"""
{before}
import os, warnings, jaxaug
from jaxaug._hardware_queues import warn_if_late
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warn_if_late()
print(os.environ["{QUEUES}"], len(caught), *(each.message for each in caught))
"""
    environment = {name: value for name, value in os.environ.items() if name != QUEUES}
    child = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment | given
    )
    said = child.stdout.strip()
    assert said.startswith(f"{queues} {int(warned)}"), child.stderr
    assert ("import jaxaug before the first operation on a GPU" in said) == warned


def test_the_design_names_files_that_are_there():
    """In its tables of folders, and where it says what to change."""
    text = (PACKAGE.parent / "docs" / "design.md").read_text()
    there = [path for path in PACKAGE.rglob("*") if path.suffix == ".py" or path.is_dir()]
    folders = text.split("### Folders")[1].split("`tests/` mirrors")[0]
    named = set(re.findall(r"`(\w+)/?`", folders)) - {"on_error"}
    modules = {path.stem for path in there}
    assert {name for name in named if name.islower()} <= modules

    changes = text.split("## Where to change the code")[1]
    paths = set(re.findall(r"`([\w/]+\.py)`", changes)) - {"docs/site_gallery.py"}
    assert len(paths) > 20
    lost = [each for each in paths if not any(str(path).endswith(f"/{each}") for path in there)]
    assert not lost


def test_the_design_draws_the_way_of_a_batch_in_ten_rooms():
    text = (PACKAGE.parent / "docs" / "design.md").read_text()
    way = text.split("```text\n")[1].split("```")[0]
    rooms = [line.split()[0] for line in way.splitlines()]
    assert 0 < len(rooms) <= 10
    assert all(list(PACKAGE.glob(re.sub("<[a-z]+>", "*", room))) for room in rooms)
