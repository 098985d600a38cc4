"""Long Range Arena: make Pathfinder images, and train the paper's models with a selection at the input.

docs/lra.md describes the models, docs/data.md the three tasks and where their data comes from.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..checks import check_choice
from ..cores import cores
from ..counting import steps_shown
from ..errors import PyramidError, UsageError
from ..lab.lra.presets import BACKBONES, TASKS, preset_for
from ..lab.study.methods import DENSE, METHODS
from ..schedule.base import Schedule
from .options import add_device_option, add_json_option, print_json, report, say, usage_errors

DIFFICULTIES = ("easy", "intermediate", "hard")
EPILOG = """examples:
  pyramid-bert lra make-pathfinder --out pathfinder32 --n 20000
  pyramid-bert lra show pathfinder32 --out pathfinder.png
  pyramid-bert lra train --task cifar10 --backbone performer --method CS-1 --keep 0.5 --data DIR
  pyramid-bert lra space --task text --backbone bigbird
  pyramid-bert lra bench --task cifar10 --backbone performer --method CS-1 --keep 0.5 --batch-size 32

`pyramid-bert lra ACTION --help` explains an action."""
_MAKE_EPILOG = """The same seed gives the same images with any number of processes. After an interruption the same
command continues; with a larger --n it adds images. The first 80 % are train, the next 10 % dev.

examples:
  pyramid-bert lra make-pathfinder --out pathfinder32 --n 20000
  pyramid-bert lra make-pathfinder --out pathfinder-easy --n 20000 --difficulty easy --seed 1 --jobs 2"""
_TRAIN_EPILOG = """Models are small and trained from scratch. Without further options this is the paper's run, which
takes days on a CPU: give --rows and --epochs. --method Dense keeps every token.

examples:
  pyramid-bert lra train --task cifar10 --backbone performer --method CS-1 --keep 0.5 --data DIR --epochs 5
  pyramid-bert lra train --task text --backbone bigbird --method Dense --data DIR --rows 2000 --epochs 5 --json"""
_BENCH_EPILOG = """Rows are random and full. Measure on a quiet machine. BigBird in the paper's batches of 256 or 512
needs some tens of GB; --batch-size 32 tells as much.

examples:
  pyramid-bert lra bench --task cifar10 --backbone performer --method CS-1 --keep 0.5 --batch-size 32"""
_WRITTEN = ("config.json", "model*.safetensors*", "lra.json")
_CHANGES = ("epochs", "batch_size", "learning_rate", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    make = _action(actions, "make-pathfinder", _make, "draw Pathfinder images into a folder", _MAKE_EPILOG)
    make.add_argument("--out", required=True, metavar="DIR", help="folder for the images")
    make.add_argument("--n", type=int, required=True, metavar="N", help="images in all; Long Range Arena has 200000")
    make.add_argument(
        "--difficulty", choices=DIFFICULTIES, default="hard", help="snakes of 6, 9 or 14 dashes (default: hard)"
    )
    make.add_argument("--seed", type=int, default=0, metavar="S", help="of all images (default: 0)")
    make.add_argument("--jobs", type=int, metavar="N", help="processes at once (default: one for each core)")
    add_json_option(make)
    show = _action(actions, "show", _show, "draw some images of a folder, large, with their paths", "")
    show.add_argument("folder", metavar="DIR", help="what make-pathfinder wrote")
    show.add_argument("--out", required=True, metavar="FILE", help="picture to write, for example pathfinder.png")
    show.add_argument("--n", type=int, default=12, metavar="N", help="images to show, from the first (default: 12)")
    train = _action(actions, "train", _train, "train a model and evaluate it", _TRAIN_EPILOG)
    _add_model_options(train, selects=True)
    train.add_argument("--data", metavar="DIR", help="folder of the task's data (default: the hub)")
    train.add_argument("--rows", type=int, metavar="N", help="a fixed sample of the training rows (default: all)")
    train.add_argument("--dev-rows", type=int, metavar="N", help="a fixed sample of the dev rows (default: all)")
    train.add_argument("--epochs", type=float, help="passes over the data (default: the preset's)")
    train.add_argument("--batch-size", type=int, metavar="N", help="rows per step (default: the preset's)")
    train.add_argument("--learning-rate", type=float, metavar="RATE", help="at its peak (default: the preset's)")
    train.add_argument("--seed", type=int, help="of everything random (default: 0)")
    train.add_argument("--out", metavar="DIR", help="folder for the trained model (default: not saved)")
    space = _action(actions, "space", _space, "show how many tokens keep ratios keep and how much space they save", "")
    _add_model_options(space)
    bench = _action(actions, "bench", _bench, "measure training steps, dense and behind a selection", _BENCH_EPILOG)
    _add_model_options(bench, selects=True)
    bench.add_argument("--batch-size", type=int, metavar="N", help="rows per step (default: the preset's)")
    bench.add_argument(
        "--all-tokens",
        action="store_true",
        help="both sides compute every token of the last layer, as the paper's models do, not only CLS",
    )
    bench.add_argument("--rounds", type=int, default=5, help="number of measurements (default: 5)")


def _action(actions: Any, name: str, act: Any, summary: str, epilog: str) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary, epilog=epilog, formatter_class=form
    )
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(act=act)
    return parser


def _add_model_options(parser: argparse.ArgumentParser, selects: bool = False) -> None:
    parser.add_argument("--task", required=True, metavar="NAME", help=", ".join(TASKS))
    parser.add_argument("--backbone", required=True, metavar="NAME", help=", ".join(BACKBONES))
    parser.add_argument("--preset", metavar="FILE", help="a TOML file of other sizes (default: the paper's table)")
    if selects:
        names = ", ".join(filter(_at_input, METHODS))
        parser.add_argument("--method", default="CS-1", metavar="NAME", help=f"{names} or {DENSE} (default: CS-1)")
        parser.add_argument("--keep", type=float, metavar="P", help="share of the tokens kept at the input, 0-1")
        add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Runs the action."""
    args.act(args)


