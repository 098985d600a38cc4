"""Options that several commands share, and the objects that they stand for."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from ..boundary import printable
from ..checks import check_number
from ..cost import PLACEMENTS
from ..errors import PyramidError, UnknownNameError, UsageError
from ..files import to_json
from ..schedule.base import Schedule

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..lab.glue.tasks import Task
    from ..text.labels import Labels
    from ..text.tables import Table

SHORTEN = "shorten it, or pass --max-length {positions} to cut long texts"
SCHEDULES = ("exponential", "constant", "input_only", "custom", "random", "strided", "adaptive")
TEXT, LABEL = "text", "label"  # the default columns of a file
# Option -> (argument of the schedule's constructor, type, metavar, help).
_SCHEDULE_OPTIONS: dict[str, tuple[str, Any, str, str]] = {
    "keep-ratio": ("keep_ratio", float, "P", "share of the tokens left at the end, 0-1"),
    "last-layer": ("last_layer", int, "I", "last layer that drops tokens, from 1"),
    "first-layer": ("first_layer", int, "I", "first layer that drops tokens (default: 1)"),
    "min-tokens": ("min_tokens", int, "N", "never keep fewer tokens than this (default: 1)"),
    "multiple-of": ("multiple_of", int, "N", "round lengths up to a multiple of this (default: 1; AMX works on 16)"),
    "lengths": ("lengths", str, "80,50,32", "custom: tokens kept at each layer"),
    "lengths-for": ("n", int, "N", "custom: the input length that --lengths is for"),
    "schedule-seed": ("seed", int, "S", "random: seed of the schedule"),
    "window": ("window", int, "W", "strided: neighbours that become one token"),
    "at-layers": ("at_layers", str, "2,4", "strided: the layers that pool"),
    "adaptive-radius": (
        *("radius", float, "R"),
        "adaptive: keep the fewest tokens that cover the others within this share (0-1) of CLS's radius",
    ),
    "adaptive-steps": ("steps", int, "S", "adaptive: lengths to choose from (default: 8)"),
    "adaptive-growth": ("growth", float, "G", "adaptive: factor by which the radius grows from layer to layer"),
}

_PYRAMID_OPTIONS = "selector reduce weighted placement centers_per_step metric within rest_from protect".split()


def add_schedule_options(parser: argparse.ArgumentParser) -> None:
    """--schedule and what it takes."""
    group = parser.add_argument_group("schedule: how many tokens each layer keeps")
    group.add_argument("--schedule", choices=SCHEDULES, help="kind of schedule (default: exponential)")
    group.add_argument("--rounding", choices=("ceil", "floor"), help="ceil: the paper's formula; floor: its table")
    for option, (_, kind, metavar, text) in _SCHEDULE_OPTIONS.items():
        group.add_argument(f"--{option}", type=kind, metavar=metavar, help=text)


def add_speedup_option(parser: argparse.ArgumentParser) -> None:
    """--speedup, instead of a schedule."""
    faster = "X times faster than the dense model on length-sorted batches, on this machine"
    parser.add_argument("--speedup", type=float, metavar="X", help=f"find the schedule that is {faster}")


def speeds(text: str) -> float | tuple[float, float]:
    """A speed-up, or a range of them.

    Example:
        >>> speeds("2.5"), speeds("1.5-4")
        (2.5, (1.5, 4.0))
    """
    slowest, dash, fastest = text.partition("-")
    try:
        return (float(slowest), float(fastest)) if slowest and dash else float(text)
    except ValueError:
        message = f"give a speed-up such as 2.5, or a range such as 1.5-4, got {text!r}"
        raise argparse.ArgumentTypeError(message) from None


def add_max_length_option(parser: argparse.ArgumentParser) -> None:
    """--max-length."""
    parser.add_argument("--max-length", type=int, metavar="N", help="cut longer texts (default: as saved)")


def add_speed_option(parser: argparse.ArgumentParser) -> None:
    """--speed."""
    parser.add_argument("--speed", type=float, metavar="X", help="of an elastic model: times faster than dense")


def load_classifier(args: argparse.Namespace) -> PyramidClassifier:
    """The classifier that a call names, on its device, at its speed and optimized as it says."""
    from ..export.classifier import is_exported

    classifier = _exported(args) if is_exported(args.model) else _in_torch(args)
    if args.max_length is not None:
        check_number("--max-length", args.max_length, 2, whole=True, error=UsageError)
        classifier.max_length = args.max_length
    if args.speed is not None:
        classifier.speed = args.speed
        say(f"running at {classifier.speed:.2f}x")
    return classifier


def _in_torch(args: argparse.Namespace) -> PyramidClassifier:
    from ..classifier import PyramidClassifier

    classifier = PyramidClassifier.load(args.model, device=device_from(args))
    if getattr(args, "optimize", None):
        classifier.optimize(args.optimize)
    return classifier


def _exported(args: argparse.Namespace) -> PyramidClassifier:
    """An exported classifier, which has the verbs of the commands that predict. It needs no torch."""
    from ..export.classifier import ExportedClassifier

    if args.device not in ("auto", "cpu"):
        raise UsageError(
            f"{args.model} holds an exported model, which runs on the CPU; leave out --device {args.device}"
        )
    for option in ("optimize", "fallback"):
        if getattr(args, option, None) is not None:
            raise UsageError(f"--{option} is for models in torch, and {args.model} holds an exported one; leave it out")
    found = ExportedClassifier.opened(args.model)
    if (doubt := found.record.doubt) is not None:
        say(doubt)
    return cast("PyramidClassifier", found)


def add_optimize_option(parser: Any) -> None:
    """--optimize."""
    parser.add_argument(
        "--optimize",
        nargs="?",
        const="packed",
        choices=("packed", "bf16", "int8"),
        help="faster weights for the CPU: packed (the default; the same logits up to rounding), bf16 (on processors "
        "with bfloat16 instructions; logits change little) or int8 (they change more); write it after texts, or as "
        "--optimize=packed",
    )


def add_restart_option(parser: Any) -> None:
    """--restart."""
    parser.add_argument("--restart", action="store_true", help="throw away what a stopped run left, and start over")


def add_device_option(parser: Any) -> None:
    """--device."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda", "mps"),
        default="auto",
        help="where the model runs; auto: the accelerator that torch sees, else the CPU",
    )


