"""Make a trained dense classifier faster without training: search for the pyramid that stays nearest to it.

Pyramids with the same weights are tried on a part of the rows of --data. They differ in how tokens are chosen (clusters
of similar ones, core-sets, attention, the first ones), in what becomes of the others and in the layers; each has the
keep ratio that gives the wanted speed-up. The table in the end compares dense model and pyramid on the other rows.
Labels are used if the file has them, but are not needed.

With --runtime auto, or the name of one, runtime, precision and pyramid are chosen together: the dense model is timed in
all of them, pyramids are searched where it is not fast enough, and what agrees most with the dense model in torch among
those that are fast enough is written to --out.

In torch, the best pyramid is saved as soon as it is found, before it is measured and compared: a command that is
stopped then, by Ctrl-C or by the system, leaves it in --out.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as RichTable

from ..checks import check_number
from ..errors import DataError, PyramidError, UsageError
from ..files import check_not_input, check_replaceable, check_writable, only_writer, recover_folder
from ..runtimes.registry import RUNTIMES
from . import options
from .compared import INTERVALS, comparison
from .fronts import check_picture, doubt, draw_front, front_table
from .options import LABEL, read_data, usage_errors

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..text.tables import Table
    from ..tune.finder import Search
    from ..tune.runtimes import RuntimeSearch

TORCH = "torch"
_FAR_BELOW, _FAR_ABOVE = 0.9, 1.15  # of the wanted speed-up: worth a word
_VARIED = 0.1  # the spread of the rounds, as a share of their median: worth a word
EPILOG = """examples:
  pyramid-bert speedup my-dense-model --data dev.csv --speedup 2 --out twice-as-fast
  pyramid-bert speedup my-dense-model --data unlabelled.jsonl --speedup 1.5 --out faster --minutes 5
  pyramid-bert speedup my-dense-model --data dev.csv --speedup 2 --ideal --metric f1 --out faster --json
  pyramid-bert speedup my-dense-model --data dev.csv --speedup 6 --runtime auto --out fast --plot front.png
  pyramid-bert predict twice-as-fast "a fine film" """


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained dense classifier")
    parser.add_argument("--data", required=True, metavar="FILE", help="at least 50 texts like those it will be used on")
    parser.add_argument("--speedup", type=float, required=True, metavar="X", help="how many times faster it is to be")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the pyramid goes")
    parser.add_argument(
        "--ideal", action="store_true", help="count multiply-accumulates at true lengths, not time on this machine"
    )
    parser.add_argument(
        "--runtime",
        default=TORCH,
        choices=("auto", TORCH, *RUNTIMES),
        help="torch (default): a pyramid there; auto: choose among all that are installed, with precision and pyramid",
    )
    parser.add_argument(
        "--precision",
        metavar="P,P",
        help="with another --runtime than torch: only these, of fp32, packed, bf16 and int8",
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="with another --runtime than torch: draw speed and agreement of all (.png)"
    )
    parser.add_argument("--metric", metavar="NAME", help="metric that decides among the last few (default: accuracy)")
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="M", help="how long it may take in all (default: 10)"
    )
    parser.add_argument(
        "--held-out",
        type=float,
        metavar="P",
        help="share of the rows for the table in the end, which the search does not see: more rows make the table more "
        "certain, fewer leave more to the search (default: half, or up to 200 rows as long as 100 are left)",
    )
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="texts at a time (default: 32)")
    parser.add_argument("--max-length", type=int, metavar="N", help="cut longer texts to this many tokens")
    parser.add_argument("--no-labels", action="store_true", help="do not read labels; compare by agreement only")
    parser.add_argument("--overwrite", action="store_true", help="replace a model that is in --out already")
    options.add_data_options(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Searches, saves and compares."""
    check_number("--minutes", args.minutes, above=True, error=UsageError)
    check_number("--batch-size", args.batch_size, 1, whole=True, error=UsageError)
    if args.no_labels and (args.metric is not None or args.label_column != LABEL):
        raise UsageError("--no-labels reads no labels; leave it out, or leave out --metric and --label-column")
    out, elsewhere = Path(args.out), args.runtime != TORCH
    _check_runtime(args)
    recover_folder(out)
    if any((out / name).exists() for name in ("config.json", "exported.json")) and not args.overwrite:
        raise PyramidError(f"{out} holds a trained model already; name another folder, or pass --overwrite")
    table = _read(args)

    from ..classifier import WRITTEN, PyramidClassifier
    from ..export.texts import check_kind_of_texts, doubt_about
    from ..export.writing import WRITTEN as EXPORTED
    from ..runtimes.places import places_of
    from ..tune.solver import check_speedup

    with usage_errors():
        check_speedup(args.speedup, "--speedup")
        if elsewhere:
            places_of(args.runtime, _precisions(args))
    check_not_input(out, Path(args.model))
    check_writable(out)
    check_replaceable(out, (*WRITTEN, *EXPORTED) if elsewhere else WRITTEN)
    classifier = PyramidClassifier.load(args.model, device="cpu" if elsewhere else args.device)
    _check_call(args, classifier, table)
    if args.max_length is not None:
        classifier.max_length = args.max_length
    table = options.encoded(classifier, table, options.SHORTEN)
    items: Any = table.texts
    check_kind_of_texts(classifier, items)
    if (doubt_of_texts := doubt_about(classifier, items)) is not None:
        options.say(doubt_of_texts)
    with only_writer(out):
        if elsewhere:
            chosen = _choose(args, classifier, table, out)
        else:
            search = _search(args, classifier, table, out)
    if elsewhere:
        _show_chosen(chosen, args)
    else:
        _show(search, args)
    options.say(f"saved to {out}")


