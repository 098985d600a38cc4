"""What `train --speedup` does: a dense model, the pyramid of that speed that learns best from it, both compared."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from . import options
from .compared import INTERVALS, comparison

if TYPE_CHECKING:
    from ..text.labels import Labels
    from ..text.tables import Table
    from ..training import TrainSettings
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
    from ..classifier import PyramidClassifier
    from ..tune.taught import METHOD, RECORD, TAUGHT, speeds, to_train, train_pyramid

    out, remedy = Path(args.out), "pass --max-length {positions} to cut long texts"
    checkpoints, target = out / "checkpoints", "ideal" if args.ideal else "time"
    if args.teacher:
        dense = PyramidClassifier.load(args.teacher, device=args.device)
        dense.max_length = dense.max_length if args.max_length is None else args.max_length
    else:
        dense = PyramidClassifier.from_pretrained(args.model, **{**loading, "schedule": "dense"})
    train = options.encoded(dense, train, remedy)
    dev = {prefix: options.encoded(dense, table, remedy) for prefix, table in dev.items()}
    watched = next(((table.texts, table.labels) for table in dev.values()), None)
    how: dict[str, Any] = {"dev": watched, "log_dir": args.log_dir}
    items: Any = train.texts
    speedup_of = None
    if not (checkpoints / RECORD).is_file():  # else the pyramid of the stopped run is kept
        speedup_of = speeds(dense, items, target, settings.eval_batch_size, progress=True)
        to_train(dense, items, METHOD, speedup_of, args.speedup)  # raises before any training
    args.goes_on = lambda: any(checkpoints.rglob("checkpoint-*/trainer_state.json"))
    if not args.teacher:
        if known is not None and known.numbered:
            options.name_classes(dense, known, settings.seed, args.new_classes)
        learned = {"target": args.target, "new_classes": args.new_classes, "settings": settings}
        dense.fit(items, train.labels, output_dir=checkpoints / "dense", **learned, **how)
    if args.save_dense:
        dense.save(args.save_dense)
    usual = {name: value for name, value in TAUGHT.items() if getattr(args, name) is None}
    found = train_pyramid(
        dense,
        args.speedup,
        items,
        train.labels or None,
        target=target,
        settings=replace(settings, **usual),
        speedup_of=speedup_of,
        output_dir=checkpoints,
        **how,
    )
    found.classifier.save(out, run=this)
    options.say(f"saved to {out}")
    _show(found, args)


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
