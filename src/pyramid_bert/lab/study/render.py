"""A study's table for people: on the terminal and as Markdown. Metrics in per cent, as papers print them."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..markdown import joined
from ..markdown import table as table_of
from .axes import AXES
from .methods import DENSE
from .table import MEAN, Estimate, StudyTable

NOTHING = "–"


def shown(entry: Estimate | None) -> str:
    """An estimate in per cent.

    Example:
        >>> shown(Estimate(0.8125, 0.0031, 2)), shown(Estimate(0.8, None, 1)), shown(None)
        ('81.2 ± 0.3', '80.0', '–')
    """
    if entry is None:
        return NOTHING
    return f"{100 * entry.mean:.1f}" + ("" if entry.std is None else f" ± {100 * entry.std:.1f}")


def duration(seconds: float) -> str:
    """Seconds for people.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def target_name(axis: str, target: float) -> str:
    """A point of an axis in a word: "1.5x" or "30 %"."""
    return f"{100 * target:g} %" if axis.startswith("space") else f"{target:g}x"


def rows_of(table: StudyTable) -> list[list[str]]:
    """The rows of a table: dense, then the methods at each target, with their estimates in the order of `columns_of`.

    A row begins with its target, which only the first of a target names, and its method.
    """
    columns = columns_of(table)
    rows = [["", DENSE, *(shown(table.dense[task]) for task in columns)]]
    for target in table.targets:
        for method in table.methods:
            at = target_name(table.axis, target) if method == table.methods[0] else ""
            rows.append([at, method, *(shown(table.entries[target, method, task]) for task in columns)])
    return rows


def columns_of(table: StudyTable) -> list[str]:
    """The tasks, and the mean if there are several."""
    return [*table.tasks, MEAN] if len(table.tasks) > 1 else list(table.tasks)


def title_of(name: str, table: StudyTable) -> str:
    """The study, the metric if it is not each task's own, and the axis."""
    metric = "" if table.metric is None else f"{table.metric} by "
    return f"{name}: {metric}{AXES[table.axis][0]}"


def rich_table(name: str, table: StudyTable) -> Table:
    """All targets in one table, a section each."""
    title = title_of(name, table)
    out = Table(
        title=title,
        min_width=min(len(title), 78),  # a table of one task is narrower than its title
        caption=f"mean ± std over seeds; {NOTHING} where nothing is observed; the dense model is 1x over c",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=0,  # five tasks fit into 80 columns
    )
    rows = rows_of(table)
    for place, title in enumerate(("at", "")):  # in a narrow window metrics are cut, never whose they are
        out.add_column(title, no_wrap=True, min_width=max(len(row[place]) for row in rows))
    for task in columns_of(table):
        out.add_column(table.tasks.get(task, task), justify="right", no_wrap=True)
    for row in rows:
        if row[0]:
            out.add_section()
        out.add_row(*row)
    return out


def markdown(name: str, table: StudyTable) -> str:
    """The table as Markdown."""
    titles = [table.tasks.get(task, task) for task in columns_of(table)]
    rows = table_of(["at", "", *titles], rows_of(table), left=2)
    return joined([f"{title_of(name, table)}; mean ± std over seeds.", rows])
