"""Streams: batches in their own order, padding, resume."""

from jaxaug import Loader
from jaxaug.iterators import (
    FromIterable,
)
from tests.iterators.loaders import jitter, one_device


def test_stream_yields_in_order_pads_and_resumes(images):
    source = FromIterable(lambda: ((image, {"label": i}) for i, image in enumerate(images[:10])))
    options = {"shuffle": False, "sharding": one_device(), "last_batch": "pad", "transform": jitter}
    with Loader(source, 4, epochs=2, **options) as loader:
        labels = [batch["index"].tolist() for batch in loader]
        assert labels == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, -1, -1]]
        assert loader.get_state()["epoch"] == 1
        next(loader)
        state = loader.get_state()
    with Loader(source, 3, epochs=2, **options) as loader:
        loader.set_state(state)
        assert [batch["index"].tolist() for batch in loader] == [[4, 5, 6], [7, 8, 9]]
    with Loader(source, 4, epochs=1, **(options | {"last_batch": "drop"})) as loader:
        assert len(list(loader)) == 2
