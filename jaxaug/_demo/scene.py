"""A drawn photograph with its boxes, mask and keypoints, for pictures of transforms.

Every call draws the same scene: a house with a sign, a tree, a balloon and a child in a meadow. It
has smooth gradients, fine texture, straight edges, text and strong colors, so that something of
each transform can be seen in it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

NAMES = ("meadow", "house", "tree", "balloon", "child")  # of the classes of the mask

_WIDTH = 320  # the units in which the scene is drawn
_HEIGHT = 240
_OVERSAMPLING = 3  # drawn this much larger, then shrunk: smooth edges
_HORIZON = 150

_BALLOON = ("#e63946", "#ffd166", "#118ab2", "#06d6a0", "#ef476f", "#f8f9fa")
_LEAVES = ("#1b4332", "#2d6a4f", "#40916c", "#52b788", "#74c69d")
_FLOWERS = ("#ffd166", "#ef476f", "#f8f9fa", "#9d4edd")

Point = tuple[float, float]


class Scene(NamedTuple):
    """A picture and what is known about it.

    Attributes:
      image: uint8[h, w, 3].
      mask: uint8[h, w], an index into `NAMES`.
      boxes: float32[4, 4], xyxy, of the things in `NAMES` after the meadow.
      keypoints: float32[7, 2], (x, y): the head, the hands, the hips and the feet of the child.
    """

    image: np.ndarray
    mask: np.ndarray
    boxes: np.ndarray
    keypoints: np.ndarray

    def sample(self) -> dict[str, np.ndarray]:
        """Return the scene as the dict that transforms take."""
        return self._asdict()


def draw_scene(width: int = _WIDTH) -> Scene:
    """Draw the scene.

    Args:
      width: in pixels, divisible by 4; the height is three quarters of it.

    Example:
      >>> draw_scene(160).image.shape
      (120, 160, 3)
    """
    height = width * _HEIGHT // _WIDTH
    rng = np.random.default_rng(0)
    painter = _Painter(width * _OVERSAMPLING / _WIDTH, _background(width * _OVERSAMPLING, rng))
    _meadow(painter, rng)
    _house(painter)
    _tree(painter, rng)
    _balloon(painter)
    keypoints = _child(painter)

    image = painter.image.resize((width, height), Image.Resampling.BOX)
    mask = np.asarray(painter.mask.resize((width, height), Image.Resampling.NEAREST))
    boxes = [_hull(mask == label) for label in range(1, len(NAMES))]
    scaled = np.array(keypoints, np.float32) * (width / _WIDTH)
    return Scene(_grainy(image, rng), mask, np.array(boxes, np.float32), scaled)


class _Painter:
    """Draws into a picture and into its mask at once, in units of the scene.

    Attributes:
      image: the picture.
      mask: of one byte for each pixel.
      label: the class of what is drawn next.
    """

    def __init__(self, scale: float, image: Image.Image):
        self.image = image
        self.mask = Image.new("L", image.size, 0)
        self.label = 0
        self._scale = scale
        self._pens = (ImageDraw.Draw(self.image), ImageDraw.Draw(self.mask))

    def polygon(self, points: Sequence[Point], color: str) -> None:
        """Fill a polygon."""
        for pen, ink in zip(self._pens, (color, self.label)):
            pen.polygon(self._scaled(points), fill=ink)

    def rectangle(self, left: float, top: float, right: float, bottom: float, color: str) -> None:
        """Fill a rectangle."""
        self.polygon([(left, top), (right, top), (right, bottom), (left, bottom)], color)

    def disc(self, x: float, y: float, radius: float, color: str) -> None:
        """Fill a disc."""
        corners = self._scaled([(x - radius, y - radius), (x + radius, y + radius)])
        for pen, ink in zip(self._pens, (color, self.label)):
            pen.ellipse(corners, fill=ink)

    def line(self, points: Sequence[Point], width: float, color: str) -> None:
        """Draw a line with round joints."""
        for pen, ink in zip(self._pens, (color, self.label)):
            pen.line(self._scaled(points), fill=ink, width=self._length(width), joint="curve")

    def text(self, x: float, y: float, text: str, size: float, color: str) -> None:
        """Write text around a point."""
        font = ImageFont.load_default(self._length(size))
        self._pens[0].text(self._scaled([(x, y)])[0], text, color, font, anchor="mm")

    def _scaled(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self._scale, y * self._scale) for x, y in points]

    def _length(self, length: float) -> int:
        return max(1, round(length * self._scale))


def _background(width: int, rng: np.random.Generator) -> Image.Image:
    """Return a sky with clouds, from deep blue to a bright horizon."""
    height = width * _HEIGHT // _WIDTH
    down = np.linspace(0, _HEIGHT / _HORIZON, height, dtype=np.float32)[:, None, None]
    top = np.array([64, 132, 214], np.float32)
    low = np.array([236, 232, 214], np.float32)
    sky = top + np.minimum(down, 1) * (low - top)

    clouds = np.clip(2.2 * _noise((height, width), rng) - 1.0, 0, 1)[:, :, None]
    pixels = sky + clouds * (250 - sky)
    return Image.fromarray(pixels.astype(np.uint8))


def _noise(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw smooth noise in [0, 1], the sum of octaves, float32[h, w]."""
    total = np.zeros(shape, np.float32)
    weight = 0.0
    for octave in range(5):
        coarse = (255 * rng.random((3 * 2**octave, 4 * 2**octave))).astype(np.uint8)
        smooth = Image.fromarray(coarse).resize((shape[1], shape[0]), Image.Resampling.BICUBIC)
        total += 0.5**octave * np.asarray(smooth, np.float32) / 255
        weight += 0.5**octave
    return total / weight


