"""Clips/s from stored videos to crops on one GPU: jaxaug's Loader beside DALI and other decoders.

    python benchmarks/video_gpu.py FILE[:HEIGHT[:GOP]]... [--rounds 3] [--seconds 1.5]
        [--beside native pynv dali simple torchcodec] [--train] [--json FILE]

With a HEIGHT, or a GOP, the video is encoded anew, by x264 with its defaults and a key frame each
GOP frames (250). Clips are 16 frames, 4 apart, at random places, from which 224 x 224 pixels are
cropped, mirrored at random and normalized to half precision, in batches of 16 clips:

    jaxaug, indexed     the Loader, without and with the table that `python -m jaxaug index` stores
    new files           the same without it, of files none of which has come before
    native, pynv        what engines could do: sessions in threads that decode the packets of such
                        clips and keep nothing, by libnvcuvid and by PyNvVideoCodec
    dali, dali reader   `fn.decoders.video(device="mixed")`, `fn.readers.video`, by the JAX iterator
    simple              PyNvVideoCodec's `SimpleDecoder`, whose frames stay NV12
    torchcodec          its CUDA decoder, crops by PyTorch

Each has a process of its own and its best of a few settings, and they take turns, round after
round. Those of other libraries keep their file open, those of jaxaug get its bytes for each clip.
Printed are the median and spread, the ratio of jaxaug's to it, for those that decode the same
packets frames decoded/s, the seconds from the start of a process to its first clip, or batch, and
the peak of the memory up to the end of its warm-up (`footprint.py`). Whoever is not installed or
fails is left out with a line that tells why.

With `--train`, nothing of that: a step of a factorized vision transformer (width 768, 12 layers)
on one batch of clips that stays on the device, beside engines alone that decode as many clips,
beside a Loader whose batches it drops, and on those of the Loader.
"""

import argparse
import ctypes
import importlib
import io
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from contestant import Contestant, measure_in_turn, open_best
from rate import rate
from vs_dali import MEAN, STD, measure, spread

FRAMES, STRIDE, SIDE = 16, 4, 224
BATCH = 16  # clips
MANY = 4096  # times that a file is in an epoch
AT_ONCE = 2  # clips that a session of libnvcuvid gets in one call
WARM_UP = 4  # batches
PAUSE = 2.0  # seconds: a Loader that has been measured decodes some batches of large frames ahead
THREADS = ({"threads": 7}, {"threads": 14})

# Opens a contestant: the rest of its first clip or batch, and clips/s of so many seconds.
Opened = tuple[Callable[[], Any], Callable[[float], float]]


# ---------------------------------------------------------------- jaxaug


def open_loader(path: str, source: str = "OneIndexed", crop: bool = True) -> Any:
    """Return a Loader of clips of a file."""
    import video_cpu

    from jaxaug import Loader, augment
    from jaxaug.decode import Video
    from jaxaug.decode.video.stream import VideoFile

    data = Path(path).read_bytes()
    with VideoFile(memoryview(data), 2**26) as file:
        canvas = (file.table.codec.height, file.table.codec.width)  # as others: not shrunk
    normalize = augment.Normalize(MEAN, STD, dtype="bfloat16")
    chain = [augment.RandomCrop(SIDE), augment.RandomHorizontalFlip(), normalize]
    return Loader(
        getattr(video_cpu, source)(data, MANY),
        BATCH,
        decode=Video(FRAMES, STRIDE, canvas=canvas),
        transform=augment.Frames(augment.Compose(chain)) if crop else None,
    )


def open_jaxaug(path: str, source: str) -> Opened:
    loader = open_loader(path, source)
    return by_batches(lambda: next(loader)["video"])


def by_batches(step: Callable[[], Any]) -> Opened:
    """Return a contestant whose step gives a batch as an array of JAX."""
    import jax

    def clips_per_second(seconds: float) -> float:
        return measure(step, seconds, BATCH, WARM_UP)

    return lambda: jax.block_until_ready(step()), clips_per_second


# ---------------------------------------------------------------- the engines alone


