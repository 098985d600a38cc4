"""A study's table for people: on the terminal and as Markdown. Metrics in per cent, as papers print them."""

from __future__ import annotations

from rich.table import Table

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


def target_name(axis: str, target: float) -> str:
    """A point of an axis in a word: "1.5x" or "30 %"."""
    return f"{100 * target:g} %" if axis.startswith("space") else f"{target:g}x"


def rows_of(table: StudyTable, target: float) -> list[list[str]]:
    """The rows of the table at one target: a method and its estimates by task, the mean last if there are more."""
    columns = columns_of(table)
    rows = [[DENSE, *(shown(table.dense[task]) for task in columns)]]
    return rows + [
        [method, *(shown(table.entries[target, method, task]) for task in columns)] for method in table.methods
    ]


def columns_of(table: StudyTable) -> list[str]:
    """The tasks, and the mean if there are several."""
    return [*table.tasks, MEAN] if len(table.tasks) > 1 else list(table.tasks)


def rich_table(name: str, table: StudyTable) -> Table:
    """All targets in one table, a section each."""
    out = Table(
        title=f"{name}: {AXES[table.axis][0]}",
        caption=f"mean ± std over seeds; {NOTHING} where nothing is observed; the dense model is 1x over c",
    )
    out.add_column("at")
    out.add_column("")
    for task in columns_of(table):
        out.add_column(table.tasks.get(task, task), justify="right", no_wrap=True)
    for target in table.targets:
        for number, row in enumerate(rows_of(table, target)):
            out.add_row("" if number else target_name(table.axis, target), *row)
        out.add_section()
    return out


def markdown(name: str, table: StudyTable) -> str:
    """All targets as Markdown tables, one under the other."""
    titles = [table.tasks.get(task, task) for task in columns_of(table)]
    lines = [f"{name}: {AXES[table.axis][0]}; mean ± std over seeds."]
    for target in table.targets:
        lines += ["", f"| at {target_name(table.axis, target)} | {' | '.join(titles)} |"]
        lines.append("|---|" + "---:|" * len(titles))
        lines += ["| " + " | ".join(row) + " |" for row in rows_of(table, target)]
    return "\n".join(lines)
