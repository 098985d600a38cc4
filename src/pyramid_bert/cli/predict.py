"""Label texts given on the command line, or the rows of a file.

Prints one line a text: the label, its probability and the text. With --json or --out, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files import check_writable_file, write_text
from .options import add_data_options, add_json_option, messages, read_data

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..data import Text

EPILOG = """examples:
  pyramid-bert predict my-model "a fine film" "a waste of time"
  pyramid-bert predict my-model --data reviews.csv --out labels.jsonl"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained classifier, pyramid or dense")
    parser.add_argument("text", nargs="*", help="texts to label")
    parser.add_argument("--data", metavar="FILE", help="label the rows of this file instead")
    parser.add_argument("--out", metavar="FILE", help="write JSON lines here instead of printing")
    parser.add_argument("--batch-size", type=int, default=32)
    add_data_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Predicts, and prints or writes."""
    if bool(args.text) == bool(args.data):
        raise UsageError("give texts to label, or a file with --data; not both, not neither")
    texts: list[Text] = list(args.text) if args.text else read_data(args.data, args, labels=False).texts
    if args.out:
        check_writable_file(Path(args.out))

    from ..classifier import PyramidClassifier

    classifier = PyramidClassifier.load(args.model)
    rows = list(_rows(classifier, texts, args.batch_size))
    if args.out:
        write_text(Path(args.out), "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        messages().print(f"{len(rows)} predictions in {args.out}")
    elif args.json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
    else:
        for row in rows:
            print(_line(row))


def _rows(classifier: PyramidClassifier, texts: list[Text], batch_size: int) -> Iterator[dict[str, Any]]:
    labels = classifier.known_labels()
    if labels.classes is None:
        for text, value in zip(texts, classifier.predict(texts, batch_size=batch_size, progress=True), strict=True):
            yield {"text": text, "prediction": float(value)}
        return
    shares = classifier.predict_proba(texts, batch_size=batch_size, progress=True)
    for text, row in zip(texts, shares, strict=True):
        best = int(row.argmax())
        yield {"text": text, "prediction": labels.classes[best], "probability": float(row[best])}


def _line(row: dict[str, Any]) -> str:
    text = row["text"] if isinstance(row["text"], str) else " ‖ ".join(row["text"])
    shown = text if len(text) <= 80 else text[:79] + "…"
    share = f"{row['probability']:.3f}\t" if "probability" in row else ""
    prediction = row["prediction"] if "probability" in row else f"{row['prediction']:.4f}"
    return f"{prediction}\t{share}{shown}"
