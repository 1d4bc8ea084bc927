"""The command line: `python -m jaxaug COMMAND`."""

import argparse
import errno
import gc
import glob
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import jaxaug
from jaxaug.errors import JaxaugError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_COLLECTED_SECONDS = 0.05  # until a signal that came amid a collection is sent again


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; of a signal as shells count it, 128 and more."""
    arguments = make_parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text
    try:
        with _sigterm_raises():
            status = arguments.run(arguments)
            print(end="", flush=True)
    except JaxaugError as error:
        return _fail(str(error), 1)
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno in _FULL:  # tells no file, as it was open already
            return _fail(f"{error.strerror}.", 1)
        if error.filename is None:  # no file of the user's: a traceback tells more
            raise
        return _fail(f"{error.filename!r}: {error.strerror}.", 1)
    except MemoryError as error:
        return _fail(str(error) or "no memory is left.", 1)
    except ImportError as error:
        if error.name is not None:  # of Python's own: a traceback tells more
            raise
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted.", 128 + signal.SIGINT)
    except _Terminated:
        return _fail("terminated.", 128 + signal.SIGTERM)
    return status or 0


def _fail(message: str, status: int) -> int:
    print(f"jaxaug: {message}", file=sys.stderr)
    return status


class _Terminated(BaseException):
    """SIGTERM came; what is half done is cleared away on the way up."""


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Have SIGTERM raise `_Terminated`, as SIGINT raises KeyboardInterrupt.

    What is raised amid a collection of garbage, in a finalizer or a callback, is lost: there the
    signal is sent again.
    """
    is_collecting = False

    def follow(phase, info):
        nonlocal is_collecting
        is_collecting = phase == "start"

    def terminate(number, frame):
        if not is_collecting and not _is_in_callback(frame):
            raise _Terminated
        threading.Timer(_COLLECTED_SECONDS, os.kill, (os.getpid(), number)).start()

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    gc.callbacks.append(follow)
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        gc.callbacks.remove(follow)


def _is_in_callback(frame: FrameType | None) -> bool:
    """Return True within a callback of the collector, such as JAX's."""
    callbacks = [getattr(each, "__code__", None) for each in gc.callbacks]
    while frame is not None and frame.f_code not in callbacks:
        frame = frame.f_back
    return frame is not None


