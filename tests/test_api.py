"""Every public name stands on a page of the site, with a docstring that tells the truth."""

import builtins
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import FunctionType

import pytest

import jaxaug
from jaxaug import augment, decode, errors, iterators, sharding

sys.path.append(str(Path(__file__).parents[1] / "docs"))

import site_api

MODULES = {"augment": augment, "decode": decode, "errors": errors, "iterators": iterators}
MODULES |= {"sharding": sharding}
ON_DEMAND = {"iterators.orbax": "orbax.checkpoint", "iterators.grain": "grain"}

# Their examples need other libraries, or terminals; pages of the site and other tests run them.
NOT_DOCTESTED = {
    "to_torch",
    "to_keras",
    "to_tf",
    "progress",
    "LoaderHandler",
    "LoaderState",
    "ColumnDecoder",
    "Column",
    "Decoded",
    "RowError",
    "describe",
}
NOT_DOCTESTED |= {"LoaderDataset", "LoaderIterator"}

QUOTED = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")
CAMEL_CASE = re.compile(r"(?:[A-Z][a-z]+\w*|[A-Z]{2,}[a-z]\w*)")
FOREIGN = {"DataAugmentationDINO"}  # a class of facebookresearch/dino


def loaded(name: str):
    if name in ON_DEMAND:
        pytest.importorskip(ON_DEMAND[name])
    return importlib.import_module(f"jaxaug.{name}")


def defined(module) -> set[str]:
    """Return the public classes and functions of jaxaug that a module exports or defines."""
    names = set()
    for name, value in vars(module).items():
        if name.startswith("_") or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        exports = hasattr(module, "__path__") or module is augment.functional
        home = getattr(value, "__module__", "")
        if home.startswith("jaxaug.") and (exports or home == module.__name__):
            names.add(name)
    return names


def members() -> list[tuple[str, str]]:
    """Return (module, name) of all that the pages document."""
    pairs = []
    for module in site_api.documented():
        pairs += [(module, name) for name in site_api.members(module)]
    return pairs


MEMBERS = members()
each = pytest.mark.parametrize("module, name", MEMBERS, ids=lambda value: value)


def test_a_name_without_a_heading_is_found():
    """Headings have the name's path as their id."""
    page = next(page for page in site_api.pages() if page.module == "sharding")
    headings = [f'<h2 id="jaxaug.sharding.{name}">' for name in page.names]
    assert site_api.not_described(page, "".join(headings)) == []
    assert site_api.not_described(page, "".join(headings[1:])) == page.names[:1]


@pytest.mark.parametrize("module", site_api.documented())
def test_the_pages_of_a_module_have_every_public_name(module):
    pages = [page for page in site_api.pages() if page.module == module]
    listed = [name for page in pages for name in page.names]
    assert sorted(listed) == sorted(defined(loaded(module))) and listed
    assert pages[0].text.startswith(f"# jaxaug.{module}\n")
    written = re.findall(
        rf"^(?:        - |::: jaxaug\.{module}\.)(\w+)$",
        "".join(page.text for page in pages),
        re.MULTILINE,
    )
    assert sorted(written) == sorted(listed)


@pytest.mark.parametrize("module", site_api.DIVIDED)
def test_families_divide_what_is_long(module):
    """Nobody reads a page of all; a file in no family would land among operators of one's own."""
    families = site_api.family_pages(module)
    assert max(len(page.names) for page in families) <= 20
    homes = site_api.homes(module)
    own = [name for page in families if page.title == site_api.OWN for name in page.names]
    places = {"_base", "_chain", "_warp"} if module == "augment" else set()
    assert {homes[name].split("/")[1] for name in own} == places
    named = {file for files in site_api.DIVIDED[module].values() for file in files}
    unused = named - {home.rpartition("/")[2] for home in homes.values()}
    assert not unused or module == "augment.functional"  # which has fewer than the operators


def test_every_package_has_a_page():
    pages = site_api.documented()
    paths = [page.path for page in site_api.pages()]
    assert set(MODULES) <= set(pages) and len(set(paths)) == len(paths)
    for package, module in MODULES.items():
        modules = [name for name, value in vars(module).items() if inspect.ismodule(value)]
        exported = [name for name in modules if name in site_api.public_names(package)]
        assert {f"{package}.{name}" for name in exported} <= set(pages)


def test_what_jaxaug_exports_is_documented_in_its_package():
    for name in set(dir(jaxaug)) - set(vars(jaxaug)):
        value = getattr(jaxaug, name)
        if inspect.isclass(value):
            assert name in {member for _, member in MEMBERS}
        else:
            assert name in MODULES


def documented_parts(value) -> dict[str, str]:
    """Return the docstrings of a class or a function, and of the public methods that it defines."""
    parts = {"": value.__doc__}
    for name, part in vars(value).items() if inspect.isclass(value) else ():
        if not name.startswith("_") and isinstance(
            part, (property, classmethod, staticmethod, FunctionType)
        ):
            parts[name] = part.__doc__
    return parts


@each
def test_a_public_name_is_described_with_an_example(module, name):
    parts = documented_parts(getattr(loaded(module), name))
    assert all(parts.values()), [part for part, doc in parts.items() if not doc]
    if name not in NOT_DOCTESTED:
        assert ">>>" in parts[""], "it has no example that runs"


def resolves(dotted: str, namespaces) -> bool:
    """Return True where some namespace has the first part, and modules and classes the others."""
    head, *rest = dotted.split(".")
    found = [vars(space)[head] for space in namespaces if head in vars(space)]
    for value in found[:1]:
        for part in rest:
            if inspect.ismodule(value) and not hasattr(value, part):
                return False
            value = getattr(value, part, None)
    return bool(found)


@each
def test_a_docstring_names_only_what_can_be_imported(module, name):
    value = getattr(loaded(module), name)
    own = [value] if inspect.isclass(value) else []
    public = [*MODULES.values(), augment.functional, jaxaug, builtins]
    spaces = [*own, *public, sys.modules[value.__module__]]
    for part, doc in documented_parts(value).items():
        for dotted in QUOTED.findall(doc or ""):
            head = dotted.partition(".")[0]
            if head == "jaxaug":
                assert resolves(dotted.partition(".")[2] or "augment", [*public, jaxaug]), dotted
            elif head in MODULES or (CAMEL_CASE.fullmatch(head) and head not in FOREIGN):
                assert resolves(dotted, spaces), f"{dotted} in {name}.{part}"


def test_names_that_are_gone_would_be_found():
    assert resolves("augment.Compose", [jaxaug]) and resolves("Compose.warp", [augment])
    assert not resolves("augment.Missing", [jaxaug]) and not resolves("Missing", [augment])


@pytest.mark.parametrize("name", sorted(ON_DEMAND))
def test_modules_that_need_another_library_come_when_they_are_asked_for(name, monkeypatch):
    module = loaded(name)
    last = name.removeprefix("iterators.")
    monkeypatch.delattr(iterators, last)
    assert getattr(iterators, last) is module
