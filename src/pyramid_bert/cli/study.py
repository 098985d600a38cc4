"""Run a grid of methods, configurations, tasks and seeds from an experiment file, and make the paper's tables of it.

Each result is appended to one file at once: a study can be stopped or killed at any time, and the same command goes on.
docs/studies.md describes experiment files.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import PyramidError, UnknownNameError, UsageError
from ..lab.study.axes import AXES
from .options import add_json_option, cores, messages, print_json

if TYPE_CHECKING:
    from ..lab.study.cell import Site
    from ..lab.study.executors import Executor
    from ..lab.study.grid import Cell
    from ..lab.study.runner import Summary
    from ..lab.study.spec import Study
    from ..lab.study.store import Store
    from ..lab.study.table import Result

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
    group.add_argument("--retry", action="store_true", help="run cells again that failed")
    group.add_argument("--again", action="store_true", help="run the chosen cells again even if they are done")
    group.add_argument("--limit-minutes", type=float, metavar="M", help="start no cell after this many minutes")
    group.add_argument("--measure", action="store_true", help="measure speeds on a quiet machine; train nothing")
    group = run_parser.add_argument_group("where cells run")
    group.add_argument("--jobs", type=int, metavar="N", help="processes at once (default: 1)")
    group.add_argument(
        "--threads", type=int, metavar="N", help="threads of a cell (default: cores / jobs; with Ray: 1)"
    )
    group.add_argument("--ray", metavar="ADDRESS", help="run on a Ray cluster; 'local' starts one here")
    status = _action(actions, "status", "show how far it is", _STATUS_EPILOG)
    _add_only(status)
    status.add_argument("--cells", action="store_true", help="list every cell: its state, id and name")
    add_json_option(status)
    table = _action(
        actions, "table", "print the metric at given speed-ups", "examples:\n  pyramid-bert study table FILE"
    )
    _add_axes(table)
    table.add_argument("--at", metavar="X[,X]", help="where to read (default: 1.5,2,3,3.5; for space 0.3,0.7)")
    table.add_argument("--markdown", action="store_true", help="print Markdown")
    add_json_option(table)
    plot = _action(actions, "plot", "draw scatter and Pareto curves", "examples:\n  pyramid-bert study plot FILE")
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
    {"run": _run, "status": _status, "table": _table, "plot": _plot}[args.action](args, study)


def _run(args: argparse.Namespace, study: Study) -> None:
    _check(args, study)
    from ..lab.study.preflight import all_cells, prepare
    from ..lab.study.runner import choose
    from ..lab.study.store import machine

    cells = all_cells(study)
    chosen, store = choose(cells, args.only), _store(args, study)
    jobs = args.jobs or 1
    threads = args.threads or (1 if args.ray else None if jobs == 1 else max(1, cores() // jobs))
    with machine(args.work, alone=args.measure):
        site = prepare(
            study,
            chosen,
            store,
            file=args.file,
            model=args.model,
            data=args.data,
            work=args.work,
            threads=threads,
        )
        if args.measure:
            summary = _measure(args, study, chosen, store, site)
        else:
            summary = _train(args, cells, chosen, store, site)
    _conclude(summary, study)


def _check(args: argparse.Namespace, study: Study) -> None:
    for option, low in (("jobs", 1), ("threads", 1), ("limit_minutes", 0)):
        value = getattr(args, option)
        if value is not None and not value >= low:
            raise UsageError(f"--{option.replace('_', '-')} must be at least {low}, got {value:g}")
    if args.measure and (args.ray or args.jobs or args.limit_minutes is not None):
        raise UsageError("--measure runs nothing beside it: leave out --jobs, --ray and --limit-minutes")
    if args.measure and study.measure is None:
        raise UsageError(f"{args.file} asks for no measurements; set measure = true in it")


def _train(args: argparse.Namespace, cells: list[Cell], chosen: list[Cell], store: Store, site: Site) -> Summary:
    from ..lab.study.display import Display
    from ..lab.study.executors import InTurn
    from ..lab.study.runner import Runner
    from ..lab.study.store import Pace

    by_key = {cell.key: cell for cell in cells}
    job = Runner(
        cells=cells,
        store=store,
        has_weights=lambda key: site.has_dense(by_key[key]),
        retry=args.retry,
        again=args.again,
        limit_minutes=args.limit_minutes,
    )
    todo = job.plan(chosen)
    if not todo:
        messages().print("nothing is left to run")
        return job.go(chosen, InTurn(lambda cell: {}))
    anew = frozenset(cell.key for cell in chosen) if args.again else frozenset[str]()
    with (
        _executor(args, site, anew) as executor,
        Display(messages(), todo, Pace.of(cells, store), executor.slots) as display,
    ):
        job.watcher = display
        return job.go(chosen, executor)


def _executor(args: argparse.Namespace, site: Site, anew: frozenset[str]) -> Executor:
    from functools import partial

    from ..lab.study.cell import run_cell
    from ..lab.study.executors import InTurn, Processes, RayTasks

    work = partial(run_cell, site=site, anew=anew)
    if args.ray:
        return RayTasks(work, args.ray, threads=site.threads or 1, slots=args.jobs)
    return Processes(work, args.jobs) if args.jobs and args.jobs > 1 else InTurn(work)


def _measure(args: argparse.Namespace, study: Study, chosen: list[Cell], store: Store, site: Site) -> Summary:
    from ..lab.study.cell import run_measurement
    from ..lab.study.display import Display
    from ..lab.study.measurements import Measurements

    plan = dict(study.measure or {})
    measurements = Measurements(chosen, plan, store)
    todo = measurements.left(retry=args.retry, again=args.again)
    if not todo:
        messages().print("nothing is left to measure")
    with Display(messages(), list(todo.values()), measurements.pace()) as display:
        return measurements.run(todo, lambda cell: run_measurement(cell, site, plan), display)


def _conclude(summary: Summary, study: Study) -> None:
    """Says what became of it; raises when something failed."""
    parts = [f"{len(summary.done)} done"]
    parts += [f"{len(summary.left)} left"] if summary.left else []
    messages().print(f"{study.name}: {', '.join(parts)}")
    if summary.failed or summary.blocked:
        waiting = f", and {len(summary.blocked)} that start from them" if summary.blocked else ""
        names = ", ".join(f"{cell.name} ({cell.id})" for cell in summary.failed[:5])
        raise PyramidError(
            f"{len(summary.failed)} cells failed{waiting}: {names}. `study status` tells why; --retry runs them again"
        )


def _status(args: argparse.Namespace, study: Study) -> None:
    from ..lab.study.display import status_of, status_table
    from ..lab.study.preflight import all_cells
    from ..lab.study.runner import choose

    status = status_of(choose(all_cells(study), args.only), _store(args, study), study.measure)
    if args.json:
        print_json({key: value for key, value in status.items() if args.cells or key != "cells"})
        return
    Console().print(status_table(study.name, status))
    measured = status["measured"] or {"failed": []}
    for entry in [*(status["cells"] if args.cells else status["failed"]), *measured["failed"]]:
        reason = f": {entry['error']}" if "error" in entry else ""
        print(f"{entry['state']} {entry['id']} {entry['name']}{reason}")


def _table(args: argparse.Namespace, study: Study) -> None:
    if args.markdown and args.json:
        raise UsageError("give --markdown or --json, not both")
    targets = _targets(args.at)
    from ..lab.study.arena import STUDY_TASKS
    from ..lab.study.render import markdown, rich_table
    from ..lab.study.table import tabulate

    results = _results(args, study)
    titles = {task: STUDY_TASKS[task].title for task in study.tasks}
    table = tabulate(results, args.axis, titles, targets, args.metric)
    if args.json:
        print_json({"study": study.name, **table.to_dict()})
    elif args.markdown:
        print(markdown(study.name, table))
    else:
        Console().print(rich_table(study.name, table))


def _plot(args: argparse.Namespace, study: Study) -> None:
    from ..lab.study.arena import STUDY_TASKS
    from ..lab.study.plot import draw

    results = _results(args, study)
    out = Path(args.out or f"{study.name}.png")
    titles = {task: STUDY_TASKS[task].title for task in study.tasks}
    metrics = {task: args.metric or STUDY_TASKS[task].metric for task in study.tasks}
    for path in draw(results, args.axis, titles, metrics, out, study.name):
        print(path)


def _results(args: argparse.Namespace, study: Study) -> list[Result]:
    from ..lab.study.preflight import all_cells
    from ..lab.study.table import METRICS, collect

    if args.metric not in (None, *METRICS):
        raise UsageError(str(UnknownNameError("metric", args.metric, METRICS)))
    return collect(all_cells(study), _store(args, study), args.axis, study.measure, args.metric)


def _store(args: argparse.Namespace, study: Study) -> Store:
    from ..lab.study.store import Store

    return Store.of(args.results, study.name)


def _targets(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--at takes numbers with commas between, got {text!r}") from error
