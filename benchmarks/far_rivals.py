"""Records of far shards: jaxaug beside LitData, Streaming, WebDataset and Hugging Face streaming.

    python benchmarks/far_rivals.py --latency 0.02 0.1

needs `mosaicml-streaming litdata webdataset datasets` beside jaxaug[remote]; who cannot be imported
or fails is left out with a printed line. JPEGs of about 98 kB in 100 shards of 238, as tar, MDS and
chunks of LitData, on a server of this machine (`far_server.py`) in a process of its own, which
waits before each answer and sends 60 MB/s on a connection. Each contestant is a process that reads
a shuffled epoch as its documentation says, in batches of 256 that are not decoded, for `--seconds`
from its first batch on or to the end of the epoch, with an empty cache. All take turns, round after
round. The table gives records/s (median, least and most) and the time to the first batch;
"CPU" is processor time for a record, with that of the contestant's own processes.
"""

import argparse
import importlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator

import numpy as np
from child import Child
from footprint import family

BATCH = 256
SHARD = 238  # records in each
CONTESTANTS = ["read", "Shuffled", "Blocks", "LitData", "Streaming", "WebDataset", "HuggingFace"]
START_SECONDS = 120.0


def table(items: list[bytes], before: bytes = b"") -> bytes:
    """Return a file as MDS and LitData have it: count, places, and the items."""
    places = np.cumsum([0, *map(len, items)]) + 4 * (len(items) + 2) + len(before)
    return (
        np.uint32(len(items)).tobytes() + places.astype("<u4").tobytes() + before + b"".join(items)
    )


def write_others(images: list[bytes], folder: pathlib.Path, shards: int) -> None:
    """Write the images as MDS and as chunks of LitData, as hard links of one file each."""
    numbers = [np.int64(number).tobytes() for number in range(len(images))]
    sizes = [np.uint32(len(image)).tobytes() for image in images]
    eight = np.uint32(8).tobytes()
    mds = table([s + i + n for s, i, n in zip(sizes, images, numbers)], b"{}")
    lit = table([s + eight + i + n for s, i, n in zip(sizes, images, numbers)])
    about = {"column_names": ["image", "label"], "column_encodings": ["bytes", "int"]}
    about |= {"column_sizes": [None, 8], "compression": None, "format": "mds", "hashes": []}
    about |= {"samples": len(images), "size_limit": 1 << 26, "version": 2, "zip_data": None}
    leaf = {"type": None, "context": None, "children_spec": []}
    spec = {"type": "builtins.dict", "context": '["image", "label"]', "children_spec": [leaf] * 2}
    config = {"chunk_bytes": 1 << 26, "chunk_size": None, "compression": None, "encryption": None}
    config |= {"data_format": ["bytes", "int"], "data_spec": json.dumps([1, spec])}
    config |= {"item_loader": "PyTreeLoader"}
    indexes = {"mds": {"shards": [], "version": 2}, "lit": {"chunks": [], "config": config}}
    for name, data in (("mds", mds), ("lit", lit)):
        (folder / name).mkdir()
        (folder / f"{name}/first").write_bytes(data)
    for number in range(shards):
        raw = {"basename": f"shard.{number:05d}.mds", "bytes": len(mds), "hashes": {}}
        chunk = {"chunk_bytes": len(lit), "chunk_size": len(images), "dim": None}
        chunk |= {"filename": f"chunk-0-{number}.bin"}
        indexes["mds"]["shards"].append(about | {"raw_data": raw})
        indexes["lit"]["chunks"].append(chunk)
        os.link(folder / "mds/first", folder / "mds" / raw["basename"])
        os.link(folder / "lit/first", folder / "lit" / chunk["filename"])
    for name, index in indexes.items():
        (folder / name / "index.json").write_text(json.dumps(index))


def tars(url: str, shards: int) -> list[str]:
    """Return the URLs of the tars."""
    return [f"{url}/bucket/tar/{number:04d}.tar" for number in range(shards)]


