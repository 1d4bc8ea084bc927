"""The bar of progress."""

import sys

from jaxaug import Loader
from jaxaug.iterators import InMemory, progress
from tests.images import jpegs
from tests.iterators.loaders import one_device

N = 24


def test_progress_is_the_rest_of_the_epoch_and_names_the_bottleneck(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    stats = Loader.stats
    monkeypatch.setattr(
        Loader, "stats", property(lambda loader: stats.fget(loader) | {"bottleneck": "reader"})
    )
    with Loader(InMemory(jpegs(N)), 4, sharding=one_device()) as loader:
        next(loader), next(loader)
        seen = [i for batch in progress(loader) for i in batch["index"].tolist()]
        assert len(set(seen)) == 16 and loader.get_state()["epoch"] == 1
    line = capsys.readouterr().err.split("\r")[-1]
    assert "epoch 0: 100%" in line and "6/6" in line and "images/s, slowest: reading" in line


def test_progress_writes_nothing_into_a_pipe(capsys):
    with Loader(InMemory(jpegs(8)), 4, sharding=one_device()) as loader:
        assert len(list(progress(loader))) == 2
    assert capsys.readouterr().err == ""
