"""A certificate for every answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...markdown import joined, table
from ..commands import Commands
from ..pictures import drawn
from . import pictures, source

COMMANDS: dict[str, str] = {}  # measured by version 0.1.0; later ones have no other score than confidence
SCORES = ("random", "confidence", "radius", "both")
SHOWN = (0.02, 0.05, 0.1, 0.2)


def section(found: Commands, docs: Path) -> str:
    """What finds the answers that are not the dense model's."""
    results = found.named("certificate-")
    if not results:
        return ""
    parts = [
        "## A certificate for every answer",
        f"MiniLM-L6 fine-tuned on each task, run as pyramids without training, on dev sets. {_schedules(results[0])} A "
        "*flip* is a prediction that is not the dense model's. The most doubtful share of the texts is run again with "
        "all tokens; the columns say which share of all flips that removes when texts are chosen at random, by the "
        "pyramid's own lack of confidence, by the sum of its covering radii, and by both (logistic regression, fitted "
        "on other texts). The ideal speed-up over the dense model counts the second runs, chosen by confidence. "
        "Measured with version 0.1.0; the scores that use radii were then removed.",
    ]
    for result in results:
        parts += [_certificate_table(result), _roc_table(result), source(result)]
    about = "Flips removed by running again"
    picture = drawn(docs, "theory-certificate", about, lambda: pictures.certificate(results, SCORES))
    return joined([*parts, _verdict(results), _calibration(results), picture])


def _schedules(result: dict[str, Any]) -> str:
    """What the names of schedules mean."""
    found = {pyramid["schedule"]: pyramid["settings"]["schedule"] for pyramid in result["pyramids"]}
    said = [
        f"*{name}* pyramids drop at layers {schedule['first_layer']} to {schedule['last_layer']}, down to "
        f"{schedule['keep_ratio']:.0%} of the tokens"
        for name, schedule in found.items()
    ]
    text = "; ".join(said) + "."
    return f"{text[0]}{text[1].upper()}{text[2:]}"


def _certificate_table(result: dict[str, Any]) -> str:
    rows = []
    for pyramid in result["pyramids"]:
        name = f"{pyramid['schedule']}, {pyramid['reduce']} ({pyramid['ideal_speedup']:.2f}x)"
        for row in pyramid["by_share"]:
            if row["share"] in SHOWN:
                removed = [f"{row['removed'][score]:.0%}" for score in SCORES]
                speed = f"{row['ideal_speedup']['confidence']:.2f}x"
                rows.append([name, f"{pyramid['flips']}", f"{row['share']:.0%}", *removed, speed])
    head = ["pyramid", "flips", "run again", *SCORES, "ideal speed-up"]
    return joined([f"**{result['task']}** ({result['rows']} dev texts)", table(head, rows)])


def _roc_table(result: dict[str, Any]) -> str:
    pyramids = result["pyramids"]
    head = ["score", *(f"{pyramid['schedule']}, {pyramid['reduce']}" for pyramid in pyramids)]
    names = pyramids[0]["area_under_roc"]
    rows = [[name, *(f"{pyramid['area_under_roc'][name]:.2f}" for pyramid in pyramids)] for name in names]
    return joined(["Area under the ROC curve, 0.5 being chance:", table(head, rows)])


def _verdict(results: list[dict[str, Any]]) -> str:
    """Which score removes most, counted over all pyramids and shares."""
    rows = [row["removed"] for result in results for pyramid in result["pyramids"] for row in pyramid["by_share"]]
    means = {score: sum(row[score] for row in rows) / len(rows) for score in SCORES}
    shown = ", ".join(f"{score} {means[score]:.1%}" for score in sorted(means, key=lambda s: -means[s]))
    gain = 100 * (means["both"] - means["confidence"])
    return (
        f"Mean share of flips removed over all tasks, pyramids and shares: {shown}. Both together differ by "
        f"{gain:+.1f} points from confidence, which needs neither radii nor fitted weights and is what `fallback` uses."
    )


def _calibration(results: list[dict[str, Any]]) -> str:
    """How far the certificates' chances are from what happens."""
    errors = [pyramid["calibration_error"] for result in results for pyramid in result["pyramids"]]
    shown = ", ".join(
        f"{100 * min(e[score] for e in errors):.1f} to {100 * max(e[score] for e in errors):.1f} ({score})"
        for score in SCORES
        if score in errors[0]
    )
    return (
        "How well a certificate (isotonic regression) knows the chance of a flip: in fifths, by score, of texts that "
        "it was not calibrated on, the shares of flips that are expected and found differ on average by these "
        f"points, from the best to the worst pyramid: {shown}."
    )
