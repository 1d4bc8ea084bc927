"""The charts of the benchmarks page."""

import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("matplotlib")
sys.path.append(str(Path(__file__).parents[1] / "docs"))

import site_benchmarks

RUN = [
    {"case": "large", "gpus": 2, "ours": [3.0, 1.0, 2.5], "theirs": [4.0, 5.0], "canvas": [6, 7]},
    {"case": "small", "gpus": 1, "ours": [8.0], "settings": {"load": 0.5}, "missing": []},
]
RUN[0]["memory_gb"] = {"ours": {"host": 1.5, "GPU": 2.5}}  # no rate

# As sizes.py writes it: two sizes, the larger of them only in small batches.
ROOFLINE = [
    {"case": "4:2:0, 40 x 30", "batch": 32, "Decoder": [40.0, 50.0, 60.0], "nvJPEG": [100.0]},
    {"case": "4:2:0, 40 x 30", "batch": 256, "Decoder": [80.0], "nvJPEG": [100.0]},
    {"case": "4:2:0, 80 x 60", "batch": 32, "Decoder": [24.0], "nvJPEG": [25.0, 20.0, 30.0]},
    {"case": "4:4:4, 40 x 30", "batch": 32, "Decoder": [30.0], "nvJPEG": [90.0]},
]


def test_the_bars_of_a_run_are_its_samples():
    found = [(bar.row, bar.contestant, bar.samples.tolist()) for bar in site_benchmarks.bars(RUN)]
    assert found == [
        ("large, gpus 2", "ours", [3.0, 1.0, 2.5]),
        ("large, gpus 2", "theirs", [4.0, 5.0]),
        ("small, gpus 1", "ours", [8.0]),
    ]
    with pytest.raises(ValueError, match="lists of floats"):
        site_benchmarks.bars([{"case": "large"}])


def test_a_chart_tells_the_medians():
    many = [bar._replace(samples=1000 * bar.samples) for bar in site_benchmarks.bars(RUN)]
    written = texts(site_benchmarks.svg(site_benchmarks.bar_chart(many), "a run"))
    rows = ["large, gpus 2: ours", "theirs", "small, gpus 1: ours"]
    assert written >= {"a run", *rows, "2,500", "4,500", "8,000"}


def texts(svg: bytes) -> set[str]:
    """Return the texts of a chart; matplotlib writes each beside its outlines."""
    return {comment.strip() for comment in re.findall(r"<!-- (.*?) -->", svg.decode())}


def test_a_roofline_has_the_rates_of_each_batch_below_the_engines():
    figure = site_benchmarks.roofline(site_benchmarks.points(ROOFLINE))
    rates, other_rates, parts, other_parts = figure.axes
    assert [axes.get_title() for axes in (rates, other_rates)] == ["4:2:0", "4:4:4"]
    assert {axes.get_xscale() for axes in figure.axes} == {"log"}
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log", "linear", "linear"]

    assert lines(rates) == [
        ([1200, 4800], [100.0, 25.0]),
        ([1200, 4800], [50.0, 24.0]),
        ([1200], [80.0]),
    ]
    assert lines(parts)[1:] == [([1200, 4800], [50.0, 96.0]), ([1200], [80.0])]
    assert lines(other_rates) == [([1200], [90.0]), ([1200], [30.0])]
    np.testing.assert_allclose(lines(other_parts)[1][1], [100 / 3])

    written = texts(site_benchmarks.svg(figure, "made"))
    labels = {
        "made",
        "nvJPEG alone",
        "Decoder, batch 32",
        "Decoder, batch 256",
        "% of nvJPEG alone",
    }
    assert written >= labels
    with pytest.raises(ValueError, match="got large"):
        site_benchmarks.points([{**ROOFLINE[0], "case": "large"}])


def lines(axes) -> list[tuple[list[float], list[float]]]:
    """Return the points of the lines of a panel."""
    found = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]
    return [(list(map(float, x)), list(map(float, y))) for x, y in found]


def test_a_run_beside_a_roof_is_drawn_over_the_sizes(tmp_path, monkeypatch):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/roofline.json").write_text(json.dumps(ROOFLINE))
    (tmp_path / "runs/bars.json").write_text(json.dumps(RUN))
    monkeypatch.setattr(site_benchmarks, "FOLDER", tmp_path)
    drawn = {name: texts(content) for name, content in site_benchmarks.charts().items()}
    assert "nvJPEG alone" in drawn["roofline"] and "nvJPEG alone" not in drawn["bars"]
    assert "large, gpus 2: ours" in drawn["bars"]


def test_every_stored_run_is_on_the_page():
    stored = sorted(path.stem for path in (site_benchmarks.FOLDER / "runs").glob("*.json"))
    charts = site_benchmarks.charts()
    assert sorted(charts) == stored and stored
    for content in charts.values():
        assert ElementTree.fromstring(content).tag.endswith("svg")

    text = (site_benchmarks.FOLDER / "RESULTS.md").read_text()
    page = site_benchmarks.page(text)
    assert re.findall(r"\(benchmarks/(.*?)\.svg\)", page) == stored
    lines = set(page.splitlines())
    assert set(text.splitlines()) <= lines  # nothing is lost
    assert page.index("## Stored runs") < page.index("## From tar")


def test_the_medians_of_a_run_that_the_results_name_are_in_their_tables():
    text = (site_benchmarks.FOLDER / "RESULTS.md").read_text()
    named = re.findall(r"`(runs/[^`]*\.json)`", text)
    assert named
    for name in named:
        run = json.loads((site_benchmarks.FOLDER / name).read_text())
        for bar in site_benchmarks.bars(run):
            assert f"| {np.median(bar.samples):,.0f} (" in text, f"{bar.row}, {bar.contestant}"