def device_from(args: argparse.Namespace) -> str:
    """The device to ask for. --optimize is for CPUs, so with it "auto" means the CPU."""
    return "cpu" if getattr(args, "optimize", None) and args.device == "auto" else str(args.device)


def schedule_from(args: argparse.Namespace) -> Schedule | None:
    """The schedule that the options describe; None when none of them is given."""
    given: dict[str, Any] = {} if args.rounding is None else {"rounding": args.rounding}
    for option, (name, kind, _, _) in _SCHEDULE_OPTIONS.items():
        if (value := getattr(args, option.replace("-", "_"))) is not None:
            given[name] = numbers(f"--{option}", value) if kind is str else value
    if not given and args.schedule is None:
        return None
    if getattr(args, "speedup", None) is not None:
        raise UsageError("--speedup finds the schedule; leave out the schedule options")
    implied = {"lengths": "custom", "radius": "adaptive"}
    kind = args.schedule or next((implied[name] for name in given if name in implied), "exponential")
    try:
        with usage_errors():
            schedule: Schedule = getattr(Schedule, kind)(**given)
    except TypeError as error:  # an option that this kind does not take, or one that it lacks
        raise UsageError(f"schedule {kind!r}: {_as_options(str(error))}") from error
    return schedule


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns errors inside the block into mistakes in the call: exit code 2."""
    try:
        yield
    except PyramidError as error:
        raise UsageError(_by_option(str(error))) from error


@contextmanager
def named_by_options() -> Iterator[None]:
    """Lets errors inside the block name an option where they begin with the name of an argument."""
    try:
        yield
    except PyramidError as error:
        error.args = (_by_option(str(error)),)
        raise


def _by_option(message: str) -> str:
    options = {name: option for option, (name, *_) in _SCHEDULE_OPTIONS.items()}
    options |= {name: name.replace("_", "-") for name in _PYRAMID_OPTIONS}
    del options["n"]  # two options can mean it: --lengths-for, and --n of `schedule`
    first, space, rest = message.partition(" ")
    return f"--{options[first]}{space}{rest}" if first in options else message


def _as_options(message: str) -> str:
    """Python's error about arguments, with the names of the command line."""
    text = message.partition("() ")[2] or message
    for option, (name, _, _, _) in _SCHEDULE_OPTIONS.items():
        text = text.replace(f"'{name}'", f"'{option}'")
    return text.replace("positional ", "").replace("keyword-only ", "").replace("keyword ", "")


def numbers(option: str, text: str) -> list[int]:
    """The whole numbers in a text like "80,50,32"."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"{option} takes whole numbers with commas between, got {text!r}") from error


def add_pyramid_options(parser: argparse.ArgumentParser) -> None:
    """Which tokens stay, and how the others are reduced."""
    group = parser.add_argument_group("selection: which tokens stay, and how the others are reduced")
    group.add_argument(
        "--selector",
        help="coreset (default), cluster, bipartite, attention, cls-attention, first, random, pool or input-first",
    )
    group.add_argument(
        "--reduce",
        choices=("drop", "merge", "replace"),
        help="drop the others (the paper), merge them, or replace them by copies of the kept (pyramid*: saves nothing)",
    )
    weighted = "with drop: weigh tokens by how many they stand for"
    group.add_argument("--weighted", action="store_true", default=None, help=weighted)
    group.add_argument("--placement", choices=PLACEMENTS, help="where a layer reduces (default: middle)")
    centers = "an int (default: 1), a share like 0.1, or all"
    group.add_argument("--centers-per-step", type=_centers, metavar="M", help=centers)
    group.add_argument("--metric", choices=("euclidean", "cosine"), help="distance (default: euclidean)")
    group.add_argument("--within", type=int, metavar="N", help="cluster: merge only tokens at most N places apart")
    parts, pairs = (
        lambda text: tuple(text.split(",")),
        "of pairs of texts: leave query, separators, or both as they are",
    )
    group.add_argument("--protect", type=parts, metavar="PARTS", help=pairs)
    group.add_argument("--rest-from", type=int, metavar="LAYER", help="from this layer on compute only CLS")


def pyramid_settings_from(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `PyramidConfig` that were given, except the schedule: a saved pyramid keeps its others."""
    return {name: getattr(args, name) for name in _PYRAMID_OPTIONS if getattr(args, name) is not None}


