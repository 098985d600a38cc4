"""Build one HTML page of results, figures and a model's token pyramids. It opens from disk and needs no network.

Tables and charts come from the files in --results and the experiment files in --experiments. With --model the page also
explains example sentences and shows the model's token vectors. Missing results are listed with the command that makes
them.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..counting import steps_shown
from ..errors import NoDataError, UsageError
from ..files import check_writable, check_writable_file, write_text
from .options import add_device_option, add_json_option, print_json, say

if TYPE_CHECKING:
    from ..lab.report.collect import Results
    from ..lab.report.model import ModelView
    from ..text.tables import Text

EPILOG = """examples:
  pyramid-bert report --out report.html
  pyramid-bert report --model my-model --texts reviews.txt --out report.html
  pyramid-bert report --model my-model --data glue --figures figures --out report.html

A file of texts has one text per line (.txt), or is a CSV, TSV, JSONL or Parquet file with the column --text-column."""


# Option -> its default, the name of its value, and its help.
OPTIONS: dict[str, tuple[str | int | None, str, str]] = {
    "results": ("results", "DIR", "folder of results (default: results)"),
    "experiments": ("experiments", "DIR", "folder of the studies' TOML files (default: experiments)"),
    "model": (None, "DIR", "the folder of a trained classifier, pyramid or dense"),
    "texts": (None, "FILE", "example texts (default: a dozen sentences about films)"),
    "text-column": ("text", "NAME", "column of the texts (default: text)"),
    "text-pair-column": (None, "NAME", "column of the second text of a pair"),
    "examples": (24, "N", "texts in the viewer (default: 24)"),
    "max-texts": (128, "N", "texts in the figures (default: 128)"),
    "data": (None, "DIR", "folder of the studies' tasks, for the lengths of their texts"),
    "out": ("report.html", "FILE", "the page (default: report.html)"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    for name, (default, value, words) in OPTIONS.items():
        kind = int if isinstance(default, int) else str
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=value, help=words)
    parser.add_argument("--figures", metavar="DIR", help="write the figures as PNG and SVG files as well")
    add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Reads results, runs the model and writes the page."""
    for option in ("examples", "max_texts"):
        if getattr(args, option) < 1:
            raise UsageError(f"--{option.replace('_', '-')} must be at least 1, got {getattr(args, option)}")
    for option in ("texts", "data"):
        if getattr(args, option) and not args.model:
            raise UsageError(f"--{option} needs a model; give --model as well")
    out = Path(args.out)
    check_writable_file(out)
    if args.figures:
        check_writable(Path(args.figures))

    from ..lab.report.collect import collect_results
    from ..lab.report.figures import styled, write_pictures
    from ..lab.report.page import Call, pictures_of, report_html

    with styled():  # fails before any work if matplotlib is missing
        results = collect_results(Path(args.results), Path(args.experiments))
        view = _look(args, results) if args.model else None
        pictures = pictures_of(results, view)
    given = {name: getattr(args, name.replace("-", "_")) for name in OPTIONS}
    call = Call({f"--{name}": str(value) for name, value in given.items() if value != OPTIONS[name][0]})
    page = report_html(results, view, pictures, call, f"{datetime.now(UTC):%Y-%m-%d}")
    write_text(out, page)
    files = [str(path) for path in write_pictures(pictures, Path(args.figures))] if args.figures else []
    if args.json:
        print_json({"page": str(out), "bytes": len(page.encode()), "figures": files})
    else:
        more = f", {len(files)} files in {args.figures}" if files else ""
        say(f"page in {out} ({len(page.encode()) / 1e6:.1f} MB){more}")


def _look(args: argparse.Namespace, results: Results) -> ModelView:
    """Runs the model, with a progress bar."""
    from ..lab.report.model import look_at

    texts = _texts(args)[: args.max_texts]
    others = {"these texts": texts} | _tasks(args.data, results) if args.data else {"these texts": texts}
    with steps_shown("looking at texts", min(args.examples, len(texts)) + len(texts)) as step:
        return look_at(args.model, texts, examples=args.examples, others=others, stepped=step, device=args.device)


def _texts(args: argparse.Namespace) -> list[Text]:
    from ..lab.report.page import EXAMPLES
    from ..text.tables import read_table

    file = EXAMPLES if args.texts is None else Path(args.texts)
    if file.suffix == ".txt":
        lines = file.read_text(encoding="utf-8").splitlines()
        return [line.strip() for line in lines if line.strip()]
    columns = {"text_column": args.text_column, "pair_column": args.text_pair_column}
    return read_table(args.texts, **columns, label_column=None).texts


def _tasks(folder: str, results: Results) -> dict[str, list[Text]]:
    """The dev texts in `folder` of the tasks of all studies, by title. Tasks of pixels and bytes have no texts."""
    from ..lab.glue.tasks import TASKS, load_task

    names = dict.fromkeys(task for run in results.runs for task in run.study.tasks if task in TASKS)
    found: dict[str, list[Text]] = {}
    missing: dict[str, NoDataError] = {}
    for name in names:
        try:
            found[TASKS[name].title] = load_task(name, folder, "dev").texts
        except NoDataError as error:
            missing[TASKS[name].title] = error
    if missing and not found:
        raise next(iter(missing.values()))
    if missing:
        say(f"no data of {', '.join(missing)} in {folder}; the figure of lengths leaves them out")
    return found
