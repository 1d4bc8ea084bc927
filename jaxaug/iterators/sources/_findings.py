"""What a verification found wrong with records: kept with the data, and believed by later sources.

Of packed files the index keeps it, which is of one state of the files. Of loose files it is in
`jaxaug-bad.json` in their folder, or in the cache folder where that cannot be written: by name,
each with the size and the time of modification that the file had, and forgotten when they change.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from jaxaug.decode import Encoded
from jaxaug.iterators.sources.storage.files import cache_folder, write_to_first

_NAME = "jaxaug-bad.json"
_VERSION = 1


def places(root: str, name: str = _NAME) -> tuple[str, str]:
    """Return where what is kept about files below a folder may lie, the better place first."""
    digest = hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()
    kept = name.removeprefix("jaxaug-")
    return os.path.join(root, name), os.path.join(cache_folder(), f"{digest}-{kept}")


def read_findings(root: str, names: Sequence[str]) -> dict[int, str]:
    """Return number -> reason for the files that were found bad and have not changed since.

    Args:
      root: the folder.
      names: paths relative to it.
    """
    found = _read_all(root)
    if not found:
        return {}
    states = {name: state_of(os.path.join(root, name)) for name in found.keys() & {*names}}
    return {
        number: found[name][2]
        for number, name in enumerate(names)  # several records may be of one file
        if name in states and states[name] == found[name][:2]
    }


def write_findings(root: str, names: Sequence[str], findings: Mapping[int, str]) -> str:
    """Keep what was found wrong with files below a folder; return the file that holds it.

    What is kept about files that are not among `names` stays.

    Raises:
      SourceError: it can be written to no place.
    """
    known = set(names)
    kept = {name: entry for name, entry in _read_all(root).items() if name not in known}
    for number, text in findings.items():
        kept[names[number]] = [*state_of(os.path.join(root, names[number])), text]

    def write(place: str) -> str:
        _write(place, {"version": _VERSION, "bad": kept})
        return place

    found = write_to_first(places(root), "findings", write)
    for other in {*places(root)} - {found}:  # what was kept there is in the new file
        with suppress(OSError):
            os.unlink(other)
    return found


def without_rows(encoded: Encoded, bad: Sequence[int], indices: np.ndarray) -> Encoded:
    """Return encoded records with those empty whose number in `indices` is bad."""
    lengths = np.where(np.isin(indices, bad), np.uint64(0), encoded.lengths)
    return encoded._replace(lengths=lengths)


def state_of(path: str) -> list[int]:
    """Return the size and the time of modification of a file, -1 where it cannot be found."""
    try:
        status = os.stat(path)
    except OSError:
        return [-1, -1]
    return [status.st_size, status.st_mtime_ns]


def _read_all(root: str) -> dict[str, list[Any]]:
    cached, beside = map(_read, reversed(places(root)))
    return cached | beside


def _read(place: str) -> dict[str, list[Any]]:
    """Return name -> [size, time, reason]; nothing of a file that is missing or damaged."""
    try:
        with open(place, encoding="utf-8", errors="surrogateescape") as file:
            content = json.load(file)
        entries = content["bad"] if content["version"] == _VERSION else {}
        return {
            name: [int(size), int(time), str(text)] for name, (size, time, text) in entries.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write(place: str, content: dict[str, Any]) -> None:
    partial = f"{place}.{os.getpid()}"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, place)
    finally:
        if os.path.exists(partial):
            os.unlink(partial)
