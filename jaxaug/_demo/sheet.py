"""A contact sheet: images beside several random results each, as one PNG."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from jaxaug._typing import PathLike

TILE = 168  # pixels; every image is shrunk to fit a tile of this side
GAP = 8
MARGIN = 32
TITLE_HEIGHT = 64
CAPTION_HEIGHT = 34
FIRST_GAP = 28  # sets the decoded image apart from the draws

PAPER = "#ffffff"
PANEL = "#f1f3f5"
INK = "#1b1f24"
FADED = "#6a737d"


class Row(NamedTuple):
    """One row of the sheet.

    Attributes:
      title: the name of the transform or of the image.
      note: a remark beside the title, in gray.
      images: uint8[h, w, 3] each; the first is the decoded image, the others are draws.
    """

    title: str
    note: str
    images: Sequence[np.ndarray]


def contact_sheet(rows: Sequence[Row], path: PathLike, title: str) -> Path:
    """Draw rows of images with captions and store them as a PNG.

    Args:
      rows: at least one; the longest sets the width.
      path: the PNG to write; its folder is made if it is missing.
      title: the heading of the sheet.

    Returns:
      `path`.
    """
    if not rows:
        raise ValueError("`rows` must have at least one row, got none.")

    sheet = Image.new("RGB", _sheet_size(rows), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((MARGIN, MARGIN), title, INK, ImageFont.load_default(26), anchor="lt")
    headings_y = MARGIN + TITLE_HEIGHT - 12
    pen.text((MARGIN, headings_y), "decoded", FADED, ImageFont.load_default(14), anchor="ls")
    pen.text(
        (_column_x(1), headings_y), "random draws", FADED, ImageFont.load_default(14), anchor="ls"
    )
    for number, row in enumerate(rows):
        _draw_row(sheet, pen, row, MARGIN + TITLE_HEIGHT + number * _row_height())

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path, optimize=True)
    return path


def _draw_row(sheet: Image.Image, pen: ImageDraw.ImageDraw, row: Row, top: int) -> None:
    font = ImageFont.load_default(16)
    baseline = top + CAPTION_HEIGHT - 10
    pen.text((MARGIN, baseline), row.title, INK, font, anchor="ls")
    after_title = MARGIN + font.getlength(row.title) + 12
    pen.text((after_title, baseline), row.note, FADED, ImageFont.load_default(14), anchor="ls")
    for column, image in enumerate(row.images):
        x = _column_x(column)
        y = top + CAPTION_HEIGHT
        pen.rectangle((x, y, x + TILE - 1, y + TILE - 1), PANEL)
        picture = Image.fromarray(np.asarray(image))
        scale = TILE / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
        sheet.paste(picture, (x + (TILE - size[0]) // 2, y + (TILE - size[1]) // 2))


def _sheet_size(rows: Sequence[Row]) -> tuple[int, int]:
    columns = max(len(row.images) for row in rows)
    width = _column_x(columns - 1) + TILE + MARGIN
    return width, MARGIN + TITLE_HEIGHT + len(rows) * _row_height() - GAP + MARGIN


def _row_height() -> int:
    return CAPTION_HEIGHT + TILE + GAP


def _column_x(column: int) -> int:
    return MARGIN + column * (TILE + GAP) + (FIRST_GAP - GAP) * (column > 0)
