"""What the scripts share: the arguments MODEL TASK DATA, rows to choose settings on, and printing a result."""

import argparse
import json
from collections.abc import Iterable
from typing import Any

import torch

from pyramid_bert.bench.machine import describe_machine
from pyramid_bert.bench.timing import time_interleaved
from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.text.sampling import shuffled
from pyramid_bert.text.tables import Table, Text


def arguments(about: str, **options: Any) -> argparse.Namespace:
    """MODEL TASK DATA, and options by name and default, of the default's type; a flag where that is False."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("data")
    for name, default in options.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default, help=f"default: {default}")
    return parser.parse_args()


def show(result: dict[str, Any]) -> None:
    """Prints a result and the machine as JSON."""
    print(json.dumps({**result, "machine": describe_machine()}, indent=1))


def bytes_per_second() -> float:
    """The speed of reading memory that no cache holds, by a sum."""
    memory = torch.ones(1 << 27)
    timing = time_interleaved({"sum": memory.sum}, rounds=9)
    return memory.numel() * 4 / timing.median("sum")


def rows_of(table: Table, rows: Iterable[int]) -> Table:
    """Some rows of a table, by number."""
    some = list(rows)
    return Table([table.texts[i] for i in some], [table.labels[i] for i in some], table.source)


def as_long_as(like: Table, table: Table, rows: int) -> Table:
    """This number of rows of `table`, with lengths in words as near as possible to those of the rows of `like`.

    SST-2 trains on phrases and is asked about sentences, so its settings must be chosen on training rows that are as
    long as sentences.
    """
    by_words: dict[int, list[int]] = {}
    for i in shuffled(len(table.texts), 1):
        by_words.setdefault(len(_one(table.texts[i]).split()), []).append(i)
    wanted = [len(_one(text).split()) for text in like.texts]
    chosen: list[int] = []
    for turn in range(min(rows, len(table.texts))):
        nearest = min(by_words, key=lambda words: (abs(words - wanted[turn % len(wanted)]), words))
        chosen.append(by_words[nearest].pop())
        if not by_words[nearest]:
            del by_words[nearest]
    return rows_of(table, chosen)


def whole(table: Table, among: Table) -> Table:
    """The rows of `table` that are not part of a longer row of `among`: sentences, where their phrases are rows too."""
    everything = "\n" + "\n".join(f" {' '.join(text.split())} " for text in map(_one, set(among.texts))) + "\n"

    def within_another(text: str) -> bool:
        words = f" {' '.join(text.split())} "
        first = everything.find(words)
        own = everything.find(f"\n{words}\n")
        return first >= 0 and (first != own + 1 or everything.find(words, first + 1) >= 0)

    return rows_of(table, (i for i, text in enumerate(map(_one, table.texts)) if not within_another(text)))


def _one(text: Text) -> str:
    return text if isinstance(text, str) else " ".join(text)
