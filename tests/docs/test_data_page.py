"""The table of tasks in docs/data.md says what the code does."""

from pathlib import Path

from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.lab.lra.data import LRA_TASKS

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def row(task):
    classes = "0 to 5 (regression)" if task.classes is None else ", ".join(task.classes)
    return f"| {task.title} | `{task.name}` | {task.metric} | {task.max_length} | {task.batch_size} | {classes} |"


def test_the_table_of_tasks():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index("| task | name | metric | N | batch | classes, by number |") + 2
    assert lines[start : start + len(TASKS) + 1] == [*map(row, TASKS.values()), ""]


def test_what_all_tasks_share():
    assert "learning rate 2e-5, 3 epochs, batches of 128 in evaluation" in PAGE.read_text(encoding="utf-8")
    assert {(task.learning_rate, task.epochs, task.eval_batch_size) for task in TASKS.values()} == {(2e-5, 3, 128)}


def test_the_table_of_long_range_arena():
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index("| task | name | N | classes | a row | `dev` |") + 2
    stated = [[cell.strip() for cell in line.split("|")[1:5]] for line in lines[start : start + len(LRA_TASKS)]]
    assert stated == [[t.title, f"`{t.name}`", str(t.length), str(t.classes)] for t in LRA_TASKS.values()]
    assert {t.vocabulary for t in LRA_TASKS.values()} == {256}


def test_the_page_stays_short():
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= 110
