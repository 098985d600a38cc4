"""No fine-tuning."""

from typing import Any

from pyramid_bert import PyramidConfig
from pyramid_bert.search import Method

from . import pictures
from .page import picture, read_all, source

_RUN = "python benchmarks/no_finetuning.py"
COMMANDS = {
    "search-sst2": f"{_RUN} $PYRAMID_E5_SST2 sst2 $PYRAMID_DATA --trained-on 8000 --epochs 2 --minutes 10",
    "search-mrpc": f"{_RUN} $PYRAMID_E5_MRPC mrpc $PYRAMID_DATA --trained-on 3268 --epochs 3 --minutes 10",
    "search-imdb": f"{_RUN} $PYRAMID_IMDB imdb $PYRAMID_DATA --trained-on 2000 --dev-rows 500 --epochs 3 --minutes 6",
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
    "imdb": "IMDB",
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
    return (
        f"A dense BERT, fine-tuned on each task ({'; '.join(models)}), becomes a pyramid by `find_pyramid`; no weight "
        "is touched. The search sees training rows that the model was not trained on, as long as dev rows; "
        "every figure below is of the dev set, which neither saw. Ideal speed-ups count multiply-accumulates at the "
        f"dev set's true lengths, the last layer for CLS alone. One seed; torch {runs[0]['machine']['torch']}."
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
    names = list(dict.fromkeys(name for _, search in columns for name in search["best_of_each_method"]))
    heads = " | ".join(f"{_title(run)}, {search['wanted']:g}x" for run, search in columns)
    lines = [
        "What each way of choosing and reducing loses, in points, with the schedule that was best for it in the search "
        "(candidates that fell out early were judged on few rows):",
        "",
        f"| method | {heads} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for name in names:
        cells = (search["best_of_each_method"].get(name) for _, search in columns)
        shown = " | ".join("–" if cell is None else f"{cell['loss_in_points']:.1f}" for cell in cells)
        lines.append(f"| {name} | {shown} |")
    return "\n".join(lines)


def _paper(runs: list[dict[str, Any]]) -> str:
    runs = [*runs, *read_all("paper-*")]
    hows = list(dict.fromkeys(how for run in runs for by_how in run["paper"].values() for how in by_how))
    columns = [(kind, how) for kind in runs[0]["paper"] for how in hows]
    lines = [
        "The paper's inference-only experiment, (3, 0.2): points lost. *Padded to 128* keeps the numbers of tokens "
        "that the schedule gives a row of 128, as in the paper; here pads are never chosen before real tokens, so a "
        "text of up to 26 tokens keeps them all. *True lengths* keeps the same shares of each text instead, which is "
        "far harsher.",
        "",
        f"| task | layers here | paper (BERT-base) | {' | '.join(f'{kind}: {how}' for kind, how in columns)} |",
        f"|---|---|---|{'---|' * len(columns)}",
    ]
    for run in runs:
        cells = (run["paper"][kind].get(how) for kind, how in columns)
        shown = " | ".join("–" if cell is None else f"{cell['loss_in_points']:.1f}" for cell in cells)
        paper = f"{PAPER_LOSS[run['task']]:.1f}" if run["task"] in PAPER_LOSS else "–"
        lines.append(f"| {_title(run)} | {run['model']['layers']} | {paper} | {shown} |")
    return "\n".join([*lines, "", _less_than_printed(runs)])


def _less_than_printed(runs: list[dict[str, Any]]) -> str:
    """On which tasks each way loses less than the paper, on inputs padded as there."""
    known = [run for run in runs if run["task"] in PAPER_LOSS]
    counts = {
        how: [run["paper"]["padded to 128"][how]["loss_in_points"] < PAPER_LOSS[run["task"]] for run in known]
        for how in known[0]["paper"]["padded to 128"]
    }
    shown = ", ".join(f"{how} {sum(less)}" for how, less in counts.items())
    return f"Padded to 128, less is lost than the paper prints in so many of {len(known)} cases: {shown}."


def _title(run: dict[str, Any]) -> str:
    return TITLES.get(run["task"], run["task"])


def _settings(settings: dict[str, Any]) -> str:
    schedule, method = settings["schedule"], Method.of(PyramidConfig.from_dict(settings))
    return f"{method}, layers {schedule['first_layer']}–{schedule['last_layer']} to {schedule['keep_ratio']:.0%}"