def read(url: str, shards: int, folder: str) -> Iterator[int]:
    """Yield the records of each read of a source, of as many as a Loader asks for in one."""
    from jaxaug.iterators import WebDataset

    source = WebDataset(tars(url, shards))
    order = np.random.default_rng().permutation(len(source))
    for start in range(0, len(order), source.records_ahead):
        found = source.read(order[start : start + source.records_ahead])["image"]
        yield int((found.lengths > 0).sum())


def loader(order: Callable) -> Callable[[str, int, str], Iterator[int]]:
    """Return a contestant that reads by a Loader in some order."""

    def batches(url: str, shards: int, folder: str) -> Iterator[int]:
        import jax
        from remote import Unread

        from jaxaug import Loader
        from jaxaug.iterators import WebDataset
        from jaxaug.sharding import batch_sharding

        source = WebDataset(tars(url, shards))
        options = {"decode": {"image": Unread()}, "epochs": 1, "seed": int(time.time())}
        one = batch_sharding(jax.devices()[:1])
        with Loader(source, BATCH, shuffle=order(len(source)), sharding=one, **options) as found:
            for batch in found:
                yield int(np.asarray(batch["valid"]).sum())

    return batches


def blocks(length: int):
    from jaxaug.iterators import Blocks

    return Blocks(length)


def in_batches(records: Iterator) -> Iterator[int]:
    """Yield how many records come, 256 at a time, of an iterator of single ones."""
    count = 0
    for record in records:
        assert len(record) > 10_000
        count += 1
        if count == BATCH:
            yield count
            count = 0


def images_of(records: list) -> list[bytes]:
    """Return the images of a batch, which worker processes pass on."""
    return [bytes(record["image"]) for record in records]


def litdata(url: str, shards: int, folder: str) -> Iterator[int]:
    """LitData by its own DataLoader: two processes, which download ahead."""
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader

    # Its client refuses servers without TLS.
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True

    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    storage = keys | {"endpoint_url": url}
    dataset = StreamingDataset(
        "s3://bucket/lit", cache_dir=folder, shuffle=True, storage_options=storage
    )
    found = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2, collate_fn=images_of)
    return in_batches(image for batch in found for image in batch)


def streaming(url: str, shards: int, folder: str) -> Iterator[int]:
    """Streaming in this process: two of torch's read of shards that the other one still fetches."""
    from streaming import StreamingDataLoader, StreamingDataset

    os.environ["S3_ENDPOINT_URL"] = url
    dataset = StreamingDataset(
        remote="s3://bucket/mds", local=folder, shuffle=True, batch_size=BATCH
    )
    found = StreamingDataLoader(dataset, batch_size=BATCH, collate_fn=images_of)
    return in_batches(image for batch in found for image in batch)


def webdataset(url: str, shards: int, folder: str) -> Iterator[int]:
    """WebDataset in its loader with two processes."""
    import webdataset

    found = webdataset.WebDataset(tars(url, shards), shardshuffle=100).shuffle(1000)
    found = webdataset.WebLoader(found, batch_size=None, num_workers=2)
    return in_batches(record["jpg"] for record in found)


def hugging_face(url: str, shards: int, folder: str) -> Iterator[int]:
    """Hugging Face datasets, streamed into torch's DataLoader with two processes."""
    from datasets import Image, load_dataset
    from torch.utils.data import DataLoader

    files = {"train": tars(url, shards)}
    found = load_dataset(
        "webdataset", data_files=files, split="train", streaming=True, cache_dir=folder
    )
    found = found.cast_column("jpg", Image(decode=False)).shuffle(buffer_size=1000)
    found = DataLoader(found, batch_size=BATCH, num_workers=2, collate_fn=list)
    return in_batches(record["jpg"]["bytes"] for batch in found for record in batch)


READERS = {
    "read": read,
    "Shuffled": loader(lambda length: True),
    "Blocks": loader(blocks),
    "LitData": litdata,
    "Streaming": streaming,
    "WebDataset": webdataset,
    "HuggingFace": hugging_face,
}


