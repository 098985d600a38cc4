"""docs/theory.md: what its template computes, and its pictures. Each picture is a function from results to a figure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from ...config import PyramidConfig
from ...cost import Cost
from ...tune.candidates import described
from ..glue.tasks import TASKS
from ..study.plot import COLOURS
from .pictures import panels, shown

Result = dict[str, Any]  # one measurement

BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
GREY = "#7F7F7F"
BOUNDS = {
    "printed": "as printed",
    "layer_radii": "own δ_j",
    "moved": "what is moved",
    "direct": "and direct constants",
}
SCORES = ("random", "confidence", "radius", "both")


# What computing only CLS in the last of 12 layers of 25 tokens gives by itself.
CLS_ONLY_SPEEDUP = Cost.of((25,) * 12, 25, 384, 1536, cls_layers=1, heads=12).ideal_speedup


def names(root: Path) -> dict[str, Any]:
    """What the template uses that depends on the repository."""
    pictures: dict[str, Callable[[Any], Any]] = {
        "bound": bound,
        "radius": radius,
        "certificate": certificate,
        "adaptive": adaptive,
        "search": search,
    }

    def picture(name: str, about: str, results: Any) -> str:
        return shown(root / "docs", f"theory-{name}", about, lambda: pictures[name](results))

    return {"picture": picture}


def times(factor: float) -> str:
    """A factor, with a decimal if it is small."""
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"


def method(settings: Result) -> str:
    """The settings of a pyramid in words."""
    return described(PyramidConfig.from_dict(settings))


def title(run: Result) -> str:
    """The name of a measurement's task in papers."""
    return TASKS[run["task"]].title


def schedule(data: Result) -> str:
    """(first layer, last layer, keep ratio), and m."""
    fields, m = data["settings"]["schedule"], data["settings"]["centers_per_step"]
    return f"({fields['first_layer']}, {fields['last_layer']}, {fields['keep_ratio']:g}), m = {m}"


def removed(results: list[Result]) -> dict[str, float]:
    """Score -> the mean share of flips removed, over all pyramids and shares; the best first."""
    rows = [row["removed"] for result in results for pyramid in result["pyramids"] for row in pyramid["by_share"]]
    means = {score: fmean(row[score] for row in rows) for score in SCORES}
    return dict(sorted(means.items(), key=lambda item: -item[1]))


def calibration(results: list[Result]) -> dict[str, tuple[float, float]]:
    """Score -> the least and the largest error of its certificates, in points."""
    errors = [pyramid["calibration_error"] for result in results for pyramid in result["pyramids"]]
    found = {score: [100 * error[score] for error in errors] for score in SCORES if score in errors[0]}
    return {score: (min(values), max(values)) for score, values in found.items()}


def against_fixed(result: Result) -> dict[str, Any]:
    """Adaptive lengths against the better fixed schedule of the same reduction, speed-up and first layer.

    Returns:
        `gaps`, the points that adaptive lengths gain in each case, and `speeds`: kind -> mean speed-up, ideal and in
        batches.
    """
    groups: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    kinds: dict[str, list[Result]] = {"adaptive": [], "fixed": []}
    for run in result["runs"]:
        kind = "adaptive" if run["schedule"] == "adaptive" else "fixed"
        kinds[kind].append(run)
        group = groups.setdefault((run["reduce"], run["wanted"], run["first_layer"]), {"adaptive": [], "fixed": []})
        group[kind].append(run["quality"])
    speeds = {
        kind: [fmean(run[key] for run in runs) for key in ("ideal_speedup", "ideal_speedup_in_batches")]
        for kind, runs in kinds.items()
    }
    gaps = [100 * (g["adaptive"][0] - max(g["fixed"])) for g in groups.values() if g["adaptive"] and g["fixed"]]
    return {"gaps": gaps, "mean": round(fmean(gaps), 1) + 0, "speeds": speeds}


def lost_by_rest(found: Result) -> dict[str, dict[str, float]]:
    """Method, without resting -> the layer from which tokens rest ("" for none) -> points lost."""
    table: dict[str, dict[str, float]] = {}
    for name, cell in found["best_of_each_method"].items():
        method, _, layer = name.partition(", resting from ")
        table.setdefault(method, {})[layer] = cell["loss_in_points"]
    return table


# ---- pictures ----


