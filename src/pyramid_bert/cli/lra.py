"""Long Range Arena: make Pathfinder images, and train the paper's models with a selection at the input.

docs/lra.md describes the models, docs/data.md the three tasks and where their data comes from.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .lra_models import EXAMPLES, add_model_actions
from .options import add_json_option, cores, messages, print_json, steps_shown

DIFFICULTIES = ("easy", "intermediate", "hard")
EPILOG = f"""examples:
  pyramid-bert lra make-pathfinder --out pathfinder32 --n 20000
  pyramid-bert lra show pathfinder32 --out pathfinder.png{EXAMPLES}

`pyramid-bert lra ACTION --help` explains an action."""
_MAKE_EPILOG = """The same seed gives the same images with any number of processes. After an interruption the same
command continues; with a larger --n it adds images. The first 80 % are train, the next 10 % dev.

examples:
  pyramid-bert lra make-pathfinder --out pathfinder32 --n 20000
  pyramid-bert lra make-pathfinder --out pathfinder-easy --n 20000 --difficulty easy --seed 1 --jobs 2"""
_SHOW_EPILOG = """examples:
  pyramid-bert lra show pathfinder32 --out pathfinder.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The actions and their options."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    make = _action(actions, "make-pathfinder", "draw Pathfinder images into a folder", _MAKE_EPILOG)
    make.add_argument("--out", required=True, metavar="DIR", help="folder for the images")
    make.add_argument("--n", type=int, required=True, metavar="N", help="images in all; Long Range Arena has 200000")
    make.add_argument(
        "--difficulty", choices=DIFFICULTIES, default="hard", help="snakes of 6, 9 or 14 dashes (default: hard)"
    )
    make.add_argument("--seed", type=int, default=0, metavar="S", help="of all images (default: 0)")
    make.add_argument("--jobs", type=int, metavar="N", help="processes at once (default: one for each core)")
    add_json_option(make)
    make.set_defaults(act=_make)
    show = _action(actions, "show", "draw some images of a folder, large, with their paths", _SHOW_EPILOG)
    show.add_argument("folder", metavar="DIR", help="what make-pathfinder wrote")
    show.add_argument("--out", required=True, metavar="FILE", help="picture to write, for example pathfinder.png")
    show.add_argument("--n", type=int, default=12, metavar="N", help="images to show, from the first (default: 12)")
    show.set_defaults(act=_show)
    add_model_actions(actions, _action)


def _action(actions: Any, name: str, summary: str, epilog: str) -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=summary, description=summary, epilog=epilog, formatter_class=form
    )
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return parser


def run(args: argparse.Namespace) -> None:
    """Runs the action."""
    args.act(args)


def _make(args: argparse.Namespace) -> None:
    for option, low in (("n", 1), ("seed", 0), ("jobs", 1)):
        value = getattr(args, option)
        if value is not None and value < low:
            raise UsageError(f"--{option} must be at least {low}, got {value}")
    from ..lab.lra.pathfinder.settings import PathfinderSettings
    from ..lab.lra.pathfinder.store import make_pathfinder

    start = time.monotonic()
    counts: list[int] = []  # the first is the number already there
    with steps_shown("drawing", args.n) as advance:

        def made_some(count: int) -> None:
            counts.append(count)
            advance(count)

        record = make_pathfinder(
            args.out,
            args.n,
            PathfinderSettings.of(args.difficulty),
            seed=args.seed,
            jobs=args.jobs or cores(),
            progress=made_some,
        )
    seconds, made = time.monotonic() - start, sum(counts[1:])
    messages().print(f"made {made} images in {seconds:.1f} s, {made / seconds:.0f} a second; {counts[0]} were there")
    if args.json:
        print_json({"folder": str(args.out), **record.to_dict(), "made": made, "seconds": seconds})
    else:
        print(f"{record.images} images in {args.out}, sha256 {record.sha256}")


def _show(args: argparse.Namespace) -> None:
    from ..lab.lra.pathfinder.draw import draw_pathfinder
    from ..lab.lra.pathfinder.picture import save_drawings
    from ..lab.lra.pathfinder.store import read_record

    record = read_record(args.folder)
    if not 1 <= args.n <= record.images:
        raise UsageError(f"--n must be in 1-{record.images}, the images in {args.folder}; got {args.n}")
    drawings = [draw_pathfinder(record.settings, record.seed, index) for index in range(args.n)]
    save_drawings(drawings, Path(args.out))
    print(args.out)
