"""Lists of recordings as NeMo and Lhotse write them: one JSON object a line."""

import gzip
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxaug._typing import PathLike, Values
from jaxaug.decode import Span
from jaxaug.errors import SourceError
from jaxaug.iterators.loader.columns import join_columns
from jaxaug.iterators.sources._base import LabeledFiles, TextSource
from jaxaug.iterators.sources.storage.files import check_local, local_path, reason
from jaxaug.iterators.sources.storage.loose import LooseFiles

_GZIP = b"\x1f\x8b"
_CUTS = ("MonoCut", "MultiCut")


class Manifest(LabeledFiles, TextSource):
    """Sounds, or parts of them, of a manifest of NeMo or Lhotse: a JSON object in each line.

    Of NeMo these are lines with "audio_filepath", and maybe "offset", "duration" and "text". Of
    Lhotse they are cuts (MonoCut and MultiCut, with their recording), recordings, or
    supervisions with the file of their recordings. A record is the part of the file, and of cuts of
    a telephone the channel, that its line tells; its column is "audio", which `decode.Audio`
    decodes. Files may be compressed by gzip.

    The texts of a line are in `loader.texts(batch, ["text"])`: "text" and what else is a string; of
    Lhotse "id", "speaker", "language" and the text of all supervisions, in their order.

    Args:
      path: the manifest.
      recordings: of supervisions, the manifest with their recordings.
      root: the folder of relative paths; None for that of the manifest. (Lhotse's are relative to
        the folder in which it ran.)
      label: the name of a text, such as "speaker": its values, sorted, are classes, and the column
        "label" holds their ranks.

    Attributes:
      durations: float64[n], seconds of each record; `inf` where the line does not tell, which is up
        to the end of the file.
      classes: the values of `label`, tuple[str, ...]; empty without one.

    Raises:
      SourceError: the file is missing, names a URL, or a line is none of these: mixed cuts, cuts of
        features alone, recordings that are changed on the fly, or whose bytes are no file, or some
        of the channels of a file.

    Example:
      >>> import tempfile
      >>> with tempfile.NamedTemporaryFile("w") as file:
      ...     line = {"audio_filepath": "a.wav", "offset": 1.5, "duration": 2, "text": "no"}
      ...     _ = file.write(json.dumps(line)), file.flush()
      ...     source = Manifest(file.name)
      >>> source.durations.tolist(), source.texts([0], ["text"])
      ([2.0], {'text': ['no']})
    """

    def __init__(
        self,
        path: PathLike,
        *,
        recordings: PathLike | None = None,
        root: PathLike | None = None,
        label: str | None = None,
    ):
        self._list = local_path(path)
        lines = () if recordings is None else _lines(local_path(recordings))
        known = {str(line.get("id")): line for _, line in lines}
        items = [_checked_item(line, place, known) for place, line in _lines(self._list)]
        if not items:
            raise SourceError(f"`path` {self._list!r} names no sounds: it has no lines.")
        folder = os.path.dirname(self._list) if root is None else local_path(root)
        self._files = LooseFiles(folder, [item.path for item in items])
        start, self.durations, channel = np.array([item[1:4] for item in items], np.float64).T
        self._span = Span(start, start + self.durations, "seconds", channel.astype(np.int64))
        self._texts = [item.texts for item in items]
        self.classes: tuple[str, ...] = ()
        self.labels: np.ndarray | None = None
        if label is not None:
            found = self.texts(np.arange(len(items)), [label])[label]
            classes, labels = np.unique(found, return_inverse=True)
            self.classes = tuple(classes.tolist())
            self.labels = labels.astype(np.int32)

    def __repr__(self) -> str:
        return f"Manifest({self._list!r}: {len(self)} sounds, {sorted(self.features)})"

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the files' bytes and "label"; a file that cannot be read has length 0."""
        files = self._files.read(indices)._replace(span=self._span.take(indices))
        columns = {name: column[indices] for name, column in self.features.items()}
        return join_columns({"audio": files}, columns)

    def _rows_of_texts(self, indices: np.ndarray, names: Sequence[str]) -> list[dict[str, str]]:
        return [self._texts[index] for index in indices.tolist()]

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's path, texts and part, and "error" if it cannot be read now."""
        texts = dict(self._texts[index])
        return self._files.describe(index) | texts | {"span": self._span.text(index)}

    def fingerprint(self) -> str:
        """Return a hash of the paths as listed, of the parts and channels, and of the labels."""
        columns = [self._span.start, self._span.end, self._span.channel]
        columns += [] if self.labels is None else [self.labels]
        return self._files.fingerprint(*(column for column in columns if column is not None))


class _Item(NamedTuple):
    """A record of a manifest.

    Attributes:
      path: of the file.
      start, duration: of the part, in seconds; `inf` up to the end of the file.
      channel: -1 for all.
      texts: by name.
    """

    path: str
    start: float
    duration: float
    channel: int
    texts: Mapping[str, str]


