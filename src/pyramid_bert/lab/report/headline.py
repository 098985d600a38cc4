"""The headline table: a study's metric at given speed-ups over c, by method and task, against dense."""

from __future__ import annotations

from collections.abc import Sequence

from ..study.axes import AXES
from ..study.methods import METHODS
from ..study.render import NOTHING, columns_of, shown, target_name
from ..study.runs import Run
from ..study.table import StudyTable
from .collect import best_axis
from .markup import Html, command, scrolling, tag

TARGETS = (1.5, 2.0, 3.0)


def headline(run: Run) -> Html:
    """The table at the best axis that a study has, and the command that prints it."""
    axis = best_axis(run)
    line = f"pyramid-bert study table {run.file} --axis {axis} --at {','.join(f'{at:g}' for at in TARGETS)}"
    found = scrolling(headline_table(run.table(axis, TARGETS)))
    note = tag("p", AXES[axis][0] + ".", class_="note")
    return tag("div", filters(axis, TARGETS), found, note, command(line), class_="headline")


def filters(axis: str, targets: Sequence[float]) -> Html:
    """Buttons that show the rows of one speed-up alone; the script brings them to life."""
    choices = {"all": "", **{target_name(axis, at): f"{at:g}" for at in targets}}
    buttons = [
        tag("button", name, type="button", data_at=at, aria_pressed="false" if at else "true")
        for name, at in choices.items()
    ]
    return tag("div", *buttons, class_="choice", role="group", aria_label="Speed-up", hidden="")


def headline_table(found: StudyTable) -> Html:
    """Dense, then a group of rows for each speed-up; what is best in its column is bold."""
    columns = columns_of(found)
    heads = [tag("th", scope="col"), *(tag("th", found.tasks.get(c, c), scope="col", class_="number") for c in columns)]
    dense = [tag("td", shown(found.dense[task]), class_="number") for task in columns]
    bodies = [tag("tbody", tag("tr", tag("th", "Dense", scope="row"), *dense))]
    for at in found.targets:
        title = tag("th", f"at {target_name(found.axis, at)}", scope="rowgroup", colspan=len(columns) + 1)
        rows = [tag("tr", title, class_="group"), *_rows(found, at, columns)]
        bodies.append(tag("tbody", *rows, data_at=f"{at:g}"))
    return tag("table", tag("thead", tag("tr", *heads)), *bodies)


def _rows(found: StudyTable, at: float, columns: Sequence[str]) -> list[Html]:
    """The methods at one speed-up; one row that says so where nothing is as fast."""
    entries = {(method, task): found.entries[at, method, task] for method in found.methods for task in columns}
    if not any(entries.values()):
        return [tag("tr", tag("td", "Nothing this fast was observed.", colspan=len(columns) + 1, class_="none"))]
    best = {
        task: max((entry.mean for (_, of), entry in entries.items() if of == task and entry is not None), default=None)
        for task in columns
    }
    rows = []
    for method in found.methods:
        name = tag("th", method, scope="row", title=METHODS[method].summary if method in METHODS else None)
        rows.append(tag("tr", name, *(_cell(found, at, method, task, best[task]) for task in columns)))
    return rows


def _cell(found: StudyTable, at: float, method: str, task: str, best: float | None) -> Html:
    entry, dense = found.entries[at, method, task], found.dense[task]
    if entry is None:
        return tag("td", NOTHING, class_="number none")
    words: list[object] = [tag("b", shown(entry)) if entry.mean == best else shown(entry)]
    if dense is None:
        return tag("td", *words, class_="number")
    lost = 100 * (dense.mean - entry.mean)
    words.append(tag("small", change(-lost)))
    return tag("td", *words, class_="number", style=f"--lost: {min(max(lost, 0.0), 12.0):.1f}")


def change(points: float) -> str:
    """Points gained or lost, with a sign.

    Example:
        >>> change(-1.24), change(0.31), change(-0.01)
        ('−1.2', '+0.3', '±0.0')
    """
    rounded = round(points, 1)
    return "±0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", "−")
