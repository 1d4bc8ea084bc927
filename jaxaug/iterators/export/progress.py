"""A bar of progress that names the slowest stage of the pipeline."""

from collections.abc import Iterator

from jax import Array

from jaxaug.iterators.loader.loader import Loader

_STAGE_NAMES = {
    "reader": "reading",
    "decoder": "decoding",
    "device": "the device",
    "consumer": "your step",
}


def progress(loader: Loader) -> Iterator[dict[str, Array]]:
    """Yield the rest of the Loader's epoch beside a tqdm progress bar.

    The bar shows images/s, and the slowest stage with its share of the time, both of this process.
    Nothing is written into a file or a pipe. Needs tqdm.

    Args:
      loader: a `Loader`; its state, length and close stay its own.

    Raises:
      ImportError: tqdm is not installed.

    Example:
      `for batch in progress(loader): state = step(state, batch)` shows

          epoch 3:  40%|####      | 500/1251 [00:41<01:01, 12.20batch/s, 12493 images/s,
          slowest: decoding 97%]
    """
    from tqdm import tqdm  # the user's; nothing else of the Loader needs it

    state = loader.get_state()
    batch_size = loader.element_spec["index"].shape[0]
    place = {"desc": f"epoch {state['epoch']}", "initial": state["position"] // batch_size}
    with tqdm(loader, unit="batch", disable=None, **place) as bar:
        for batch in bar:
            stats = loader.stats
            slowest = stats["bottleneck"]
            share = f"{_STAGE_NAMES[slowest]} {stats['shares'][slowest]:.0%}"
            rate = f"{stats['images_per_second']:.0f} images/s"
            bar.set_postfix_str(f"{rate}, slowest: {share}", refresh=False)
            yield batch