def _centers(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def add_data_options(parser: argparse.ArgumentParser, label: str | None = LABEL) -> None:
    """Which columns of a file hold what; `label` is the default of the label's column."""
    group = parser.add_argument_group("columns of CSV, TSV and JSONL files (.gz too) or Parquet files")
    group.add_argument("--text-column", default=TEXT, metavar="NAME", help="the text (default: text)")
    group.add_argument("--text-pair-column", metavar="NAME", help="the second text of a pair")
    group.add_argument(
        "--label-column", default=label, metavar="NAME", help=f"the label (default: {label or 'none is read'})"
    )


def read_data(path: str, args: argparse.Namespace, *, labels: bool = True) -> Table:
    """The rows of a file, by the columns that the options name."""
    from ..text.tables import read_table

    return read_table(
        path,
        text_column=args.text_column,
        pair_column=args.text_pair_column,
        label_column=args.label_column if labels else None,
    )


def has_labels(path: str, args: argparse.Namespace) -> bool:
    """Whether the first row of a file has the label's column, or the call names one."""
    from ..text.tables import iterate_rows

    first = next(iterate_rows(Path(path)), None)
    return args.label_column != LABEL or (first is not None and args.label_column in first[1])


def add_task_option(parser: argparse.ArgumentParser) -> None:
    """--task."""
    names = "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli or imdb"
    parser.add_argument("--task", metavar="NAME", help=f"a task of GLUE, or IMDB, instead of your own file: {names}")


def check_task_call(args: argparse.Namespace) -> None:
    """Raises when columns are named for a task: a task knows its columns."""
    columns = (args.text_column, args.text_pair_column, args.label_column)
    if args.task is not None and columns != (TEXT, None, LABEL):
        raise UsageError("a --task knows its columns; leave out the column options, or name a file of your own")


def task_from(args: argparse.Namespace) -> Task | None:
    """The task that --task names; None without it."""
    from ..lab.glue.tasks import TASKS

    if args.task is not None and args.task not in TASKS:
        with usage_errors():
            raise UnknownNameError("task", args.task, TASKS)
    return None if args.task is None else TASKS[args.task]


def dev_tables(task: Task, folder: str | None) -> dict[str, Table]:
    """What a task is evaluated on, by the prefix of its metrics: "" and, for MNLI, "mismatched_"."""
    from ..lab.glue.tasks import load_task

    prefixes = {split: split.removeprefix("dev").removeprefix("_") for split in task.splits if split != "train"}
    return {prefix and f"{prefix}_": load_task(task.name, folder, split) for split, prefix in prefixes.items()}


def encoded(classifier: PyramidClassifier, table: Table, remedy: str) -> Table:
    """The table with its texts as token ids, so that each is tokenized once. Errors name the file and the row."""
    items: Any = classifier.encode(table.texts, where=table.where, remedy=remedy)
    return replace(table, texts=items)


def name_classes(classifier: PyramidClassifier, known: Labels, seed: int, new_classes: bool) -> None:
    """Lets the classifier predict a task's classes by name; one that learned the class numbers keeps them."""
    have = classifier.labels
    if have is not None and have.classes == known.classes:
        classifier.labels = known
    elif have is None or have.classes != tuple(range(known.outputs)):
        if have is not None and not new_classes:
            have.check_replaceable(known)
        classifier.new_head(known, seed)


def evaluate_all(classifier: PyramidClassifier, tables: dict[str, Table], batch_size: int) -> dict[str, float]:
    """The metrics on each table, by name with the table's prefix."""
    for table in tables.values():
        classifier.known_labels().targets(table.labels, where=table.where)
    tables = {prefix: encoded(classifier, table, SHORTEN) for prefix, table in tables.items()}
    metrics: dict[str, float] = {}
    for prefix, table in tables.items():
        found = classifier.evaluate(table.texts, table.labels, batch_size=batch_size, progress=True)
        metrics |= {prefix + name: value for name, value in found.items()}
    return metrics


def report(metrics: dict[str, float], as_json: bool) -> None:
    """Prints metrics by name."""
    if as_json:
        print_json(metrics)
    else:
        for name, value in metrics.items():
            print(f"{name} {value:.4f}")


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def print_json(value: Any) -> None:
    """Prints data for programs on stdout."""
    print(json_text(value, indent=1))


def json_text(value: Any, **form: Any) -> str:
    """JSON in which everything is escaped that a terminal could take for a command."""
    text = to_json(value, ensure_ascii=False, **form)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def messages() -> Console:
    """The console for messages: stderr."""
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Prints a message in one line on stderr, whatever names it holds."""
    messages().print(printable(text), markup=False, soft_wrap=True)
