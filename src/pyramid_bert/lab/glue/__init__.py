"""The GLUE tasks and IMDB: presets of the paper, and files as they are downloaded."""

from .tasks import TASKS, Task, load_task

__all__ = ["TASKS", "Task", "load_task"]