def make_parser() -> argparse.ArgumentParser:
    """Return the parser, with one sub-parser for each command; each sets `run`."""
    parser = argparse.ArgumentParser(
        prog="jaxaug", description="JPEG bytes to sharded, augmented batches."
    )
    parser.add_argument("--version", action="version", version=jaxaug.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_preview(commands)
    _add_doctor(commands)
    _add_index(commands)
    _add_pack(commands)
    _add_verify(commands)
    _add_statistics(commands)
    return parser


def _add_demo(commands) -> None:
    parser = commands.add_parser(
        "demo", help="draw a data set, measure the pipeline on it, train a network"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=_picture,
        default="jaxaug_demo.png",
        help="contact sheet (default: %(default)s)",
    )
    parser.add_argument(
        "--epochs", type=_positive, default=8, help="epochs of training (default: %(default)s)"
    )
    parser.add_argument("--data-cache", help="folder for the data set (default: ~/.cache/jaxaug)")
    parser.set_defaults(run=_demo)


def _add_preview(commands) -> None:
    parser = commands.add_parser(
        "preview", help="draw a contact sheet of your own images, videos or sounds, and chain"
    )
    parser.add_argument(
        "folder",
        nargs="?",
        help="a folder of images, videos or sounds, with or without class folders (default: a drawn"
        " scene)",
    )
    parser.add_argument(
        "--chain",
        type=_chain,
        help="module:name of a transform, also of groups, of a function of (key, sample), or of a"
        " function that returns one, such as jaxaug.augment.recipes:imagenet_train",
    )
    parser.add_argument(
        "--targets", action="store_true", help="the scene with its mask, boxes and keypoints"
    )
    parser.add_argument(
        "--canvas",
        type=_positive,
        default=256,
        help="side of the canvas in pixels; larger images are shrunk to it (default: %(default)s)",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=_picture,
        default="jaxaug_preview.png",
        help="contact sheet (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=_seed, default=0, help="seed of the random draws (default: %(default)s)"
    )
    parser.add_argument("--show", action="store_true", help="open the sheet, too")
    parser.set_defaults(run=_preview, error=parser.error)


def _add_index(commands) -> None:
    parser = commands.add_parser(
        "index",
        help="index TFRecord files, tar shards or a folder of videos, once, before training",
        epilog="The index is written beside the files or, where they are remote or their folder "
        "cannot be written, to $XDG_CACHE_HOME/jaxaug (~/.cache/jaxaug), unless --out says "
        "otherwise; its path is printed. A source finds it if it is opened with the same options. "
        "What was indexed before, by this process or others with --part, is not read again.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        help="files, glob patterns, brace ranges, URLs; the format is told by content; or a folder"
        " of videos",
    )
    _add_index_options(parser)
    _add_video(parser)
    parser.add_argument(
        "-o",
        "--out",
        help="the index file, or a folder, or the URL of either (of a folder with / at its end),"
        " which the source then takes as `index`",
    )
    _add_part(parser)
    parser.set_defaults(run=_index, error=parser.error)


def _add_video(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--video",
        help="feature (TFRecord) or extension (tar) of a video in place of the image",
    )


def _add_part(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part",
        type=_part,
        metavar="I/N",
        help="do every N-th shard from number I (0 to N - 1) on; N alone where"
        " SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX tells I",
    )


def _add_index_options(parser: argparse.ArgumentParser) -> None:
    """Add what an index depends on."""
    parser.add_argument(
        "--image", help="feature (TFRecord) or extension (tar) of the image, if not the usual one"
    )
    parser.add_argument("--mask", help="feature (TFRecord) or extension (tar) of the mask")
    parser.add_argument(
        "--label", help="feature (TFRecord) or name in JSON (tar) of the label; '' for none"
    )
    parser.add_argument(
        "--features",
        type=_renamed,
        help="further features, as the source will name them: name,name=new name",
    )


def _add_pack(commands) -> None:
    parser = commands.add_parser(
        "pack", help="pack loose images into one indexed tar, read many times as fast"
    )
    parser.add_argument(
        "images",
        help="class folders with images, or a text file with lines of `image label label ...`",
    )
    parser.add_argument(
        "out", help="the tar to write, the name of the shards, or the folder of decoded images"
    )
    parser.add_argument(
        "--decoded",
        action="store_true",
        help="decode the images, or those of tar or TFRecord files, once: "
        'Loader(keep="disk:OUT") finds them',
    )
    parser.add_argument(
        "--size", type=_positive, help="with --decoded: the side of the canvases (default: 256)"
    )
    parser.add_argument(
        "--shards",
        type=_positive,
        help="write so many shards, by the extension of `out` tars or arrayrecord files; the images"
        " may then be tar or TFRecord files, too",
    )
    parser.add_argument(
        "--shard-bytes",
        type=float,
        help="instead of --shards: as many as have about so many bytes each, such as 256e6",
    )
    parser.add_argument(
        "--resize",
        type=_positive,
        help="with shards: shrink images to so many pixels of the shorter side, as JPEGs",
    )
    _add_part(parser)
    parser.add_argument(
        "--sep",
        type=_separator,
        help="what stands between image and labels in the text file (default: any blanks)",
    )
    parser.add_argument(
        "--masks", help="the folder with a mask for each image, which then have no class folders"
    )
    parser.add_argument("--names", help="with --masks: a text file that names the images to take")
    parser.set_defaults(run=_pack, error=parser.error)


def _add_sources(parser: argparse.ArgumentParser, folders: str) -> None:
    """Add what `open_sources` takes, and the number of processes that decode it."""
    parser.add_argument(
        "sources",
        nargs="+",
        help=f"{folders} (.txt, .csv, .tsv, .lst) with lines of `path label ...`, or tar or"
        " TFRecord files as `index` takes them",
    )
    _add_index_options(parser)
    parser.add_argument(
        "--sep", type=_separator, help="what stands between image and labels in a text file"
    )
    parser.add_argument(
        "--processes", type=_positive, help="how many decode (default: one for each CPU)"
    )


def _add_verify(commands) -> None:
    parser = commands.add_parser(
        "verify",
        help="decode every record strictly and list the bad ones, which Loaders then treat as such",
        epilog="Records are images, videos or sounds. What was found is kept in the index of tar "
        "and TFRecord files, and in jaxaug-bad.json in the folder of loose files; sources that are "
        "made later take these records for bad, until the files change; what could not be read, as "
        "without permission, is listed and not kept. The exit status is 1 if there are any. After "
        "a kill the same command goes on where it was.",
    )
    _add_sources(parser, "class folders, text files")
    _add_video(parser)
    parser.add_argument("-o", "--out", help="a file of JSON that gets the list as well")
    parser.set_defaults(run=_verify, error=parser.error)


def _add_statistics(commands) -> None:
    parser = commands.add_parser(
        "statistics",
        help="print the mean and the deviation of each channel of a source, for Normalize",
        epilog="Those of integers are exact. Images count at their full size, pixels of no data "
        "(GDAL), NaN and infinities do not. After a kill the same command goes on where it was.",
    )
    _add_sources(parser, "a class folder, a text file")
    parser.add_argument(
        "--channels", type=_channels, help="as decode.Image takes them: rgb, gray, 13, 'as stored'"
    )
    parser.add_argument(
        "--dtype",
        choices=("uint8", "uint16", "float32"),
        default="uint8",
        help="as decode.Image takes it (default: %(default)s)",
    )
    parser.add_argument("--bands", type=_bands, help="of the file, from 0 on: 3,2,1")
    parser.add_argument("-o", "--out", help="a file of JSON that gets the numbers as well")
    parser.set_defaults(run=_statistics, error=parser.error)


def _add_doctor(commands) -> None:
    parser = commands.add_parser(
        "doctor", help="print what was found on this machine, and what to install"
    )
    parser.set_defaults(run=_doctor)


def _picture(path: str) -> str:
    if os.path.splitext(path)[1].lower() not in (".png", ".jpg", ".webp"):
        raise argparse.ArgumentTypeError(f"must end in .png, .jpg or .webp, got {path!r}")
    return path


def _seed(text: str) -> int:
    try:
        seed = int(text)
    except ValueError:
        seed = None
    if seed is None or not -(2**63) <= seed < 2**63:
        raise argparse.ArgumentTypeError(f"must be an int of 64 bits, got {text!r}")
    return seed


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("must not be empty: leave it out for any blanks")
    return text


def _chain(text: str) -> Callable:
    from jaxaug._demo.chain import load_chain

    try:
        return load_chain(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _part(text: str) -> tuple[int, int]:
    """Return (part, parts) of "3/64", or of "64" under a job runner that numbers its tasks."""
    first, slash, last = text.rpartition("/")
    number = first if slash else _task_number()
    if not (number.isdecimal() and last.isdecimal() and int(number) < int(last)):
        what = "be I/N with 0 <= I < N, or N where SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX is I"
        raise argparse.ArgumentTypeError(f"must {what}, got {text!r}")
    return int(number), int(last)


def _task_number() -> str:
    """Return the number of this task, from 0 on, as Slurm or Kubernetes tell it; "" if none."""
    number = os.environ.get("SLURM_ARRAY_TASK_ID", "")
    first = os.environ.get("SLURM_ARRAY_TASK_MIN", "0")
    if number.isdecimal() and first.isdecimal():
        return str(int(number) - int(first))
    return os.environ.get("JOB_COMPLETION_INDEX", "")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an int of at least 1, got {text!r}")
    return int(text)


def _channels(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


def _bands(text: str) -> tuple[int, ...]:
    if not all(part.isdecimal() for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"must be numbers, as 3,2,1, got {text!r}")
    return tuple(map(int, text.split(",")))


# The commands import what they need when they run: `--help` should not wait for jax.


def _demo(arguments: argparse.Namespace) -> None:
    from jaxaug._demo.run import run_demo

    run_demo(arguments.out, arguments.epochs, arguments.data_cache)


def _doctor(arguments: argparse.Namespace) -> None:
    from jaxaug._doctor import report

    del arguments
    for subject, finding in report():
        print(f"{subject:20s} {finding}")


def _preview(arguments: argparse.Namespace) -> None:
    from jaxaug._demo.preview import demo_images, draw_sheet, folder_samples

    if arguments.folder is not None and arguments.targets:
        arguments.error("--targets goes without a folder: only the drawn scene has them")
    if arguments.folder is None:
        mixes = hasattr(arguments.chain, "group_size")
        images = demo_images(arguments.canvas, arguments.targets, several=mixes)
    else:
        images = folder_samples(arguments.folder, arguments.canvas)
    title = f"jaxaug preview: {arguments.folder or 'the drawn scene'}"
    path = draw_sheet(images, arguments.out, title, arguments.seed, arguments.chain)
    print(path.resolve())
    if arguments.show:
        from PIL import Image

        with Image.open(path) as sheet:
            sheet.show()


def _index(arguments: argparse.Namespace) -> None:
    from jaxaug._pack import build_index, index_folder, packed_kind

    if len(arguments.paths) == 1 and os.path.isdir(arguments.paths[0]):
        if arguments.out is not None:
            arguments.error("--out goes without a folder: its index lies in it")
        count, path = index_folder(arguments.paths[0])
        print(f"{count} videos in {arguments.paths[0]!r}")
        print(f"index: {path}")
        return
    options = _index_options(arguments)
    if arguments.out is not None:
        options["index"] = arguments.out
    if arguments.part is not None:
        kind = packed_kind(arguments.paths)
        count, known = kind.index_shards(arguments.paths, *arguments.part, **options)
        print(f"part {arguments.part[0]} of {arguments.part[1]}: {count} shards, {known} known")
        return
    source = build_index(arguments.paths, **options)
    print(source)
    print(f"index: {source.index_path}")


def _index_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of an index that were given; '' is for no label."""
    names = ("image", "mask", "video", "label", "features")
    options = {name: getattr(arguments, name, None) for name in names}
    options = {name: value for name, value in options.items() if value is not None}
    return options if arguments.label != "" else options | {"label": None}


def _verify(arguments: argparse.Namespace) -> int:
    from jaxaug._verify import open_sources, print_result, verify, write_list

    _check_out(arguments)
    results = []
    for source in open_sources(arguments.sources, arguments.sep, _index_options(arguments)):
        result = verify(source, arguments.processes)
        print_result(source, result)
        results.append((source, result))
    if arguments.out is not None:
        write_list(arguments.out, results)
    return int(any(result.findings for _, result in results))


def _check_out(arguments: argparse.Namespace) -> None:
    """Refuse a list that would be written over a source."""
    files = [file for path in arguments.sources for file in (path, *glob.glob(path))]
    out = arguments.out
    if out is not None and os.path.exists(out):
        if any(os.path.exists(file) and os.path.samefile(file, out) for file in files):
            arguments.error(f"--out must be a file of its own, got {out!r}, one of the sources")


def _statistics(arguments: argparse.Namespace) -> None:
    from jaxaug._statistics import lines, statistics, write
    from jaxaug._verify import open_sources
    from jaxaug.decode.image.form import pixel_form

    try:
        form = pixel_form(arguments.channels, arguments.dtype, arguments.bands, 0)
    except ValueError as error:
        arguments.error(str(error))
        raise
    _check_out(arguments)
    options = _index_options(arguments)
    sources = list(open_sources(arguments.sources, arguments.sep, options, images_alone=True))
    if len(sources) > 1:
        arguments.error("give one folder or list, or files of one kind")
    found = statistics(sources[0], form, arguments.processes)
    for line in lines(found):
        print(line)
    if arguments.out is not None:
        write(arguments.out, found)


def _renamed(text: str) -> dict[str, str]:
    """Return the new names in `name,name=new name` by name."""
    names = {}
    for part in filter(None, text.split(",")):
        name, _, new_name = part.partition("=")
        names[name] = new_name or name
    return names


def _pack(arguments: argparse.Namespace) -> None:
    from jaxaug._pack import build_index, measure_reads, pack_files
    from jaxaug.iterators import FileList, ImageFolder, PairedFolders

    in_shards = arguments.shards is not None or arguments.shard_bytes is not None
    if arguments.shard_bytes is not None and (arguments.shards or not arguments.shard_bytes >= 1):
        arguments.error("--shard-bytes must be at least 1, and goes without --shards")
    for name in ("part", "resize"):
        if getattr(arguments, name) is not None and not in_shards:
            arguments.error(f"--{name} goes with --shards or --shard-bytes, not with one tar")
    if arguments.size is not None and not arguments.decoded:
        arguments.error("--size goes with --decoded: images are packed as they are")
    if arguments.decoded and in_shards:
        arguments.error("--decoded goes without shards: each Loader reads one folder")
    many = arguments.decoded or in_shards
    if many and _are_packed(arguments.images):
        _pack_many(build_index(arguments.images), arguments)
        return
    if arguments.names is not None and arguments.masks is None:
        arguments.error("--names goes with --masks: without them, list the images in a text file")
    listed = arguments.masks is None and os.path.isfile(arguments.images)
    if arguments.sep is not None and not listed:
        what = f"{arguments.images!r} is none" if arguments.masks is None else "not with --masks"
        arguments.error(f"--sep goes with a text file of images and labels: {what}")
    if arguments.masks is not None:
        source = PairedFolders(arguments.images, arguments.masks, arguments.names)
    elif listed:
        source = FileList(arguments.images, sep=arguments.sep)
    else:
        source = ImageFolder(arguments.images)
    if many:
        _pack_many(source, arguments)
        return
    packed = pack_files(source, arguments.out)
    print(packed)
    before = measure_reads(source)
    after = measure_reads(packed)
    print(
        f"{before:,.0f} records/s from the files, {after:,.0f} from the tar: {after / before:.1f} x"
    )


def _pack_many(source: Any, arguments: argparse.Namespace) -> None:
    from jaxaug._pack import pack_decoded
    from jaxaug._shards import pack_shards, shards_of_bytes

    if arguments.decoded:
        side = arguments.size or 256
        count, size = pack_decoded(source, arguments.out, side)
        print(f"{count} of {len(source)} images in {arguments.out!r}, {size:,} bytes")
        print(f"Loader(..., decode=Image(canvas=({side}, {side})), keep='disk:{arguments.out}')")
        return

    if arguments.shards is not None and arguments.shards > len(source):
        arguments.error(f"--shards must be at most {len(source)}, the number of records")
    part, parts = arguments.part or (0, 1)
    resize = arguments.resize
    shards = arguments.shards or shards_of_bytes(source, arguments.shard_bytes, resize)
    count, known = pack_shards(source, arguments.out, shards, part, parts, resize=resize)
    print(f"part {part} of {parts}: {count} shards, {known} known")


def _are_packed(paths: str) -> bool:
    """Return True for tar or TFRecord files, by name: a pattern, a URL, or such an extension."""
    return any(mark in paths for mark in ("://", "*", "{")) or paths.endswith((".tar", ".tfrecord"))


if __name__ == "__main__":
    sys.exit(main())
