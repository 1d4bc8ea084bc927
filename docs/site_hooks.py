"""Pages of the site that are made from other files: the README, the results, the public names.

The gallery is drawn here, too, once for each run of mkdocs.
"""

import ast
import functools
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import site_gallery  # noqa: E402  (of the folder above)

COPIED = {
    "README.md": "index.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
PACKAGES = ("augment", "iterators", "decode", "sharding", "errors")
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def on_config(config):
    """Add the API pages to the navigation, before the command line."""
    section = next(entry["API"] for entry in config.nav if "API" in entry)
    section[:0] = [{name: page_path(name)} for name in documented()]
    return config


def on_files(files, config):
    """Add the pages that do not lie in `docs`."""
    for path, page in COPIED.items():
        files.append(File.generated(config, page, content=copied_page(path)))
    for name in documented():
        files.append(File.generated(config, page_path(name), content=api_page(name)))
    files.append(File.generated(config, "gallery.md", content=site_gallery.page()))
    for name, content in gallery_strips().items():
        files.append(File.generated(config, f"gallery/{name}.webp", content=content))
    return files


@functools.cache
def gallery_strips() -> dict[str, bytes]:
    """Return the pictures of the gallery by name."""
    return dict(site_gallery.strips(site_gallery.entries()))


def documented() -> list[str]:
    """Return the modules that have a page: the packages, each with its public submodules."""
    names = []
    for package in PACKAGES:
        exported = [f"{package}.{name}" for name in public_names(package)]
        names += [package, *filter(is_module, exported)]
    return names


def is_module(name: str) -> bool:
    """Return True if `jaxaug.<name>` is a module."""
    path = ROOT / "jaxaug" / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def page_path(name: str) -> str:
    """Return the page of `jaxaug.<name>`."""
    return f"api/{name.rpartition('.')[2]}.md"


def copied_page(path: str) -> str:
    """Return a file of the repository with its links as the site needs them."""
    text = (ROOT / path).read_text()
    return LINK.sub(lambda match: _site_link(match, path), text)


def api_page(name: str) -> str:
    """Return the page of the public names of `jaxaug.<name>`."""
    lines = [f"# jaxaug.{name}", "", f"::: jaxaug.{name}", "    options:", "      members:"]
    members = [member for member in public_names(name) if not is_module(f"{name}.{member}")]
    lines += [f"        - {member}" for member in members]
    return "\n".join(lines) + "\n"


def public_names(name: str) -> list[str]:
    """Return the names that a module exports (`from x import y as y`) or defines."""
    path = ROOT / "jaxaug" / name.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
    return sorted(name for name in names if not name.startswith("_"))


def _site_link(match: re.Match[str], path: str) -> str:
    """Return a link of a repository file as a link of the site."""
    target = (ROOT / path).parent.joinpath(match[1]).resolve().relative_to(ROOT).as_posix()
    anchor = match[2] or ""
    if target in COPIED:
        return f"]({COPIED[target]}{anchor})"
    if target.startswith("docs/"):
        return f"]({target.removeprefix('docs/')}{anchor})"
    raise ValueError(f"{path} links to {match[1]}, which the site does not have: write it as code.")
