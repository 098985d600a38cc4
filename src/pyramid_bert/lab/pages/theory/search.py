"""No fine-tuning."""

from typing import Any

from pyramid_bert import PyramidConfig
from pyramid_bert.cost import Cost
from pyramid_bert.tune.candidates import described

from . import pictures
from .page import picture, read_all, source
from .pictures import lost_by_rest

_RUN = "python benchmarks/no_finetuning.py"
COMMANDS = {
    "search-sst2": f"{_RUN} $PYRAMID_E5_SST2 sst2 $PYRAMID_DATA --trained-on 8000 --epochs 2 --minutes 20",
    "search-mrpc": f"{_RUN} $PYRAMID_E5_MRPC mrpc $PYRAMID_DATA --trained-on 3268 --epochs 3 --minutes 20",
    "paper-sst2": "python benchmarks/inference_only.py $PYRAMID_MODEL sst2 $PYRAMID_DATA",
    "paper-mrpc": "python benchmarks/inference_only.py $PYRAMID_MRPC mrpc $PYRAMID_DATA",
    "paper-cola": "python benchmarks/inference_only.py $PYRAMID_COLA cola $PYRAMID_DATA",
    "paper-stsb": "python benchmarks/inference_only.py $PYRAMID_STSB stsb $PYRAMID_DATA",
    "paper-qnli": "python benchmarks/inference_only.py $PYRAMID_QNLI qnli $PYRAMID_DATA",
    "paper-mnli": "python benchmarks/inference_only.py $PYRAMID_MNLI mnli $PYRAMID_DATA",
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


def section() -> str:
    """What a dense classifier loses as a pyramid with the same weights."""
    runs = read_all("search-*")
    if not runs:
        return ""
    drawn = picture("search", "Points lost without fine-tuning", lambda: pictures.search(runs, TITLES)).strip()
    parts = ["## No fine-tuning", _intro(runs), _searches(runs), _aims(runs), drawn, _methods(runs), _paper(runs)]
    parts += [source(run) for run in runs]
    return "\n" + "\n\n".join(parts) + "\n"


def _intro(runs: list[dict[str, Any]]) -> str:
    models = (f"{_title(run)}: {run['model']['layers']} layers of width {run['model']['hidden_size']}" for run in runs)
    free = Cost.of((25,) * 12, 25, 384, 1536, cls_layers=1, heads=12).ideal_speedup
    return (
        f"A dense BERT, fine-tuned on each task ({'; '.join(models)}), becomes a pyramid by `find_pyramid`; no weight "
        "is touched. The search sees training rows that the model was not trained on, whole sentences as long as dev "
        "rows; every figure below is of the dev set, of which it sees nothing. But `cluster`, its cosine and its "
        "reach, tokens that rest and radii that grow were found in trials on rows of the same dev sets "
        "([log](LOG.md)): for them the figures may be a little kind. Distances by sensitivity were chosen on training "
        "rows alone.\n\n"
        "Ideal speed-ups count multiply-accumulates at the dev set's true lengths, projections on directions of "
        "sensitivity among them; other ways of choosing multiply tokens with tokens, which is not counted. The "
        "pyramid's last layer computes CLS alone, which reads without keys and values, the dense model's every token, "
        f"as transformers does; that by itself counts {free:.2f}x (12 layers of 25 tokens). Over a dense model that "
        f"does the same, 1.5x and 2x would be {1.5 / free:.2f}x and {2 / free:.2f}x. One seed; "
        f"torch {runs[0]['machine']['torch']}."
    )


def _searches(runs: list[dict[str, Any]]) -> str:
    lines = [
        "| task (metric) | wanted | found | ideal on dev | dense | pyramid | lost | agreement |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        for search in run["searches"]:
            dev, dense = search["dev"], run["dev"]["dense"]
            lines.append(
                f"| {_title(run)} ({run['metric']}) | {search['wanted']:g}x | {_settings(search['settings'])} | "
                f"{dev['ideal']:.2f}x | {100 * dense:.1f} | {100 * dev['metric']:.1f} | {dev['loss_in_points']:.1f} | "
                f"{dev['agreement']:.1%} |"
            )
    short = [f"{_title(run)} at {one['wanted']:g}x" for run in runs for one in run["searches"] if not one["in_time"]]
    lines += ["", f"Without time for every candidate: {', '.join(short)}."] if short else []
    return "\n".join(lines)


def _aims(runs: list[dict[str, Any]]) -> str:
    """Which aims were met."""
    met, missed = [], []
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
    layers = list(dict.fromkeys(layer for table in tables for cells in table.values() for layer in cells))
    names = list(dict.fromkeys(name for table in tables for name in table))
    resting = "".join(f" / resting from {layer}" for layer in layers if layer)
    heads = " | ".join(f"{_title(run)}, {search['wanted']:g}x" for run, search in columns)
    lines = [
        "What each way of choosing and reducing loses, in points, with the schedule that was best for it in the search "
        f"(candidates that fell out early were judged on few rows): tokens awake{resting}.",
        "",
        f"| method | {heads} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for name in names:
        cells = (table.get(name, {}) for table in tables)
        shown = (" / ".join(f"{cell[layer]:.1f}" if layer in cell else "–" for layer in layers) for cell in cells)
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _paper(runs: list[dict[str, Any]]) -> str:
    runs = [*runs, *read_all("paper-*")]
    lines = [
        "The paper's inference-only experiment, (3, 0.2): points lost, and the ideal speed-up. *Padded to 128* keeps "
        "the numbers of tokens that the schedule gives a row of 128, as in the paper; here pads are never chosen "
        "before real tokens, so a text of up to 26 tokens keeps them all: little is dropped of short texts, and of "
        "CoLA nothing. *True lengths* keeps the same shares of each text instead, which is far harsher.",
    ]
    for kind in runs[0]["paper"]:
        hows = list(dict.fromkeys(how for run in runs for how in run["paper"][kind]))
        lines += [
            "",
            f"| {kind} | layers here | dense | ideal | paper (BERT-base) | {' | '.join(hows)} |",
            f"|---|---|---|---|---|{'---|' * len(hows)}",
        ]
        lines += [_paper_row(run, kind, hows) for run in runs]
    return "\n".join([*lines, "", _less_than_printed(runs)])


def _paper_row(run: dict[str, Any], kind: str, hows: list[str]) -> str:
    cells = [run["paper"][kind].get(how) for how in hows]
    shown = " | ".join("–" if cell is None else f"{cell['loss_in_points']:.1f}" for cell in cells)
    paper = f"{PAPER_LOSS[run['task']]:.1f}" if run["task"] in PAPER_LOSS else "–"
    ideal = next(cell["ideal"] for cell in cells if cell is not None)
    about = f"{run['model']['layers']} | {100 * run['dev']['dense']:.1f} | {ideal:.2f}x"
    return f"| {_title(run)} | {about} | {paper} | {shown} |"


def _less_than_printed(runs: list[dict[str, Any]]) -> str:
    """On which tasks each way loses less than the paper, on inputs padded as there."""
    known = [run for run in runs if run["task"] in PAPER_LOSS]
    counts = {
        how: [run["paper"]["padded to 128"][how]["loss_in_points"] < PAPER_LOSS[run["task"]] for run in known]
        for how in known[0]["paper"]["padded to 128"]
    }
    shown = ", ".join(f"{how} {sum(less)}" for how, less in counts.items())
    return (
        f"Padded to 128, less is lost than the paper prints in so many of {len(known)} cases: {shown}. The models here "
        "are smaller than the paper's and saw fewer rows, and the best of five ways is the best on these very rows."
    )


def _title(run: dict[str, Any]) -> str:
    return TITLES.get(run["task"], run["task"])


def _settings(settings: dict[str, Any]) -> str:
    return described(PyramidConfig.from_dict(settings))