def spent() -> float:
    """Return the processor time of this process and of its children, in seconds."""
    ticks = 0
    for pid in family(os.getpid()):
        try:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(name: str, url: str, shards: int, seconds: float) -> dict[str, float]:
    """Read for some seconds after the first batch."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        began = time.perf_counter()
        batches = READERS[name](url, shards, folder)
        next(batches)
        started, used = time.perf_counter(), spent()
        rows = 0
        for count in batches:
            rows += count
            elapsed = time.perf_counter() - started
            if elapsed > seconds:
                break
        used = spent() - used
        batches.close()
    assert rows, "no second batch"
    return {"rate": rows / elapsed, "start": started - began, "us": used / rows * 1e6}


def serve(name: str, shards: int) -> None:
    """Answer each line, seconds and a URL, with what was measured."""
    sys.stdout, answers = sys.stderr, sys.stdout  # libraries print
    modules = {"LitData": "litdata", "Streaming": "streaming", "WebDataset": "webdataset"}
    try:
        importlib.import_module(
            modules.get(name, "datasets" if name == "HuggingFace" else "jaxaug")
        )
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            seconds, url = line.split()
            print("found", json.dumps(measure(name, url, shards, float(seconds))), file=answers)
            answers.flush()
    except Exception as error:
        traceback.print_exc()
        print("failed", f"{type(error).__name__}: {error}".partition("\n")[0], file=answers)
        answers.flush()


class Contestant:
    """A process that reads as one contestant does."""

    def __init__(self, name: str, shards: int):
        command = [sys.executable, __file__, "--serve", name, "--shards", str(shards)]
        self._child = Child(command, limit=START_SECONDS)
        self.close = self._child.close
        self._answer("ready")

    def measure(self, seconds: float, url: str) -> dict[str, float]:
        self._child.send(f"{seconds} {url}")
        return json.loads(self._answer("found"))

    def _answer(self, begins: str) -> str:
        kind, _, rest = self._child.answer(begins, "failed").partition(" ")
        if kind == "failed":
            raise RuntimeError(rest)
        return rest


def run(given: argparse.Namespace, folder: pathlib.Path) -> None:
    """Measure all in turn, and print the table."""
    from remote import far_server

    found: dict[str, Contestant] = {}
    results: dict[tuple[float, str], list[dict[str, float]]] = {}
    for name in given.only:
        try:
            found[name] = Contestant(name, given.shards)
        except RuntimeError as error:
            print(f"  left out: {name}: {error}", flush=True)
    for latency in given.latency:
        with far_server(folder, latency, 60e6) as url:
            for number in range(given.rounds + 1):
                for name in list(found):
                    try:  # the first round makes indexes and imports, and does not count
                        seconds = given.seconds if number else 0.1
                        result = found[name].measure(seconds, url)
                    except RuntimeError as error:
                        print(f"  left out: {name}: {error}", flush=True)
                        found.pop(name).close()
                        continue
                    if number:
                        results.setdefault((latency, name), []).append(result)
        for name in found:
            rows = results[latency, name]
            rates = [row["rate"] for row in rows]
            start, used = (statistics.median(row[key] for row in rows) for key in ("start", "us"))
            spread = f"({min(rates):,.0f} to {max(rates):,.0f})"
            text = f"{statistics.median(rates):7,.0f} records/s {spread:18}"
            text += f"  start {start:5.2f} s  CPU {used:.0f} us"
            print(f"{1e3 * latency:3.0f} ms  {name:11}  {text}", flush=True)
    for contestant in found.values():
        contestant.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--latency", type=float, nargs="+", default=[0.02, 0.1])
    parser.add_argument("--shards", type=int, default=100, help="of 238 records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=CONTESTANTS)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    os.environ |= {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    os.environ["JAX_PLATFORMS"] = "cpu"
    if given.serve:
        return serve(given.serve, given.shards)
    from input import load, write

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name) / "bucket"
        folder.mkdir()
        os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(name) / "cache")
        images = load(None)
        write(images, folder, given.shards)
        shutil.rmtree(folder / "loose")
        shutil.rmtree(folder / "tfrecord")
        write_others(images, folder, given.shards)
        run(given, pathlib.Path(name))


if __name__ == "__main__":
    main()
