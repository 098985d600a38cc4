"""Label texts given on the command line, or the rows of a file of any size.

Prints one line a text: the label, its probability and the text; with --json, one JSON object a line. With --data and
--out the file's rows come back with the columns `prediction` and `probability` added, in the format that the name of
--out says. A run that was stopped goes on where it was when the same command is given again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from ..errors import UsageError
from .options import add_data_options, add_json_option, add_optimize_option, messages

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..data import Text

CHUNK = 4096  # rows in memory at once; sorted by length within
EPILOG = """examples:
  pyramid-bert predict my-model "a fine film" "a waste of time"
  pyramid-bert predict my-model --data reviews.csv --out labelled.csv
  pyramid-bert predict my-model --data reviews.parquet --out labelled.jsonl.gz"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained classifier, pyramid or dense")
    parser.add_argument("text", nargs="*", help="texts to label")
    parser.add_argument("--data", metavar="FILE", help="label the rows of this file instead")
    parser.add_argument("--out", metavar="FILE", help="write the labelled rows here, in any of the formats below")
    parser.add_argument("--batch-size", type=int, default=32)
    add_optimize_option(parser)
    add_data_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Predicts, and prints or writes."""
    if bool(args.text) == bool(args.data):
        raise UsageError("give texts to label, or a file with --data; not both, not neither")
    if args.out and not args.data:
        raise UsageError("--out goes with --data; texts on the command line are printed")
    rows = _check_file(Path(args.data), args) if args.data else len(args.text)

    from ..classifier import PyramidClassifier

    if args.out:
        from ..data.tables import format_of
        from ..files import check_writable_file

        format_of(Path(args.out))
        check_writable_file(Path(args.out))
    classifier = PyramidClassifier.load(args.model)
    if args.optimize:
        classifier.optimize(args.optimize)
    with Progress(console=messages(), transient=True) as bar:
        task = bar.add_task("predicting", total=rows)

        def label(texts: list[Text]) -> list[dict[str, Any]]:
            answers = list(_label(classifier, texts, args.batch_size))
            bar.advance(task, len(texts))
            return answers

        if args.out:
            _to_file(args, label)
        else:
            for line in _lines(args, label):
                print(line)
    if args.out:
        messages().print(f"{rows} rows in {args.out}")


def _check_file(path: Path, args: argparse.Namespace) -> int:
    """The number of rows, after every text was found where it should be: errors come before work."""
    from ..data import iterate_rows
    from ..errors import DataError

    count = 0
    for number, row in iterate_rows(path):
        _text(row, number, args)
        count = number
    if not count:
        raise DataError(f"{path} has no rows; give a file with a header line and at least one row")
    return count


def _text(row: Mapping[str, Any], number: int, args: argparse.Namespace) -> Text:
    from ..data import text_in

    return text_in(row, args.text_column, args.text_pair_column, f"{args.data}, row {number}")


def _label(classifier: PyramidClassifier, texts: list[Text], batch_size: int) -> Iterator[dict[str, Any]]:
    classes = classifier.known_labels().classes
    if classes is None:
        for value in classifier.predict(texts, batch_size=batch_size):
            yield {"prediction": float(value)}
        return
    for row in classifier.predict_proba(texts, batch_size=batch_size):
        best = int(row.argmax())
        yield {"prediction": classes[best], "probability": float(row[best])}


def _to_file(args: argparse.Namespace, label: Any) -> None:
    from ..data import transform_file

    def add_columns(rows: list[tuple[int, Mapping[str, Any]]]) -> list[dict[str, Any]]:
        answers = label([_text(row, number, args) for number, row in rows])
        return [{**row, **answer} for (_, row), answer in zip(rows, answers, strict=True)]

    run = {"model": str(args.model), "columns": [args.text_column, args.text_pair_column]}
    if args.optimize:
        run["optimize"] = args.optimize
    transform_file(Path(args.data), Path(args.out), add_columns, run=run, chunk_size=CHUNK)


def _lines(args: argparse.Namespace, label: Any) -> Iterator[str]:
    from ..data import read_chunks

    chunks: Iterator[list[Text]]
    if args.data:
        chunks = ([_text(row, number, args) for number, row in rows] for rows in read_chunks(Path(args.data), CHUNK))
    else:
        chunks = iter([list(args.text)])
    for texts in chunks:
        for text, answer in zip(texts, label(texts), strict=True):
            whole = {"text": text, **answer}
            yield json.dumps(whole, ensure_ascii=False) if args.json else _line(whole)


def _line(row: dict[str, Any]) -> str:
    text = row["text"] if isinstance(row["text"], str) else " ‖ ".join(row["text"])
    shown = text if len(text) <= 80 else text[:79] + "…"
    if "probability" in row:
        return f"{row['prediction']}\t{row['probability']:.3f}\t{shown}"
    return f"{row['prediction']:.4f}\t{shown}"
