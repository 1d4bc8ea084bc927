"""Write Imagenette as a data set of TFDS, stored as ArrayRecord, without tensorflow.

    curl -O https://s3.amazonaws.com/fast-ai-imageclas/imagenette2-160.tgz
    tar xzf imagenette2-160.tgz
    python examples/flax_imagenette/prepare_tfds.py imagenette2-160
    python examples/flax_imagenette/train.py --data tfds:imagenette/160px-v2 --test-split validation

TFDS's own preparation unpacks the archive and lists its files with tensorflow. The rest of it is
used here.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.registered import skip_registration

Imagenette: Any = tfds.builder_cls("imagenette")


def prepare(folder: Path, data_dir: str | None = None) -> Path:
    """Write the splits "train" and "validation" of a config of `imagenette`.

    The bytes of the JPEGs stay as they are.

    Args:
      folder: the unpacked archive; its name tells the config: imagenette2-160 is 160px-v2.
      data_dir: where TFDS keeps its data sets; TFDS_DATA_DIR or ~/tensorflow_datasets when None.

    Returns:
      The folder of the data set.

    Raises:
      SystemExit: `folder` is not an unpacked archive of Imagenette.
    """
    configs = {config.dirname: config.name for config in Imagenette.BUILDER_CONFIGS}
    if folder.name not in configs:
        raise SystemExit(
            f"{folder}: the folder must be called as in its archive, one of {', '.join(configs)}."
        )
    parts = {"train": folder / "train", "validation": folder / "val"}
    for part in parts.values():
        if not any(part.glob("*/*.JPEG")):
            raise SystemExit(
                f"{part} must hold class folders with .JPEG files, has none:"
                " unpack the archive again."
            )
    builder = _builder(parts, config=configs[folder.name], data_dir=data_dir)
    builder.download_and_prepare()
    return Path(builder.data_dir)


def _builder(parts: dict[str, Path], **options: Any) -> tfds.core.DatasetBuilder:
    """Return TFDS's builder of Imagenette with other files."""
    with skip_registration():  # the name is taken, by TFDS's own

        class Builder(Imagenette):
            name = "imagenette"

            def _split_generators(self, dl_manager):
                return {split: self._generate_examples(part) for split, part in parts.items()}

            def _generate_examples(self, datapath: Path) -> Iterator[tuple[str, dict[str, str]]]:
                for path in sorted(datapath.glob("*/*.JPEG")):
                    yield path.name, {"image": str(path), "label": path.parent.name}

    return Builder(file_format="array_record", **options)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Write Imagenette as a data set of TFDS, as ArrayRecord."
    )
    parser.add_argument("folder", type=Path, help="the unpacked archive, such as imagenette2-160")
    parser.add_argument(
        "--data-dir", help="of TFDS (default: TFDS_DATA_DIR or ~/tensorflow_datasets)"
    )
    arguments = parser.parse_args()
    print(f"written to {prepare(arguments.folder, arguments.data_dir)}")


if __name__ == "__main__":
    main()
