"""The report: one self-contained page from results and a model, and its figures as files."""

from __future__ import annotations

from .collect import Results, collect_results
from .figures import Picture, write_pictures
from .model import EncoderView, ModelView, look_at, look_inside
from .page import Call, pictures_of, report_html

__all__ = [
    "Call",
    "EncoderView",
    "ModelView",
    "Picture",
    "Results",
    "collect_results",
    "look_at",
    "look_inside",
    "pictures_of",
    "report_html",
    "write_pictures",
]
