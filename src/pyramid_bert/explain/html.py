"""The token pyramid as a web page without network access, for a browser and for a notebook cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import Any

from ..files import to_json
from .explanation import Explanation
from .pieces import pieces
from .terminal import fate, prediction_texts, stages


def explanation_html(explanation: Explanation) -> str:
    """A page that shows what a pyramid did to one text.

    The same string serves as a file and as the output of a notebook cell. Each picture is built in its own shadow root
    without ids, so several pictures do not clash and their style does not leak into the notebook. (An iframe needs a
    fixed height.)

    Example:
        >>> from pyramid_bert.explain.explanation import Explanation, LayerView
        >>> layers = (LayerView(1, (0, 2), (0, 2, 2, 0), 4.2),)
        >>> example = Explanation("a film", ("[CLS]", "a", "film", "[SEP]"), layers, "good", {"good": 0.9}, "good", {})
        >>> page = explanation_html(example)
        >>> page.startswith("<!doctype html>"), "a film" in page
        (True, True)
    """
    page = part("explanation.html")
    page = page.replace("__TEMPLATE__", part("token_pyramid.html")).replace("__SCRIPT__", part("token_pyramid.js"))
    return page.replace("__EXPLANATION__", script_safe(payload(explanation)))


def part(name: str) -> str:
    """A file of this package: the template "token_pyramid.html" or the script "token_pyramid.js" that fills it."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def payload(explanation: Explanation) -> dict[str, Any]:
    """The data for `drawTokenPyramid`, with numbers and names as they are shown."""
    pyramid, dense, differ = prediction_texts(explanation)
    return {
        "text": explanation.text,
        "tokens": [asdict(piece) for piece in pieces(explanation.tokens)],
        "stages": [asdict(stage) for stage in stages(explanation)],
        "pyramid": pyramid,
        "dense": dense,
        "differ": differ,
        "labelled": bool(explanation.probabilities),
        "fate": fate(explanation.settings),
        "settings": [[name, _setting(value)] for name, value in explanation.settings.items()],
    }


def _setting(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_setting(inner)}" for name, inner in value.items())
    return str(value)


def script_safe(data: Any) -> str:
    """JSON in ASCII that cannot end the script element around it, nor open a comment or another one."""
    return to_json(data).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
