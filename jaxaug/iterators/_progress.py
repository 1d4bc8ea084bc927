"""A line of progress that names what the pipeline waits for."""

from collections.abc import Iterator

from jaxaug._typing import Array
from jaxaug.iterators._loader import Loader
from jaxaug.iterators._protocol import Stream

_NAMES = {
    "reader": "reading",
    "decoder": "decoding",
    "device": "the device",
    "consumer": "your step",
}


def progress(loader: Loader) -> Iterator[dict[str, Array]]:
    """Yield the rest of the Loader's epoch behind a tqdm bar: images/s, and the slowest stage with
    its share of time.

    `for batch in progress(loader)` in the place of `for batch in loader`. In a run of several
    processes the numbers are this process's. Into a file or a pipe nothing is written. Needs tqdm.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Raises:
      ImportError: tqdm is not installed.

    Example:
      `for batch in progress(loader): state = step(state, batch)` shows

          epoch 3:  40%|####      | 500/1251 [00:41<01:01, 12.20batch/s, 12493 images/s, slowest: decoding 97%]
    """
    from tqdm import tqdm  # the user's; nothing else of the Loader needs it

    state = loader.get_state()
    batch_size = loader.element_spec["index"].shape[0]
    total = None if isinstance(loader.source, Stream) else len(loader)
    place = {
        "desc": f"epoch {state['epoch']}",
        "total": total,
        "initial": state["position"] // batch_size,
    }
    with tqdm(loader, unit="batch", disable=None, **place) as bar:
        for batch in bar:
            stats = loader.stats
            slowest = stats["bottleneck"]
            share = f"slowest: {_NAMES[slowest]} {stats['shares'][slowest]:.0%}"
            bar.set_postfix_str(
                f"{stats['images_per_second']:.0f} images/s, {share}", refresh=False
            )
            yield batch
