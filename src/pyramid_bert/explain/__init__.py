"""Explanations: what a pyramid did to a text, drawn in the terminal and as a self-contained web page. No torch."""

from __future__ import annotations

from .html import explanation_html
from .terminal import token_pyramid

__all__ = ["explanation_html", "token_pyramid"]
