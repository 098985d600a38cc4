"""Show how many tokens a schedule keeps at each layer, and what that costs: multiply-accumulates and attention space.

Needs no model: give the sizes, or --model FOLDER to read them from its config.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..cost import PLACEMENTS, Cost, Placement, space_reduction
from ..errors import CheckpointError, UsageError
from ..schedule.base import Schedule
from ..schedule.paper_table import PAPER_TABLE
from .options import add_json_option, add_schedule_options, numbers, print_json, schedule_from, usage_errors

EPILOG = """examples:
  pyramid-bert schedule --keep-ratio 0.25 --last-layer 3
  pyramid-bert schedule --keep-ratio 0.25 --first-layer 4 --last-layer 6 --n 32,128,512
  pyramid-bert schedule --lengths 80,50,32,32,32,32 --layers 6
  pyramid-bert schedule --paper"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    add_schedule_options(parser)
    group = parser.add_argument_group("input and model")
    group.add_argument("--n", default="128", metavar="N[,N]", help="input lengths to show (default: 128)")
    group.add_argument("--model", metavar="FOLDER", help="take layers and sizes from this model's config.json")
    group.add_argument("--layers", type=int, default=12, help="encoder layers (default: 12)")
    group.add_argument("--hidden-size", type=int, default=768, help="width of a token vector (default: 768)")
    group.add_argument("--intermediate-size", type=int, help="inner width of the feed-forward network (default: 4x)")
    group.add_argument("--heads", type=int, default=12, help="attention heads, for --cls-only (default: 12)")
    group.add_argument("--placement", choices=PLACEMENTS, help="where a layer reduces (default: middle)")
    group.add_argument("--cls-only", action="store_true", help="count only CLS in the last layer")
    parser.add_argument("--paper", action="store_true", help="show the paper's 30 configurations")
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the table."""
    if args.model is not None:
        _take_sizes(args)
    if args.paper:
        rows = [_row(Schedule.exponential(p, i, rounding="floor"), 128, args) for i, p, _ in PAPER_TABLE]
    else:
        schedule = schedule_from(args) or Schedule.exponential(0.25, 3)
        if (args.placement == "input") != schedule.selects_at_input and args.placement is not None:
            raise UsageError("--placement input goes with --schedule input_only, and no other with it")
        with usage_errors():
            rows = [_row(schedule, n, args) for n in numbers("--n", args.n)]
    if args.json:
        print_json(rows)
    else:
        Console().print(_table(rows))


def _take_sizes(args: argparse.Namespace) -> None:
    from ..families import saved_sizes

    path = Path(args.model) / "config.json"
    try:
        sizes = saved_sizes(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"cannot read the sizes of a model from {path}: {error!r}") from error
    args.layers, args.hidden_size = sizes.layers, sizes.hidden_size
    args.intermediate_size, args.heads = sizes.intermediate_size, sizes.heads


def _row(schedule: Schedule, n: int, args: argparse.Namespace) -> dict[str, Any]:
    lengths = schedule.lengths(n, args.layers)
    natural: Placement = "input" if schedule.selects_at_input else "middle"
    placement: Placement = args.placement or natural
    sizes = args.hidden_size, args.intermediate_size
    cost = Cost.of(lengths, n, *sizes, placement=placement, cls_layers=int(args.cls_only), heads=args.heads)
    return {
        "schedule": schedule.to_dict(),
        "n": n,
        "lengths": list(lengths),
        "macs": cost.macs,
        "dense_macs": cost.dense_macs,
        "ideal_speedup": cost.ideal_speedup,
        "space_reduction_printed": space_reduction(lengths, n, args.hidden_size, reading="printed"),
        "space_reduction_attention_input": space_reduction(lengths, n, args.hidden_size, placement=placement),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(caption="space saved in attention: by the paper's printed formula / with the tokens attention sees")
    for name, justify in (("N", "right"), ("tokens kept at each layer", "left"), ("MACs", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("ideal speed-up\nover dense at N", justify="right")
    table.add_column("space saved", justify="right")
    for row in rows:
        table.add_row(
            str(row["n"]),
            " ".join(map(str, row["lengths"])),
            f"{row['macs'] / 1e6:,.0f} M",
            f"{row['ideal_speedup']:.2f}x",
            f"{row['space_reduction_printed']:.1%} / {row['space_reduction_attention_input']:.1%}",
        )
    return table