def _meadow(painter: _Painter, rng: np.random.Generator) -> None:
    """Draw two ranges of hills, blades of grass and flowers."""
    x = np.linspace(0, _WIDTH, 81)
    for color, base, height, period in (
        ("#8ea6b4", 148, 26, 61.0),
        ("#7f9c5a", 156, 12, 43.0),
        ("#6a994e", 168, 5, 90.0),
    ):
        ridge = base - height * (0.5 + 0.5 * np.sin(x / period + height))
        hill = [*zip(x.tolist(), ridge.tolist()), (_WIDTH, _HEIGHT), (0, _HEIGHT)]
        painter.polygon(hill, color)

    for y in np.sort(rng.uniform(172, _HEIGHT + 8, 900)).tolist():
        left, lean = rng.uniform(0, _WIDTH), rng.normal(0, 2)
        blade = [(left, y), (left + lean, y - rng.uniform(4, 10))]
        painter.line(blade, 0.8, _LEAVES[rng.integers(len(_LEAVES))])
    for _ in range(70):
        color = _FLOWERS[rng.integers(len(_FLOWERS))]
        painter.disc(rng.uniform(0, _WIDTH), rng.uniform(182, 238), rng.uniform(0.8, 1.8), color)


def _house(painter: _Painter) -> None:
    """Draw a brick house with a roof, windows, a door and a sign."""
    painter.label = NAMES.index("house")
    painter.rectangle(118, 106, 204, 186, "#b5573f")
    for row in range(16):
        y = 106 + 5 * row
        painter.line([(118, y), (204, y)], 0.6, "#dcc9b6")
        for column in range(9):
            x = 122 + 10 * column + 5 * (row % 2)
            if x < 204:
                painter.line([(x, y), (x, y + 5)], 0.6, "#dcc9b6")

    painter.rectangle(182, 66, 194, 96, "#8a4433")
    painter.polygon([(110, 108), (161, 62), (212, 108)], "#3d405b")
    for k in range(1, 8):
        share = k / 8
        painter.line(
            [(161 - 51 * share, 62 + 46 * share), (161 + 51 * share, 62 + 46 * share)],
            0.7,
            "#565a7c",
        )

    for x in (126, 174):
        painter.rectangle(x, 128, x + 22, 152, "#f4f1de")
        painter.rectangle(x + 2, 130, x + 20, 150, "#25405c")
        painter.polygon([(x + 2, 150), (x + 2, 142), (x + 14, 130), (x + 20, 130)], "#7fb2d9")
        painter.line([(x + 11, 130), (x + 11, 150)], 1.2, "#f4f1de")
        painter.line([(x + 2, 140), (x + 20, 140)], 1.2, "#f4f1de")

    painter.rectangle(152, 148, 170, 186, "#e9c46a")
    painter.rectangle(154, 150, 168, 186, "#2a9d8f")
    painter.disc(165, 169, 1.2, "#f4f1de")
    painter.rectangle(136, 111, 186, 125, "#fefae0")
    painter.text(161, 118, "BAKERY 27", 9, "#1b1f24")


