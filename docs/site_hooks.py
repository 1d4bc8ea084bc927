"""Pages of the site that are made from other files: the README, the results, the public names.

The gallery and the charts of the benchmarks are drawn here, too.
"""

import functools
import logging
import os
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import site_benchmarks  # noqa: E402  (of the folder above)
import site_gallery  # noqa: E402
from site_api import DIVIDED, not_described, pages  # noqa: E402

COPIED = {
    "README.md": "index.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "benchmarks/LESSONS.md": "lessons.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
LOG = logging.getLogger("mkdocs.hooks.site")  # below mkdocs: strict counts its warnings
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def on_config(config):
    """Add the API pages to the navigation, before the command line."""
    section = next(entry["API"] for entry in config.nav if "API" in entry)
    entries = {}
    for page in pages():
        if page.module in DIVIDED:
            entries.setdefault(page.module, []).append({page.title: page.path})
        else:
            entries[page.title] = page.path
    section[:0] = [{title: target} for title, target in entries.items()]
    return config


def on_files(files, config):
    """Add the pages that do not lie in `docs`."""
    for path, page in COPIED.items():
        text = copied_page(path)
        if page == "benchmarks.md":
            text = site_benchmarks.page(text)
        files.append(File.generated(config, page, content=text))
    for name, content in site_benchmarks.charts().items():
        files.append(File.generated(config, f"benchmarks/{name}.svg", content=content))
    for page in pages():
        files.append(File.generated(config, page.path, content=page.text))
    files.append(File.generated(config, "gallery.md", content=site_gallery.page()))
    for name, content in gallery_strips().items():
        files.append(File.generated(config, f"gallery/{name}.webp", content=content))
    return files


def on_page_content(html, page, config, files):
    """Warn, which `--strict` makes an error, of a public name that its page leaves out."""
    for described in pages():
        missing = not_described(described, html) if page.file.src_uri == described.path else []
        if missing:
            LOG.warning(f"{described.path} does not describe {', '.join(missing)}")
    return html


@functools.cache
def gallery_strips() -> dict[str, bytes]:
    """Return the pictures of the gallery by name.

    With JAXAUG_GALLERY=families only the first of each family is drawn, with "empty" none.
    """
    chosen = site_gallery.entries()
    first = {entry.family: entry for entry in reversed(chosen)}
    fewer = {"families": list(first.values()), "empty": []}
    drawn = fewer.get(os.environ.get("JAXAUG_GALLERY", ""), chosen)
    return {entry.name: b"" for entry in chosen} | dict(site_gallery.strips(drawn))


def copied_page(path: str) -> str:
    """Return a file of the repository with its links as the site needs them."""
    text = (ROOT / path).read_text()
    return LINK.sub(lambda match: _site_link(match, path), text)


def _site_link(match: re.Match[str], path: str) -> str:
    """Return a link of a repository file as a link of the site."""
    target = (ROOT / path).parent.joinpath(match[1]).resolve().relative_to(ROOT).as_posix()
    anchor = match[2] or ""
    if target in COPIED:
        return f"]({COPIED[target]}{anchor})"
    if target.startswith("docs/"):
        return f"]({target.removeprefix('docs/')}{anchor})"
    raise ValueError(f"{path} links to {match[1]}, which the site does not have: write it as code.")