def _check_runtime(args: argparse.Namespace) -> None:
    """Raises for options that do not fit the runtime, and for a runtime or a picture that cannot be had."""
    if args.runtime == TORCH:
        for option in ("precision", "plot"):
            if getattr(args, option) is not None:
                raise UsageError(f"--{option} needs --runtime auto, or one of {', '.join(RUNTIMES)}")
        return
    if args.ideal:
        raise UsageError("--ideal counts multiply-accumulates, and runtimes differ in time; leave it or --runtime out")
    if args.device not in ("auto", "cpu"):
        raise UsageError(f"--runtime {args.runtime} compares on the CPU; leave out --device {args.device}")
    if args.plot is not None:
        check_picture(args.plot)


def _precisions(args: argparse.Namespace) -> list[str] | None:
    return None if args.precision is None else [name.strip() for name in args.precision.split(",")]


def _choose(args: argparse.Namespace, classifier: PyramidClassifier, table: Table, out: Path) -> RuntimeSearch:
    """Chooses runtime, precision and pyramid, and writes the chosen one."""
    from ..tune.runtimes import find_runtime

    return find_runtime(
        classifier,
        args.speedup,
        table.texts,
        table.labels or None,
        folder=out,
        runtime=args.runtime,
        precisions=_precisions(args),
        metric=args.metric,
        minutes=args.minutes,
        held_out=args.held_out,
        batch_size=args.batch_size,
        progress=True,
    )


def _show_chosen(search: RuntimeSearch, args: argparse.Namespace) -> None:
    if args.json:
        options.print_json(search.to_dict())
    else:
        Console().print(front_table(search))
    if args.plot is not None:
        draw_front(search, Path(args.plot))
        options.say(f"drawn in {args.plot}")
    for reason in search.left_out:
        options.say(reason)
    if not search.in_time:
        options.say(f"{args.minutes:g} minutes were over; a larger --minutes may find nearer pyramids")
    if (words := doubt(search)) is not None:
        options.say(words)
    if search.chosen.runtime == TORCH and search.chosen.precision != "fp32":
        options.say(f"it is this fast with --optimize {search.chosen.precision}, which predict and evaluate take")


def _search(args: argparse.Namespace, classifier: PyramidClassifier, table: Table, out: Path) -> Search:
    """Searches, and saves the best pyramid whenever there is a better one."""
    from ..tune.search import find_pyramid

    saved = False

    def save(best: PyramidClassifier) -> None:
        nonlocal saved
        best.save(out)
        saved = True

    try:
        with _terminated_like_ctrl_c():
            return find_pyramid(
                classifier,
                args.speedup,
                table.texts,
                table.labels or None,
                target="ideal" if args.ideal else "time",
                metric=args.metric,
                minutes=args.minutes,
                held_out=args.held_out,
                batch_size=args.batch_size,
                on_best=save,
                progress=True,
            )
    except KeyboardInterrupt:
        found = f"the best pyramid so far is in {out}; its speed was not measured on unseen rows"
        options.say(found if saved else "the search was not far enough; nothing was saved")
        raise


