"""Rows to choose settings on."""

from pyramid_bert.data import Table, Text, shuffled


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


def _words(text: Text) -> int:
    return sum(len(part.split()) for part in ([text] if isinstance(text, str) else text))
