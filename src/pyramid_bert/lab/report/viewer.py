"""The viewer: example sentences, explained beforehand, to choose from and to step through layer by layer."""

from __future__ import annotations

from typing import Any

from ...explain.html import part, payload
from .markup import Html, command, missing, section, table, tag
from .model import ModelView

# Used without --texts: short and long, plain and complex, with names, numbers and rare words.
EXAMPLES = (
    "a gripping story, told with warmth and without a single false note",
    "the plot is paper-thin, the jokes are older than the cast, and the end cannot come soon enough",
    "not a bad film, but not one that anybody will remember by the weekend",
    "I went in expecting very little and came out with tears in my eyes",
    "beautifully shot, badly written, and at two and a half hours far too long",
    "the first half is brilliant; the second half seems to belong to another, much worse film",
    "if you liked the book, stay at home and read it again",
    "an unassuming little comedy that gets funnier the longer you think about it",
    "there is not one dull moment in it, and not one believable one either",
    "Professor Quigley's xylophone quartet steals every scene it is in",
    "the acting is fine, the music is fine, the story is fine, and together they are somehow wonderful",
    "what a waste of a great cast",
)


def viewer(view: ModelView | None, line: str) -> Html:
    """The section; its data is `viewer_data`.

    Args:
        view: From `look_at`; None without a model.
        line: The command that makes the section.
    """
    title = "Look inside a sentence"
    if view is None:
        return section("viewer", title, missing("No model was given, so no sentence is explained.", line))
    how = "as it was saved" if view.trained else "dense weights with the default schedule, not fine-tuned as a pyramid"
    note = f"{view.name} ({view.layers} layers; {how}). "
    if view.same_answers is not None:
        count = len(view.explanations)
        note += f"Pyramid and dense model give the same answer to {view.same_answers} of {count} examples. "
    note += (
        "Type to find one, then step through the layers with the buttons or the arrow keys. Coloured tokens are still "
        "there; point at a dropped token to see which kept one stands for it."
    )
    choose = tag(
        "div",
        tag("label", "Sentence", for_="viewer-text"),
        tag(
            "input",
            id="viewer-text",
            list="viewer-texts",
            autocomplete="off",
            spellcheck="false",
            placeholder="type to search",
        ),
        tag("datalist", id="viewer-texts"),
        tag("button", "‹", type="button", id="viewer-before", aria_label="Sentence before"),
        tag("button", "›", type="button", id="viewer-after", aria_label="Next sentence"),
        tag("span", id="viewer-count", class_="note", aria_live="polite"),
        class_="choose",
    )
    template = tag("template", Html(part("token_pyramid.html")), id="token-pyramid")
    place = tag("div", tag("noscript", "The viewer is drawn by a script."), id="viewer-place")
    rows = [[name, value] for name, value in payload(view.explanations[0])["settings"]]
    settings = tag("details", tag("summary", "Settings of this pyramid"), table(["setting", "value"], rows, left=2))
    return section("viewer", title, choose, template, place, settings, command(line), note=note)


def viewer_data(view: ModelView | None) -> list[dict[str, Any]]:
    """The data of the examples, for the page's script."""
    return [] if view is None else [payload(explanation) for explanation in view.explanations]