def _check_least(args: argparse.Namespace, **least: int) -> None:
    for option, low in least.items():
        value = getattr(args, option)
        if value is not None and value < low:
            raise UsageError(f"--{option.replace('_', '-')} must be at least {low}, got {value}")


def _make(args: argparse.Namespace) -> None:
    _check_least(args, n=1, seed=0, jobs=1)
    from ..lab.lra.pathfinder import PathfinderSettings, make_pathfinder

    start = time.monotonic()
    counts: list[int] = []  # the first is the number already there
    settings, jobs = PathfinderSettings.of(args.difficulty), args.jobs or cores()
    with steps_shown("drawing", args.n) as advance:

        def made_some(count: int) -> None:
            counts.append(count)
            advance(count)

        record = make_pathfinder(args.out, args.n, settings, seed=args.seed, jobs=jobs, progress=made_some)
    seconds, made = time.monotonic() - start, sum(counts[1:])
    say(f"made {made} images in {seconds:.1f} s, {made / seconds:.0f} a second; {counts[0]} were there")
    if args.json:
        print_json({"folder": str(args.out), **record.to_dict(), "made": made, "seconds": seconds})
    else:
        print(f"{record.images} images in {args.out}, sha256 {record.sha256}")


def _show(args: argparse.Namespace) -> None:
    from ..lab.lra.pathfinder import draw_pathfinder, read_record
    from ..lab.lra.pathfinder.picture import save_drawings

    record = read_record(args.folder)
    if not 1 <= args.n <= record.images:
        raise UsageError(f"--n must be in 1-{record.images}, the images in {args.folder}; got {args.n}")
    drawings = [draw_pathfinder(record.settings, record.seed, index) for index in range(args.n)]
    save_drawings(drawings, Path(args.out))
    print(args.out)


def _at_input(name: str) -> bool:
    """Whether a method can select at the input of a model trained from scratch."""
    method = METHODS[name]
    return method.kind == "select" and not method.distills and method.settings["selector"] != "attention"


def _selection(args: argparse.Namespace) -> tuple[Schedule | None, dict[str, Any]]:
    """The schedule and the settings that --method and --keep stand for."""
    if args.method == DENSE:
        if args.keep is not None:
            raise UsageError(f"--method {DENSE} keeps every token; leave out --keep")
        return None, {}
    check_choice("method", args.method, [DENSE, *filter(_at_input, METHODS)])
    if args.keep is None:
        raise UsageError(f"--method {args.method} needs --keep, the share of the tokens to keep, such as 0.5")
    return Schedule.input_only(args.keep), dict(METHODS[args.method].settings)


