"""Measure what a pyramid saves, over honest baselines named beside every figure, in one interleaved run.

  a  dense, every row padded to N (what papers count)
  b  dense, padded to the longest row of a batch
  c  dense, batches sorted by length: what a good engineer already has, and the one to compare with
  d  with --runtimes: the fastest dense model in any runtime and precision that is installed

The pyramid runs on the same sorted batches as c.

Measure on a quiet machine. The weights do not matter for speed: without --model, a random model of a given family and
size runs.
With --speedup the schedule is found for you; with --training, steps of fine-tuning are measured instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..checks import check_number
from ..counting import steps_shown
from ..errors import UsageError
from . import options
from .ledgers import ledger_table, runtime_tables, training_table
from .options import numbers

if TYPE_CHECKING:
    from ..bench.training import TrainingLedger
    from ..bench.workload import Workload
    from ..text.tables import Table as DataTable
    from ..tune.schedules import Solution

SIZES = ("base", "small", "mini", "tiny")
EPILOG = """examples:
  pyramid-bert bench --size base --n 128 --rows 32 --keep-ratio 0.25 --last-layer 3 --rounding floor
  pyramid-bert bench --family roberta --size base --keep-ratio 0.25 --last-layer 3
  pyramid-bert bench --model my-model --data reviews.csv --batch-size 1,32 --json
  pyramid-bert bench --model my-model --data reviews.csv --speedup 2
  pyramid-bert bench --model my-model --data reviews.csv --batch-size 1 --optimize
  pyramid-bert bench --size base --training --n 128,256 --batch-size 16 --keep-ratio 0.25 --last-layer 3"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    group = parser.add_argument_group("what to run")
    group.add_argument("--model", help="a model folder, or a name on the hub; a saved pyramid brings its own schedule")
    group.add_argument("--size", choices=SIZES, default="base", help="without --model: size of a random model")
    group.add_argument("--family", metavar="NAME", help="without --model: its config.model_type (default: bert)")
    group.add_argument("--data", metavar="FILE", help="texts to run on; without it, random rows of --n tokens")
    group.add_argument("--n", default="128", metavar="N[,N]", help="lengths of the random rows, in turn (default: 128)")
    group.add_argument("--rows", type=int, help="rows of --data to use (default: 256), or random rows (default: 32)")
    group.add_argument("--max-length", type=int, metavar="N", help="cut longer texts (default: as saved), pad a to N")
    group.add_argument("--batch-size", default="32", metavar="B[,B]", help="batch sizes to measure (default: 32)")
    group.add_argument("--rounds", type=int, default=5, help="times that each is measured (default: 5)")
    group.add_argument("--threads", type=int, help="threads that torch may use")
    group.add_argument("--training", action="store_true", help="measure training steps at each length of --n instead")
    group.add_argument(
        "--runtimes",
        action="store_true",
        help="measure dense model and pyramid in every runtime and precision that is installed instead, over baseline "
        "d: the fastest dense one",
    )
    options.add_optimize_option(group)
    options.add_data_options(parser)
    options.add_schedule_options(parser)
    options.add_speedup_option(parser)
    options.add_pyramid_options(parser)
    options.add_speed_option(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Measures and prints."""
    schedule, batch_sizes = options.schedule_from(args), numbers("--batch-size", args.batch_size)
    _check_call(args, batch_sizes)
    table = options.read_data(args.data, args, labels=False) if args.data else None

    import torch

    from ..bench.ledger import measure
    from ..bench.models import model_pair
    from ..families import FAMILIES, pyramidize
    from ..families.loading import model_folder
    from ..front import Front, settings_at
    from ..runtimes.packed import optimize

    if args.threads:
        torch.set_num_threads(args.threads)
    if args.family and args.family not in (types := [family.model_type for family in FAMILIES]):
        raise UsageError(f"--family must be one of {', '.join(types)}, got {args.family!r}")
    settings, device = options.pyramid_settings_from(args), options.device_from(args)
    with options.named_by_options():
        how: dict[str, Any] = {"texts": table is not None, "family": args.family or "bert"}
        pair = model_pair(args.model, args.size, schedule, settings, device, **how)
    dense, pyramid, tokenizer = pair
    if args.speed is not None:
        pyramidize(pyramid, config=settings_at(Front.load(model_folder(args.model)), args.speed))
    _check_lengths(args, dense)
    if args.training:
        found = [_train(args, dense, pyramid, n, batch_sizes[0]) for n in numbers("--n", args.n)]
        _show(args, [ledger.to_dict() for ledger in found], [training_table(found)])
        return
    workload = _workload(args, tokenizer, table, dense.config)
    if args.runtimes:
        _show_runtimes(args, dense, pyramid, workload, batch_sizes)
        return
    if args.optimize:
        optimize(dense, args.optimize)
        optimize(pyramid, args.optimize)
    saved = pyramid.config.architectures or ()  # of a bare encoder, the head is new and says nothing yet
    trained_head = any(name.endswith("ForSequenceClassification") for name in saved)
    how = {"sample": workload.items if args.data else None, "trained_head": trained_head, "pad_id": workload.pad_id}
    ledgers, solutions = [], []
    for batch_size in batch_sizes:
        if args.speedup is not None:
            solutions.append(solve_and_apply(pyramid, args.speedup, workload.lengths, batch_size=batch_size, **how))
        with steps_shown("measuring, in turn", 4 * (args.rounds + 1)) as step:
            timed = measure(dense, pyramid, workload, batch_size=batch_size, rounds=args.rounds, after_each=step)
            ledgers.append(timed)
    effect = _effect(pyramid, workload) if args.optimize else None
    data = [{**ledger.to_dict(), "optimization_effect": effect} for ledger in ledgers]
    for row, solution in zip(data, solutions, strict=False):
        row["solution"] = solution.to_dict()
    _show(args, data, [ledger_table(ledger, effect) for ledger in ledgers])
    for solution in solutions:
        options.say(solution_text(solution))


def _check_call(args: argparse.Namespace, batch_sizes: list[int]) -> None:
    """Raises for options that hold a wrong value or do not fit together."""
    args.rows = (256 if args.data else 32) if args.rows is None else args.rows
    if min(batch_sizes) < 1 or args.rounds < 1 or args.rows < 1:
        raise UsageError("--batch-size, --rounds and --rows must be at least 1")
    if args.threads is not None:
        check_number("--threads", args.threads, 1, whole=True, error=UsageError)
    if args.speedup is not None:
        check_number("--speedup", args.speedup, 1, hint="2 means twice as fast", error=UsageError)
    if args.reduce == "replace":
        raise UsageError("--reduce replace keeps the full length and saves nothing; --reduce drop --weighted does")
    if args.family and args.model:
        raise UsageError(f"--family is that of a random model, and --model gives one; leave out --family {args.family}")
    if args.data and not args.model:
        raise UsageError("--data needs --model: a random model has no tokenizer")
    if args.speed is not None and (not args.model or args.speedup is not None):
        raise UsageError("--speed chooses a speed of an elastic --model; leave out --speedup")
    if args.training and len(batch_sizes) > 1:
        raise UsageError(f"--training takes one --batch-size, got {args.batch_size}")
    if args.training and (args.data or args.optimize or args.speedup is not None):
        raise UsageError("--training takes random rows of --n tokens; leave out --data, --optimize and --speedup")
    others = {"--training": args.training, "--optimize": args.optimize, "--speedup": args.speedup is not None}
    others[f"--device {args.device}"] = args.device not in ("auto", "cpu")
    if args.runtimes and (named := [option for option, given in others.items() if given]):
        raise UsageError(f"--runtimes measures on the CPU with every optimization; leave out {', '.join(named)}")


def _check_lengths(args: argparse.Namespace, model: Any) -> None:
    """Raises for lengths that the model cannot read."""
    from ..families import positions_of

    positions = positions_of(model)
    hint = f"the model reads {positions} tokens"
    for n in () if args.data else numbers("--n", args.n):
        check_number("--n", n, 1, positions, hint, whole=True, error=UsageError)
    if args.max_length is not None:
        check_number("--max-length", args.max_length, 2, positions, hint, whole=True, error=UsageError)


def _show_runtimes(
    args: argparse.Namespace, dense: Any, pyramid: Any, workload: Workload, batch_sizes: list[int]
) -> None:
    """Measures all runtimes, and prints."""
    from ..export.ledger import measure_runtimes

    how: dict[str, Any] = {"rounds": args.rounds, "threads": args.threads, "progress": True}
    found = [measure_runtimes(dense, pyramid, workload, batch_size=batch_size, **how) for batch_size in batch_sizes]
    tables = [table for ledger in found for table in runtime_tables(ledger)]
    _show(args, [ledger.to_dict() for ledger in found], tables)


def _train(args: argparse.Namespace, dense: Any, pyramid: Any, n: int, batch_size: int) -> TrainingLedger:
    from ..bench.training import measure_training

    with steps_shown(f"training steps of {n} tokens, in turn", 2 * (args.rounds + 1)) as step:
        return measure_training(dense, pyramid, n, batch_size=batch_size, rounds=args.rounds, after_each=step)


def solve_and_apply(pyramid: Any, speedup: float, lengths: Sequence[int], **how: Any) -> Solution:
    """Finds the schedule for a speed-up, with a progress bar, and gives the schedule to the pyramid."""
    from ..families.hub import apply_settings
    from ..tune.schedules import calibration_runs, solve_speedup

    with steps_shown("calibrating on this machine", calibration_runs(lengths)) as step:
        solution = solve_speedup(pyramid, speedup, lengths, after_each=step, **how)
    apply_settings(pyramid, solution.schedule, {})
    return solution


def _workload(args: argparse.Namespace, tokenizer: Any, table: DataTable | None, config: Any) -> Workload:
    from ..bench.workload import Workload
    from ..families import positions_of
    from ..text.labels import read_record

    if table is None:
        lengths = numbers("--n", args.n)
        return Workload.synthetic([lengths[i % len(lengths)] for i in range(args.rows)], vocabulary=config.vocab_size)
    length = read_record(args.model).get("max_length") if args.max_length is None else args.max_length
    how: dict[str, Any] = {"positions": positions_of(config), "max_length": length, "source": args.data}
    how |= {"where": table.where, "remedy": options.SHORTEN}
    return Workload.from_texts(tokenizer, table.texts[: args.rows], **how)


def _effect(pyramid: Any, workload: Workload) -> dict[str, float]:
    """What its optimization does to the pyramid's logits; takes the optimization back."""
    from ..runtimes.packed import unoptimize
    from ..text.inference import outputs_of

    items = workload.items[:64]
    fast = outputs_of(pyramid, items, workload.pad_id, batch_size=8).logits
    plain = outputs_of(unoptimize(pyramid), items, workload.pad_id, batch_size=8).logits
    differs = (fast - plain).abs()
    same = fast.argmax(1) == plain.argmax(1) if fast.shape[1] > 1 else differs[:, 0] < 0.01  # of a regressor
    return {
        "texts": len(items),
        "largest_logit_difference": float(differs.max()),
        "same_predictions": float(same.float().mean()),
    }


def _show(args: argparse.Namespace, data: Any, tables: list[Table]) -> None:
    if args.json:
        options.print_json(data)
        return
    for table in tables:
        Console().print(table)


def solution_text(solution: Solution) -> str:
    """What the solver found, in a sentence."""
    measured = "" if solution.measured is None else f", measured {solution.measured:.2f}x"
    options = " ".join(
        f"--{name.replace('_', '-')} {value:.4g}"
        for name, value in solution.schedule.to_dict().items()
        if name in ("keep_ratio", "first_layer", "last_layer", "min_tokens")
    )
    return (
        f"for {solution.wanted:g}x over dense, length-sorted: {options} "
        f"(predicted {solution.predicted:.2f}x{measured}; at most {solution.reachable:.1f}x can be reached)"
    )
