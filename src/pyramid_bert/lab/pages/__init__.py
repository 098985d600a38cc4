"""The generated pages of docs/: `python -m pyramid_bert.lab.pages NAME` writes one from results/ and experiments/.

A page is a template in `templates`: Markdown with its prose, and Jinja for what results fill. The module of
the page's name has the functions that the template may call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..markdown import described, table
from ..report.grids import number
from .commands import Commands

# Page -> its file in docs/ and in templates/, and the file of its measurements in results/.
PAGES = {
    "results": ("results.md", "ablation-importance"),
    "lra": ("lra-results.md", "bench-lra"),
    "theory": ("theory.md", "theory"),
    "performance": ("performance.md", "bench"),
    "speedup": ("speedup.md", "bench"),
}


def write(page: str, root: Path) -> str:
    """The text of a page; its pictures are drawn into docs/images if matplotlib is installed."""
    file, measurements = PAGES[page]
    found = Commands(root, measurements)
    module = import_module(f".{page}", __package__)
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return fill(file, {**public, **module.names(root), "found": found})


def fill(template: str, names: Mapping[str, Any]) -> str:
    """A template with its values; parts that are empty leave no gap."""
    loader = PackageLoader(__package__, "templates")
    options: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=loader, extensions=["jinja2.ext.do"], **options)
    environment.filters.update(to=number, described=described)
    environment.globals.update(table=table)
    return re.sub(r"\n{3,}", "\n\n", environment.get_template(template).render(names)).strip() + "\n"
