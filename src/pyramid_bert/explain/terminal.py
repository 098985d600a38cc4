"""The token pyramid for the terminal: a row per layer with the tokens left, and where the others went.

The web page shares the stages of a pyramid (`stages`) and the words for what happened to a token (`fate`,
`prediction_texts`).
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
from .pieces import Piece, pieces

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
_PAD = "\ue000"  # fills a dropped token's place; a space would let a line break there
# Control characters (escape sequences), directional overrides and joiners, surrogates, private use, line separators.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
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


def fate(settings: Mapping[str, Any]) -> str:
    """What a kept token is to the tokens it stands for: a key of `FATES`."""
    if settings.get("selector") in ("pool", "cluster", "bipartite"):
        return "pooled into"
    return {"merge": "merged into", "replace": "replaced by"}.get(str(settings.get("reduce")), "nearest kept token")


def prediction_texts(explanation: Explanation) -> tuple[str, str, bool]:
    """The pyramid's answer, the dense model's, and whether the two labels differ."""
    pyramid, dense = explanation.prediction, explanation.dense_prediction
    ours = _answer(pyramid, explanation.probabilities)
    if dense is None:
        return ours, "not known", False
    differ = bool(explanation.probabilities) and pyramid != dense
    return ours, _answer(dense, explanation.dense_probabilities), differ


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
class _TokenPyramid:
    """Laid out when it is printed, because the width is known only then."""

    explanation: Explanation
    width: int | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        encoding, width = options.encoding, min(self.width or options.max_width, options.max_width)
        shown = [Piece(_printable(piece.text, encoding), piece.attached) for piece in pieces(self.explanation.tokens)]
        sections = (
            list(_pyramid(console, self.explanation, shown, width)),
            list(_homes(console, self.explanation, shown, width)),
            list(_wrapped(console, _answers(self.explanation, encoding), width)),
        )
        for number, lines in enumerate(sections):
            for line in [Text(), *lines] if number and lines else lines:
                # The length stays the same, so styles keep their places.
                line.plain = line.plain.replace(_PAD, " ")
                line.rstrip()
                if _encodable(line.plain, encoding) != line.plain:
                    line.plain = _encodable(line.plain.translate(_ASCII), encoding)
                line.no_wrap = True
                yield line


def _pyramid(console: Console, explanation: Explanation, shown: Sequence[Piece], width: int) -> Iterator[Text]:
    """A block of lines per stage: label, tokens left, radius, and the tokens beside or below."""
    rows = stages(explanation)
    counts = [f"{len(stage.kept)}/{len(shown)}" for stage in rows]
    radii = ["–" if stage.radius is None else f"{stage.radius:.2f}" for stage in rows]
    widths = max(len(stage.label) for stage in rows), max(4, *map(len, counts)), max(6, *map(len, radii))
    indent = sum(widths) + 6
    beside = width - indent >= MIN_TOKEN_WIDTH
    indent = indent if beside else 2
    room = max(width - indent, 1)
    shown = [Piece(_crop(piece.text, room), piece.attached) for piece in shown]
    aligned = len(_token_line(shown, rows[0], last=False, aligned=True).wrap(console, room)) <= MAX_ALIGNED_LINES
    if beside:
        yield Text(f"{'':{widths[0]}}  {'left':>{widths[1]}}  {'radius':>{widths[2]}}", style=DIM)
    for stage, count, radius in zip(rows, counts, radii, strict=True):
        lines = _token_line(shown, stage, last=stage is rows[-1], aligned=aligned).wrap(console, room)
        while len(lines) > 1 and not lines[-1].plain.strip(f" ·{_PAD}"):
            lines.pop()
        if beside:
            number = f"  {count:>{widths[1]}}  "
            head = Text.assemble((f"{stage.label:{widths[0]}}", LABEL), number, (f"{radius:>{widths[2]}}  ", DIM))
            yield head + lines[0]
        else:
            head = Text.assemble((stage.label, LABEL), f" {count} ", (f"radius {radius}", DIM))
            yield from _wrapped(console, head, width)
        for line in lines[1:] if beside else lines:
            yield Text(" " * indent) + line


def _token_line(shown: Sequence[Piece], stage: Stage, *, last: bool, aligned: bool) -> Text:
    """The tokens left, with a dot for each dropped one, as wide as that (`aligned`), or one dot for several."""
    kept, text = set(stage.kept), Text()
    for position, piece in enumerate(shown):
        if position in kept:
            word, style = piece.text, _style(position, last)
        elif aligned or position == 0 or position - 1 in kept:
            word, style = "·".center(cell_len(piece.text) if aligned else 1, _PAD), DIM
        else:
            continue
        text.append("" if piece.attached or position == 0 else " ").append(word, style)
    return text


def _style(position: int, last: bool) -> str:
    return CLS if position == 0 else LAST if last else ""


def _homes(console: Console, explanation: Explanation, shown: Sequence[Piece], width: int) -> Iterator[Text]:
    """Which tokens each survivor of the last layer stands for; nothing when all are left."""
    final = stages(explanation)[-1]
    if len(final.kept) == len(shown):
        return
    guests: dict[int, list[int]] = {position: [] for position in final.kept}
    for position, home in enumerate(final.home):
        if position != home and home in guests:
            guests[home].append(position)
    hosts = sorted((home for home in guests if guests[home]), key=lambda home: -len(guests[home]))
    listed, others = sorted(hosts[:MAX_HOMES]), sorted(hosts[MAX_HOMES:])
    title = Text.assemble(("where the others went ", LAST), (f"({FATES[fate(explanation.settings)]})", DIM))
    yield from _wrapped(console, title, width)
    names = {home: _name(home, shown) for home in listed}
    room = min(max(map(cell_len, names.values()), default=0), width // 3)
    for home in listed:
        name = _crop(names[home], room)
        head = Text.assemble(" " * (2 + room - cell_len(name)), (name, _style(home, True)), (" ← ", DIM))
        yield from _wrapped(console, Text(_words(guests[home], shown)), width, head)
    count = sum(len(guests[home]) for home in others)
    for remark, positions in (
        (f"and {len(others)} more, with {count} tokens: ", others),
        ("only themselves: ", [home for home in guests if not guests[home]]),
        ("forgotten: ", [position for position, home in enumerate(final.home) if home not in guests]),
    ):
        if positions:
            text = Text.assemble((remark, DIM), _words(positions, shown))
            yield from _wrapped(console, text, width, Text("  "))


def _answers(explanation: Explanation, encoding: str) -> Text:
    *answers, differ = prediction_texts(explanation)
    pyramid, dense = ((_printable(str(answer), encoding), LAST) for answer in answers)
    verdict = (" (differs)" if differ else "", "bold red")
    return Text.assemble(("pyramid: ", LABEL), pyramid, (" · ", DIM), ("dense: ", LABEL), dense, verdict)


def _wrapped(console: Console, text: Text, width: int, head: Text | None = None) -> Iterator[Text]:
    """The lines of `text` after `head`, later lines indented as far as it reaches."""
    head = head or Text()
    for number, line in enumerate(text.wrap(console, max(width - head.cell_len, 1), overflow="ellipsis")):
        yield (Text(" " * head.cell_len) if number else head) + line


def _crop(text: str, room: int) -> str:
    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + "…"


def _name(position: int, shown: Sequence[Piece]) -> str:
    """The token in a list: a word's ending with an ellipsis, punctuation in quotes."""
    piece = shown[position]
    if piece.attached:
        return f"…{piece.text}"
    return f"“{piece.text}”" if all(unicodedata.category(letter)[0] == "P" for letter in piece.text) else piece.text


def _words(positions: Iterable[int], shown: Sequence[Piece]) -> str:
    """The tokens by name, neighbouring pieces of a word as one, repeated ones counted, with commas between."""
    words: list[str] = []
    previous = None
    for position in positions:
        if shown[position].attached and previous == position - 1:
            words[-1] += shown[position].text
        else:
            words.append(_name(position, shown))
        previous = position
    counted = [word if count == 1 else f"{word} ×{count}" for word, count in Counter(words).items()]
    more = [f"{len(counted) - MAX_GUESTS} more"] if len(counted) > MAX_GUESTS else []
    return ", ".join([*counted[:MAX_GUESTS], *more])


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
