"""The API pages of the site: one for each module with public names."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "jaxaug"
PACKAGES = ("augment", "iterators", "decode", "sharding", "errors")
# imported by the user alone: they need Orbax, and Grain
ON_DEMAND = {"iterators": ["iterators.grain", "iterators.orbax"]}


def documented() -> list[str]:
    """Return the modules that have a page: the packages, each with its public submodules."""
    names = []
    for package in PACKAGES:
        exported = [f"{package}.{name}" for name in public_names(package)]
        names += [package, *filter(is_module, exported), *ON_DEMAND.get(package, [])]
    return names


def is_module(name: str) -> bool:
    """Return True if `jaxaug.<name>` is a module."""
    path = PACKAGE / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def page_path(name: str) -> str:
    """Return the page of `jaxaug.<name>`."""
    return f"api/{name.rpartition('.')[2]}.md"


def api_page(name: str) -> str:
    """Return the page of the public names of `jaxaug.<name>`."""
    lines = [f"# jaxaug.{name}", "", f"::: jaxaug.{name}", "    options:", "      members:"]
    lines += [f"        - {member}" for member in members(name)]
    return "\n".join(lines) + "\n"


def members(name: str) -> list[str]:
    """Return the public names of `jaxaug.<name>` that are no modules."""
    return [member for member in public_names(name) if not is_module(f"{name}.{member}")]


def not_described(name: str, html: str) -> list[str]:
    """Return the public names of `jaxaug.<name>` that its page does not describe."""
    return [member for member in members(name) if f'id="jaxaug.{name}.{member}"' not in html]


def public_names(name: str) -> list[str]:
    """Return the classes and functions that a module defines or exports (`import y as y`)."""
    path = PACKAGE / name.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    constants = {name for name in names if name.isupper() and "_" in name}
    return sorted(name for name in names - constants if not name.startswith("_"))
