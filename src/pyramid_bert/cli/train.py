"""Fine-tune a classifier on your own file or a GLUE task: a pyramid from any BERT model, or a dense one with --dense.

Words and whole numbers are classes, decimal numbers are regression targets; --target overrides that guess. Give the
same command again to resume a stopped run: it continues from its last checkpoint and ends with the same weights. With
--teacher the pyramid starts from a trained dense model and also learns from its outputs.

Several processes share the work under `torchrun --nproc-per-node N -m pyramid_bert train ...` or `accelerate launch`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import PyramidError, UsageError
from ..schedule.base import Schedule
from .options import (
    add_data_options,
    add_device_option,
    add_json_option,
    add_pyramid_options,
    add_schedule_options,
    add_speedup_option,
    add_task_option,
    check_task_call,
    dev_tables,
    encoded,
    evaluate_all,
    messages,
    pyramid_settings_from,
    read_data,
    report,
    schedule_from,
    task_from,
    usage_errors,
)

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..lab.glue.tasks import Task
    from ..text.labels import Labels
    from ..text.tables import Table
    from ..training import TrainSettings

EPILOG = """examples:
  pyramid-bert train --model path/to/bert --train train.csv --dev dev.csv --out my-model
  pyramid-bert train --model path/to/bert --train train.tsv.gz --text-column sentence --out my-model \\
      --keep-ratio 0.25 --first-layer 4 --last-layer 6
  pyramid-bert train --model path/to/bert --train ratings.csv --target number --out my-model
  pyramid-bert train --model path/to/bert --train train.csv --out as-in-the-paper \\
      --reduce drop --keep-ratio 0.25 --last-layer 3
  pyramid-bert train --model path/to/bert --train train.csv --out twice-as-fast --speedup 2

