"""The measured images: those of a tar, changed and repeated, in a tar or as loose files."""

import io
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

COPIES_OF = 3_500  # images, the given ones repeated
COPIES_OF_LARGE = 768
CLASSES = 10


def jpegs_below(folder: Path) -> list[bytes]:
    """Return the JPEG files below a folder."""
    return [
        path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in (".jpg", ".jpeg")
    ]


def turned(image: bytes, number: int) -> bytes:
    """Return the JPEG with EXIF orientation 6."""
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    payload = exif.tobytes()
    return image[:2] + b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload + image[2:]


def progressive(image: bytes, number: int) -> bytes:
    """Return every twentieth image as a progressive JPEG of the same quality."""
    from PIL import Image

    if number % 20 or Image.open(io.BytesIO(image)).mode not in ("RGB", "L"):
        return image
    file = io.BytesIO()
    options: dict[str, Any] = {"quality": 90, "progressive": True}
    Image.open(io.BytesIO(image)).save(file, "JPEG", **options)
    return file.getvalue()


def reencoded(image: bytes, size: tuple[int, int] | None) -> bytes:
    from PIL import Image

    picture = Image.open(io.BytesIO(image)).convert("RGB")
    if size is not None:
        picture = picture.resize(size, Image.Resampling.BICUBIC)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=90, subsampling=2)
    return file.getvalue()


CHANGES = {
    "": lambda image, number: image,
    "turned": turned,
    "progressive": progressive,
    "large": lambda image, number: reencoded(image, (4000, 3000)),
    "q90": lambda image, number: reencoded(image, None),
}


def changed(source: Path, change: str, count: int | None = None) -> list[bytes]:
    """Return the images of a tar, changed, and repeated until there are `count`."""
    with tarfile.open(source) as tar:
        members = [member for member in tar if member.isfile()]
        images = [tar.extractfile(member).read() for member in members]  # type: ignore[union-attr]
    if change == "large":
        images = images[:48]
    with ThreadPoolExecutor() as pool:  # Pillow gives up the GIL
        images = list(pool.map(CHANGES[change], images, range(len(images))))
    if count is None:
        count = COPIES_OF_LARGE if change == "large" else COPIES_OF
    return [images[number % len(images)] for number in range(count)]


def write_tar(source: Path, target: Path, change: str, count: int | None = None) -> None:
    """Write the images of `source` to a tar, with a label each; see `changed`."""
    with tarfile.open(target, "w") as tar:
        for number, image in enumerate(changed(source, change, count)):
            for suffix, data in ((".jpg", image), (".cls", b"%d" % number)):
                member = tarfile.TarInfo(f"{number:06d}{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def write_files(source: Path, target: Path, change: str) -> None:
    """Write the images of `source` as files in the folders of some classes."""
    for number, image in enumerate(changed(source, change)):
        folder = target / f"class_{number % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06d}.jpg").write_bytes(image)
