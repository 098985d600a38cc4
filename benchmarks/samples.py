"""Rows to choose settings on."""

from pyramid_bert.text.sampling import shuffled
from pyramid_bert.text.tables import Table, Text


def as_long_as(like: Table, table: Table, rows: int) -> Table:
    """So many rows of `table` with the lengths, in words, of the rows of `like`, as nearly as there are such.

    SST-2 trains on phrases and is asked about sentences: what is to suit these must be chosen on training rows that
    are as long.
    """
    by_words: dict[int, list[int]] = {}
    for i in shuffled(len(table.texts), 1):
        by_words.setdefault(_words(table.texts[i]), []).append(i)
    wanted = [_words(text) for text in like.texts]
    chosen: list[int] = []
    for turn in range(min(rows, len(table.texts))):
        nearest = min(by_words, key=lambda words: (abs(words - wanted[turn % len(wanted)]), words))
        chosen.append(by_words[nearest].pop())
        if not by_words[nearest]:
            del by_words[nearest]
    return Table([table.texts[i] for i in chosen], [table.labels[i] for i in chosen], table.source)


def whole(table: Table, among: Table) -> Table:
    """The rows of `table` that are not part of a longer row of `among`: sentences, where their phrases are rows too."""
    everything = "\n" + "\n".join(f" {' '.join(text.split())} " for text in map(_one, set(among.texts))) + "\n"
    kept = [i for i, text in enumerate(map(_one, table.texts)) if not _within_another(text, everything)]
    return Table([table.texts[i] for i in kept], [table.labels[i] for i in kept], table.source)


def _within_another(text: str, everything: str) -> bool:
    words = f" {' '.join(text.split())} "
    first = everything.find(words)
    own = everything.find(f"\n{words}\n")
    return first >= 0 and (first != own + 1 or everything.find(words, first + 1) >= 0)


def _one(text: Text) -> str:
    return text if isinstance(text, str) else " ".join(text)


def _words(text: Text) -> int:
    return sum(len(part.split()) for part in ([text] if isinstance(text, str) else text))
