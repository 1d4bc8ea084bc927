"""The API pages of the site: one for each module with public names.

A module with many names, such as `augment`, has a table of them, and a page for each family.
"""

import ast
import functools
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "jaxaug"
PACKAGES = ("augment", "iterators", "decode", "sharding", "errors")
NAMED = (ast.ClassDef, ast.FunctionDef)
# imported by the user alone: they need Orbax, and Grain
ON_DEMAND = {"iterators": ["iterators.grain", "iterators.orbax"]}


VIDEOS = "Videos"
# The modules of `jaxaug.augment` that a section of the gallery shows, and a page describes.
FAMILIES = {
    "Crops, sizes and borders": ("crop", "of_boxes", "of_masks", "resize", "pad"),
    "Flips and quarter turns": ("flip",),
    "Rotation, affine maps and perspective": ("rotation", "geometry"),
    "Bent maps": ("elastic", "distortion"),
    "Color": ("color", "channels", "lighting"),
    "Light and weather": ("weather", "overlays"),
    "Tone and histogram": ("tone", "histogram"),
    "Blur and other filters": ("blur", "filters", "optics"),
    "Noise and compression": ("noise", "jpeg"),
    "References, prints and scanners": ("references", "printing", "medical"),
    "Erasing, dropout and shuffled tiles": ("erase", "grid_shuffle"),
    "Several images": ("mix", "mosaic", "copy_paste", "group"),
    "Choices and chains": ("control", "compose", "custom", "views", "five_crop"),
    VIDEOS: ("frames", "temporal"),
    "Policies": ("policies",),
    "Output": ("output",),
}
OWN = "Operators of your own"  # has the operators that stand in no family
FUNCTIONS = {**FAMILIES, "Boxes": ("boxes", "anchors"), "Raw images": ("raw",)}
ITERATORS = {
    "Loader": ("loader", "keys"),
    "Files and arrays": (
        *("folder", "filelist", "files", "paired", "manifest", "coco"),
        *("memory", "arrays"),
    ),
    "Containers": ("webdataset", "tfrecord", "mds", "litdata", "array_record", "parquet", "tfds"),
    "Sources of other sources": ("concat", "subset", "split", "renamed"),
    "Sources of your own": ("protocol", "random_access", "iterable"),
    "Orders": ("sampler", "mix", "buckets"),
    "Other libraries and notebooks": (
        *("for_pmap", "progress", "show"),
        *("to_keras", "to_numpy", "to_tf", "to_torch"),
    ),
}
# The families of modules that are too long for a page, by the files that define their names.
DIVIDED = {"augment": FAMILIES, "augment.functional": FUNCTIONS, "iterators": ITERATORS}


class Page(NamedTuple):
    """A page of the API.

    Attributes:
      title: of its entry in the navigation.
      path: of its file.
      module: whose names it describes, without "jaxaug.".
      names: that it describes.
      text: in Markdown.
    """

    title: str
    path: str
    module: str
    names: list[str]
    text: str


@functools.cache
def pages() -> tuple[Page, ...]:
    """Return all pages, those of the families behind that of their package."""
    found: list[Page] = []
    for module in documented():
        if module in DIVIDED:
            families = family_pages(module)
            table = table_of(module, families)
            found += [Page(module, page_path(module), module, [], table), *families]
        else:
            text = api_page(module)
            found.append(Page(module, page_path(module), module, members(module), text))
    return tuple(found)


def family_pages(module: str) -> list[Page]:
    """Return a page for each family of a module that is divided."""
    families = {file: family for family, files in DIVIDED[module].items() for file in files}
    described: dict[str, list[str]] = {}
    for name in members(module):
        file = homes(module)[name].rpartition("/")[2]
        described.setdefault(families.get(file, OWN), []).append(name)

    found = []
    for title in filter(described.get, (*DIVIDED[module], OWN)):
        names = described[title]
        slug = title.lower().replace(",", "").replace(" ", "_")
        path = f"{page_path(module).removesuffix('.md')}/{slug}.md"
        found.append(Page(title, path, module, names, page_of(module, title, names)))
    return found


def page_of(module: str, title: str, names: list[str]) -> str:
    """Return the page of some names of a module."""
    lines = [f"# {title}", "", f"Import them from `jaxaug.{module}`.", ""]
    for name in names:
        lines += [f"::: jaxaug.{module}.{name}", "    options:"]
        lines += ["      show_root_heading: true", "      show_root_toc_entry: true"]
        lines += ["      show_root_full_path: false", ""]
    return "\n".join(lines)


def table_of(module: str, families: list[Page]) -> str:
    """Return the page of a module that is divided: every name with its summary, by family."""
    lines = [f"# jaxaug.{module}", "", f"::: jaxaug.{module}", "    options:"]
    lines += ["      members: false", "      summary: false", ""]
    others = [name for name in documented() if name.startswith(f"{module}.")]
    links = [f"[`{name}`]({name.rpartition('.')[2]}.md)" for name in others]
    lines += ["Pages of their own have " + ", ".join(links) + ".", ""] if links else []
    for page in families:
        target = page.path.removeprefix("api/")
        lines += [f"## {page.title}", "", "| | |", "| --- | --- |"]
        for name in page.names:
            link = f"[`{name}`]({target}#jaxaug.{module}.{name})"
            lines.append(f"| {link} | {summary(module, name)} |")
        lines.append("")
    return "\n".join(lines)


def summary(module: str, name: str) -> str:
    """Return the first line of a docstring, without importing its module."""
    body = ast.parse((PACKAGE / f"{homes(module)[name]}.py").read_text()).body
    node = next(n for n in body if isinstance(n, NAMED) and n.name == name)
    first = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    return first.replace("|", "\\|")


@functools.cache
def homes(module: str) -> dict[str, str]:
    """Return the files that define what a module exports, without ".py", by name."""
    body = ast.parse(_file_of(module).read_text()).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    return {
        alias.name: (node.module or "").removeprefix("jaxaug.").replace(".", "/")
        for node in imports
        for alias in node.names
    }


def _file_of(module: str) -> Path:
    path = PACKAGE / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


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


def not_described(page: Page, html: str) -> list[str]:
    """Return the names that a page should describe and does not."""
    return [name for name in page.names if f'id="jaxaug.{page.module}.{name}"' not in html]


def public_names(name: str) -> list[str]:
    """Return the classes and functions that a module defines or exports.

    It exports what `__all__` lists, or imports by `import y as y`.
    """
    names = set()
    for node in ast.parse(_file_of(name).read_text()).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value))
    constants = {name for name in names if name.isupper() and "_" in name}
    return sorted(name for name in names - constants if not name.startswith("_"))
