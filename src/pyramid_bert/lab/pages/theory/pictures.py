"""The pictures of docs/theory.md: each function takes results and returns a figure."""

from __future__ import annotations

from typing import Any

from ...study.plot import COLOURS
from ..pictures import panels

BLUE, ORANGE, GREEN, PINK = COLOURS[:4]
GREY = "#7F7F7F"


def bound(results: dict[str, dict[str, Any]], names: dict[str, str]) -> Any:
    """Both sides of the theorem on one logarithmic axis, a row a schedule (its label -> its result)."""
    figure, (panel,) = panels(1, 1, width=8.4, height=0.62 * len(results) + 1.6)
    for y, data in enumerate(results.values()):
        low, high = data["observed"]["mean"], data["observed"]["max"]
        panel.plot([low, high], [y, y], color=BLUE, linewidth=3, solid_capstyle="butt")
        panel.plot(low, y, "o", color=BLUE, label="change of the loss: mean to largest" if y == 0 else None)
        for mark, colour, (name, text) in zip("D^sv", (ORANGE, GREEN, PINK, GREY), names.items(), strict=True):
            label = f"bound, {text}: mean" if y == 0 else None
            panel.plot(data["bounds"][name]["mean"], y, mark, color=colour, label=label)
    panel.set(xscale="log", yticks=range(len(results)), yticklabels=results, ylim=(len(results) - 0.5, -0.5))
    panel.set_xlabel("change of an input's loss")
    panel.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def parallelism(data: dict[str, Any]) -> Any:
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
            title=kind, xticks=range(len(found)), xticklabels=found, xlabel="centres a step, m", ylim=(1, 1.05 * top)
        )
    axes[0].set_ylabel("radius over the best (–: worst set)")
    axes[0].legend(frameon=False)
    return figure


def certificate(results: list[dict[str, Any]], scores: tuple[str, ...]) -> Any:
    """Flips removed against texts run again, a row a task and a panel a pyramid."""
    figure, axes = panels(len(results), len(results[0]["pyramids"]), width=3.4, height=3.0)
    colours = dict(zip(scores, (GREY, BLUE, ORANGE, GREEN), strict=True))
    every = [(result, pyramid) for result in results for pyramid in result["pyramids"]]
    for panel, (result, pyramid) in zip(axes, every, strict=True):
        shares = [100 * row["share"] for row in pyramid["by_share"]]
        for score in scores:
            removed = [100 * row["removed"][score] for row in pyramid["by_share"]]
            style = {"color": colours[score], "linestyle": "--" if score == "random" else "-", "marker": "."}
            panel.plot([0, *shares], [0, *removed], label=score, **style)
        speed = f"{pyramid['ideal_speedup']:.2f}x, {pyramid['flips']} flips"
        panel.set_title(f"{result['task']}: {pyramid['schedule']}, {pyramid['reduce']}\n{speed}", fontsize=9)
        panel.grid(alpha=0.3)
    for panel in axes[-len(results[-1]["pyramids"]) :]:
        panel.set_xlabel("texts run again, %")
    for panel in axes[:: len(results[0]["pyramids"])]:
        panel.set_ylabel("flips removed, %")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def adaptive(results: list[dict[str, Any]]) -> Any:
    """Quality against the ideal speed-up, adaptive lengths beside fixed ones; a row a task, a panel a reduction."""
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


def lost_by_rest(search: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Method, without resting -> the layer from which tokens rest ("" for none) -> points lost."""
    table: dict[str, dict[str, float]] = {}
    for name, cell in search["best_of_each_method"].items():
        method, _, layer = name.partition(", resting from ")
        table.setdefault(method, {})[layer] = cell["loss_in_points"]
    return table


def search(runs: list[dict[str, Any]], titles: dict[str, str]) -> Any:
    """Points lost by each way of reducing, with its best schedule, at each wish; tokens awake, or resting."""
    columns = [(run, found) for run in runs for found in run["searches"]]
    figure, axes = panels(1, len(columns), width=3.5, height=3.4)
    tables = [lost_by_rest(found) for _, found in columns]
    names = list(dict.fromkeys(name for table in tables for name in table))
    layers = list(dict.fromkeys(layer for table in tables for cells in table.values() for layer in cells))
    for panel, (run, found), table in zip(axes, columns, tables, strict=True):
        for layer, marker in zip(layers, "o^sDv", strict=False):
            points = {names.index(name): cells[layer] for name, cells in table.items() if layer in cells}
            label = f"resting from {layer}" if layer else "awake"
            panel.scatter(list(points.values()), list(points), marker=marker, s=22, alpha=0.75, label=label)
        panel.axvline(found["dev"]["loss_in_points"], color=ORANGE, label="found by the search")
        panel.set(title=f"{titles.get(run['task'], run['task'])}, {found['wanted']:g}x", xlabel="points lost")
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(len(names) - 0.5, -0.5)
    for panel in axes[1:]:
        panel.set_yticklabels([])
    axes[0].legend(frameon=False, fontsize=8)
    return figure
