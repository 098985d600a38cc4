"""The token pyramid for the terminal: a row per layer with the tokens left, and where the others went.

The web page shares the stages of a pyramid (`stages`), readable pieces of words (`pieces`) and the words for what
happened to a token (`fate`, `prediction_texts`).
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from numbers import Integral, Real
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from ..errors import PyramidError
from .explanation import Explanation

CLS, LABEL, LAST, DIM = "bold magenta", "cyan", "bold", "dim"
MIN_WIDTH = 20
MIN_TOKEN_WIDTH = 32  # with less room beside the labels, tokens go below them
MAX_ALIGNED_LINES = 2  # longer texts are listed without the places of dropped tokens
MAX_HOMES = 12
MAX_GUESTS = 16
FATES = {
    "nearest kept token": "nearest kept token ← tokens dropped",
    "merged into": "survivor ← tokens merged into it",
    "replaced by": "survivor ← tokens that became copies of it",
    "pooled into": "first token ← tokens pooled into its place",
}
# Control characters (escape sequences), directional overrides and joiners, lone surrogates, line separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# As wide as what they replace, so lines keep their width.
_ASCII = str.maketrans(
    {"·": ".", "–": "-", "←": "<", "…": "~", "×": "x", "“": '"', "”": '"', "\N{REPLACEMENT CHARACTER}": "?"}
)


@dataclass(frozen=True)
class Stage:
    """The input, or consecutive layers that end with the same tokens.

    Attributes:
        label: "input", "layer 3" or "layers 4–12".
        kept: Positions of the tokens that are left.
        home: For each token the position of the one that stands for it, -1 for none.
        radius: Covering radius of the selection; None where nothing was dropped or no distance measured.
    """

    label: str
    kept: tuple[int, ...]
    home: tuple[int, ...]
    radius: float | None


@dataclass(frozen=True)
class Piece:
    """A token as people read it; `attached` when it continues the word before it."""

    text: str
    attached: bool


def stages(explanation: Explanation) -> list[Stage]:
    """The input and the distinct sets of tokens above it, in order."""
    everything = tuple(range(len(explanation.tokens)))
    found = [Stage("input", everything, everything, None)]
    for kept, run in groupby(explanation.layers, key=lambda view: view.kept):
        views = list(run)
        first, last = views[0].layer, views[-1].layer
        label = f"layer {first}" if first == last else f"layers {first}–{last}"
        found.append(Stage(label, kept, views[-1].home, max(view.radius for view in views) or None))
    return found


def pieces(tokens: Sequence[str]) -> list[Piece]:
    """The tokens without WordPiece's "##"."""
    found = []
    for position, token in enumerate(tokens):
        attached = position > 0 and token.startswith("##") and len(token) > 2
        found.append(Piece(token[2:] if attached else token, attached))
    return found


def fate(settings: Mapping[str, Any]) -> str:
    """What a kept token is to the tokens it stands for: a key of `FATES`."""
    if settings.get("selector") in ("pool", "cluster"):
        return "pooled into"
    return {"merge": "merged into", "replace": "replaced by"}.get(str(settings.get("reduce")), "nearest kept token")


def prediction_texts(explanation: Explanation) -> tuple[str, str, bool]:
    """The pyramid's answer, the dense model's, and whether the two labels differ."""
    pyramid, dense = explanation.prediction, explanation.dense_prediction
    differ = bool(explanation.probabilities) and pyramid != dense
    return _answer(pyramid, explanation.probabilities), _answer(dense, explanation.dense_probabilities), differ


def _answer(value: Any, probabilities: Mapping[str, float]) -> str:
    number = isinstance(value, Real) and not isinstance(value, Integral)
    probability = probabilities.get(str(value))
    return (f"{value:.4g}" if number else str(value)) + ("" if probability is None else f" {probability:.2f}")


def token_pyramid(explanation: Explanation, width: int | None = None) -> RenderableType:
    """What a pyramid did to one text, for `rich.print`.

    Args:
        explanation: What `PyramidClassifier.explain` returned.
        width: Columns to use, at least 20; None for the console's width.

    Example:
        >>> from rich.console import Console
        >>> from pyramid_bert.explain.explanation import Explanation, LayerView
        >>> example = Explanation(
        ...     text="a fine film",
        ...     tokens=("[CLS]", "a", "fine", "film", "[SEP]"),
        ...     layers=(LayerView(1, (0, 2, 3), (0, 3, 2, 3, 0), 4.2), LayerView(2, (0, 2), (0, 2, 2, 2, 0), 5.1)),
        ...     prediction="positive",
        ...     probabilities={"positive": 0.98, "negative": 0.02},
        ...     dense_prediction="positive",
        ...     settings={"reduce": "merge"},
        ... )
        >>> Console(width=64, color_system=None).print(token_pyramid(example))
                 left  radius
        input     5/5       –  [CLS] a fine film [SEP]
        layer 1   3/5    4.20  [CLS] · fine film   ·
        layer 2   2/5    5.10  [CLS] · fine  ·     ·
        <BLANKLINE>
        where the others went (survivor ← tokens merged into it)
          [CLS] ← [SEP]
           fine ← a, film
        <BLANKLINE>
        pyramid: positive 0.98 · dense: positive
    """
    if width is not None and width < MIN_WIDTH:
        raise PyramidError(f"width must be at least {MIN_WIDTH} columns, got {width}; None takes the console's")
    return _TokenPyramid(explanation, width)


