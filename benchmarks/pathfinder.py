"""Pathfinder's generator: images a second of processor time, and what its images are like. Prints JSON.

python benchmarks/pathfinder.py

One process; processor time, so that other work on the machine counts little. `discs_tell` is the share of the labels
that the distance between the discs tells: by a threshold found on half of the images, tried on the other half.
"""

import json
import time
from itertools import combinations
from math import dist
from statistics import mean

import numpy as np

from pyramid_bert.lab.lra.pathfinder.draw import Drawing, Snake, draw_pathfinder
from pyramid_bert.lab.lra.pathfinder.settings import DIFFICULTIES, PathfinderSettings

IMAGES, SEED = 600, 0


def main() -> None:
    """Measures and prints."""
    print(json.dumps({name: _measure(PathfinderSettings.of(name)) for name in DIFFICULTIES}, indent=1))


def _measure(settings: PathfinderSettings) -> dict:
    draw_pathfinder(settings, SEED, 0)  # what is made once for all images
    start = time.process_time()
    drawings = [draw_pathfinder(settings, SEED, index) for index in range(IMAGES)]
    seconds = time.process_time() - start
    return {
        "images": IMAGES,
        "images_per_cpu_second": IMAGES / seconds,
        "distractors_wanted": settings.distractors,
        "distractors_mean": mean(len(drawing.distractors) for drawing in drawings),
        "joined_share": mean(drawing.label for drawing in drawings),
        "nearest_snakes_pixels": min(map(_nearest, drawings)),
        "discs_tell": _told_by_distance(drawings),
    }


def _nearest(drawing: Drawing) -> float:
    """The distance between the nearest dashes of two snakes, on five points of each."""
    points = [_points(snake) for snake in (*drawing.snakes, *drawing.distractors)]
    return min(float(np.abs(a[:, None] - b[None]).min()) for a, b in combinations(points, 2))


def _points(snake: Snake) -> np.ndarray:
    """As complex numbers."""
    ends = np.array([[complex(*dash.tail), complex(*dash.head)] for dash in snake.dashes])
    return (ends[:, :1] + np.linspace(0, 1, 5) * (ends[:, 1:] - ends[:, :1])).ravel()


def _told_by_distance(drawings: list[Drawing]) -> float:
    apart = np.array([dist(*drawing.discs) for drawing in drawings])
    labels = np.array([drawing.label for drawing in drawings])
    half = len(drawings) // 2

    def right(threshold: float, joined_if_far: bool, some: slice) -> float:
        return float((((apart[some] > threshold) == joined_if_far) == labels[some]).mean())

    rules = [(threshold, far) for threshold in apart[:half] for far in (False, True)]
    best = max(rules, key=lambda rule: right(*rule, slice(0, half)))
    return right(*best, slice(half, None))


if __name__ == "__main__":
    main()