def packets_of_clips(path: str) -> list[list[tuple[int, bytes]]]:
    """Return the packets that each of some clips needs, as engines read them, with their ranks."""
    from jaxaug.decode.video.nvdec.bitstream import Bitstream
    from jaxaug.decode.video.stream import VideoFile

    clips = []
    with VideoFile(memoryview(Path(path).read_bytes()), 2**26) as file:
        table, stream = file.table, Bitstream(file.table.codec)
        for start in starts_of(len(table.frames)):
            runs = table.runs(np.arange(start, start + FRAMES * STRIDE, STRIDE))
            numbers, contents = zip(*(packet for run in runs for packet in file.packets(run)))
            joined, sizes = stream.packets(contents, table.keyframes[np.array(numbers)])
            parts = np.split(joined, np.cumsum(sizes)[:-1])
            clips.append([(number, part.tobytes()) for number, part in zip(numbers, parts)])
    return clips


def starts_of(frames: int) -> list[int]:
    """Return the first frames of 64 clips."""
    return np.random.default_rng(0).integers(0, places_of(frames), 64).tolist()


def places_of(frames: int) -> int:
    """Return at how many frames a clip may begin."""
    return max(1, frames - (FRAMES - 1) * STRIDE)


def by_threads(make: Callable[[], Callable[[int], int]], threads: int, clips: int = MANY) -> Opened:
    """Return a contestant of threads.

    Args:
      make: returns, for each thread, what decodes the clip of a number; that returns how many
        clips it has decoded.
      threads: how many decode at once.
      clips: numbers are below.
    """

    def work(thread: int, running: Callable[[], bool], count: Callable[[int], None]) -> None:
        decode = make()
        decode(thread)  # makes the decoder of the engine
        for number in itertools.cycle(range(clips)):
            if not running():
                return
            count(decode((number + 9 * thread) % clips))

    return lambda: make()(0), lambda seconds: rate(work, threads, seconds)


def open_native(path: str, threads: int) -> Opened:
    make, clips = native_sessions(path)
    return by_threads(make, threads, clips)


def native_sessions(path: str) -> tuple[Callable[[], Callable[[int], int]], int]:
    """Return what makes a session for a thread, which decodes the clip of a number and the next
    ones (`AT_ONCE`) and returns how many, and the number of clips.
    """
    from jaxaug.decode.native import cuda
    from jaxaug.decode.native import libnvcuvid as nv
    from jaxaug.decode.video.nvdec.session import Packets, Session

    def joined(clips: list[list[tuple[int, bytes]]]) -> Packets:
        """Return their packets, with an end behind each clip."""
        packets = [packet for clip in clips for packet in [*clip, (-2, b"")]]
        sizes = np.array([len(content) for _, content in packets])
        content = np.frombuffer(b"".join(content for _, content in packets), np.uint8)
        # No picture is wanted: theirs are 1 and more.
        return Packets(content, sizes, np.array([1 + number for number, _ in packets]))

    clips = packets_of_clips(path)
    groups = [joined((clips[k:] + clips[:k])[:AT_ONCE]) for k in range(len(clips))]
    unwanted = np.zeros(1, np.int64)

    def make() -> Callable[[int], int]:
        cuda.set_device(0)
        session = Session(nv.CODECS["h264"], cuda.create_stream())

        def decode(number: int) -> int:
            session.decode(groups[number], unwanted, lambda surfaces: None)
            return AT_ONCE

        return decode

    return make, len(clips)


