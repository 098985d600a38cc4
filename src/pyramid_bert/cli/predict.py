"""Label texts given on the command line, or the rows of a file of any size.

Prints one line per text: the label, its probability and the text; with --json, one JSON object per line. With --data
and --out the file's rows are written with the columns `prediction` and `probability` added; the name of --out gives the
format. Give the same command again to resume a stopped run: it goes on only if the model, the data and the settings are
the same. --restart starts over.

--fallback runs a share of the texts again with all tokens: those where the pyramid most likely disagrees with the dense
model, by the certificate that `pyramid-bert certify` made. The threshold comes from the certificate, so a text's answer
does not depend on the other rows, and the share can differ on other data.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..boundary import printable
from ..counting import steps_shown
from ..errors import DataError, PyramidError, UsageError
from ..version import __version__
from . import options
from .streaming import digests, write_rows

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..text.tables import Text

CHUNK = 4096  # rows in memory at once; sorted by length within
_BATCHES = 16  # between two steps of the progress
_RESULT_OPTIONS = ("text-column", "text-pair-column", "max-length", "speed", "optimize", "radius", "fallback")
EPILOG = """examples:
  pyramid-bert predict my-model "a fine film" "a waste of time"
  pyramid-bert predict my-model --data reviews.csv --out labelled.csv
  pyramid-bert predict my-model --data reviews.parquet --out labelled.jsonl.gz
  pyramid-bert predict my-model "a fine film" --radius --json
  pyramid-bert predict elastic --speed 3 --data reviews.csv --out labelled.csv
  pyramid-bert predict my-model --data reviews.csv --fallback 0.05 --out labelled.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", nargs="?", help="the folder of a trained classifier, pyramid or dense")
    parser.add_argument("text", nargs="*", help="texts to label")
    parser.add_argument("--data", metavar="FILE", help="label the rows of this file instead")
    parser.add_argument("--out", metavar="FILE", help="write the labelled rows here, in any of the formats below")
    options.add_restart_option(parser)
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="texts at a time (default: 32)")
    parser.add_argument("--radius", action="store_true", help="give the covering radius of each layer as well")
    parser.add_argument(
        "--fallback", type=float, metavar="SHARE", help="run about this share of the texts again, with all tokens"
    )
    options.add_max_length_option(parser)
    options.add_speed_option(parser)
    options.add_optimize_option(parser)
    options.add_data_options(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Predicts, and prints or writes."""
    _check_call(args)
    if args.out:
        from ..text.stream import check_output

        check_output(Path(args.data), Path(args.out))
    # Every row is read before the model is loaded: errors come before work.
    rows = sum(map(len, _chunks(args)))
    if not rows:
        raise DataError(f"{args.data} has no rows; give a file with a header line and at least one row")

    record = _record(args) if args.out else {}
    classifier = options.load_classifier(args)
    if args.fallback is not None:
        _check_certificate(classifier, args.model)
    _check_lengths(classifier, args)
    with steps_shown("predicting", rows) as advance:

        def label(texts: list[Text]) -> list[dict[str, Any]]:
            order = sorted(range(len(texts)), key=lambda i: len("".join(texts[i])))
            answers: list[dict[str, Any]] = [{}] * len(texts)
            for start in range(0, len(order), _BATCHES * args.batch_size):
                rows = order[start : start + _BATCHES * args.batch_size]
                for row, answer in zip(rows, _label(classifier, [texts[i] for i in rows], args), strict=True):
                    answers[row] = answer
                advance(len(rows))
            return answers

        if args.out:
            write_rows(args, rows, lambda some: label(_texts(some, args)), record, advance, chunk_size=CHUNK)
        else:
            for chunk in _chunks(args):
                texts = [text for _, text in chunk]
                for text, answer in zip(texts, label(texts), strict=True):
                    whole = {"text": text, **answer}
                    print(options.json_text(whole) if args.json else _line(whole))


def _check_call(args: argparse.Namespace) -> None:
    """Raises for options that do not fit together, before anything is read."""
    if args.model is None:
        raise UsageError("give a model and texts to label, or --data FILE: pyramid-bert predict my-model 'a fine film'")
    if bool(args.text) == bool(args.data):
        raise UsageError("give texts to label, or a file with --data; not both, not neither")
    if args.out and not args.data:
        raise UsageError("--out goes with --data; texts on the command line are printed")
    if args.restart and not args.out:
        raise UsageError("--restart goes with --out; only a run that writes a file can be resumed")
    if args.fallback is not None and not 0 <= args.fallback <= 1:
        raise UsageError(f"--fallback must be a share in 0-1, got {args.fallback:g}; 0.05 runs 5 % again")
    if args.batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, got {args.batch_size}")


def _chunks(args: argparse.Namespace) -> Iterator[list[tuple[int, Text]]]:
    """The texts with their numbers, from 1; as many at a time as are held in memory."""
    from ..text.stream import read_chunks

    if not args.data:
        yield list(enumerate(args.text, start=1))
        return
    for rows in read_chunks(Path(args.data), CHUNK):
        if args.out:
            _check_columns(rows, args)
        yield list(zip((number for number, _ in rows), _texts(rows, args), strict=True))


def _check_lengths(classifier: PyramidClassifier, args: argparse.Namespace) -> None:
    """Raises for a text that is too long for the model, before any is labelled. A token has at least a character."""
    from ..text.tables import Table

    if classifier.max_length is not None:
        return
    source = args.data or "the texts of this call"
    for chunk in _chunks(args):
        long = [(number, text) for number, text in chunk if len("".join(text)) > classifier.positions - 3]
        if long:
            table = Table([text for _, text in long], [], source=source, numbers=[number for number, _ in long])
            options.encoded(classifier, table, options.SHORTEN)


def _check_columns(rows: list[tuple[int, Mapping[str, Any]]], args: argparse.Namespace) -> None:
    """Raises if a row has a column that would be replaced by one that is added."""
    added = ["prediction", "probability", *(["flip_chance", "rerun"] if args.fallback is not None else [])]
    for number, row in rows:
        for name in row:
            if name in added or (args.radius and re.fullmatch(r"radius_\d+", name)):
                raise DataError(f"{args.data}, row {number}: has a column {name!r}, which is to be added; rename it")


def _texts(rows: list[tuple[int, Mapping[str, Any]]], args: argparse.Namespace) -> list[Text]:
    from ..text.tables import text_in

    columns = args.text_column, args.text_pair_column
    return [text_in(row, *columns, f"{args.data}, row {number}") for number, row in rows]


def _record(args: argparse.Namespace) -> dict[str, Any]:
    """What a stopped run must have in common with this one to be resumed: all that the answers depend on.

    Batch size and device are left out: they change answers by no more than rounding.
    """
    model, certificate = digests(args.model)
    return {
        "model": model,
        "certificate": None if args.fallback is None else certificate,
        **{f"--{name}": getattr(args, name.replace("-", "_")) for name in _RESULT_OPTIONS},
        "version of pyramid-bert": __version__,
    }


def _check_certificate(classifier: PyramidClassifier, model: str) -> None:
    from ..certificate import check_can_flip

    check_can_flip(classifier)
    if classifier.certificate is None:
        raise PyramidError(
            f"--fallback needs a certificate, and {model} has none; make one from 50 texts or more with: "
            f"pyramid-bert certify {model} --data FILE"
        )


def _label(classifier: PyramidClassifier, texts: list[Text], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The columns that are added to each text."""
    import numpy as np

    known = classifier.known_labels()
    how: dict[str, Any] = {} if args.fallback is None else {"fallback": args.fallback, "streaming": True}
    found = classifier.answers(texts, batch_size=args.batch_size, radius=args.radius, **how)
    against_best = np.exp(found.logits - found.logits.max(1, keepdims=True))  # 1 for the likeliest class
    for row, label in enumerate(known.decode(found.logits).tolist()):
        answer: dict[str, Any] = {"prediction": label}
        if known.classes is not None:
            answer["probability"] = float(1 / against_best[row].sum())
        if found.rerun is not None and found.chance is not None:
            answer |= {"flip_chance": float(found.chance[row]), "rerun": bool(found.rerun[row])}
        if found.radius is not None:
            answer |= {f"radius_{layer}": float(value) for layer, value in enumerate(found.radius[row], start=1)}
        yield answer


def _line(row: dict[str, Any]) -> str:
    text = printable(row["text"] if isinstance(row["text"], str) else " ‖ ".join(row["text"]))
    shown = text if len(text) <= 80 else text[:79] + "…"
    label = row["prediction"] if "probability" in row else f"{row['prediction']:.4f}"
    words = [printable(str(label)), *(f"{row[name]:.3f}" for name in ("probability", "flip_chance") if name in row)]
    words += ["run again" if row["rerun"] else "as it was"] if "rerun" in row else []
    radii = [f"{value:.2f}" for name, value in row.items() if name.startswith("radius_")]
    return "\t".join([*words, *([" ".join(radii)] if radii else []), shown])
