"""Run a grid of methods, configurations, tasks and seeds from an experiment file, and make the paper's tables of it.

Each result is written at once: a study can be stopped or killed at any time, and the same command continues it.
docs/studies.md describes experiment files.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..boundary import printable
from ..cores import cores
from ..errors import PyramidError, UnknownNameError, UsageError
from ..lab.study.methods import AXES
from .options import add_json_option, messages, print_json, say

if TYPE_CHECKING:
    from ..lab.study.cell import Site
    from ..lab.study.executors import Executor
    from ..lab.study.grid import Cell
    from ..lab.study.runner import Summary
    from ..lab.study.runs import Run

EPILOG = """examples:
  pyramid-bert study run experiments/glue-lite.toml --data glue --model path/to/minilm
  pyramid-bert study run experiments/glue-lite.toml --data glue --model path/to/minilm --only 'rte*' --limit-minutes 30
  pyramid-bert study run experiments/glue-lite.toml --data glue --model path/to/minilm --measure
  pyramid-bert study status experiments/glue-lite.toml
  pyramid-bert study table experiments/glue-lite.toml --axis measured-c --markdown
  pyramid-bert study plot experiments/glue-lite.toml --out glue-lite.png

`pyramid-bert study ACTION --help` explains an action."""
_RUN_EPILOG = """examples:
  pyramid-bert study run FILE --data DIR --model DIR                 one cell after another
  pyramid-bert study run FILE --data DIR --model DIR --jobs 4        four processes
  pyramid-bert study run FILE --data DIR --model DIR --ray auto      the Ray cluster that this machine belongs to
  pyramid-bert study run FILE --data DIR --model DIR --only ID       one cell, and the dense one it starts from"""
_STATUS_EPILOG = """examples:
  pyramid-bert study status FILE
  pyramid-bert study status FILE --cells --only 'rte*'               ids of cells, for `study run FILE --only ID`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    run_parser = _action(actions, "run", "run what is left of a study", _RUN_EPILOG)
    group = run_parser.add_argument_group("where things are")
    group.add_argument("--data", metavar="DIR", help="folder of the tasks' files (default: fetch them from the hub)")
    group.add_argument("--model", metavar="DIR", help="folder of the pretrained model, if the experiment names none")
    group.add_argument("--work", default="runs", metavar="DIR", help="dense classifiers of all studies (default: runs)")
    group = run_parser.add_argument_group("what to run")
    _add_only(group)
    group.add_argument("--retry", action="store_true", help="run failed cells again")
    group.add_argument("--again", action="store_true", help="run the chosen cells again even if they are done")
    group.add_argument("--limit-minutes", type=float, metavar="M", help="start no cell after this many minutes")
    group.add_argument("--measure", action="store_true", help="measure speeds on a quiet machine; train nothing")
    group = run_parser.add_argument_group("where cells run")
    group.add_argument("--jobs", type=int, metavar="N", help="processes at once (default: 1)")
    group.add_argument(
        "--threads", type=int, metavar="N", help="threads of a cell (default: cores / jobs; with Ray: 1)"
    )
    group.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster; 'local' starts one here")
    status = _action(actions, "status", "show what is done and what is left", _STATUS_EPILOG)
    _add_only(status)
    status.add_argument("--cells", action="store_true", help="list every cell: its state, id and name")
    add_json_option(status)
    example = "examples:\n  pyramid-bert study {} FILE"
    table = _action(actions, "table", "print the metric at given speed-ups", example.format("table"))
    _add_axes(table)
    help_text = "where to read (default: 1.5,2,3,3.5; for space 0.3,0.7; with --lost the file's own speed-ups, if any)"
    table.add_argument("--at", metavar="X[,X]", help=help_text)
    help_text = "print points lost against dense, of the configuration nearest to each speed-up, with seeds and gaps"
    table.add_argument("--lost", action="store_true", help=help_text)
    table.add_argument("--markdown", action="store_true", help="print Markdown")
    add_json_option(table)
    plot = _action(actions, "plot", "draw scatter and Pareto curves", example.format("plot"))
    _add_axes(plot)
    plot.add_argument("--out", metavar="FILE", help="picture to write, as .png and .svg (default: NAME.png)")