def _train(args: argparse.Namespace) -> None:
    _check_least(args, rows=2, dev_rows=2)
    with usage_errors():
        preset, (schedule, settings) = preset_for(args.backbone, args.task, args.preset), _selection(args)
    from ..files import check_replaceable, check_writable, replacing_folder, write_text
    from ..lab.lra.run import default_settings, describe, read_rows, run_lra

    with usage_errors():
        given = {name: getattr(args, name) for name in _CHANGES if getattr(args, name) is not None}
        training = default_settings(preset, **given)
        facts = describe(preset, schedule)
    if args.out is not None:
        check_writable(Path(args.out))
        check_replaceable(Path(args.out), _WRITTEN)
    train = read_rows(args.task, args.data, "train", args.rows)
    dev = read_rows(args.task, args.data, "dev", args.dev_rows)
    say(f"{facts['kept']} of {facts['tokens']} tokens, {facts['attention'].replace('_', '-')} attention")
    result = run_lra(preset, train, dev, training, schedule=schedule, settings=settings, device=args.device)
    asked = {name: getattr(args, name) for name in ("task", "backbone", "method", "keep")}
    record = {**asked, "epochs": training.epochs, "seed": training.seed, **result.metrics, **result.facts}
    if args.out is not None:
        with replacing_folder(Path(args.out)) as scratch:
            result.model.save_pretrained(scratch)
            write_text(scratch / "lra.json", json.dumps(record, indent=1) + "\n")
        say(f"saved to {args.out}")
    if args.json:
        print_json(record)
    else:
        report(result.metrics, as_json=False)


def _space(args: argparse.Namespace) -> None:
    from ..lab.lra.run import describe

    with usage_errors():
        preset = preset_for(args.backbone, args.task, args.preset)
        describe(preset, None)  # raises if the sequence is shorter than a block
    rows = []
    for tenth in range(1, 11):
        keep = tenth / 10
        try:
            rows.append({"keep": keep, **describe(preset, Schedule.input_only(keep))})
        except PyramidError as error:
            rows.append({"keep": keep, "error": str(error)})
    if args.json:
        print_json(rows)
        return
    table = Table(title=f"{BACKBONES[args.backbone]} on {args.task}, width {preset.hidden_size}: space saved")
    for name in ("keep", "tokens", "attention", "by l² + l·d", "by tokens"):
        table.add_column(name, justify="right")
    for row in rows:
        if "error" in row:
            table.add_row(f"{row['keep']:g}", "–", "less than a block", "–", "–")
        else:
            shares = (f"{100 * row['space'][reading]:.0f} %" for reading in ("printed", "tokens"))
            table.add_row(f"{row['keep']:g}", str(row["kept"]), row["attention"].replace("_", "-"), *shares)
    Console().print(table)


def _bench(args: argparse.Namespace) -> None:
    _check_least(args, batch_size=1, rounds=1)
    if args.keep == 1:
        raise UsageError("--keep 1 keeps every token, as the dense side does; keep less")
    with usage_errors():
        preset, (schedule, settings) = preset_for(args.backbone, args.task, args.preset), _selection(args)
    if schedule is None:
        raise UsageError(f"--method {DENSE} is one side of every measurement; name another")
    from ..bench.training import measure_training
    from ..lab.lra.models import make_dense, make_model, tokens_of
    from ..lab.lra.run import describe
    from ..runtimes.devices import find_device
    from .ledgers import training_table

    device = find_device(args.device)
    with usage_errors():
        facts = describe(preset, schedule)
    dense = make_dense(preset, seed=0) if args.all_tokens else make_model(preset, None, seed=0)
    pyramid = make_model(preset, schedule, seed=0, **settings, cls_only=not args.all_tokens)
    n, batch_size = tokens_of(preset), args.batch_size or preset.batch_size
    with steps_shown(f"training steps of {n} tokens, in turn", 2 * (args.rounds + 1)) as step:
        ledger = measure_training(
            dense.to(device), pyramid.to(device), n, batch_size=batch_size, rounds=args.rounds, after_each=step
        )
    if args.json:
        print_json({"task": args.task, "backbone": args.backbone, "method": args.method, **facts, **ledger.to_dict()})
    else:
        Console().print(training_table([ledger]))