def beside_engines(path: str) -> Callable[[Any], Any]:
    """Return a rung of a training that has engines alone decode a batch of clips in each step."""
    make, clips = native_sessions(path)
    sessions = threading.local()
    pool = ThreadPoolExecutor(THREADS[-1]["threads"])
    numbers = itertools.cycle(range(clips))
    running: list[Future[None]] = []

    def decode(number: int) -> None:
        if not hasattr(sessions, "decode"):
            sessions.decode = make()
        sessions.decode(number)

    def beside(batch: Any) -> Any:
        for each in running:
            each.result()
        running[:] = [pool.submit(decode, next(numbers)) for _ in range(BATCH // AT_ONCE)]
        return batch

    return beside


def open_pynv(path: str, threads: int) -> Opened:
    codec = importlib.import_module("PyNvVideoCodec")
    clips = packets_of_clips(path)

    def packet(content: bytes) -> Any:
        made = codec.PacketData()
        made.bsl = len(content)
        made.bsl_data = ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value
        return made

    def make() -> Callable[[int], int]:
        decoder = codec.CreateDecoder(
            gpuid=0, codec=codec.cudaVideoCodec.H264, usedevicememory=True
        )
        packets = [[packet(content) for _, content in clip] for clip in clips]

        def decode(number: int) -> int:
            for each in packets[number]:
                decoder.Decode(each)
            return 1

        return decode

    return by_threads(make, threads, len(clips))


# ---------------------------------------------------------------- other libraries


def open_dali(path: str, decoder: str, **settings: Any) -> Opened:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.jax import DALIGenericIterator

    frames = count_frames(path)

    @pipeline_def
    def pipeline():
        clip = {"sequence_length": FRAMES, "stride": STRIDE}
        if decoder == "decoders":
            data, _ = fn.readers.file(files=[path] * MANY)
            start = fn.random.uniform(values=list(range(places_of(frames))), dtype=types.INT32)
            options = {"start_frame": start, "device": "mixed", **clip, **settings}
            clips = fn.decoders.video(data, **options)
        else:
            reader = fn.readers.video if decoder == "readers" else fn.experimental.readers.video
            options = {"step": 1, "random_shuffle": True, "initial_fill": BATCH, **clip}
            clips = reader(device="gpu", filenames=[path] * 8, **options, **settings)
        return fn.crop_mirror_normalize(
            clips,
            dtype=types.FLOAT16,
            output_layout="FHWC",
            crop=(SIDE, SIDE),
            crop_pos_x=fn.random.uniform(range=(0.0, 1.0)),
            crop_pos_y=fn.random.uniform(range=(0.0, 1.0)),
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=fn.random.coin_flip(),
        )

    threads = len(os.sched_getaffinity(0))
    built = pipeline(batch_size=BATCH, num_threads=threads, device_id=0, prefetch_queue_depth=2)
    batches = DALIGenericIterator([built], ["video"])
    return by_batches(lambda: next(batches)["video"])


def count_frames(path: str) -> int:
    av = importlib.import_module("av")
    with av.open(path) as container:
        return container.streams.video[0].frames


def open_simple(path: str, threads: int) -> Opened:
    codec = importlib.import_module("PyNvVideoCodec")
    starts = starts_of(count_frames(path))

    def make() -> Callable[[int], int]:
        decoder = codec.SimpleDecoder(path, gpu_id=0, use_device_memory=True)

        def decode(number: int) -> int:
            start = starts[number]
            decoder.get_batch_frames_by_index([*range(start, start + FRAMES * STRIDE, STRIDE)])
            return 1

        return decode

    return by_threads(make, threads, len(starts))


def open_torchcodec(path: str, threads: int) -> Opened:
    torch = importlib.import_module("torch")
    decoders = importlib.import_module("torchcodec.decoders")
    starts = starts_of(count_frames(path))

    def make() -> Callable[[int], int]:
        decoder = decoders.VideoDecoder(path, device="cuda", seek_mode="approximate")
        stream = torch.cuda.Stream()  # threads would wait for each other on the default one
        mean, std = (
            torch.tensor(values, device="cuda").mul(255).reshape(3, 1, 1) for values in (MEAN, STD)
        )

        def decode(number: int) -> int:
            start = starts[number]
            with torch.cuda.stream(stream):
                clip = decoder.get_frames_in_range(start, start + FRAMES * STRIDE, STRIDE).data
                y, x = ((side - SIDE) * number // len(starts) for side in clip.shape[-2:])
                clip = clip[..., y : y + SIDE, x : x + SIDE]
                if number % 2:
                    clip = clip.flip(-1)
                ((clip - mean) / std).to(torch.bfloat16)
            stream.synchronize()
            return 1

        return decode

    return by_threads(make, threads, len(starts))


# ---------------------------------------------------------------- in a contestant's process

_READERS = ({"decoder": "readers"}, {"decoder": "experimental"})
# By name: what opens it, and the settings of which it gets the best.
CONTESTANTS: dict[str, tuple[Callable[..., Opened], tuple[dict[str, Any], ...]]] = {
    "jaxaug": (open_jaxaug, ({"source": "OneFile"},)),
    "new files": (open_jaxaug, ({"source": "NewFiles"},)),
    "indexed": (open_jaxaug, ({"source": "OneIndexed"},)),
    "native": (open_native, THREADS),
    "pynv": (open_pynv, THREADS),
    "dali": (open_dali, ({"decoder": "decoders"},)),
    "dali reader": (open_dali, _READERS),
    "simple": (open_simple, THREADS),
    "torchcodec": (open_torchcodec, THREADS),
}
OURS = ("indexed", "jaxaug", "new files")
SAME_PACKETS = (*OURS, "native", "pynv")


def serve(name: str, path: str, **settings: Any) -> None:
    """Open a contestant and answer each line of seconds with its clips/s."""
    try:
        first, clips_per_second = CONTESTANTS[name][0](path, **settings)
        first()
        print("ready", json.dumps({**settings, "first": round(own_age(), 2)}), flush=True)
        for line in sys.stdin:
            print("rate", clips_per_second(float(line)), flush=True)
    except Exception as error:  # of any library: the contestant is left out
        traceback.print_exc()
        print("failed", repr(error)[:200].replace("\n", " "), flush=True)
    sys.stdout.flush()
    os._exit(0)  # libraries that hold decoders may crash or wait at the end


def own_age() -> float:
    """Return the seconds since this process was started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- videos


def write_case(text: str, folder: Path) -> Path:
    """Write the video of a case, "FILE[:HEIGHT[:GOP]]"; return its path."""
    name, height, gop = (text.split(":") + ["", ""])[:3]
    path = folder / f"{Path(name).stem}_{height}_{gop}.mp4"
    path.write_bytes(encoded(Path(name), height, gop) if height or gop else Path(name).read_bytes())
    return path


def encoded(file: Path, height: str, gop: str) -> bytes:
    """Return a video encoded anew by x264."""
    av = importlib.import_module("av")
    output = io.BytesIO()
    with av.open(str(file)) as source, av.open(output, "w", "mp4") as container:
        old = source.streams.video[0]
        new = container.add_stream("libx264", old.average_rate, options={"g": gop or "250"})
        new.pix_fmt = "yuv420p"
        new.height = int(height or old.height)
        new.width = {720: 1280, 1080: 1920}.get(new.height, old.width * new.height // old.height)
        for frame in source.decode(old):
            frame = frame.reformat(new.width, new.height, "yuv420p")
            frame.pict_type = 0  # as the encoder likes
            container.mux(new.encode(frame))
        container.mux(new.encode(None))
    return output.getvalue()


def told(path: Path) -> tuple[str, float]:
    """Return what a video is, and how many frames are decoded for a clip of it."""
    av = importlib.import_module("av")
    clips = packets_of_clips(str(path))
    decoded = statistics.mean(map(len, clips))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        form = f"{stream.width} x {stream.height}, {stream.frames} frames"
    return f"{form}, {decoded / FRAMES:.2f} decoded a wanted frame", decoded


# ---------------------------------------------------------------- the tables


def compare(case: str, path: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one case, all contestants in turn; return its row, and print it."""
    form, decoded = told(path)
    print(f"{case}: {form}", flush=True)
    contestants: dict[str, Contestant] = {}
    try:
        for name in [*OURS, *args.beside]:
            task = {"name": name, "path": str(path)}
            found = open_best(__file__, task, list(CONTESTANTS[name][1]), args.seconds)
            if found:
                contestants[name] = found
                print(f"  {name}: {found.warm:,.0f} in the warm-up", flush=True)
        rates = measure_in_turn(contestants, args.rounds, args.seconds, PAUSE)
    finally:
        for each in contestants.values():
            each.close()
    for name, found in rates.items():
        print(line_of(name, found, rates, decoded, contestants[name]), flush=True)
    memory = {name: contestants[name].memory_gb for name in rates}
    settings = {name: contestants[name].ready for name in rates}
    return {"case": case, "decoded": decoded, **rates, "memory_gb": memory, "settings": settings}


def line_of(
    name: str,
    found: list[float],
    rates: dict[str, list[float]],
    decoded: float,
    contestant: Contestant,
) -> str:
    """Return the line of a contestant."""
    parts = [f"  {name:12s} {spread(found):28s} clips/s"]
    for ours in OURS:
        if ours in rates and name not in OURS:
            ratio = statistics.median(map(float.__truediv__, rates[ours], found))
            parts.append(f"{ours} x {ratio:.2f}")
    if name in SAME_PACKETS:
        parts.append(f"{statistics.median(found) * decoded:,.0f} frames decoded/s")
    parts += [f"{where} {amount:.2f} GB" for where, amount in contestant.memory_gb.items()]
    return ", ".join([*parts, str(contestant.ready)])


def train(path: Path, args: argparse.Namespace) -> dict[str, list[float]]:
    """Return the milliseconds of a training step by rung, one for each round, and print them."""
    import jax
    from train_stall import milliseconds

    decoded, cropped = (open_loader(str(path), crop=crop) for crop in (False, True))

    def beside(batch: Any) -> Any:
        next(decoded)
        return batch

    rungs = {
        "resident": lambda batch: batch,
        "engines": beside_engines(str(path)),
        "decoded": beside,
        "fed": lambda batch: (next(cropped)["video"], batch[1]),
    }
    step, state = make_step(args.width, args.depth)
    shape = (BATCH, FRAMES, SIDE, SIDE, 3)
    batch = (jax.random.normal(jax.random.key(0), shape, "bfloat16"), np.arange(BATCH) % 400)
    resident = jax.device_put(batch, jax.devices()[0])
    times: dict[str, list[float]] = {name: [] for name in rungs}
    for number in range(args.rounds + 1):  # the first compiles and fills the queues
        for name, rung in rungs.items():
            found, state = milliseconds(step, state, resident, rung, args.steps)
            times[name] += [found] if number else []
            print(f"  round {number}, {name}: {found:.2f} ms", file=sys.stderr, flush=True)
    for loader in (decoded, cropped):
        loader.close()
    for name, found in times.items():
        ratio = statistics.median(map(float.__truediv__, found, times["resident"]))
        low, high = min(found), max(found)
        print(
            f"  {name:10s} {statistics.median(found):7.2f} ms a step ({low:.2f} to {high:.2f})"
            f"  x {ratio:.3f}",
            flush=True,
        )
    return times


def make_step(width: int, depth: int) -> tuple[Callable[..., Any], Any]:
    """Return (state, video, label) -> (state, loss), compiled, in bfloat16, and the first state."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import nnx

    sys.path.append(str(Path(__file__).parents[1] / "examples" / "video_classification"))
    models = importlib.import_module("model")
    model = models.FactorizedViT(
        400,
        frames=FRAMES,
        side=SIDE,
        patch=16,
        width=width,
        heads=max(1, width // 64),
        depth=depth,
        rngs=nnx.Rngs(0),
    )
    graph, parameters = nnx.split(model)
    optimizer = optax.adamw(1e-4)

    def mean_loss(parameters, video, label):
        halves = jax.tree.map(lambda each: each.astype(jnp.bfloat16), parameters)
        logits = nnx.merge(graph, halves)(video).astype(jnp.float32)
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    def step(state, video, label):
        parameters, moments = state
        loss, slopes = jax.value_and_grad(mean_loss)(parameters, video, label)
        updates, moments = optimizer.update(slopes, moments, parameters)
        return (optax.apply_updates(parameters, updates), moments), loss

    return jax.jit(step, donate_argnums=0), (parameters, optimizer.init(parameters))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="FILE[:HEIGHT[:GOP]]")
    rivals = [name for name in CONTESTANTS if name not in OURS]
    parser.add_argument("--beside", nargs="*", default=rivals, choices=rivals)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--steps", type=int, default=40, help="of a training, timed")
    parser.add_argument("--width", type=int, default=768, help="of the transformer")
    parser.add_argument("--depth", type=int, default=12, help="layers of the transformer")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--serve", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.cases and not args.serve:
        parser.error("a case is missing: FILE[:HEIGHT[:GOP]]")
    return args


def main() -> None:
    """Parse the arguments, measure in turn, print."""
    args = arguments()
    if args.serve:
        return serve(**args.serve)
    rows = []
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for case in args.cases:
            path = write_case(case, Path(folder))
            name = case.removeprefix(f"{Path(case).parent}/")
            if args.train:
                print(f"{name}: {told(path)[0]}", flush=True)
                rows.append({"case": name, **train(path, args)})
            else:
                rows.append(compare(name, path, args))
            if args.json:
                args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
