"""Write a trained classifier, dense or pyramid, for another runtime, where it runs without torch.

A part of the rows of --data tells int8 how numbers are spread inside the model. The other rows show what the export
changed: agreement with the model in torch, the largest change of a logit, speed and, if the file has labels, metrics
before and after. If more than --tolerance points of the first metric are lost, nothing is written.

`predict`, `evaluate` and `explain` take the folder like any other model. An elastic model is written with all its
speeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..checks import check_number
from ..errors import PyramidError, UsageError
from ..files import check_not_input, check_writable, recover_folder
from ..runtimes.registry import RUNTIMES, get_runtime
from . import options
from .compared import metric_text

if TYPE_CHECKING:
    from ..export.report import ExportReport

EPILOG = """examples:
  pyramid-bert export my-model --data dev.csv --precision int8 --out fast
  pyramid-bert export my-model --precision bf16 --out fast
  pyramid-bert predict fast --data big.csv --out labelled.csv
  pyramid-bert evaluate fast --data test.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained classifier, pyramid or dense")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the exported model goes")
    parser.add_argument("--runtime", default="openvino", choices=sorted(RUNTIMES), help="default: openvino")
    known = dict.fromkeys(name for runtime in RUNTIMES.values() for name in runtime.precisions)
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=list(known),
        help="fp32 (default): the same logits up to rounding; bf16: products in bfloat16, on processors that have it; "
        "int8: 8-bit integers",
    )
    parser.add_argument("--data", metavar="FILE", help="texts like those it will be used on; needed for int8")
    parser.add_argument("--no-labels", action="store_true", help="do not read labels; compare by agreement only")
    parser.add_argument(
        "--tolerance", type=float, default=1.0, metavar="P", help="points of the metric that may be lost (default: 1)"
    )
    parser.add_argument("--force", action="store_true", help="write it whatever is lost")
    parser.add_argument("--overwrite", action="store_true", help="replace an exported model that is in --out already")
    parser.add_argument("--max-length", type=int, metavar="N", help="cut longer texts to this many tokens")
    options.add_data_options(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Exports, and shows what changed."""
    check_number("--tolerance", args.tolerance, error=UsageError)
    out, runtime = Path(args.out), get_runtime(args.runtime)
    if args.device not in ("auto", "cpu"):
        raise UsageError(f"--runtime {args.runtime} runs on the CPU; leave out --device {args.device}")
    with options.usage_errors():
        runtime.check_writing(args.precision)
    if args.precision == "int8" and not args.data:
        raise UsageError("--precision int8 needs --data: texts like those that the model will be used on")
    recover_folder(out)
    if out.exists() and any(out.iterdir()) and not args.overwrite:
        raise PyramidError(f"{out} holds something already; name another folder, or pass --overwrite")
    table = None
    if args.data:
        labels = not args.no_labels and options.has_labels(args.data, args)
        table = options.read_data(args.data, args, labels=labels)

    from ..classifier import PyramidClassifier
    from ..export.texts import doubt_about

    check_not_input(out, Path(args.model))
    check_writable(out)
    classifier = PyramidClassifier.load(args.model, device="cpu")
    if args.max_length is not None:
        check_number("--max-length", args.max_length, 2, classifier.positions, whole=True, error=UsageError)
        classifier.max_length = args.max_length
    if table is not None:
        table = options.encoded(classifier, table, options.SHORTEN)
    if (slow := runtime.slow(args.precision)) is not None:
        options.say(slow)
    items: Any = [] if table is None else table.texts
    if (doubt := doubt_about(classifier, items)) is not None:
        options.say(doubt)
    report = classifier.export(
        out,
        runtime=args.runtime,
        precision=args.precision,
        texts=None if table is None else table.texts,
        labels=(table.labels or None) if table is not None else None,
        tolerance=args.tolerance,
        force=args.force,
        progress=True,
    )
    if args.json:
        options.print_json(report.to_dict())
    elif report.rows:
        Console().print(report_table(report))
    options.say(f"saved to {out}" if report.rows else f"saved to {out}; give --data to see what changed")


def report_table(report: ExportReport) -> Table:
    """Metrics, agreement and speed before and after."""
    table = Table(
        title=f"on {report.rows} texts",
        caption="Texts that no scale was measured on. Speed-up: on length-sorted batches, in turn, on this machine.",
    )
    table.add_column("")
    table.add_column("torch", justify="right")
    table.add_column(f"{report.runtime}\n{report.precision}", justify="right")
    for name, before in report.before.items():
        table.add_row(name, metric_text(name, before), metric_text(name, report.after[name]))
    table.add_row("agreement", "", metric_text("agreement", report.agreement))
    table.add_row("largest change of a logit", "", f"{report.largest_change:.2g}")
    table.add_row("speed-up", "1.00x", f"{report.speedup:.2f}x")
    return table