@dataclass(frozen=True)
class _Item:
    """Something to print on a line: a token, or the mark of dropped ones."""

    text: str
    attached: bool = False
    style: str = ""


@dataclass(frozen=True)
class _TokenPyramid:
    """Laid out when printed, when the width is known."""

    explanation: Explanation
    width: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = min(self.width or options.max_width, options.max_width)
        shown = [
            Piece(_printable(piece.text, options.encoding), piece.attached) for piece in pieces(self.explanation.tokens)
        ]
        sections = (
            _pyramid(self.explanation, shown, width),
            _homes(self.explanation, shown, width),
            _answers(self.explanation, width, options.encoding),
        )
        for number, section in enumerate(sections):
            lines = list(section)
            for line in [Text(), *lines] if number and lines else lines:
                line.rstrip()
                # The length stays the same, so styles keep their places.
                if _encodable(line.plain, options.encoding) != line.plain:
                    line.plain = _encodable(line.plain.translate(_ASCII), options.encoding)
                line.no_wrap = True
                yield line


def _pyramid(explanation: Explanation, shown: Sequence[Piece], width: int) -> Iterator[Text]:
    """A block of lines per stage: label, tokens left, radius, and the tokens beside or below."""
    rows, total = stages(explanation), len(shown)
    counts = [f"{len(stage.kept)}/{total}" for stage in rows]
    radii = ["–" if stage.radius is None else f"{stage.radius:.2f}" for stage in rows]
    label_width = max(len(stage.label) for stage in rows)
    count_width = max(4, *map(len, counts))
    radius_width = max(6, *map(len, radii))
    indent = label_width + count_width + radius_width + 6
    beside = width - indent >= MIN_TOKEN_WIDTH
    indent = indent if beside else 2
    room = max(width - indent, 1)
    shown = [Piece(_crop(piece.text, room), piece.attached) for piece in shown]
    aligned = len(_wrap(_in_place(shown, rows[0], last=False), room)) <= MAX_ALIGNED_LINES
    if beside:
        yield Text(f"{'':{label_width}}  {'left':>{count_width}}  {'radius':>{radius_width}}", style=DIM)
    for stage, count, radius in zip(rows, counts, radii, strict=True):
        items = (_in_place if aligned else _listed)(shown, stage, last=stage is rows[-1])
        lines = _wrap(items, room)
        while len(lines) > 1 and not lines[-1].plain.strip(" ·"):
            lines.pop()
        if beside:
            head = Text.assemble(
                (f"{stage.label:{label_width}}", LABEL),
                f"  {count:>{count_width}}  ",
                (f"{radius:>{radius_width}}  ", DIM),
            )
            yield head + lines[0]
        else:
            head_items = [*_phrase(stage.label, LABEL), _Item(count), *_phrase(f"radius {radius}", DIM)]
            yield from _paragraph(Text(), head_items, width)
        for line in lines[1:] if beside else lines:
            yield Text(" " * indent) + line


def _in_place(shown: Sequence[Piece], stage: Stage, *, last: bool) -> list[_Item]:
    """All tokens, with a dot as wide as the token for dropped ones."""
    kept = set(stage.kept)
    return [
        _Item(piece.text, piece.attached, _style(position, last))
        if position in kept
        else _Item("·".center(cell_len(piece.text)), piece.attached, DIM)
        for position, piece in enumerate(shown)
    ]


def _listed(shown: Sequence[Piece], stage: Stage, *, last: bool) -> list[_Item]:
    """The tokens left, with one dot for all tokens dropped between two of them."""
    kept = set(stage.kept)
    items = []
    for is_kept, run in groupby(enumerate(shown), key=lambda pair: pair[0] in kept):
        members = list(run)
        if is_kept:
            items += [_Item(piece.text, piece.attached, _style(position, last)) for position, piece in members]
        else:
            items.append(_Item("·", members[0][1].attached, DIM))
    return items


def _style(position: int, last: bool) -> str:
    return CLS if position == 0 else LAST if last else ""


