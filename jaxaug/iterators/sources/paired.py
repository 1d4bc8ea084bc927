"""Images in one folder, and a mask for each in another."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxaug._typing import Features, PathLike, Values
from jaxaug.errors import SourceError
from jaxaug.iterators.sources.folder import files_below, listed
from jaxaug.iterators.sources.stamps import file_stamps, joined
from jaxaug.iterators.sources.storage.files import local_path, reason
from jaxaug.iterators.sources.storage.loose import LooseFiles


class PairedFolders:
    """Images with masks for segmentation: `images/a/x.jpg` and `masks/a/x.png`.

    An image and a mask belong together if their paths below the two folders are the same without
    their suffixes. Records are sorted by that name.

    The Loader decodes masks as they are stored, so that the indices of palettes and 255 for
    "ignore" stay, and turns and shrinks them with their images: see `decode.Mask`.

    Args:
      images: the folder of the images.
      masks: the folder of the masks.
      names: which images there are, by name: a sequence, or a text file with a name a line, such
        as "ImageSets/Segmentation/train.txt". None for all files, which must be pairs.
      image_suffix: what follows the name in a path of an image, such as "_leftImg8bit.png"; None
        for any extension of images.
      mask_suffix: the same for masks.

    Raises:
      SourceError: a folder that is missing or cannot be read, no images, an image without mask, a
        mask without image, or two files of one name.

    Example:
      >>> import pathlib, tempfile
      >>> root = pathlib.Path(tempfile.mkdtemp())
      >>> for name in ("JPEGImages/a.jpg", "JPEGImages/b.jpg", "SegmentationClass/b.png"):
      ...     (root / name).parent.mkdir(exist_ok=True)
      ...     _ = (root / name).write_bytes(b"...")
      >>> source = PairedFolders(root / "JPEGImages", root / "SegmentationClass", names=["b"])
      >>> len(source), os.path.basename(source.describe(0)["mask_path"])
      (1, 'b.png')

    More forms:

        PairedFolders("ADE20K/images/training", "ADE20K/annotations/training")
        PairedFolders(
            "leftImg8bit/train",
            "gtFine/train",
            image_suffix="_leftImg8bit.png",
            mask_suffix="_gtFine_labelTrainIds.png",
        )

    Reference: Everingham et al., The Pascal Visual Object Classes Challenge, IJCV 2010; Zhou et
    al., Scene Parsing through ADE20K Dataset, CVPR 2017; Cordts et al., The Cityscapes Dataset,
    CVPR 2016.
    """

    def __init__(
        self,
        images: PathLike,
        masks: PathLike,
        names: PathLike | Sequence[str] | None = None,
        *,
        image_suffix: str | None = None,
        mask_suffix: str | None = None,
    ):
        image_root = local_path(images)
        mask_root = local_path(masks)
        image_names = _files_by_name("images", image_root, image_suffix)
        mask_names = _files_by_name("masks", mask_root, mask_suffix)
        if names is None:
            chosen = sorted(image_names)
            _check_known("images", sorted(mask_names), image_names, image_root)
        else:
            chosen = _read_names(names)
            _check_known("images", chosen, image_names, image_root)
        _check_known("masks", chosen, mask_names, mask_root)

        self._folders = (image_root, mask_root)
        self.names: tuple[str, ...] = tuple(chosen)
        self._images = LooseFiles(image_root, [image_names[name] for name in chosen])
        self._masks = LooseFiles(mask_root, [mask_names[name] for name in chosen])

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        images, masks = self._folders
        return f"PairedFolders({images!r}, {masks!r}: {len(self)} images with masks)"

    def path(self, index: int) -> str:
        """Return the path of image `index`."""
        return self._images.path(index)

    def mask_path(self, index: int) -> str:
        """Return the path of the mask of image `index`."""
        return self._masks.path(index)

    def stamps(self, indices: np.ndarray) -> np.ndarray:
        """Return stamps of sizes and times of the images and of their masks, see `Stamped`."""
        numbers = indices.tolist()
        return joined(*(file_stamps(map(path, numbers)) for path in (self.path, self.mask_path)))

    @property
    def features(self) -> Features:
        """No columns: all that a record has beside its image is its mask."""
        return {}

    def read(self, indices: np.ndarray) -> dict[str, Values]:
        """Read the bytes of images and masks; a file that cannot be read has length 0."""
        return {"image": self._images.read(indices), "mask": self._masks.read(indices)}

    def describe(self, index: int) -> dict[str, Any]:
        """Return the record's paths and name, and "error" if a file cannot be read now."""
        mask = self._masks.describe(index)
        found = {"mask_path": mask["path"], "name": self.names[index]}
        if "error" in mask:
            found["error"] = f"its mask {mask['error']}"
        return found | self._images.describe(index)

    def fingerprint(self) -> str:
        """Return a hash of the relative paths of images and masks."""
        known = self._images.fingerprint() + self._masks.fingerprint()
        return hashlib.blake2b(known.encode(), digest_size=8).hexdigest()


def _files_by_name(argument: str, root: str, suffix: str | None) -> dict[str, str]:
    """Return the paths, relative to `root`, of the image files below it, by name."""
    if not os.path.isdir(root):
        raise SourceError(f"`{argument}` must be a folder, got {root!r}, which is none.")
    try:
        paths = sorted(files_below(root))
    except OSError as error:
        where = f"`{argument}`: {error.filename!r}"
        raise SourceError(f"{where} cannot be read: {reason(error)}.") from error

    found: dict[str, str] = {}
    for path in paths:
        if suffix is not None and not path.endswith(suffix):
            continue
        name = os.path.splitext(path)[0] if suffix is None else path.removesuffix(suffix)
        if name in found:
            raise SourceError(
                f"`{argument}`: {found[name]!r} and {path!r} in {root!r} have one name: choose one "
                f"kind by {argument.removesuffix('s')}_suffix."
            )
        found[name] = path
    if not found:
        kind = "images" if suffix is None else f"files that end in {suffix!r}"
        raise SourceError(f"`{argument}`: no {kind} below {root!r}.")
    return found


def _read_names(names: PathLike | Sequence[str]) -> list[str]:
    """Return the names of a list or of a text file."""
    if isinstance(names, (str, os.PathLike)):
        path = local_path(names)
        try:
            with open(path, encoding="utf-8-sig") as file:
                found = [line.strip() for line in file if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"`names` {path!r} cannot be read: {error}.") from error
    else:
        found = list(names)

    if not found:
        raise SourceError("`names` must hold at least one name, got none.")
    return found


def _check_known(argument: str, names: Sequence[str], known: Mapping[str, str], root: str) -> None:
    """Raise SourceError where a name has no file."""
    missing = [name for name in names if name not in known]
    if not missing:
        return
    kind = argument.removesuffix("s")
    there = listed(sorted(known))
    raise SourceError(
        f"`{argument}`: {len(missing)} of {len(names)} records have no {kind} below {root!r}: "
        f"{listed(missing)}. Its {argument} are named {there}. Name those that have image and mask "
        f"by `names`, or give the `{kind}_suffix` that follows the common name."
    )