def _lines(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file, each with where it stands."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == _GZIP
        opener = gzip.open if packed else open
        with opener(path, "rt", encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    place = f"{path!r}, line {number}"
                    yield place, _object(str(line), place)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise SourceError(f"`path` {path!r} cannot be read: {why}.") from error


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise SourceError(f"{place}: each line must be a JSON object, got {error}.") from None
    if not isinstance(found, dict):
        raise SourceError(
            f"{place}: each line must be a JSON object, got {type(found).__name__}: a manifest is"
            " JSONL, not one JSON array."
        )
    return found


def _checked_item(line: dict[str, Any], place: str, known: Mapping[str, dict[str, Any]]) -> _Item:
    """Return what a line tells; an error where a field has another form."""
    try:
        item = _item(line, place, known)
    except (AttributeError, LookupError, OverflowError, TypeError) as error:
        raise SourceError(
            f"{place}: its fields are not as NeMo or Lhotse write them, {error!r}: correct it."
        ) from error
    check_local(item.path, place)
    return item


def _item(line: dict[str, Any], place: str, known: Mapping[str, dict[str, Any]]) -> _Item:
    """Return what a line tells."""
    if "audio_filepath" in line:
        return _of_nemo(line, place)
    if line.get("type") in _CUTS:
        return _of_cut(line, place)
    if "recording_id" in line and "type" not in line:
        recording = known.get(str(line["recording_id"]))
        if recording is None:
            raise SourceError(
                f"{place}: a supervision of recording {line['recording_id']!r}, which is not known:"
                " give Manifest(recordings=) the file with it."
            )
        return _of_cut({**line, "recording": recording, "supervisions": [line]}, place)
    if "sources" in line and "sampling_rate" in line:
        whole = {"id": line.get("id"), "duration": line.get("duration"), "recording": line}
        return _of_cut(whole, place)
    kind = line.get("type", f"an object with {sorted(line)[:6]}")
    raise SourceError(
        f"{place}: a line must have NeMo's 'audio_filepath', or be a MonoCut, MultiCut, recording"
        f" or supervision of Lhotse, got {kind}: mix and pad on the device, by"
        " jaxaug.augment.audio."
    )


def _of_nemo(line: dict[str, Any], place: str) -> _Item:
    path = line["audio_filepath"]
    if not isinstance(path, str):
        raise SourceError(f"{place}: 'audio_filepath' must be one path, got {path!r}.")
    if "shard_id" in line:
        raise SourceError(
            f"{place}: it names a member of shard {line['shard_id']!r}: read the tars by"
            " WebDataset(image=('wav', 'flac'))."
        )
    start = _seconds(line.get("offset") or 0, "offset", place)
    texts = {name: value for name, value in line.items() if isinstance(value, str)}
    duration = _duration(line.get("duration"), place)
    return _Item(os.path.expanduser(path), start, duration, -1, texts)


def _of_cut(line: dict[str, Any], place: str) -> _Item:
    recording = line.get("recording")
    if not isinstance(recording, dict):
        raise SourceError(f"{place}: the cut has no recording: features alone are not read.")
    if recording.get("transforms"):
        raise SourceError(
            f"{place}: its recording is changed on the fly, by 'transforms': save it, or change it"
            " on the device by jaxaug.augment.audio."
        )
    sources = recording.get("sources") or []
    if len(sources) != 1 or sources[0].get("type") != "file":
        kinds = [each.get("type") for each in sources]
        raise SourceError(
            f"{place}: a recording must be one file, got sources {kinds}: copy it to files"
            " (Lhotse's save_audios)."
        )
    start = _seconds(line.get("start", 0), "start", place)
    duration = _duration(line.get("duration"), place)
    channel = _channel(line.get("channel"), sources[0].get("channels"), place)
    path = os.path.expanduser(sources[0]["source"])
    return _Item(path, start, duration, channel, _texts_of_cut(line))


def _channel(wanted: Any, stored: Any, place: str) -> int:
    """Return the place among the file's channels of the one that is wanted; -1 for all of them."""
    stored = list(stored or [0])
    wanted = stored if wanted is None else wanted if isinstance(wanted, list) else [wanted]
    if wanted == stored:
        return -1
    if len(wanted) != 1 or wanted[0] not in stored:
        raise SourceError(
            f"{place}: a record must be one channel of its file or all of {stored}, got {wanted}."
        )
    return stored.index(wanted[0])


def _texts_of_cut(line: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a cut: those of its supervisions in the order of their starts."""
    parts = sorted(line.get("supervisions") or [], key=lambda part: part.get("start", 0))
    texts = {"id": str(line.get("id", ""))}
    for part in parts:
        for name in ("speaker", "language"):
            if isinstance(part.get(name), str):
                texts.setdefault(name, part[name])
        custom = part.get("custom") or {}
        for name, value in custom.items():
            if isinstance(value, str):
                texts.setdefault(name, value)
    said = [part["text"] for part in parts if isinstance(part.get("text"), str)]
    return texts | ({"text": " ".join(said)} if said else {})


def _duration(value: Any, place: str) -> float:
    if value is None:
        return math.inf
    seconds = _seconds(value, "duration", place)
    if seconds == 0:
        raise SourceError(f"{place}: 'duration' must be above 0, got {value!r}.")
    return seconds


def _seconds(value: Any, name: str, place: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value < math.inf:
        raise SourceError(f"{place}: {name!r} must be seconds of at least 0, got {value!r}.")
    return float(value)