a GLUE task, dense first, then a pyramid that learns from it:
  pyramid-bert train --model path/to/bert --task sst2 --data glue --dense --out dense-model
  pyramid-bert train --teacher dense-model --task sst2 --data glue --patience 1 --out pyramid"""

_SETTINGS = (
    "epochs",
    "learning_rate",
    "batch_size",
    "eval_batch_size",
    "warmup_ratio",
    "weight_decay",
    "seed",
    "dropout",
    "bf16",
    "patience",
    "dev_metric",
)
_TEXTS_TO_TIME, _SOLVED = 1000, "schedule.json"
_DISTILLATION = ("temperature", "distill_weight", "hidden_weight")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--model", help="a model folder, or a name on the hub (default: the --teacher)")
    parser.add_argument("--train", metavar="FILE", help="the training data")
    parser.add_argument("--dev", metavar="FILE", help="data to evaluate on after each epoch and in the end")
    parser.add_argument("--target", choices=("classes", "number"), help="what the labels are (default: a guess)")
    add_task_option(parser)
    parser.add_argument("--data", metavar="FOLDER", help="with --task: where its files are (default: the hub)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the trained model goes")
    parser.add_argument("--dense", action="store_true", help="drop nothing: the model to compare with")
    _add_training_options(parser)
    _add_teacher_options(parser)
    add_data_options(parser)
    add_schedule_options(parser)
    add_speedup_option(parser)
    add_pyramid_options(parser)
    add_device_option(parser)
    add_json_option(parser)


def _add_training_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training; a --task brings its own defaults, the paper's")
    group.add_argument("--epochs", type=float, help="passes over the data (default: 3)")
    group.add_argument("--learning-rate", type=float, metavar="RATE", help="at its peak (default: 2e-5)")
    group.add_argument("--batch-size", type=int, metavar="N", help="texts a step, over all processes (default: 32)")
    group.add_argument("--eval-batch-size", type=int, metavar="N", help="texts at a time in evaluation (default: 32)")
    group.add_argument("--max-length", type=int, metavar="N", help="cut longer texts to N tokens")
    group.add_argument("--warmup-ratio", type=float, metavar="P", help="share of the steps in which the rate rises")
    group.add_argument("--weight-decay", type=float, metavar="W", help="decoupled, as AdamW has it (default: 0)")
    group.add_argument("--seed", type=int, help="of everything random (default: 0)")
    group.add_argument("--dropout", type=float, metavar="P", help="while learning (default: as the model has it)")
    group.add_argument("--bf16", action="store_true", default=None, help="mixed precision: products in bfloat16")
    group.add_argument("--patience", type=int, metavar="K", help="stop after K epochs without gain, keep the best")
    group.add_argument("--dev-metric", metavar="NAME", help="what gain is (default: accuracy; numbers: spearman)")
    group.add_argument("--log-dir", metavar="FOLDER", help="write event files for TensorBoard here")
    group.add_argument("--overwrite", action="store_true", help="replace a model that is in --out already")


def _add_teacher_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("distillation: learn from a trained model as well")
    group.add_argument("--teacher", metavar="FOLDER", help="a trained classifier, usually dense")
    group.add_argument("--temperature", type=float, metavar="T", help="softens the teacher's answers (default: 2)")
    group.add_argument("--distill-weight", type=float, metavar="W", help="the teacher's share, 0-1 (default: 0.5)")
    group.add_argument("--hidden-weight", type=float, metavar="W", help="weight of matching its CLS (default: 0)")


def run(args: argparse.Namespace) -> None:
    """Trains, saves and evaluates."""
    schedule = schedule_from(args)
    _check_call(args)
    if args.dense and (schedule is not None or args.speedup is not None):
        raise UsageError("--dense keeps every token; leave out --speedup and the schedule options")
    out = Path(args.out)
    if (out / "config.json").exists() and not args.overwrite:
        raise PyramidError(f"{out} holds a trained model already; name another folder, or pass --overwrite")
    task = task_from(args)
    train, dev = _read(args, task)

    from ..classifier import WRITTEN, PyramidClassifier
    from ..config import PyramidConfig
    from ..files import check_replaceable, check_writable
    from ..runtimes.processes import first_process, leave, place

    if args.speedup is not None and place()[1] > 1:
        raise UsageError(
            "--speedup is found by one process; find it with `bench --speedup` and give its schedule options"
        )
    check_writable(out)
    check_replaceable(out, WRITTEN)
    with usage_errors():
        settings = _settings(args, task)
        pyramid: dict[str, Any] = {} if args.dense else pyramid_settings_from(args)
        if schedule is not None:
            PyramidConfig(schedule=schedule, **pyramid)
    known = _check_labels(train, dev, settings, task)
    if first_process():
        messages().print(known.summary(train.labels), markup=False, soft_wrap=True)
    max_length = task.max_length if task and args.max_length is None else args.max_length
    classifier = PyramidClassifier.from_pretrained(
        args.model or args.teacher,
        "dense" if args.dense else schedule,
        max_length=max_length,
        device=args.device,
        **pyramid,
    )
    remedy = "pass --max-length {positions} to cut long texts"
    train = encoded(classifier, train, remedy)
    dev = {prefix: encoded(classifier, table, remedy) for prefix, table in dev.items()}
    if args.speedup is not None:  # while a trained head is still there
        _speed_up(classifier, train, settings.eval_batch_size, args)
    if known.numbered and args.teacher is None:
        _name_classes(classifier, known, settings.seed)
    _fit(classifier, train, dev, settings, args)
    if first_process():
        classifier.save(out)
        messages().print(f"saved to {out}")
        if dev:
            report(evaluate_all(classifier, dev, settings.eval_batch_size), args.json)
    leave()


def _check_call(args: argparse.Namespace) -> None:
    """Options that do not fit together, before anything is read."""
    if (args.train is None) == (args.task is None):
        raise UsageError("give your own data with --train, or a --task; not both, not neither")
    if args.task is not None and args.dev is not None:
        raise UsageError("--dev goes with --train; a --task brings its dev data")
    check_task_call(args)
    if args.task is None and args.data is not None:
        raise UsageError("--data goes with --task; your own files are named by --train and --dev")
    if args.task is not None and args.target is not None:
        raise UsageError("--target goes with --train; a --task knows whether it has classes or numbers")
    if args.model is None and args.teacher is None:
        raise UsageError("give the model to start from with --model, or a --teacher, whose weights it then starts from")
    without_teacher = [name for name in _DISTILLATION if getattr(args, name) is not None and args.teacher is None]
    if without_teacher:
        raise UsageError(f"--{without_teacher[0].replace('_', '-')} goes with --teacher")
    if args.patience is not None and args.task is None and args.dev is None:
        raise UsageError("--patience needs data to evaluate on after each epoch; name it with --dev")


def _read(args: argparse.Namespace, task: Task | None) -> tuple[Table, dict[str, Table]]:
    """The training data, and the dev data under the prefix that their metrics get."""
    if task is None:
        from ..text.labels import as_target

        train = read_data(args.train, args)
        if args.target is not None:
            train = replace(train, labels=as_target(train.labels, args.target, train.where))
        return train, {"": read_data(args.dev, args)} if args.dev else {}
    from ..lab.glue.tasks import load_task

    return load_task(task.name, args.data), dev_tables(task, args.data)


def _settings(args: argparse.Namespace, task: Task | None) -> TrainSettings:
    from ..training import TrainSettings

    preset: dict[str, Any] = {}
    if task is not None:
        preset = {"dev_metric": task.metric}
        preset |= {name: getattr(task, name) for name in ("epochs", "learning_rate", "batch_size", "eval_batch_size")}
    given = {name: getattr(args, name) for name in (*_SETTINGS, *_DISTILLATION) if getattr(args, name) is not None}
    return TrainSettings(**{**preset, **given})


def _check_labels(train: Table, dev: dict[str, Table], settings: TrainSettings, task: Task | None) -> Labels:
    """What is to be learned; says what is wrong with the labels, by file and row, before a model is loaded."""
    from ..text.labels import Labels

    known = Labels.of(train.labels, len(train.texts), where=train.where)
    if task is not None and task.classes is not None:
        known = Labels(task.classes, numbered=True)
    for table in dev.values():
        known.targets(table.labels, where=table.where)
    with usage_errors():
        settings.metric_for(regression=known.classes is None)
    return known


def _name_classes(classifier: PyramidClassifier, known: Labels, seed: int) -> None:
    """Lets the classifier predict a task's classes by name; one that learned their numbers goes on with these."""
    have = classifier.labels
    if have is not None and have.classes == known.classes:
        classifier.labels = known
    elif have is None or have.classes != tuple(range(known.outputs)):
        classifier.new_head(known, seed)


