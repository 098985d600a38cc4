"""The command line: `pyramid-bert COMMAND`. A name, its module, no logic; torch is loaded by the commands that need it.

Data goes to stdout, progress and messages to stderr. Exit code 2 for a wrong call, 1 for a failure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from ..boundary import one_line, printable
from ..errors import PyramidError, UsageError
from ..version import __version__

# Command -> what it does. Each is a module here with `add_arguments(parser)` and `run(args)`.
COMMANDS = {
    "demo": "fine-tune a dense and a pyramid classifier on film reviews and compare them",
    "train": "fine-tune a classifier on your own file or a GLUE task",
    "evaluate": "measure a trained classifier on a labelled file or a GLUE task",
    "predict": "label texts or a file",
    "rerank": "rank documents for a query, or the candidates of many queries",
    "export": "write a classifier for a faster runtime, where it runs without torch",
    "certify": "learn how likely a pyramid's answers differ from the dense model's",
    "explain": "show which tokens of a text survive to which layer",
    "speedup": "make a dense classifier faster without training",
    "bench": "measure speed over three honest baselines",
    "theory": "measure both sides of the paper's bound on what a pyramid loses",
    "study": "run a grid of methods, tasks and seeds, and make the paper's tables of it",
    "lra": "run Long Range Arena: Performer and BigBird behind a selection; make its Pathfinder images",
    "report": "build one page of results, figures and token pyramids",
    "schedule": "show what a schedule keeps and what it costs",
}

_TORCH = ("torch", "transformers", "safetensors")  # which an environment for exported models lacks
_TAKE_EXPORTED = ("predict", "evaluate", "explain")
_EPILOG = """examples:
  pyramid-bert demo
  pyramid-bert schedule --keep-ratio 0.25 --last-layer 3
  pyramid-bert train --model bert-base-uncased --train train.csv --dev dev.csv --out my-model
  pyramid-bert evaluate my-model --data test.csv
  pyramid-bert predict my-model "a fine film"
  pyramid-bert explain my-model "a fine film" --html film.html

`pyramid-bert COMMAND --help` explains a command."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit code."""
    args, unknown = _parser().parse_known_args(argv)
    if hasattr(args, "text") and isinstance(args.text, list) and not any(word.startswith("-") for word in unknown):
        args.text += unknown  # argparse takes no texts behind an option
    elif unknown:  # argparse would show the usage of all commands, not of this one
        args.command.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        _check_exported(args)
        _know_performers(args)
        args.run(args)
    except SystemExit:
        raise
    except KeyboardInterrupt:
        goes_on = getattr(args, "goes_on", lambda: False)()  # set by commands that leave work to go on from
        _complain("stopped; the same command goes on from here" if goes_on else "stopped")
        return 130
    except BaseException as error:  # a Rust panic in tokenizers or safetensors derives from BaseException
        if args.debug:
            raise
        _complain(_words(error))
        return 2 if isinstance(error, UsageError) else 1
    return 0


def _check_exported(args: argparse.Namespace) -> None:
    """Raises if the call names an exported model, which runs without torch, and the command needs more of it."""
    for path in filter(None, (getattr(args, name, None) for name in ("model", "teacher"))):
        if args.name not in _TAKE_EXPORTED:
            from ..export.classifier import is_exported

            if is_exported(path):
                raise UsageError(
                    f"{path} holds an exported model, which only predicts; give the model that was exported"
                )


def _know_performers(args: argparse.Namespace) -> None:
    """Imports the laboratory's Performer, which transformers does not know, if the call names a model of that kind."""
    for name in ("model", "teacher"):
        path = getattr(args, name, None)
        config = Path(path or ".") / "config.json"
        if path and config.is_file() and b"performer" in config.read_bytes():
            import_module("pyramid_bert.lab.performer")


def _words(error: BaseException) -> str:
    """What is said about an error. A `PyramidError` says it itself."""
    if isinstance(error, PyramidError):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller --batch-size"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else one_line(error)
    if isinstance(error, ImportError) and error.name in _TORCH:
        return f"this needs {error.name}: pip install {error.name}; without it, only exported models run"
    name = type(error).__name__
    return f"internal error: {name}: {one_line(error)}; run again with --debug and report it"


def _complain(message: str) -> None:
    """Prints a message on stderr, with its own line breaks and no other control characters."""
    print("\n".join(map(printable, f"pyramid-bert: {message}".split("\n"))), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="pyramid-bert",
        description="BERT-style classifiers that drop tokens on the way up: cheaper to fine-tune and to run.",
        epilog=_EPILOG,
        formatter_class=form,
    )
    parser.add_argument("--version", action="version", version=f"pyramid-bert {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        module = import_module(f".{name}", __name__)
        command = commands.add_parser(
            name, help=summary, description=module.__doc__, formatter_class=form, epilog=module.EPILOG
        )
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true", help="show the full traceback of an error")
        command.set_defaults(run=module.run, command=command, name=name)
    return parser
