"""From settings to what the loop takes: the plan of its steps, and what reduces tokens. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .config import PyramidConfig
from .core.compiled import How
from .core.loop import Half, Plan
from .core.reducer import Reducer, Space
from .core.selectors import get_selector


def plan_and_reducer(
    config: PyramidConfig, layers: Sequence[Any], halves: tuple[Half, ...], owner: Any, *, cls_only: bool
) -> tuple[Plan, Reducer]:
    """What these settings ask of the loop.

    Args:
        config: The settings.
        layers: The layers that run, in any form that the runtime takes.
        halves: The parts in which it runs a layer.
        owner: What has the sensitivity as its attribute.
        cls_only: The last layer computes only CLS.
    """
    selector, placement = get_selector(config.selector), config.placement or "middle"
    resting = config.rest_from, selector.voters, config.skip
    plan = Plan(layers, halves, config.schedule, placement, cls_only, *resting)
    knobs = {
        "centers_per_step": config.centers_per_step,
        "within": config.within,
        "window": getattr(config.schedule, "window", None),
    }
    by_sensitivity = config.metric == "sensitivity"
    space = Space("cosine" if config.metric == "cosine" else "euclidean", (owner,) if by_sensitivity else None)
    weighs = config.weighted or config.reduce == "replace"
    how: How = "merge" if config.reduce == "merge" else "weigh" if weighs else "drop"
    return plan, Reducer(selector, knobs, space, how, config.protection)