def _action(actions: Any, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary, epilog=epilog, formatter_class=form
    )
    parser.add_argument("file", metavar="FILE", help="the experiment, a TOML file")
    parser.add_argument("--results", default="results", metavar="DIR", help="where results are kept (default: results)")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def _add_only(parser: Any) -> None:
    help_text = "a cell's id, or a pattern like 'rte*'; may be given again"
    parser.add_argument("--only", action="append", default=[], metavar="ID", help=help_text)


def _add_axes(parser: argparse.ArgumentParser) -> None:
    help_text = "against what: speed-up over dense at true lengths (c) or padded (a), or space saved (default: ideal-c)"
    parser.add_argument("--axis", choices=tuple(AXES), default="ideal-c", help=help_text)
    help_text = "a recorded metric, such as accuracy or f1, for all tasks (default: each task's own)"
    parser.add_argument("--metric", metavar="NAME", help=help_text)


def run(args: argparse.Namespace) -> None:
    """Reads the experiment and does what was asked."""
    from ..lab.study.spec import load_study

    study = load_study(args.file)
    _check(args, study.measure is not None)
    from ..lab.study.preflight import all_cells
    from ..lab.study.runs import Run
    from ..lab.study.store import Store

    all_cells(study)
    action = {"run": _run, "status": _status, "table": _table, "plot": _plot}[args.action]
    action(args, Run(args.file, study, Store.of(args.results, study.name)))


def _check(args: argparse.Namespace, measures: bool) -> None:
    """Refuses options that do not fit together, before anything slow is imported."""
    for option, low in (("jobs", 1), ("threads", 1), ("limit_minutes", 0)):
        value = getattr(args, option, None)
        if value is not None and not value >= low:
            raise UsageError(f"--{option.replace('_', '-')} must be at least {low}, got {value:g}")
    if args.action == "run" and args.measure:
        if args.ray or args.jobs or args.limit_minutes is not None:
            raise UsageError("--measure runs nothing beside it: leave out --jobs, --ray and --limit-minutes")
        if not measures:
            raise UsageError(f"{args.file} asks for no measurements; set measure = true in it")
    if args.action == "table" and args.markdown and args.json:
        raise UsageError("give --markdown or --json, not both")
    if args.action == "table" and args.lost and args.axis.startswith("space"):
        raise UsageError(f"--lost goes with speed-ups, got --axis {args.axis}; use ideal-c or measured-c")


