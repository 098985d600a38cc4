"""Lengths that follow the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...markdown import joined, table
from ..commands import Commands
from ..pictures import drawn
from . import pictures, source

COMMANDS = {
    "adaptive-sst2": "python benchmarks/adaptive.py $PYRAMID_MODEL sst2 $PYRAMID_DATA",
    "adaptive-mrpc": "python benchmarks/adaptive.py $PYRAMID_MRPC mrpc $PYRAMID_DATA",
}


def section(found: Commands, docs: Path) -> str:
    """Adaptive lengths against fixed ones."""
    results = found.named("adaptive-")
    if not results:
        return ""
    parts = [
        "## Lengths that follow the text",
        "`Schedule.adaptive(radius)` keeps, for each text and layer, the fewest tokens (in eighths of its length) "
        "whose covering radius is at most a share of what keeping only CLS would leave. MiniLM-L6 fine-tuned on each "
        "task; radius and keep ratios were chosen for the same ideal speed-up on training texts as long as dev texts; "
        "no pyramid was trained. On the dev set the two may come out at different speed-ups: compare with the last two "
        f"columns in view. *In batches* counts what batches of {results[0]['batch_size']} texts of like length cost, "
        "where the widest row decides for all.",
    ]
    for result in results:
        rows = []
        for run in result["runs"]:
            name = f"adaptive, {run['settings']['radius']:.2f}" if run["schedule"] == "adaptive" else run["schedule"]
            done = {"merge": "merged", "drop": "dropped"}[run["reduce"]]
            speeds = [f"{run[key]:.2f}x" for key in ("ideal_speedup", "ideal_speedup_in_batches")]
            about = [done, f"{run['wanted']:g}x", f"{run['first_layer']}", name]
            rows.append([*about, f"{100 * run['quality']:.1f}", *speeds])
        title = f"**{result['task']}** ({result['rows']} dev texts; dense {100 * result['dense']:.1f})"
        head = ["tokens are", "wanted", "from layer", "schedule", result["metric"], "ideal", "in batches"]
        parts += [title, table(head, rows, left=4), _comparison(result), source(result)]
    picture = drawn(docs, "theory-adaptive", "Adaptive and fixed lengths", lambda: pictures.adaptive(results))
    return joined([*parts, picture])


def _comparison(result: dict[str, Any]) -> str:
    """How often adaptive beats the best fixed schedule of its group, and by how much on average."""
    groups: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for run in result["runs"]:
        group = groups.setdefault((run["reduce"], run["wanted"], run["first_layer"]), {"adaptive": [], "fixed": []})
        group["adaptive" if run["schedule"] == "adaptive" else "fixed"].append(run["quality"])
    gaps = [100 * (g["adaptive"][0] - max(g["fixed"])) for g in groups.values() if g["adaptive"] and g["fixed"]]
    if not gaps:
        return ""
    wins = sum(gap > 0 for gap in gaps)
    return (
        f"Adaptive against the better of the fixed schedules with the same first layer: better in {wins} of "
        f"{len(gaps)} cases, {round(sum(gaps) / len(gaps), 1) + 0:+.1f} points on average ({min(gaps):+.1f} to "
        f"{max(gaps):+.1f}). "
        f"Mean speed-ups: {_speeds(result, adaptive=True)} for adaptive lengths, {_speeds(result, adaptive=False)} for "
        "fixed ones."
    )


def _speeds(result: dict[str, Any], *, adaptive: bool) -> str:
    runs = [run for run in result["runs"] if (run["schedule"] == "adaptive") == adaptive]
    ideal, batched = (sum(run[f"ideal_speedup{name}"] for run in runs) / len(runs) for name in ("", "_in_batches"))
    return f"ideal {ideal:.2f}x and in batches {batched:.2f}x"