@contextmanager
def _terminated_like_ctrl_c() -> Iterator[None]:
    """Lets SIGTERM, by which systems end processes, do what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _read(args: argparse.Namespace) -> Table:
    """The rows, with labels if the file has them or the call needs them."""
    if args.no_labels:
        return read_data(args.data, args, labels=False)
    there = options.has_labels(args.data, args)
    if not there and args.metric is not None:
        raise DataError(
            f"--metric {args.metric} needs labels, and row 1 of {args.data} has no column {args.label_column!r}; "
            "name another with --label-column, or leave out --metric to compare by agreement"
        )
    return read_data(args.data, args, labels=there)


def _check_call(args: argparse.Namespace, classifier: PyramidClassifier, table: Table) -> None:
    """Raises for what the model and the rows show to be wrong, before any work."""
    from ..families import positions_of
    from ..tune.finder import MINIMUM_ROWS
    from ..tune.search import check_held_out, metric_for

    known, positions = classifier.known_labels(), positions_of(classifier.model)
    if args.max_length is not None and not 2 <= args.max_length <= positions:
        raise UsageError(
            f"--max-length must be in 2-{positions}, got {args.max_length}; the model reads {positions} tokens"
        )
    with usage_errors():
        metric_for(known, args.metric)
        if len(table.texts) >= MINIMUM_ROWS:  # the search refuses fewer
            check_held_out(args.held_out, len(table.texts))
    try:
        if table.labels:
            known.targets(table.labels, where=table.where)
    except DataError as error:
        raise DataError(f"{error}; correct them, or pass --no-labels to compare by agreement only") from error


def _show(search: Search, args: argparse.Namespace) -> None:
    if args.json:
        options.print_json(search.to_dict())
    else:
        Console().print(compared(search))
    if not search.in_time:
        tried = f"{len(search.trials)} pyramid{'s' if len(search.trials) > 1 else ''} tried"
        options.say(f"{args.minutes:g} minutes were over with {tried}; a larger --minutes may find a better one")
    low, high = min(search.by_round), max(search.by_round)
    if high - low > _VARIED * search.measured:
        rounds = f"{low:.2f}x to {high:.2f}x in {len(search.by_round)} rounds"
        options.say(f"timings varied between rounds: {rounds}; measure again when nothing else runs")
    share = search.measured / search.wanted
    if search.target == "ideal" or _FAR_BELOW <= share <= _FAR_ABOVE:
        return
    reason = (
        "short texts and small batches give less than is predicted; ask for less, or give a larger --batch-size"
        if share < 1
        else "times differed while the search ran, as they do on a busy machine, and more speed than was asked for "
        "costs answers; run it again when nothing else runs, or with --ideal"
    )
    found = f"asked for {search.wanted:g}x, measured {search.measured:.2f}x on the held-out rows"
    options.say(f"{found}: {reason}")


def compared(search: Search) -> RichTable:
    """Dense beside pyramid, on the rows that the search never saw."""
    from ..tune.candidates import described

    rounds = f"the median of {len(search.by_round)} rounds" if len(search.by_round) > 1 else "in one round"
    caption = (
        f"{described(search.settings)}; the best of {len(search.trials)} on {search.trials[0].rows} other rows, in "
        f"{search.seconds / 60:.1f} minutes. {INTERVALS}, {rounds}. "
        "Dense in another runtime may be faster than dense in torch: --runtime auto compares all that are installed."
    )
    wanted = {search.target: f" ({search.wanted:g}x wanted)"}
    speedups = {
        f"ideal{wanted.get('ideal', '')}": search.ideal,
        f"measured{wanted.get('time', '')}": search.measured,
    }
    return comparison(search, f"on {search.held_out_rows} rows that the search did not see", caption, speedups)
