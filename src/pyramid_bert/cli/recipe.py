"""What `train --speedup` does: a dense model, the pyramid of that speed that learns best from it, both compared."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table as Grid

from . import options
from .compared import INTERVALS, comparison, metric_text

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..config import PyramidConfig
    from ..text.labels import Labels
    from ..text.tables import Table
    from ..training import TrainSettings
    from ..tune.solver import SpeedupOf
    from ..tune.taught import Taught


def teach(
    args: argparse.Namespace,
    settings: TrainSettings,
    loading: dict[str, Any],
    this: dict[str, Any],
    known: Labels | None,
    train: Table,
    dev: dict[str, Table],
) -> None:
    """Trains a dense model and a pyramid that learns from it, saves the pyramid and compares both."""
    from ..tune.elastic import train_elastic
    from ..tune.taught import TAUGHT, as_taught, train_pyramid

    out = Path(args.out)
    dense = _dense_model(args, loading)
    if args.teacher:
        for table in filter(lambda table: table.labels, (train, *dev.values())):
            dense.known_labels().targets(table.labels, where=table.where)  # raises before any work
    remedy = "pass --max-length {positions} to cut long texts"
    train = options.encoded(dense, train, remedy)
    dev = {prefix: options.encoded(dense, table, remedy) for prefix, table in dev.items()}
    watched = next(((table.texts, table.labels) for table in dev.values()), None)
    target = "ideal" if args.ideal else "time"
    how: dict[str, Any] = {"dev": watched, "log_dir": args.log_dir}
    speedup_of = _check_reach(args, dense, train.texts, watched[0] if watched else train.texts, target, settings)
    args.goes_on = lambda: any((out / "checkpoints").rglob("checkpoint-*/trainer_state.json"))
    if not args.teacher:
        if known is not None and known.numbered:
            options.name_classes(dense, known, settings.seed, args.new_classes)
        learned = {"target": args.target, "new_classes": args.new_classes, "settings": settings}
        dense.fit(train.texts, train.labels, output_dir=out / "checkpoints" / "dense", **learned, **how)
    if args.save_dense:
        dense.save(args.save_dense)
    # With a teacher, a learning rate that is given is the pyramid's; otherwise it is the dense model's.
    asked = [*TAUGHT, "learning_rate"] if args.teacher else list(TAUGHT)
    given = [name for name in asked if getattr(args, name) is not None]
    how |= {"target": target, "settings": as_taught(settings, given), "speedup_of": speedup_of}
    how |= {"output_dir": out / "checkpoints"}
    if isinstance(args.speedup, tuple):
        slowest, fastest = args.speedup
        elastic = train_elastic(dense, slowest, fastest, train.texts, train.labels or None, **how)
        elastic.save(out, run=this)
        options.say(f"saved to {out}")
        _show_front(dense, elastic, watched, args)
    else:
        found = train_pyramid(dense, args.speedup, train.texts, train.labels or None, **how)
        found.classifier.save(out, run=this)
        options.say(f"saved to {out}")
        _show(found, args)


def _dense_model(args: argparse.Namespace, loading: dict[str, Any]) -> PyramidClassifier:
    """The teacher, or the model that becomes it by training."""
    from ..classifier import PyramidClassifier

    if not args.teacher:
        return PyramidClassifier.from_pretrained(args.model, **{**loading, "schedule": "dense"})
    dense = PyramidClassifier.load(args.teacher, device=args.device)
    dense.max_length = dense.max_length if args.max_length is None else args.max_length
    return dense


def _check_reach(
    args: argparse.Namespace, dense: PyramidClassifier, items: Any, timed: Any, target: str, settings: TrainSettings
) -> SpeedupOf | None:
    """Raises if no pyramid has the wanted speed. Nothing is checked for a resumed run: it keeps its pyramid."""
    from ..tune import elastic, taught
    from ..tune.rehearsal import check_rows

    is_range = isinstance(args.speedup, tuple)
    if (Path(args.out) / "checkpoints" / (elastic if is_range else taught).RECORD).is_file():
        return None
    wanted = elastic.speeds_between(*args.speedup) if is_range else [args.speedup]
    check_rows(len(items))
    speedup_of = taught.speeds(dense, timed, target, settings.eval_batch_size, progress=True)
    elastic.levels_of(dense, items, timed, taught.METHOD, speedup_of, wanted)
    return speedup_of


def _show_front(dense: PyramidClassifier, elastic: PyramidClassifier, dev: Any, args: argparse.Namespace) -> None:
    """The speeds of an elastic model, and what each of them gives."""
    assert elastic.front is not None
    of_dense = {} if dev is None else dense.evaluate(*dev)
    if args.json:
        points = [point.to_dict() for point in elastic.front.points]
        options.print_json({"dense": of_dense, "speed": elastic.speed, "points": points})
        return
    caption = (
        "dense: the model that taught it. Agreement: with dense, on texts that were held out of training. Ideal: "
        "multiply-accumulates at true lengths; with all tokens, the last layer computes only CLS. "
        f"Saved at {elastic.speed:.2f}x; --speed chooses another"
    )
    table = Grid(title="one model at every speed", caption=caption)
    for name in ("speed", "ideal", "agreement", *of_dense, "pyramid"):
        table.add_column(name, justify="left" if name == "pyramid" else "right")
    rows = [("dense", "1.00x", "100.0", of_dense, "")]
    for point in elastic.front.points:
        shown = "all tokens" if point.speed == 1 else _briefly(point.settings)
        agreement = f"{100 * point.agreement:.1f}"
        rows.append((f"{point.speed:.2f}x", f"{point.ideal:.2f}x", agreement, dict(point.metrics), shown))
    for speed, ideal, agreement, metrics, shown in rows:
        table.add_row(speed, ideal, agreement, *(metric_text(name, metrics.get(name)) for name in of_dense), shown)
    Console().print(table)


def _briefly(settings: PyramidConfig) -> str:
    """What a pyramid of a front does, in a few words."""
    from ..tune.candidates import listed_layers

    ratio = settings.schedule.to_dict()["keep_ratio"]
    merged = f"{ratio:.0%} of the tokens left" if ratio < 1 else "nothing merged"
    rests = "" if settings.rest_from is None else f", only CLS from layer {settings.rest_from}"
    without = f", without {listed_layers(settings.skip)}" if settings.skip else ""
    return merged + rests + without


def _show(found: Taught, args: argparse.Namespace) -> None:
    """Both models on the dev rows, and how the pyramid was chosen."""
    from ..tune.candidates import described

    choice, compared = found.choice, found.compared
    wanted = f" ({choice.wanted:g}x wanted)"
    speedups = {"ideal" + wanted * (choice.measured is None): choice.ideal}
    if choice.measured is not None:
        speedups[f"measured{wanted}"] = choice.measured
    if args.json:
        metrics = {} if compared is None else {**(compared.metrics or {}), "dense": compared.dense_metrics}
        agreement = None if compared is None else compared.agreement
        options.print_json({**metrics, "agreement": agreement, **choice.to_dict()})
    elif compared is None:
        speed = ", ".join(f"{value:.2f}x {name}" for name, value in speedups.items())
        options.say(f"{described(choice.settings)}: {speed}; name rows to compare on with --dev")
    else:
        tried = (
            f"the best of {len(choice.rehearsals)} after short trainings" if choice.rehearsals else "without a search"
        )
        caption = f"{described(choice.settings)}; {tried}. {INTERVALS}."
        Console().print(comparison(compared, f"on the {compared.rows} rows of --dev", caption, speedups))
