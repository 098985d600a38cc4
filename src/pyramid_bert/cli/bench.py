"""Measure what a pyramid saves, over three baselines named beside every figure, in one interleaved run.

  a  dense, every row padded to N (what papers count)
  b  dense, padded to the longest row of a batch
  c  dense, batches sorted by length: what a good engineer already has, and the one to compare with
  d  the pyramid, on the same sorted batches

Measure on a quiet machine. The weights do not matter for speed: without --model, a random BERT of a given size runs.
With --speedup the schedule is found for you; with --training, steps of fine-tuning are measured instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..errors import UsageError
from .bench_tables import ledger_table, solution_text, training_table
from .options import (
    add_data_options,
    add_device_option,
    add_json_option,
    add_optimize_option,
    add_pyramid_options,
    add_schedule_options,
    add_speedup_option,
    device_from,
    messages,
    numbers,
    print_json,
    pyramid_settings_from,
    read_data,
    schedule_from,
    steps_shown,
)

if TYPE_CHECKING:
    from ..bench.ledger import Ledger
    from ..bench.training import TrainingLedger
    from ..bench.workload import Workload
    from ..tune.schedules import Solution

SIZES = ("base", "small", "mini", "tiny")
EPILOG = """examples:
  pyramid-bert bench --size base --n 128 --rows 32 --keep-ratio 0.25 --last-layer 3 --rounding floor
  pyramid-bert bench --model my-model --data reviews.csv --batch-size 1,32 --json
  pyramid-bert bench --model my-model --data reviews.csv --speedup 2
  pyramid-bert bench --model my-model --data reviews.csv --batch-size 1 --optimize
  pyramid-bert bench --size base --training --n 128,256 --batch-size 16 --keep-ratio 0.25 --last-layer 3"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    group = parser.add_argument_group("what to run")
    group.add_argument("--model", help="a model folder, or a name on the hub; a saved pyramid brings its own schedule")
    group.add_argument("--size", choices=SIZES, default="base", help="without --model: size of a random BERT")
    group.add_argument("--data", metavar="FILE", help="texts to run on; without it, random rows of --n tokens")
    group.add_argument("--n", default="128", metavar="N[,N]", help="lengths of the random rows, in turn (default: 128)")
    group.add_argument("--rows", type=int, default=32, help="random rows, or rows of --data to use (default: 32)")
    group.add_argument("--max-length", type=int, metavar="N", help="cut longer texts, and pad baseline a to N")
    group.add_argument("--batch-size", default="32", metavar="B[,B]", help="batch sizes to measure (default: 32)")
    group.add_argument("--rounds", type=int, default=5, help="times that each is measured (default: 5)")
    group.add_argument("--threads", type=int, help="threads that torch may use")
    group.add_argument("--training", action="store_true", help="measure training steps at each length of --n instead")
    add_optimize_option(group)
    add_data_options(parser)
    add_schedule_options(parser)
    add_speedup_option(parser)
    add_pyramid_options(parser)
    add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Measures and prints."""
    schedule, batch_sizes = schedule_from(args), numbers("--batch-size", args.batch_size)
    if min(batch_sizes) < 1 or args.rounds < 1 or args.rows < 1:
        raise UsageError("--batch-size, --rounds and --rows must be at least 1")
    if args.speedup is not None and args.speedup < 1:
        raise UsageError(f"--speedup must be at least 1, got {args.speedup:g}; 2 means twice as fast")
    if args.training and len(batch_sizes) > 1:
        raise UsageError(f"--training takes one --batch-size, got {args.batch_size}")
    if args.training and (args.data or args.optimize or args.speedup is not None):
        raise UsageError("--training takes random rows of --n tokens; leave out --data, --optimize and --speedup")
    texts = read_data(args.data, args, labels=False).texts[: args.rows] if args.data else None

    import torch

    from ..bench.models import model_pair
    from ..runtimes.packed import optimize

    if args.threads:
        torch.set_num_threads(args.threads)
    settings = pyramid_settings_from(args)
    dense, pyramid, tokenizer = model_pair(args.model, args.size, schedule, settings, device_from(args))
    if args.training:
        found = [_train(args, dense, pyramid, n, batch_sizes[0]) for n in numbers("--n", args.n)]
        _show(args, [ledger.to_dict() for ledger in found], [training_table(found)])
        return
    workload = _workload(args, tokenizer, texts, dense.config)
    if args.optimize:
        optimize(dense, args.optimize)
        optimize(pyramid, args.optimize)
    ledgers, solutions = [], []
    for batch_size in batch_sizes:
        solutions.append(None if args.speedup is None else _solve(args, pyramid, workload, batch_size))
        ledgers.append(_measure(args, dense, pyramid, workload, batch_size))
    _print_ledgers(args, ledgers, solutions, _effect(pyramid, workload) if args.optimize else None)


def _measure(args: argparse.Namespace, dense: Any, pyramid: Any, workload: Workload, batch_size: int) -> Ledger:
    from ..bench.ledger import measure

    with steps_shown("measuring, in turn", 4 * (args.rounds + 1)) as step:
        return measure(dense, pyramid, workload, batch_size=batch_size, rounds=args.rounds, after_each=step)


def _train(args: argparse.Namespace, dense: Any, pyramid: Any, n: int, batch_size: int) -> TrainingLedger:
    from ..bench.training import measure_training

    with steps_shown(f"training steps of {n} tokens, in turn", 2 * (args.rounds + 1)) as step:
        return measure_training(dense, pyramid, n, batch_size=batch_size, rounds=args.rounds, after_each=step)


def _solve(args: argparse.Namespace, pyramid: Any, workload: Workload, batch_size: int) -> Solution:
    """Finds the schedule, and gives it to the pyramid."""
    from ..families.hub import apply_settings
    from ..tune.schedules import calibration_runs, solve_speedup

    sample = workload.items if args.data else None
    saved = pyramid.config.architectures or ()  # of a bare encoder, the head is new and says nothing yet
    with steps_shown("calibrating on this machine", calibration_runs(workload.lengths)) as step:
        solution = solve_speedup(
            pyramid,
            args.speedup,
            workload.lengths,
            batch_size=batch_size,
            sample=sample,
            trained_head=any(name.endswith("ForSequenceClassification") for name in saved),
            pad_id=workload.pad_id,
            after_each=step,
        )
    apply_settings(pyramid, solution.schedule, {})
    return solution


def _workload(args: argparse.Namespace, tokenizer: Any, texts: Any, config: Any) -> Workload:
    from ..bench.workload import Workload
    from ..families import positions_of

    if texts is None:
        lengths = numbers("--n", args.n)
        return Workload.synthetic([lengths[i % len(lengths)] for i in range(args.rows)], vocabulary=config.vocab_size)
    if tokenizer is None:
        raise UsageError("--data needs --model: a random BERT has no tokenizer")
    positions = positions_of(config)
    return Workload.from_texts(tokenizer, texts, positions=positions, max_length=args.max_length, source=args.data)


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


def _print_ledgers(
    args: argparse.Namespace, ledgers: list[Ledger], solutions: list[Any], difference: dict[str, float] | None
) -> None:
    data = []
    for ledger, solution in zip(ledgers, solutions, strict=True):
        extra = {} if solution is None else {"solution": solution.to_dict()}
        data.append({**ledger.to_dict(), **extra, "optimization_effect": difference})
    _show(args, data, [ledger_table(ledger, difference) for ledger in ledgers])
    for solution in solutions:
        if solution is not None:
            messages().print(solution_text(solution))


def _show(args: argparse.Namespace, data: Any, tables: list[Any]) -> None:
    if args.json:
        print_json(data)
        return
    write: Callable[..., None] = Console().print
    for table in tables:
        write(table)
