"""Show, layer by layer, which tokens of a text stay and which kept token stands for each of the others."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from ..files import check_not_inside, check_writable_file, write_text
from .options import (
    SHORTEN,
    add_device_option,
    add_json_option,
    add_max_length_option,
    add_speed_option,
    load_classifier,
    print_json,
    say,
)

EPILOG = """examples:
  pyramid-bert explain my-model "a gripping story, told with warmth"
  pyramid-bert explain my-model "is it good?" --pair "it is very good" --html pair.html"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained pyramid")
    parser.add_argument("text", help="the text")
    parser.add_argument("--pair", metavar="TEXT", help="the second text of a pair")
    parser.add_argument("--html", metavar="FILE", help="write a self-contained page as well")
    add_max_length_option(parser)
    add_speed_option(parser)
    add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Explains, prints and writes."""
    text = args.text if args.pair is None else (args.text, args.pair)
    if args.html:
        check_writable_file(Path(args.html))
        check_not_inside(Path(args.html), Path(args.model))

    from ..explain.html import explanation_html
    from ..explain.terminal import token_pyramid

    classifier = load_classifier(args)
    classifier.encode([text], where=lambda _: "explain", remedy=SHORTEN)  # raises if it is too long
    explanation = classifier.explain(text)
    if args.json:
        print_json(explanation.to_dict())
    else:
        Console().print(token_pyramid(explanation))
    if args.html:
        write_text(Path(args.html), explanation_html(explanation))
        say(f"page in {args.html}")
