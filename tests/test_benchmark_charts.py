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
    {"case": "small", "gpus": 1, "ours": [8.0], "settings": {"load": 0.5}},
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
    svg = site_benchmarks.chart("a run", many).decode()
    written = re.findall(r"<!-- (.*?) -->", svg)  # matplotlib writes each text beside its outlines
    rows = ["large, gpus 2: ours", "theirs", "small, gpus 1: ours"]
    for text in ("a run", *rows, "2,500", "4,500", "8,000"):
        assert text in [comment.strip() for comment in written]


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
    assert page.index("## Stored runs") < page.index("## CPU beside DALI")


def test_the_medians_of_a_run_that_the_results_name_are_in_their_tables():
    text = (site_benchmarks.FOLDER / "RESULTS.md").read_text()
    named = re.findall(r"`(runs/[^`]*\.json)`", text)
    assert named
    for name in named:
        run = json.loads((site_benchmarks.FOLDER / name).read_text())
        for bar in site_benchmarks.bars(run):
            assert f"| {np.median(bar.samples):,.0f} (" in text, f"{bar.row}, {bar.contestant}"
