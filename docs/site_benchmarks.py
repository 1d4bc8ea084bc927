"""The benchmarks page of the site: the results, and a chart of each stored run.

A run is a JSON list of rows. The lists of floats in a row are samples in images/s, one list for
each contestant; its strings and numbers name the row.
"""

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

FOLDER = Path(__file__).parents[1] / "benchmarks"
FIRST_SECTION = "\n## "
COLORS = ("#3f51b5", "#9e9e9e", "#00897b", "#ef6c00")
BAR = 0.22  # inches


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
        "Medians, with all rounds between the ends of the lines.",
        "",
    ]
    for name in charts():
        lines += [f"![{name}](benchmarks/{name}.svg)", ""]
    head, first, rest = text.partition(FIRST_SECTION)
    return head + "\n".join(lines) + first + rest


def charts() -> dict[str, bytes]:
    """Return the chart of each stored run as SVG, by name."""
    paths = sorted((FOLDER / "runs").glob("*.json"))
    return {path.stem: chart(path.stem, bars(json.loads(path.read_text()))) for path in paths}


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
            if isinstance(value, list) and all(isinstance(number, float) for number in value):
                found.append(Bar(", ".join(names), key, np.array(value)))
    if not found:
        raise ValueError("a run needs rows with lists of floats, its samples")
    return found


def chart(title: str, bars: list[Bar]) -> bytes:
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
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel("images/s", fontsize=7)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)

    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()
