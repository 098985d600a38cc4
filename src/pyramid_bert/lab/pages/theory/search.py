"""No fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ....config import PyramidConfig
from ....cost import Cost
from ....tune.candidates import described
from ...markdown import joined, table
from ..commands import Commands
from ..pictures import drawn
from . import pictures, source
from .pictures import lost_by_rest

_RUN = "python benchmarks/no_finetuning.py"
COMMANDS = {
    "search-sst2": f"{_RUN} $PYRAMID_E5_SST2 sst2 $PYRAMID_DATA --trained-on 8000 --epochs 2 --minutes 20",
    "search-mrpc": f"{_RUN} $PYRAMID_E5_MRPC mrpc $PYRAMID_DATA --trained-on 3268 --epochs 3 --minutes 20",
    **{
        f"paper-{task}": f"{_RUN} $PYRAMID_{model} {task} $PYRAMID_DATA --paper-only"
        for task, model in (
            ("sst2", "MODEL"),
            ("mrpc", "MRPC"),
            ("cola", "COLA"),
            ("stsb", "STSB"),
            ("qnli", "QNLI"),
            ("mnli", "MNLI"),
        )
    },
}

# What the paper lost by selecting at inference only, (3, 0.2) at N = 128, in points: dense minus its "Only Infer".
PAPER_LOSS = {"qnli": 22.7, "sst2": 10.9, "cola": 5.4, "mrpc": 3.8, "stsb": 3.3, "mnli": 9.0}
# What may be lost at a speed-up, in points, with e5-small on SST-2 and MRPC.
AIMS = {1.5: 1.0, 2.0: 2.0}
AIMED_AT = ("sst2", "mrpc")
TITLES = {
    "qnli": "QNLI",
    "sst2": "SST-2",
    "cola": "CoLA",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "mnli": "MNLI-m",
}


def section(found: Commands, docs: Path) -> str:
    """What a dense classifier loses as a pyramid with the same weights."""
    runs = found.named("search-")
    if not runs:
        return ""
    about = "Points lost without fine-tuning"
    picture = drawn(docs, "theory-search", about, lambda: pictures.search(runs, TITLES))
    parts = ["## No fine-tuning", _intro(runs), _searches(runs), _aims(runs), picture, _methods(runs)]
    return joined([*parts, _paper([*runs, *found.named("paper-")]), *map(source, runs)])


def _intro(runs: list[dict[str, Any]]) -> str:
    models = (f"{_title(run)}: {run['model']['layers']} layers of width {run['model']['hidden_size']}" for run in runs)
    free = Cost.of((25,) * 12, 25, 384, 1536, cls_layers=1, heads=12).ideal_speedup
    return (
        f"A dense BERT, fine-tuned on each task ({'; '.join(models)}), becomes a pyramid by `find_pyramid`; no weight "
        "is touched. The search sees training rows that the model was not trained on, whole sentences as long as dev "
        "rows; every figure below is of the dev set, of which it sees nothing. But `cluster`, its cosine and its "
        "reach, tokens that rest and radii that grow were found in trials on rows of the same dev sets "
        "([log](LOG.md)): for them the figures may be a little kind. Distances by sensitivity were chosen on training "
        "rows only.\n\n"
        "Ideal speed-ups count multiply-accumulates at the dev set's true lengths, projections on directions of "
        "sensitivity among them; other ways of choosing multiply tokens with tokens, which is not counted. The "
        "pyramid's last layer computes only CLS, without keys and values; the dense model's computes every token, "
        f"as transformers does. That by itself counts {free:.2f}x (12 layers of 25 tokens). Over a dense model that "
        f"does the same, 1.5x and 2x would be {1.5 / free:.2f}x and {2 / free:.2f}x. One seed; "
        f"torch {runs[0]['machine']['torch']}."
    )


def _searches(runs: list[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        for search in run["searches"]:
            dev, dense = search["dev"], run["dev"]["dense"]
            about = [f"{_title(run)} ({run['metric']})", f"{search['wanted']:g}x"]
            about.append(described(PyramidConfig.from_dict(search["settings"])))
            scores = [f"{100 * value:.1f}" for value in (dense, dev["metric"])]
            speed, lost = f"{dev['ideal']:.2f}x", f"{dev['loss_in_points']:.1f}"
            rows.append([*about, speed, *scores, lost, f"{dev['agreement']:.1%}"])
    short = [f"{_title(run)} at {one['wanted']:g}x" for run in runs for one in run["searches"] if not one["in_time"]]
    head = ["task (metric)", "wanted", "found", "ideal on dev", "dense", "pyramid", "lost", "agreement"]
    late = f"Without time for every candidate: {', '.join(short)}." if short else ""
    return joined([table(head, rows, left=3), late])


def _aims(runs: list[dict[str, Any]]) -> str:
    """Which aims were met."""
    met: list[str] = []
    missed: list[str] = []
    for run in runs:
        for search in run["searches"] if run["task"] in AIMED_AT else ():
            lost, wanted = search["dev"]["loss_in_points"], search["wanted"]
            entry = f"{_title(run)} at {wanted:g}x ({lost:.2f} lost, {AIMS[wanted]:g} allowed)"
            (met if lost <= AIMS[wanted] else missed).append(entry)
    return " ".join(
        f"{word}: {', '.join(entries)}." for word, entries in (("Aims met", met), ("Missed", missed)) if entries
    )


def _methods(runs: list[dict[str, Any]]) -> str:
    """The best schedule of each method, as the search ranked them, on the dev set."""
    columns = [(run, search) for run in runs for search in run["searches"]]
    tables = [lost_by_rest(search) for _, search in columns]
    layers = list(dict.fromkeys(layer for one in tables for cells in one.values() for layer in cells))
    names = list(dict.fromkeys(name for one in tables for name in one))
    resting = "".join(f" / resting from {layer}" for layer in layers if layer)
    text = (
        "What each way of choosing and reducing loses, in points, with the schedule that was best for it in the search "
        f"(candidates that fell out early were judged on few rows): tokens awake{resting}."
    )
    rows = []
    for name in names:
        cells = (one.get(name, {}) for one in tables)
        shown = (" / ".join(f"{cell[layer]:.1f}" if layer in cell else "–" for layer in layers) for cell in cells)
        rows.append([name, *shown])
    head = ["method", *(f"{_title(run)}, {search['wanted']:g}x" for run, search in columns)]
    return joined([text, table(head, rows)])


def _paper(runs: list[dict[str, Any]]) -> str:
    parts = [
        "The paper's inference-only experiment, (3, 0.2): points lost, and the ideal speed-up. *Padded to 128* keeps "
        "the numbers of tokens that the schedule gives a row of 128, as in the paper; here pads are never chosen "
        "before real tokens, so a text of up to 26 tokens keeps them all: little is dropped of short texts, and of "
        "CoLA nothing. *True lengths* keeps the same shares of each text instead, which is far harsher.",
    ]
    for kind in runs[0]["paper"]:
        hows = list(dict.fromkeys(how for run in runs for how in run["paper"][kind]))
        head = [kind, "layers here", "dense", "ideal", "paper (BERT-base)", *hows]
        parts.append(table(head, [_paper_row(run, kind, hows) for run in runs]))
    return joined([*parts, _less_than_printed(runs)])


def _paper_row(run: dict[str, Any], kind: str, hows: list[str]) -> list[str]:
    cells = [run["paper"][kind].get(how) for how in hows]
    shown = ["–" if cell is None else f"{cell['loss_in_points']:.1f}" for cell in cells]
    paper = f"{PAPER_LOSS[run['task']]:.1f}" if run["task"] in PAPER_LOSS else "–"
    ideal = next(cell["ideal"] for cell in cells if cell is not None)
    about = [_title(run), f"{run['model']['layers']}", f"{100 * run['dev']['dense']:.1f}", f"{ideal:.2f}x"]
    return [*about, paper, *shown]


def _less_than_printed(runs: list[dict[str, Any]]) -> str:
    """On which tasks each way loses less than the paper, on inputs padded as there."""
    known = [run for run in runs if run["task"] in PAPER_LOSS]
    counts = {
        how: [run["paper"]["padded to 128"][how]["loss_in_points"] < PAPER_LOSS[run["task"]] for run in known]
        for how in known[0]["paper"]["padded to 128"]
    }
    shown = ", ".join(f"{how} {sum(less)}" for how, less in counts.items())
    return (
        f"Padded to 128, less is lost than the paper prints in this many of {len(known)} cases: {shown}. The models "
        "here are smaller than the paper's and saw fewer rows, and the best of five ways is the best on these rows."
    )


def _title(run: dict[str, Any]) -> str:
    return TITLES.get(run["task"], run["task"])
