"""Writes a page of docs/ from the results in results/. Run it in the repository's folder.

python -m pyramid_bert.lab.pages results
python -m pyramid_bert.lab.pages performance --measure            # first measures what has no result yet
python -m pyramid_bert.lab.pages theory --measure bound-sst2-harsh  # first measures this again

Measure on a quiet machine. Commands take models and data from environment variables such as PYRAMID_MODEL and
PYRAMID_DATA; docs/theory.md describes them. A command whose variables are not set is not run.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ...files import write_text
from . import PAGES, write
from .commands import Commands


def main(arguments: list[str] | None = None) -> None:
    """Writes the page that is asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m pyramid_bert.lab.pages",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("page", choices=PAGES)
    parser.add_argument(
        "--measure", nargs="*", metavar="NAME", help="first measure these; without names, what is missing"
    )
    parser.add_argument("--root", type=Path, default=Path(), help="the repository (default: here)")
    args = parser.parse_args(arguments)
    file, measurements = PAGES[args.page]
    if args.measure is not None:
        Commands(args.root, measurements).measure(args.measure)
    write_text(args.root / "docs" / file, write(args.page, args.root))


if __name__ == "__main__":
    main()