def _speed_up(classifier: PyramidClassifier, train: Table, batch_size: int, args: argparse.Namespace) -> None:
    """Finds the schedule on a sample of the training texts, and gives it to the classifier."""
    from ..families.hub import apply_settings
    from ..files import write_text
    from .bench import solution_text, solve_and_apply

    record = Path(args.out) / "checkpoints" / _SOLVED
    if record.is_file():  # a run that was stopped goes on with the schedule that it began with
        apply_settings(classifier.model, Schedule.from_dict(json.loads(record.read_text(encoding="utf-8"))), {})
        return
    step = max(1, len(train.texts) // _TEXTS_TO_TIME)
    items = classifier.encode(train.texts[::step])
    lengths = [len(item) for item in items]
    how: dict[str, Any] = {"batch_size": batch_size, "sample": items, "trained_head": classifier.labels is not None}
    pad_id = classifier.tokenizer.pad_token_id
    solution = solve_and_apply(classifier.model, args.speedup, lengths, pad_id=pad_id, **how)
    write_text(record, json.dumps(solution.schedule.to_dict()))
    messages().print(solution_text(solution))


def _fit(
    classifier: PyramidClassifier,
    train: Table,
    dev: dict[str, Table],
    settings: TrainSettings,
    args: argparse.Namespace,
) -> None:
    from ..classifier import PyramidClassifier

    watched = next(iter(dev.values()), None)
    classifier.fit(
        train.texts,
        train.labels,
        settings=settings,
        teacher=PyramidClassifier.load(args.teacher, device=args.device) if args.teacher else None,
        dev=(watched.texts, watched.labels) if watched else None,
        output_dir=Path(args.out) / "checkpoints",
        log_dir=args.log_dir,
    )
