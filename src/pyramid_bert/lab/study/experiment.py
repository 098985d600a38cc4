"""A checked experiment, and the cells that it stands for. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ...errors import ExperimentError, UnknownNameError
from ...schedule.base import Schedule
from .grid import Cell
from .methods import DENSE, DISTILLING, Method, kind_of

if TYPE_CHECKING:
    from ..glue.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Study:
    """A checked experiment.

    Attributes:
        name: Of the file that results go to.
        title: What reports call it; its name if empty.
        question: What it compares and why, for reports.
        model: The name of the pretrained model; the command line can say where it is.
        tasks: Task -> what differs from the task's own: rows, dev_rows, max_length, and training as in `dense` and
            `pyramid`.
        methods: By name: the wanted ones of `METHODS`, and the experiment's variants.
        configurations: Kind of method -> its schedules.
        speedups: The configurations of methods that find a pyramid for a wanted ideal speed-up.
        seeds: One trial each.
        start: "dense": pyramids start from the dense classifier of the same seed; "pretrained": from the model.
        selection: "train": pyramids are trained; "inference": the dense weights run as a pyramid, untrained.
        dense: Training of the dense classifier, where it differs from the task's.
        pyramid: Training of the pyramids, where it differs from the task's.
        measure: Rows, batch size and rounds of the speed measurements; None when none are wanted.
    """

    name: str
    title: str = ""
    question: str = ""
    model: str | None = None
    tasks: Mapping[str, Mapping[str, Any]]
    methods: Mapping[str, Method]
    configurations: Mapping[str, tuple[Schedule, ...]]
    speedups: tuple[float, ...] = ()
    seeds: tuple[int, ...] = (0,)
    start: str = "dense"
    selection: str = "train"
    dense: Mapping[str, Any] = field(default_factory=dict)
    pyramid: Mapping[str, Any] = field(default_factory=dict)
    measure: Mapping[str, int] | None = None

    def cells(self, tasks: Mapping[str, Task]) -> list[Cell]:
        """All cells, ordered so that a partial run is useful: seed by seed, cheap tasks and cells first.

        Args:
            tasks: The known tasks, `arena.STUDY_TASKS`.
        """
        if unknown := [name for name in self.tasks if name not in tasks]:
            raise ExperimentError("\n".join(str(UnknownNameError("task", name, tasks)) for name in unknown))
        cells = []
        for seed in self.seeds:
            dense_cells = [self._dense(name, tasks[name], seed) for name in self.tasks]
            for dense in sorted(dense_cells, key=lambda cell: cell.weight):
                pyramids = self._pyramids(dense, tasks[dense.task])
                cells += [dense, *sorted(pyramids, key=lambda cell: cell.weight)]
        return cells

    def schedules(self, method: Method, task: str = "") -> tuple[Schedule, ...]:
        """The configurations of a method: its own, or those of its kind."""
        return method.schedules or self.configurations[kind_of(method, task)]

    def _training(self, task: Task, kind: str, **method: Any) -> dict[str, Any]:
        """How a dense classifier or a pyramid is trained. Numbers are floats: 3 and 3.0 epochs are the same cell."""
        own = {"epochs": task.epochs, "batch_size": task.batch_size, "learning_rate": task.learning_rate}
        every = {**own, **getattr(self, kind), **self.tasks[task.name].get(kind, {}), **method}
        return {key: value if key in ("batch_size", "bf16") else float(value) for key, value in every.items()}

    def _dense(self, name: str, task: Task, seed: int) -> Cell:
        sample = self.tasks[name]
        return Cell(
            model=self.model,
            task=name,
            rows=sample.get("rows"),
            dev_rows=sample.get("dev_rows"),
            max_length=sample.get("max_length") or task.max_length,
            method=DENSE,
            schedule=None,
            settings={},
            training=self._training(task, "dense"),
            distills=False,
            seed=seed,
            start="pretrained",
            dense=None,
        )

    def _pyramids(self, dense: Cell, task: Task) -> list[Cell]:
        untrained = self.selection == "inference"
        from_dense = untrained or self.start == "dense"
        cells = []
        for method in self.methods.values():
            training = self._training(task, "pyramid", **method.training)
            used = {key: value for key, value in training.items() if method.distills or key not in DISTILLING}
            cell = replace(
                dense,
                method=method.name,
                settings=method.settings,
                training=None if untrained else used,
                distills=method.distills,
                start="dense" if from_dense else "pretrained",
                dense=dense.key if from_dense or method.distills else None,
            )
            if method.kind == "speed":
                together = self.speedups if method.elastic else ()
                cells += [replace(cell, speedup=speedup, together=together) for speedup in self.speedups]
            else:
                schedules = self.schedules(method, dense.task)
                cells += [replace(cell, schedule=schedule) for schedule in schedules]
        return cells
