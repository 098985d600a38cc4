"""Pieces of HTML. Plain strings are escaped everywhere; only what these functions return counts as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

_VOID = {"input"}  # elements that hold nothing and have no end


class Html(str):
    """HTML that needs no escaping."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value, escaped unless it is HTML already.

    Example:
        >>> text("a < b"), text(text("a < b"))
        ('a &lt; b', 'a &lt; b')
    """
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element. Attributes that are None are left out; "class_" and "data_x" are `class` and `data-x`.

    Example:
        >>> tag("p", "5 < 6", class_="note", title='"')
        '<p class="note" title="&quot;">5 &lt; 6</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>" if name in _VOID else f"<{name}{given}>{join(children)}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """The pieces in order."""
    return Html(between.join(text(part) for part in parts))


def section(key: str, title: str, *parts: object, note: object = "") -> Html:
    """A section of the page with the id `key`."""
    head = tag("h2", title)
    return tag("section", head, tag("p", note, class_="lead") if note else "", *parts, id=key, aria_label=title)


def table(head: Sequence[object], rows: Iterable[Sequence[object]], left: int = 1) -> Html:
    """A table that scrolls sideways where it is too wide; its first columns are aligned left, the others right."""
    titles = [tag("th", cell, scope="col", class_=_side(number, left)) for number, cell in enumerate(head)]
    body = []
    for row in rows:
        first = tag("th", row[0], scope="row", class_=_side(0, left))
        body.append(tag("tr", first, *(tag("td", cell, class_=_side(n, left)) for n, cell in enumerate(row[1:], 1))))
    return scrolling(tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *body)))


def scrolling(inner: Html) -> Html:
    """A frame that scrolls sideways."""
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label="table")


def _side(column: int, left: int) -> str | None:
    return None if column < left else "number"


def command(line: str, says: str = "again:") -> Html:
    """A command with a button that copies it."""
    button = tag("button", "copy", type="button", class_="copy", hidden="")
    return tag("div", tag("span", says, class_="says"), tag("code", line), button, class_="command")


def missing(what: str, line: str | None) -> Html:
    """Says what is missing, and the command that would make it."""
    return (
        tag("p", what, class_="missing")
        if line is None
        else join([tag("p", what, class_="missing"), command(line, "to make it:")])
    )
