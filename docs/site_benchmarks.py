"""The benchmarks page of the site: the results, and a chart of each stored run.

A run is a JSON list of rows. The lists of floats in a row are samples in images/s, one list for
each contestant; its strings and numbers name the row; the rest is not drawn. A run beside a roof,
the list "nvJPEG" in each row, is drawn over the size of the images, others as bars.
"""

import io
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MultipleLocator

FOLDER = Path(__file__).parents[1] / "benchmarks"
FIRST_SECTION = "\n## "
COLORS = ("#3f51b5", "#9e9e9e", "#00897b", "#ef6c00")
BAR = 0.22  # inches
ROOF = "nvJPEG"
SIZED = re.compile(r"(.*), (\d+) x (\d+)")  # sampling, width, height


class Bar(NamedTuple):
    """The samples of one contestant in one row of a run.

    Attributes:
      row: the name of the row.
      contestant: the key of its samples.
      samples: float64[n].
    """

    row: str
    contestant: str
    samples: np.ndarray


def page(text: str) -> str:
    """Return the results with charts of the stored runs before their first section."""
    lines = [
        "",
        "## Stored runs",
        "",
        "A chart for each file in `benchmarks/runs`: medians, and lines or a shade from the slowest"
        " to the fastest round. The chains: rrc is random-resized-crop and flip; jitter adds"
        " rotation and color jitter, twelve rotation and seven shears, randaugment"
        " RandAugment(2, 9); eval is resize and center crop.",
        "",
    ]
    for name in charts():
        lines += [f"![{name}](benchmarks/{name}.svg)", ""]
    head, first, rest = text.partition(FIRST_SECTION)
    return head + "\n".join(lines) + first + rest


def charts() -> dict[str, bytes]:
    """Return the chart of each stored run as SVG, by name."""
    found = {}
    for path in sorted((FOLDER / "runs").glob("*.json")):
        run = json.loads(path.read_text())
        beside_roof = all(ROOF in row for row in run)
        figure = roofline(points(run)) if beside_roof else bar_chart(bars(run))
        found[path.stem] = svg(figure, path.stem)
    return found


def bars(run: list[dict[str, Any]]) -> list[Bar]:
    """Return the bars of a run, in its order.

    Raises:
      ValueError: the run has no samples.
    """
    found = []
    for row in run:
        names = [value for value in row.values() if isinstance(value, str)]
        names += [f"{key} {value}" for key, value in row.items() if isinstance(value, int)]
        for key, value in row.items():
            if isinstance(value, list) and value and all(isinstance(x, float) for x in value):
                found.append(Bar(", ".join(names), key, np.array(value)))
    if not found:
        raise ValueError("a run needs rows with lists of floats, its samples")
    return found