def _run(args: argparse.Namespace, run: Run) -> None:
    from ..lab.study.cell import Site, run_cell, run_measurement
    from ..lab.study.display import Display, Pace
    from ..lab.study.executors import Executor
    from ..lab.study.grid import measurements
    from ..lab.study.preflight import prepare
    from ..lab.study.runner import Runner, choose
    from ..lab.study.store import machine

    chosen = choose(run.cells, args.only)
    jobs = args.jobs or 1
    threads = args.threads or (1 if args.ray else None if jobs == 1 else max(1, cores() // jobs))
    with machine(args.work, alone=args.measure):
        site = Site(file=args.file, model=args.model or "", data=args.data, work=args.work, threads=threads)
        site = prepare(run.study, chosen, run.store, site)
        settings: dict[str, Any] = {"store": run.store, "retry": args.retry, "again": args.again}
        if args.measure:
            plan = dict(run.study.measure or {})
            runner = Runner(measurements(chosen, run.records.get, plan), **settings)
            work = partial(run_measurement, site=site, plan=plan, records=run.records)
            _tell_unfound(chosen, run)
            pace = Pace(runner.jobs, run.store, lambda cell: cell.max_length)  # mostly the dense model padded to N
        else:
            keys = [cell.key for cell in chosen]
            every = {cell.key: cell for cell in run.cells}
            settings |= {"chosen": keys, "has_weights": site.has_dense, "limit_minutes": args.limit_minutes}
            runner = Runner(every, **settings)
            work = partial(run_cell, site=site, anew=keys if args.again else ())
            pace = Pace(every, run.store)
        todo = runner.plan()
        if not todo:
            say(f"nothing is left to {'measure' if args.measure else 'run'}")
        args.goes_on = lambda: True
        executor = _executor(args, work, site) if todo else Executor(work)
        with executor, Display(messages(), todo, pace, executor.slots) as runner.display:
            summary = runner.go(executor)
    _conclude(summary, run.study.name)


def _tell_unfound(cells: Sequence[Cell], run: Run) -> None:
    """Says which cells cannot be measured, because their pyramids are found when they run."""
    from ..lab.study.grid import unfound

    waiting = unfound(cells, run.records.get)
    if waiting:
        names = ", ".join(cell.name for cell in waiting[:5]) + (", ..." if len(waiting) > 5 else "")
        say(
            f"not measured, because a pyramid is known only when its cell is done: {len(waiting)} cells ({names}); run "
            "them first, then measure again"
        )


def _executor(args: argparse.Namespace, work: partial[dict[str, Any]], site: Site) -> Executor:
    from ..lab.study.executors import Executor, Processes, RayTasks

    if args.ray:
        return RayTasks(work, args.ray, threads=site.threads or 1, slots=args.jobs)
    return Processes(work, args.jobs) if args.jobs and args.jobs > 1 else Executor(work)


def _conclude(summary: Summary, name: str) -> None:
    """Says how the run ended; raises when something failed."""
    left = f", {len(summary.left)} left" if summary.left else ""
    say(f"{name}: {len(summary.done)} done{left}")
    if summary.failed or summary.blocked:
        waiting = f", and {len(summary.blocked)} that start from them" if summary.blocked else ""
        names = ", ".join(f"{cell.name} ({cell.id})" for cell in summary.failed[:5])
        raise PyramidError(
            f"{len(summary.failed)} cells failed{waiting}: {names}. `study status` tells why; --retry runs them again"
        )


def _status(args: argparse.Namespace, run: Run) -> None:
    from ..lab.study.display import status_of, status_table
    from ..lab.study.runner import choose

    status = status_of(choose(run.cells, args.only), run.store, run.study.measure)
    if args.json:
        print_json({key: value for key, value in status.items() if args.cells or key != "cells"})
        return
    Console().print(status_table(run.study.name, status))
    measured = status["measured"] or {"failed": []}
    for entry in [*(status["cells"] if args.cells else status["failed"]), *measured["failed"]]:
        reason = f": {entry['error']}" if "error" in entry else ""
        print(printable(f"{entry['state']} {entry['id']} {entry['name']}{reason}"))


def _table(args: argparse.Namespace, run: Run) -> None:
    from ..lab.study.lost import lost_table, markdown_lost, rich_lost
    from ..lab.study.table import markdown, rich_table, tabulate

    try:
        targets = None if args.at is None else [float(part) for part in args.at.split(",")]
    except ValueError as error:
        raise UsageError(f"--at takes numbers with commas between, got {args.at!r}") from error
    if args.lost:
        lost = lost_table(run, args.axis, targets, _metric(args))
        if args.json:
            print_json(lost.to_dict())
        elif args.markdown:
            print(markdown_lost(lost))
        else:
            Console().print(rich_lost(lost))
        return
    table = tabulate(run.results(args.axis, _metric(args)), args.axis, run.titles, targets, args.metric)
    if args.json:
        print_json({"study": run.study.name, **table.to_dict()})
    elif args.markdown:
        print(markdown(run.study.name, table))
    else:
        Console().print(rich_table(run.study.name, table))


def _plot(args: argparse.Namespace, run: Run) -> None:
    from ..lab.study.arena import STUDY_TASKS
    from ..lab.study.plot import draw

    results = run.results(args.axis, _metric(args))
    out = Path(args.out or f"{run.study.name}.png")
    metrics = {task: args.metric or STUDY_TASKS[task].metric for task in run.study.tasks}
    for path in draw(results, args.axis, run.titles, metrics, out, run.study.name):
        print(path)


def _metric(args: argparse.Namespace) -> str | None:
    """--metric, if it is one that studies record."""
    from ..lab.study.table import METRICS

    metric: str | None = args.metric
    if metric not in (None, *METRICS):
        raise UsageError(str(UnknownNameError("metric", metric, METRICS)))
    return metric
