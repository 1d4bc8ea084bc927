"""The command line: `python -m jaxaug COMMAND`."""

import argparse
import sys
from collections.abc import Sequence

import jaxaug
from jaxaug.errors import JaxaugError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    arguments = make_parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except JaxaugError as error:
        print(f"jaxaug: {error}", file=sys.stderr)
        return 1
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The parser, with one sub-parser a command; each sets `run`, a function of the parsed arguments."""
    parser = argparse.ArgumentParser(prog="jaxaug", description="JPEG bytes to sharded, augmented batches.")
    parser.add_argument("--version", action="version", version=jaxaug.__version__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_preview(commands)
    return parser


def _add_demo(commands) -> None:
    parser = commands.add_parser("demo", help="draw a data set, measure the pipeline on it, train a network")
    parser.add_argument("--out", default="jaxaug_demo.png", help="contact sheet (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="of training (default: %(default)s)")
    parser.add_argument("--data-cache", help="folder for the data set (default: ~/.cache/jaxaug)")
    parser.set_defaults(run=_demo)


def _add_preview(commands) -> None:
    parser = commands.add_parser("preview", help="draw a contact sheet of your own images")
    parser.add_argument("folder", help="a folder of images, with or without class folders")
    parser.add_argument("--out", default="jaxaug_preview.png", help="contact sheet (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random draws (default: %(default)s)")
    parser.set_defaults(run=_preview)


# The commands import what they need when they run: `--help` should not wait for jax.


def _demo(arguments: argparse.Namespace) -> None:
    from jaxaug._demo.run import run_demo

    run_demo(arguments.out, arguments.epochs, arguments.data_cache)


def _preview(arguments: argparse.Namespace) -> None:
    from jaxaug._demo.preview import draw_sheet

    print(draw_sheet(arguments.folder, arguments.out, arguments.seed).resolve())


if __name__ == "__main__":
    sys.exit(main())