def bar_chart(bars: list[Bar]) -> Figure:
    """Return horizontal bars of the medians, with lines from the least to the largest sample."""
    contestants = list(dict.fromkeys(bar.contestant for bar in bars))
    figure = Figure(figsize=(8, 1 + BAR * len(bars)), layout="constrained")
    axes = figure.subplots()
    labels = []
    for y, bar in enumerate(bars):
        median = float(np.median(bar.samples))
        spread = [[median - bar.samples.min()], [bar.samples.max() - median]]
        color = COLORS[contestants.index(bar.contestant) % len(COLORS)]
        axes.barh(y, median, 0.8, color=color, xerr=spread, error_kw={"linewidth": 0.8})
        axes.annotate(f"  {median:,.0f}", (bar.samples.max(), y), va="center", fontsize=7)
        repeated = y > 0 and bars[y - 1].row == bar.row
        parts = [] if repeated else [bar.row]
        parts += [bar.contestant] if len(contestants) > 1 else []
        labels.append(": ".join(parts))
    axes.set_yticks(range(len(bars)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("images/s", fontsize=7)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


class Point(NamedTuple):
    """The rate of a Decoder for images of one size, beside its roof.

    Attributes:
      sampling: of the chroma, such as "4:2:0".
      size: (width, height) of the images.
      batch: images in a call.
      samples: images/s, float64[n].
      roof: images/s of the engines alone, float64[n].
    """

    sampling: str
    size: tuple[int, int]
    batch: int
    samples: np.ndarray
    roof: np.ndarray

    @property
    def pixels(self) -> int:
        return self.size[0] * self.size[1]


def points(run: list[dict[str, Any]]) -> list[Point]:
    """Return the points of a run of `sizes.py`, in its order.

    Raises:
      ValueError: the name of a row is not "SAMPLING, WIDTH x HEIGHT".
    """
    found = []
    for row in run:
        named = SIZED.fullmatch(row["case"])
        if not named:
            raise ValueError(f"a row beside a roof needs a sampling and a size, got {row['case']}")
        sampling, width, height = named.groups()
        rates = (np.array(row["Decoder"]), np.array(row[ROOF]))
        found.append(Point(sampling, (int(width), int(height)), row["batch"], *rates))
    return found


def roofline(points: list[Point]) -> Figure:
    """Return the lines of all batch sizes: images/s over pixels, and below the part of the roof.

    Each sampling has a pair of panels.
    """
    samplings = list(dict.fromkeys(point.sampling for point in points))
    batches = sorted({point.batch for point in points})
    figure = Figure(figsize=(8, 5), layout="constrained")
    options = {"sharex": True, "sharey": "row", "height_ratios": [5, 3], "squeeze": False}
    panels = figure.subplots(2, len(samplings), **options)
    colors = colormaps["plasma"](np.linspace(0.75, 0.1, len(batches)))
    for (rates, parts), sampling in zip(panels.T, samplings):
        inside = sorted((p for p in points if p.sampling == sampling), key=lambda p: p.pixels)
        draw_roof(rates, parts, inside)
        for batch, color in zip(batches, colors):
            draw_batch(rates, parts, [point for point in inside if point.batch == batch], color)
        rates.set_title(sampling, fontsize=8)
    sizes = {p.pixels: f"{p.size[0]} x\n{p.size[1]}" for p in points}
    scale(panels, sizes)
    panels[0][0].set_ylabel("images/s", fontsize=7)
    panels[1][0].set_ylabel("% of nvJPEG alone", fontsize=7)
    panels[0][0].legend(fontsize=7, frameon=False)
    return figure


def draw_roof(rates: Axes, parts: Axes, points: list[Point]) -> None:
    """Draw the engines alone, with their spread."""
    roof = {point.pixels: point.roof for point in points}
    medians = [float(np.median(samples)) for samples in roof.values()]
    least = [samples.min() for samples in roof.values()]
    most = [samples.max() for samples in roof.values()]
    rates.plot(list(roof), medians, "k-", linewidth=1.5, label="nvJPEG alone")
    rates.fill_between(list(roof), least, most, color="black", alpha=0.15, linewidth=0)
    parts.axhline(100, color="black", linewidth=1.5)


def draw_batch(rates: Axes, parts: Axes, line: list[Point], color: Any) -> None:
    """Draw the medians of a batch size with their spreads, and below their part of the roof."""
    if not line:
        return
    pixels = [point.pixels for point in line]
    medians = np.array([np.median(point.samples) for point in line])
    roof = np.array([np.median(point.roof) for point in line])
    below = medians - [point.samples.min() for point in line]
    above = [point.samples.max() for point in line] - medians
    style = {"color": color, "marker": "o", "markersize": 3, "linewidth": 1}
    label = f"Decoder, batch {line[0].batch:,}"
    rates.errorbar(pixels, medians, [below, above], label=label, **style)
    parts.plot(pixels, 100 * medians / roof, **style)


def scale(panels: np.ndarray, sizes: dict[int, str]) -> None:
    """Give the panels, rates above parts, their scales, ticks and grids."""
    for rates in panels[0]:
        rates.set_xscale("log")
        rates.set_yscale("log")
        rates.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        rates.yaxis.set_major_formatter("{x:,.0f}")
        rates.tick_params(which="minor", left=False)
    for parts in panels[1]:
        parts.set_ylim(bottom=0)
        parts.yaxis.set_major_locator(MultipleLocator(20))
        parts.set_xticks(list(sizes), list(sizes.values()))
        parts.set_xticks([], minor=True)
        parts.set_xlabel("pixels of an image", fontsize=7)
    for axes in panels.flat:
        axes.grid(color="#e0e0e0", linewidth=0.6)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)


def svg(figure: Figure, title: str) -> bytes:
    """Return the figure with a title as SVG."""
    figure.suptitle(title, fontsize=9, x=0.01, ha="left")
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