def bound(results: list[Result]) -> Any:
    """Both sides of the theorem on one logarithmic axis, a row per schedule."""
    figure, (panel,) = panels(1, 1, width=8.4, height=0.62 * len(results) + 1.6)
    for y, data in enumerate(results):
        low, high = data["observed"]["mean"], data["observed"]["max"]
        panel.plot([low, high], [y, y], color=BLUE, linewidth=3, solid_capstyle="butt")
        panel.plot(low, y, "o", color=BLUE, label="change of the loss: mean to largest" if y == 0 else None)
        for mark, colour, (name, text) in zip("D^sv", (ORANGE, GREEN, PINK, GREY), BOUNDS.items(), strict=True):
            label = f"bound, {text}: mean" if y == 0 else None
            panel.plot(data["bounds"][name]["mean"], y, mark, color=colour, label=label)
    labels = [schedule(data) for data in results]
    panel.set(xscale="log", yticks=range(len(results)), yticklabels=labels, ylim=(len(results) - 0.5, -0.5))
    panel.set_xlabel("change of an input's loss")
    panel.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def radius(data: Result) -> Any:
    """Greedy's radius over the best one, by m: mean as a bar, worst as a mark."""
    kinds = list(dict.fromkeys(result["points"] for result in data["results"]))
    figure, axes = panels(1, len(kinds), width=3.6, height=3.2)
    top = max(found["worst"] for result in data["results"] for found in result["over_optimum"].values())
    for panel, kind in zip(axes, kinds, strict=True):
        mine = [result for result in data["results"] if result["points"] == kind]
        for place, (result, colour) in enumerate(zip(mine, (BLUE, ORANGE), strict=True)):
            found = result["over_optimum"]
            at = [x + 0.38 * (place - 0.5) for x in range(len(found))]
            label = f"k/n = {result['share']:g}"
            panel.bar(at, [r["mean"] for r in found.values()], 0.36, color=colour, label=label)
            panel.plot(at, [r["worst"] for r in found.values()], "_", color="black", markersize=10)
        panel.set(
            title=kind, xticks=range(len(found)), xticklabels=found, xlabel="centres per step, m", ylim=(1, 1.05 * top)
        )
    axes[0].set_ylabel("radius over the best (–: worst set)")
    axes[0].legend(frameon=False)
    return figure


def certificate(results: list[Result]) -> Any:
    """Flips removed against texts run again, a row per task and a panel per pyramid."""
    columns = len(results[0]["pyramids"])
    figure, axes = panels(len(results), columns, width=3.4, height=3.0)
    every = [(result, pyramid) for result in results for pyramid in result["pyramids"]]
    for number, (panel, (result, pyramid)) in enumerate(zip(axes, every, strict=True)):
        shares = [100 * row["share"] for row in pyramid["by_share"]]
        for score, colour in zip(SCORES, (GREY, BLUE, ORANGE, GREEN), strict=True):
            gone = [100 * row["removed"][score] for row in pyramid["by_share"]]
            line = "--" if score == "random" else "-"
            panel.plot([0, *shares], [0, *gone], label=score, color=colour, linestyle=line, marker=".")
        speed = f"{pyramid['ideal_speedup']:.2f}x, {pyramid['flips']} flips"
        panel.set_title(f"{result['task']}: {pyramid['schedule']}, {pyramid['reduce']}\n{speed}", fontsize=9)
        panel.grid(alpha=0.3)
        if number >= len(axes) - columns:
            panel.set_xlabel("texts run again, %")
        if number % columns == 0:
            panel.set_ylabel("flips removed, %")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def adaptive(results: list[Result]) -> Any:
    """Quality against the ideal speed-up, adaptive lengths beside fixed ones; a row per task, a panel per reduction."""
    kinds = {"merge": "merged", "drop": "dropped"}
    figure, axes = panels(len(results), len(kinds), width=4.4, height=3.3)
    every = [(result, kind) for result in results for kind in kinds]
    for panel, (result, kind) in zip(axes, every, strict=True):
        runs = [run for run in result["runs"] if run["reduce"] == kind]
        for name, colour, mark in (("adaptive", ORANGE, "D"), ("fixed", BLUE, "o")):
            mine = [run for run in runs if run["schedule"].startswith(name)]
            quality = [100 * run["quality"] for run in mine]
            panel.plot([run["ideal_speedup"] for run in mine], quality, mark, color=colour, label=name)
            if name == "adaptive":
                batched = [run["ideal_speedup_in_batches"] for run in mine]
                panel.plot(batched, quality, mark, color=colour, fillstyle="none", label="adaptive, in batches")
        panel.axhline(100 * result["dense"], color=GREY, linestyle="--", label="dense")
        panel.set(title=f"{result['task']}: tokens {kinds[kind]}", ylabel=f"{result['metric']}, %")
        panel.set_xlabel("ideal speed-up")
        panel.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def search(runs: list[Result]) -> Any:
    """Points lost by each method with its best schedule, at each speed-up; tokens awake, or resting."""
    columns = [(run, found) for run in runs for found in run["searches"]]
    figure, axes = panels(1, len(columns), width=3.5, height=3.4)
    tables = [lost_by_rest(found) for _, found in columns]
    methods = list(dict.fromkeys(name for table in tables for name in table))
    layers = list(dict.fromkeys(layer for table in tables for cells in table.values() for layer in cells))
    for panel, (run, found), table in zip(axes, columns, tables, strict=True):
        for layer, marker in zip(layers, "o^sDv", strict=False):
            points = {methods.index(name): cells[layer] for name, cells in table.items() if layer in cells}
            label = f"resting from {layer}" if layer else "awake"
            panel.scatter(list(points.values()), list(points), marker=marker, s=22, alpha=0.75, label=label)
        panel.axvline(found["dev"]["loss_in_points"], color=ORANGE, label="found by the search")
        panel.set(title=f"{title(run)}, {found['wanted']:g}x", xlabel="points lost")
        panel.set_yticks(range(len(methods)), methods if panel is axes[0] else [""] * len(methods))
        panel.set_ylim(len(methods) - 0.5, -0.5)
    axes[0].legend(frameon=False, fontsize=8)
    return figure