def _homes(explanation: Explanation, shown: Sequence[Piece], width: int) -> Iterator[Text]:
    """Which tokens each survivor of the last layer stands for; nothing when all are left."""
    final = stages(explanation)[-1]
    if len(final.kept) == len(shown):
        return
    guests: dict[int, list[int]] = {position: [] for position in final.kept}
    for position, home in enumerate(final.home):
        if position != home and home in guests:
            guests[home].append(position)
    forgotten = [position for position, home in enumerate(final.home) if home not in guests]
    hosts = sorted((home for home in guests if guests[home]), key=lambda home: -len(guests[home]))
    listed, others = sorted(hosts[:MAX_HOMES]), hosts[MAX_HOMES:]
    legend = _phrase(f"({FATES[fate(explanation.settings)]})", DIM)
    yield from _paragraph(Text(), [*_phrase("where the others went", LAST), *legend], width)
    names = {home: _name(home, shown) for home in listed}
    room = min(max(map(cell_len, names.values()), default=0), width // 3)
    for home in listed:
        name = _crop(names[home], room)
        head = Text("  " + " " * (room - cell_len(name))) + Text(name, _style(home, True)) + Text(" ← ", DIM)
        yield from _paragraph(head, _commas(_words(guests[home], shown)), width)
    if others:
        count = sum(len(guests[home]) for home in others)
        yield from _remark(f"and {len(others)} more, with {count} tokens:", _words(sorted(others), shown), width)
    yield from _remark("only themselves:", _words([home for home in guests if not guests[home]], shown), width)
    yield from _remark("forgotten:", _words(forgotten, shown), width)


def _remark(title: str, words: list[str], width: int) -> Iterator[Text]:
    if words:
        yield from _paragraph(Text("  "), [*_phrase(title, DIM), *_commas(words)], width)


def _answers(explanation: Explanation, width: int, encoding: str) -> Iterator[Text]:
    *answers, differ = prediction_texts(explanation)
    pyramid, dense = (_phrase(_printable(str(answer), encoding), LAST) for answer in answers)
    items = [_Item("pyramid:", style=LABEL), *pyramid, _Item("·", style=DIM), _Item("dense:", style=LABEL), *dense]
    yield from _paragraph(Text(), items + _phrase("(differs)" if differ else "", "bold red"), width)


def _phrase(text: str, style: str) -> list[_Item]:
    return [_Item(word, style=style) for word in text.split()]


def _crop(text: str, room: int) -> str:
    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + "…"


def _paragraph(head: Text, items: list[_Item], width: int) -> Iterator[Text]:
    """The items after `head`, later lines indented as far as it reaches."""
    for number, line in enumerate(_wrap(items, max(width - head.cell_len, 1))):
        yield (Text(" " * head.cell_len) if number else head) + line


def _commas(words: list[str]) -> list[_Item]:
    return [_Item(word + "," * (number < len(words))) for number, word in enumerate(words, start=1)]


def _name(position: int, shown: Sequence[Piece]) -> str:
    """The token in a list: a word's ending with an ellipsis, punctuation in quotes."""
    piece = shown[position]
    if piece.attached:
        return f"…{piece.text}"
    return f"“{piece.text}”" if all(unicodedata.category(letter)[0] == "P" for letter in piece.text) else piece.text


def _words(positions: Iterable[int], shown: Sequence[Piece]) -> list[str]:
    """The tokens by name, neighbouring pieces of a word as one, repeated ones counted."""
    words: list[str] = []
    previous = None
    for position in positions:
        if shown[position].attached and previous == position - 1:
            words[-1] += shown[position].text
        else:
            words.append(_name(position, shown))
        previous = position
    counted = [word if count == 1 else f"{word} ×{count}" for word, count in Counter(words).items()]
    return counted if len(counted) <= MAX_GUESTS else [*counted[:MAX_GUESTS], f"{len(counted) - MAX_GUESTS} more"]


def _wrap(items: Sequence[_Item], room: int) -> list[Text]:
    """The items as lines of at most `room` cells, at least one; words stay whole where they can."""
    lines = [Text()]
    for word in _by_word(items):
        needed = sum(cell_len(item.text) for item in word)
        if lines[-1].plain and lines[-1].cell_len + 1 + needed > room:
            lines.append(Text())
        elif lines[-1].plain:
            lines[-1].append(" ")
        for item in word:
            text = _crop(item.text, room)
            if lines[-1].cell_len + cell_len(text) > room:
                lines.append(Text())
            lines[-1].append(text, item.style)
    return lines


def _by_word(items: Sequence[_Item]) -> Iterator[list[_Item]]:
    word: list[_Item] = []
    for item in items:
        if word and not item.attached:
            yield word
            word = []
        word.append(item)
    if word:
        yield word


def _printable(text: str, encoding: str) -> str:
    """The text without characters that move the cursor or take no cell: tokens come from arbitrary input."""
    text = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter) in _UNPRINTABLE else letter for letter in text
    )
    text = _encodable(text, encoding)
    if cell_len(text):
        return text
    accents = bool(text) and all(unicodedata.category(letter)[0] == "M" for letter in text)
    return _encodable(f"◌{text}" if accents else "\N{REPLACEMENT CHARACTER}", encoding)


def _encodable(text: str, encoding: str) -> str:
    return text.encode(encoding, "replace").decode(encoding)
