"""Ten kinds of drawings, each a signed distance over the plane, positive where there is paint.

A kind is a function `(x, y, rng) -> float32[h, w]` of plane coordinates float32[h, w], in which the
shorter side of the image spans [-1, 1]. The coordinates are already shifted and rotated at random.
"""

import colorsys
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from PIL import Image

Field: TypeAlias = np.ndarray  # float32[h, w]
Kind: TypeAlias = Callable[[Field, Field, np.random.Generator], Field]


def draw(kind: str, size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw one image.

    Args:
      kind: a key of `KINDS`.
      size: (height, width) in pixels.
      rng: the source of all random numbers; the same state draws the same image.

    Returns:
      uint8[height, width, 3], RGB.

    Example:
      >>> draw("stars", (120, 160), np.random.default_rng(0)).shape
      (120, 160, 3)
    """
    x, y = _plane(size, rng)
    pixel = 2 / min(size)
    # Antialiased by a ramp of one pixel.
    paint = np.clip(0.5 + KINDS[kind](x, y, rng) / pixel, 0, 1)
    paint = paint[..., None]

    ground, ink = _colors(rng)
    clouds = _clouds(size, rng)
    image = (ground + paint * (ink - ground)) * (0.85 + 0.3 * clouds)
    image += rng.uniform(0, 0.08) * rng.standard_normal((*size, 1), np.float32)
    return (np.clip(image, 0, 1) * 255).astype(np.uint8)


def checks(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return a checkerboard: stripes in x exclusive-or stripes in y."""
    period = rng.uniform(0.3, 0.8)
    a = _band(x / period)
    b = _band(y / period)
    return period * np.where(abs(a) < abs(b), a * np.sign(b), b * np.sign(a))


def crosses(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return a few plus signs."""
    thickness = rng.uniform(0.25, 0.4)

    def cross(u: Field, v: Field) -> Field:
        u = abs(u)
        v = abs(v)
        return np.maximum(np.minimum(1 - u, thickness - v), np.minimum(thickness - u, 1 - v))

    return _scatter(cross, x, y, rng)


def dots(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return discs on a grid, every other row of which is shifted by half a period."""
    period = rng.uniform(0.25, 0.6)
    radius = rng.uniform(0.2, 0.36)
    row = np.round(y / period)
    u = x / period + 0.5 * (row % 2)
    return period * (radius - np.hypot(u - np.round(u), y / period - row))


def moons(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return a few crescents: a disc without another disc."""
    bite = rng.uniform(0.35, 0.6)
    return _scatter(
        lambda u, v: np.minimum(1 - np.hypot(u, v), np.hypot(u - bite, v) - 0.8), x, y, rng
    )


def rings(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return concentric rings."""
    period = rng.uniform(0.2, 0.5)
    return period * _band(np.hypot(x, y) / period + rng.uniform())


def spirals(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return a spiral of Archimedes of one to three arms, turning either way."""
    period = rng.uniform(0.25, 0.5)
    arms = rng.choice([-3, -2, -1, 1, 2, 3])
    return period * _band(np.hypot(x, y) / period + arms * np.arctan2(y, x) / (2 * np.pi))


def stars(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return a few stars of five points."""
    sector = 2 * np.pi / 5
    tip = np.array([1, 0], np.float32)
    notch = rng.uniform(0.38, 0.5) * np.array([np.cos(sector / 2), np.sin(sector / 2)], np.float32)
    normal = np.array([notch[1], tip[0] - notch[0]], np.float32)
    normal /= np.hypot(*normal)

    # The plane is folded into half a sector, where the border of a star is one straight line.
    def star(u: Field, v: Field) -> Field:
        radius = np.hypot(u, v)
        angle = np.arctan2(v, u)
        angle = abs(angle - sector * np.round(angle / sector))
        return (tip[0] - radius * np.cos(angle)) * normal[0] - radius * np.sin(angle) * normal[1]

    return _scatter(star, x, y, rng)


def stripes(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return straight parallel stripes."""
    period = rng.uniform(0.15, 0.5)
    return period * _band(x / period, rng.uniform(0.3, 0.7))


def triangles(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return a few triangles with equal sides."""

    def triangle(u: Field, v: Field) -> Field:
        # the outward normals of the three edges: (-1, 0) and (half, +-tall)
        half = np.float32(0.5)
        tall = np.float32(np.sqrt(3) / 2)
        return half - np.maximum(-u, half * u + tall * abs(v))

    return _scatter(triangle, x, y, rng)


def waves(x: Field, y: Field, rng: np.random.Generator) -> Field:
    """Return parallel stripes bent to sines."""
    period = rng.uniform(0.15, 0.4)
    bend = rng.uniform(0.08, 0.2) * np.sin(y * rng.uniform(4, 9))
    # The slope of the sine shortens distances to about 0.7.
    return 0.7 * period * _band((x + bend) / period)


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (checks, crosses, dots, moons, rings, spirals, stars, stripes, triangles, waves)
}


def _plane(size: tuple[int, int], rng: np.random.Generator) -> tuple[Field, Field]:
    """Return the coordinates of all pixel centers, shifted and rotated at random."""
    height, width = size
    v = (2 * np.arange(height, dtype=np.float32)[:, None] + 1 - height) / min(size)
    v = v - rng.uniform(-0.3, 0.3)
    u = (2 * np.arange(width, dtype=np.float32)[None, :] + 1 - width) / min(size)
    u = u - rng.uniform(-0.3, 0.3)

    angle = rng.uniform(-np.pi, np.pi)
    cos = np.float32(np.cos(angle))
    sin = np.float32(np.sin(angle))
    return cos * u + sin * v, cos * v - sin * u


def _band(u: Field, duty: float = 0.5) -> Field:
    """Return stripes of period 1 that are `duty` wide."""
    return duty / 2 - abs(u - np.round(u))


def _scatter(
    shape: Callable[[Field, Field], Field], x: Field, y: Field, rng: np.random.Generator
) -> Field:
    """Return one to three copies of a shape of radius 1, scaled, rotated and placed at random."""
    copies = rng.integers(1, 4)
    radius = rng.uniform(0.5, 0.85) / np.sqrt(copies)
    start = rng.uniform(-np.pi, np.pi)
    field = np.full_like(x, -1)
    for k in range(copies):
        place = start + 2 * np.pi * k / copies
        offset = 0.55 * (copies > 1)  # on a circle, so that copies do not hide one another
        spin = rng.uniform(-np.pi, np.pi)
        scale = np.float32(radius * rng.uniform(0.8, 1.2))
        cos = np.float32(np.cos(spin) / scale)
        sin = np.float32(np.sin(spin) / scale)
        u = x - np.float32(offset * np.cos(place))
        v = y - np.float32(offset * np.sin(place))
        field = np.maximum(field, scale * shape(cos * u + sin * v, cos * v - sin * u))
    return field


def _colors(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw two colors float32[3] of different hue, one of them bright and one dark."""
    hue = rng.uniform()
    bright = colorsys.hsv_to_rgb(hue, rng.uniform(0.1, 0.6), rng.uniform(0.75, 1))
    dark = colorsys.hsv_to_rgb(
        hue + rng.uniform(0.25, 0.75), rng.uniform(0.3, 0.9), rng.uniform(0.15, 0.6)
    )
    pair = np.array([bright, dark], np.float32)
    return (pair[0], pair[1]) if rng.uniform() < 0.5 else (pair[1], pair[0])


def _clouds(size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Draw smooth light in [0, 1], float32[h, w, 1]."""
    coarse = (255 * rng.random((4, 4))).astype(np.uint8)
    smooth = Image.fromarray(coarse).resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return np.asarray(smooth, np.float32)[..., None] / 255
