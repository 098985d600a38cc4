"""Measure what a pyramid saves, over three baselines named beside every figure, in one interleaved run.

  a  dense, every row padded to N (what papers count)
  b  dense, padded to the longest row of a batch
  c  dense, batches sorted by length: what a good engineer already has, and the one to compare with
  d  the pyramid, on the same sorted batches

Measure on a quiet machine. The weights do not matter for speed: without --model, a random BERT of a given size runs.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..errors import UsageError
from .options import (
    add_data_options,
    add_json_option,
    add_pyramid_options,
    add_schedule_options,
    messages,
    numbers,
    print_json,
    pyramid_settings_from,
    read_data,
    schedule_from,
)

if TYPE_CHECKING:
    from ..bench import Ledger, Workload

SIZES = ("base", "small", "mini", "tiny")
EPILOG = """examples:
  pyramid-bert bench --size base --n 128 --rows 32 --keep-ratio 0.25 --last-layer 3 --rounding floor
  pyramid-bert bench --model my-model --data reviews.csv --batch-size 1,32 --json"""


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
    add_data_options(parser)
    add_schedule_options(parser)
    add_pyramid_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Measures and prints."""
    schedule, batch_sizes = schedule_from(args), numbers("--batch-size", args.batch_size)
    if min(batch_sizes) < 1 or args.rounds < 1 or args.rows < 1:
        raise UsageError("--batch-size, --rounds and --rows must be at least 1")
    texts = read_data(args.data, args, labels=False).texts[: args.rows] if args.data else None

    import torch
    from rich.progress import Progress

    from ..bench import measure, model_pair

    if args.threads:
        torch.set_num_threads(args.threads)
    dense, pyramid, tokenizer = model_pair(args.model, args.size, schedule, pyramid_settings_from(args))
    workload = _workload(args, tokenizer, texts, dense.config)
    ledgers = []
    with Progress(console=messages(), transient=True) as bar:
        task = bar.add_task("measuring, in turn", total=4 * (args.rounds + 1) * len(batch_sizes))
        for batch_size in batch_sizes:
            ledgers.append(
                measure(
                    dense,
                    pyramid,
                    workload,
                    batch_size=batch_size,
                    rounds=args.rounds,
                    after_each=lambda: bar.advance(task),
                )
            )
    if args.json:
        print_json([ledger.to_dict() for ledger in ledgers])
    else:
        for ledger in ledgers:
            Console().print(_table(ledger))


def _workload(args: argparse.Namespace, tokenizer: Any, texts: Any, config: Any) -> Workload:
    from ..bench import Workload

    if texts is None:
        lengths = numbers("--n", args.n)
        return Workload.synthetic([lengths[i % len(lengths)] for i in range(args.rows)], vocabulary=config.vocab_size)
    if tokenizer is None:
        raise UsageError("--data needs --model: a random BERT has no tokenizer")
    positions = config.max_position_embeddings
    return Workload.from_texts(tokenizer, texts, positions=positions, max_length=args.max_length, source=args.data)


def _table(ledger: Ledger) -> Table:
    work, machine, entries = ledger.workload, ledger.machine, ledger.entries
    table = Table(
        title=f"{work['rows']} rows, mean {work['mean_length']:.0f} tokens, in batches of {ledger.batch_size}",
        caption=f"{work['source']}; {machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}; "
        f"medians of {ledger.rounds} interleaved rounds. Ideal: the ratio of multiply-accumulates.",
    )
    table.add_column("", no_wrap=True)
    for name in (
        f"a: dense,\npadded to {work['padded_length']}",
        "b: dense,\ndynamic",
        "c: dense,\nsorted",
        "d: pyramid",
    ):
        table.add_column(name, justify="right")
    table.add_row("milliseconds", *(f"{entry.seconds * 1e3:,.1f}" for entry in entries.values()))
    table.add_row("thousand tokens x layers", *(f"{entry.token_layers / 1e3:,.1f}" for entry in entries.values()))
    table.add_row("GMACs", *(f"{entry.macs / 1e9:,.1f}" for entry in entries.values()))
    table.add_row("peak MB of tensors", *(f"{entry.peak_bytes / 1e6:,.1f}" for entry in entries.values()))
    for letter, base in zip("abc", entries, strict=False):
        speed = (f"{entry.speedup_over[base]:.2f}x" for entry in entries.values())
        table.add_row(f"speed-up over {letter}", *speed, style="bold" if letter == "c" else None)
    table.add_row("ideal speed-up over c", *(f"{entry.ideal_over['sorted']:.2f}x" for entry in entries.values()))
    pyramid = entries["pyramid"]
    table.add_row("share of the ideal over c", "", "", "", f"{pyramid.realised('sorted'):.0%}")
    table.add_row("time choosing and moving", "", "", "", f"{ledger.selecting:.1%}")
    return table
