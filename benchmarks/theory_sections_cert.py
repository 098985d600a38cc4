"""The parts of docs/theory.md on certificates and adaptive lengths, made from results/theory-*.json.

Imported by the script that makes the page; each function returns markdown, "" when there is no result yet.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
SCORES = ("random", "confidence", "radius", "both")
SHOWN = (0.02, 0.05, 0.1, 0.2)


def certificate() -> str:
    """What finds the answers that are not the dense model's."""
    results = _load("theory-certificate-*.json")
    if not results:
        return ""
    parts = [
        "## A certificate for every answer",
        "Dense fine-tuned classifiers, run as pyramids without training, on dev sets. A *flip* is a prediction that is "
        "not the dense model's. The most doubtful share of the texts is run again with all tokens; the columns say "
        "which share of all flips that removes when texts are chosen at random, by the pyramid's own lack of "
        "confidence, by the sum of its covering radii, and by both (logistic regression, fitted on other texts). The "
        "ideal speed-up over the dense model counts the second runs, chosen by confidence.",
    ]
    for result in results:
        parts += [_certificate_table(result), _roc_table(result), _source(result)]
    parts.append(_verdict(results))
    return "\n\n".join(parts) + "\n"


def adaptive() -> str:
    """Adaptive lengths against fixed ones."""
    results = _load("theory-adaptive-*.json")
    if not results:
        return ""
    parts = [
        "## Lengths that follow the text",
        "`Schedule.adaptive(radius)` keeps, for each text and layer, the fewest tokens (in eighths of its length) "
        "whose covering radius is at most a share of what CLS alone would leave. Radius and keep ratios were chosen "
        "for the same ideal speed-up on training texts; no model was trained. *In batches* counts what batches of "
        f"{results[0]['batch_size']} texts of like length cost, where the widest row decides for all.",
    ]
    for result in results:
        rows = [
            "| tokens are | wanted | from layer | schedule | " + f"{result['metric']} | ideal | in batches |",
            "|---|---|---|---|---|---|---|",
        ]
        for run in result["runs"]:
            name = f"adaptive, {run['settings']['radius']:.2f}" if run["schedule"] == "adaptive" else run["schedule"]
            done = {"merge": "merged", "drop": "dropped"}[run["reduce"]]
            rows.append(
                f"| {done} | {run['wanted']:g}x | {run['first_layer']} | {name} | {100 * run['quality']:.1f} | "
                f"{run['ideal_speedup']:.2f}x | {run['ideal_speedup_in_batches']:.2f}x |"
            )
        title = f"**{result['task']}** ({result['rows']} dev texts; dense {100 * result['dense']:.1f})"
        parts += [title, "\n".join(rows), _comparison(result), _source(result)]
    return "\n\n".join(parts) + "\n"


def _load(pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob(pattern))]


def _certificate_table(result: dict[str, Any]) -> str:
    rows = [
        f"**{result['task']}** ({result['rows']} dev texts)",
        "",
        "| pyramid | flips | run again | " + " | ".join(SCORES) + " | ideal speed-up |",
        "|---|---|---|" + "---|" * (len(SCORES) + 1),
    ]
    for pyramid in result["pyramids"]:
        name = f"{pyramid['schedule']}, {pyramid['reduce']} ({pyramid['ideal_speedup']:.2f}x)"
        for row in pyramid["by_share"]:
            if row["share"] in SHOWN:
                removed = " | ".join(f"{row['removed'][score]:.0%}" for score in SCORES)
                speed = f"{row['ideal_speedup']['confidence']:.2f}x"
                rows.append(f"| {name} | {pyramid['flips']} | {row['share']:.0%} | {removed} | {speed} |")
    return "\n".join(rows)


def _roc_table(result: dict[str, Any]) -> str:
    pyramids = result["pyramids"]
    names = list(pyramids[0]["area_under_roc"])
    rows = [
        "Area under the ROC curve, 0.5 being chance:",
        "",
        "| score | " + " | ".join(f"{p['schedule']}, {p['reduce']}" for p in pyramids) + " |",
        "|---|" + "---|" * len(pyramids),
    ]
    rows += [f"| {n} | " + " | ".join(f"{p['area_under_roc'][n]:.2f}" for p in pyramids) + " |" for n in names]
    return "\n".join(rows)


def _verdict(results: list[dict[str, Any]]) -> str:
    """Which score removes most, counted over all pyramids and shares."""
    rows = [row["removed"] for result in results for pyramid in result["pyramids"] for row in pyramid["by_share"]]
    means = {score: sum(row[score] for row in rows) / len(rows) for score in SCORES}
    shown = ", ".join(f"{score} {means[score]:.1%}" for score in sorted(means, key=lambda s: -means[s]))
    gain = 100 * (means["both"] - means["confidence"])
    return (
        f"Mean share of flips removed over all tasks, pyramids and shares: {shown}. Both together differ by "
        f"{gain:+.1f} points from confidence alone, which needs neither radii nor fitted weights and is the default of "
        "`fallback`."
    )


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
        f"Adaptive against the best fixed schedule with the same first layer: better in {wins} of {len(gaps)} cases, "
        f"{sum(gaps) / len(gaps):+.1f} points on average ({min(gaps):+.1f} to {max(gaps):+.1f})."
    )


def _source(result: dict[str, Any]) -> str:
    return f"`{result['command']}` on {result['machine'].get('cpu', 'a CPU')}, seed {result['seed']}."


if __name__ == "__main__":
    print(certificate())
    print(adaptive())