def _tree(painter: _Painter, rng: np.random.Generator) -> None:
    """Draw a tree whose leaves are discs, the dark ones behind."""
    painter.label = NAMES.index("tree")
    painter.polygon([(262, 204), (267, 130), (277, 130), (284, 204)], "#6f4e37")
    for x in (266, 270, 274, 278):
        painter.line([(x, 202), (271 + 0.3 * (x - 271), 132)], 0.8, "#4f3626")
    for number in range(600):
        angle = rng.uniform(0, 2 * np.pi)
        radius = np.sqrt(rng.uniform())
        color = _LEAVES[min(4, int(5 * number / 600))]
        x = 271 + 36 * radius * np.cos(angle) - 3 * (number / 600)
        y = 102 + 48 * radius * np.sin(angle) - 4 * (number / 600)
        painter.disc(x, y, rng.uniform(1.5, 4.5), color)


def _balloon(painter: _Painter) -> None:
    """Draw a striped balloon with a basket."""
    painter.label = NAMES.index("balloon")
    x, y, radius = 62.0, 56.0, 32.0
    down = np.linspace(-1, 1, 33)
    half = np.sqrt(1 - down**2) * np.where(down > 0, 1 - 0.35 * down, 1)
    edges = np.linspace(-1, 1, 7)
    for color, left, right in zip(_BALLOON, edges[:-1], edges[1:]):
        one_side = [(x + radius * left * h, y + radius * d) for d, h in zip(down, half)]
        other = [(x + radius * right * h, y + radius * d) for d, h in zip(down, half)]
        painter.polygon(one_side + other[::-1], color)
    painter.polygon([(57, 86), (67, 86), (65, 92), (59, 92)], "#e63946")
    painter.line([(58, 91), (57, 103)], 0.7, "#5b3a29")
    painter.line([(66, 91), (67, 103)], 0.7, "#5b3a29")
    painter.rectangle(56, 102, 68, 111, "#a47148")


def _child(painter: _Painter) -> list[Point]:
    """Draw a child with raised arms; return its keypoints."""
    painter.label = NAMES.index("child")
    head, hips = (70, 154), (70, 196)
    hands = [(46, 148), (95, 150)]
    feet = [(59, 226), (82, 226)]
    for foot, knee in zip(feet, ((62, 210), (78, 210))):
        painter.line([hips, knee, foot], 8, "#26467a")
        painter.disc(foot[0], foot[1], 5, "#1b1f24")
    for hand, elbow in zip(hands, ((56, 166), (85, 166))):
        painter.line([(70, 172), elbow, hand], 6, "#f77f00")
        painter.disc(hand[0], hand[1], 4, "#f1c6a8")
    painter.polygon([(60, 166), (80, 166), (79, 199), (61, 199)], "#f77f00")
    painter.line([(61, 176), (79, 176)], 3, "#f8f9fa")
    painter.line([(61, 186), (79, 186)], 3, "#f8f9fa")

    painter.disc(*head, 13, "#5a3825")
    painter.disc(head[0], head[1] + 2, 11, "#f1c6a8")
    for x in (66, 74):
        painter.disc(x, 154, 1.5, "#1b1f24")
    painter.line([(65, 160), (68, 162), (72, 162), (75, 160)], 1.2, "#b23a48")
    return [head, *hands, hips, *feet]


def _hull(inside: np.ndarray) -> tuple[int, int, int, int]:
    """Return the box around the True pixels of bool[h, w]."""
    rows = np.flatnonzero(inside.any(axis=1))
    columns = np.flatnonzero(inside.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _grainy(image: Image.Image, rng: np.random.Generator) -> np.ndarray:
    """Return the pixels with light from the left and the grain of a sensor."""
    pixels = np.asarray(image, np.float32)
    height, width = pixels.shape[:2]
    light = np.linspace(1.06, 0.9, width, dtype=np.float32)[None, :, None]
    grain = rng.normal(0, 2.5, (height, width, 1))
    return np.clip(pixels * light + grain, 0, 255).astype(np.uint8)
