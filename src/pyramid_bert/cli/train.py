"""Fine-tune a classifier on your own file or a GLUE task: a pyramid from any BERT model, or a dense one with --dense.

Words and whole numbers are classes, decimal numbers are regression targets; --target overrides that guess. Give the
same command again to resume a stopped run: it continues from its last checkpoint and ends with the same weights, and
only if the model, the data and the settings are the same. --restart starts over. With --teacher the pyramid starts from
a trained dense model and also learns from its outputs; the training data then need no labels.

--speedup X is the whole recipe: it trains the dense model (or takes the --teacher), finds the pyramid of that speed
that will be best after training by training a few candidates for a short while, trains it with the dense model as
teacher, and compares both on the rows of --dev. With options of selection (--selector ...) it only finds a schedule.
--speedup 1.5-4 trains one elastic model, whose speed is chosen when it runs (predict --speed 3).

Several processes share the work under `torchrun --nproc-per-node N -m pyramid_bert train ...` or `accelerate launch`.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import check_number
from ..errors import CheckpointError, PyramidError, UsageError
from ..files import recover_folder
from ..resuming import RUN, check_same_run
from ..schedule.base import Schedule
from . import options
from .recipe import teach

if TYPE_CHECKING:
    from ..classifier import PyramidClassifier
    from ..lab.glue.tasks import Task
    from ..text.labels import Labels, Target
    from ..text.tables import Table
    from ..training import TrainSettings

EPILOG = """examples:
  pyramid-bert train --model path/to/bert --train train.csv --dev dev.csv --out my-model
  pyramid-bert train --model path/to/bert --train train.tsv.gz --text-column sentence --out my-model \\
      --keep-ratio 0.25 --first-layer 4 --last-layer 6
  pyramid-bert train --model path/to/bert --train ratings.csv --target number --out my-model
  pyramid-bert train --model path/to/bert --train train.csv --out as-in-the-paper \\
      --reduce drop --keep-ratio 0.25 --last-layer 3

dense model and pyramid in one command; a pyramid from a dense model and texts without labels; one model for any speed:
  pyramid-bert train --model path/to/bert --train train.csv --dev dev.csv --speedup 2.5 --out fast
  pyramid-bert train --teacher my-dense-model --train texts.csv --dev dev.csv --speedup 2.5 --out fast
  pyramid-bert train --teacher my-dense-model --train texts.csv --dev dev.csv --speedup 1.5-4 --out elastic

a GLUE task, dense first, then a pyramid that learns from it:
  pyramid-bert train --model path/to/bert --task sst2 --data glue --dense --out dense-model
  pyramid-bert train --teacher dense-model --task sst2 --data glue --patience 1 --out pyramid"""

# Option, a field of `TrainSettings` -> type, metavar, help. A --task brings defaults for some.
_TRAINING: dict[str, tuple[type, str, str]] = {
    "epochs": (float, "N", "passes over the data (default: 3)"),
    "learning_rate": (float, "RATE", "peak learning rate (default: 2e-5; twice that for the pyramid of --speedup)"),
    "batch_size": (int, "N", "texts per step, over all processes (default: 32)"),
    "eval_batch_size": (int, "N", "texts per batch in evaluation (default: 32)"),
    "warmup_ratio": (float, "P", "share of the steps over which the learning rate rises (default: 0)"),
    "weight_decay": (float, "W", "decoupled weight decay (default: 0)"),
    "seed": (int, "S", "seed of everything random (default: 0)"),
    "dropout": (float, "P", "dropout while training (default: the model's; 0 with --speedup)"),
    "patience": (int, "K", "stop after K epochs without improvement and keep the best weights"),
    "dev_metric": (str, "NAME", "the metric that has to improve (default: accuracy; for numbers: spearman)"),
}
_DISTILLATION: dict[str, tuple[type, str, str]] = {
    "temperature": (float, "T", "softens the teacher's outputs (default: 2)"),
    "distill_weight": (float, "W", "the teacher's share of the loss, 0-1 (default: 0.5; 0.9 with --speedup)"),
    "hidden_weight": (float, "W", "weight of matching the teacher's CLS vectors (default: 0)"),
}
_RESULT_OPTIONS = ("target", "new_classes", "dense", "speedup", "ideal", "task")
_TEXTS_TO_TIME, _SOLVED = 1000, "schedule.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--model", help="a model folder, or a name on the hub (default: the --teacher)")
    parser.add_argument("--train", metavar="FILE", help="the training data")
    parser.add_argument("--dev", metavar="FILE", help="data to evaluate on after each epoch and at the end")
    parser.add_argument("--target", choices=("classes", "number"), help="what the labels are (default: a guess)")
    parser.add_argument("--new-classes", action="store_true", help="let a trained --model learn other classes")
    options.add_task_option(parser)
    parser.add_argument("--data", metavar="FOLDER", help="with --task: where its files are (default: the hub)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the trained model goes")
    parser.add_argument("--dense", action="store_true", help="drop nothing: the model to compare with")
    group = parser.add_argument_group("training; a --task brings the paper's defaults")
    _add_settings(group, _TRAINING)
    group.add_argument("--bf16", action="store_true", default=None, help="mixed precision: products in bfloat16")
    group.add_argument("--max-length", type=int, metavar="N", help="cut longer texts to N tokens")
    group.add_argument("--log-dir", metavar="FOLDER", help="write event files for TensorBoard here")
    group.add_argument("--overwrite", action="store_true", help="replace the model in --out")
    options.add_restart_option(group)
    group = parser.add_argument_group("distillation: learn from a trained model as well")
    group.add_argument("--teacher", metavar="FOLDER", help="a trained classifier, usually dense")
    _add_settings(group, _DISTILLATION)
    options.add_data_options(parser)
    options.add_schedule_options(parser)
    faster = "train the pyramid that is X times faster than dense on length-sorted batches of texts as long as --dev's"
    ranges = f"{faster}; X-Y: one model for every speed between"
    parser.add_argument("--speedup", type=options.speeds, metavar="X[-Y]", help=ranges)
    ideal = "with --speedup: count multiply-accumulates at true lengths, not time on this machine"
    parser.add_argument("--ideal", action="store_true", help=ideal)
    parser.add_argument("--save-dense", metavar="FOLDER", help="with --speedup: keep the dense model here as well")
    options.add_pyramid_options(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def _add_settings(group: Any, settings: dict[str, tuple[type, str, str]]) -> None:
    for name, (kind, metavar, text) in settings.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=text)


def run(args: argparse.Namespace) -> None:
    """Trains, saves and evaluates."""
    schedule = options.schedule_from(args)
    _check_call(args)
    if args.dense and (schedule is not None or args.speedup is not None):
        raise UsageError("--dense keeps every token; leave out --speedup and the schedule options")
    out = Path(args.out)
    recover_folder(out)
    task = options.task_from(args)
    is_there = (out / "config.json").exists() and not args.overwrite
    if is_there and not (out / RUN).exists():
        raise _taken(out)
    train, dev = _read(args, task)

    from ..classifier import WRITTEN
    from ..config import PyramidConfig
    from ..files import check_replaceable, check_writable, only_writer
    from ..runtimes.processes import first_process, leave, place

    if args.speedup is not None and place()[1] > 1:
        raise UsageError(
            "--speedup is found by one process; find it with `bench --speedup` and give its schedule options"
        )
    check_writable(out)
    check_replaceable(out, WRITTEN)
    with options.usage_errors():
        settings = _settings(args, task)
        pyramid: dict[str, Any] = {} if args.dense else options.pyramid_settings_from(args)
        if schedule is not None:
            PyramidConfig(schedule=schedule, **pyramid)
    _take_defaults(args, task)
    known = _check_labels(train, dev, settings, task, args.target) if train.labels else None
    # Trained in float32, whatever the weights are saved in: --bf16 is mixed precision.
    pyramid |= {"schedule": "dense" if args.dense else schedule, "max_length": args.max_length}
    pyramid |= {"device": args.device, "dtype": "float32"}
    this = _identity(args, settings, pyramid, train)
    with only_writer(out) if first_process() else nullcontext():
        if args.restart and first_process():
            shutil.rmtree(out / "checkpoints", ignore_errors=True)
        if is_there:
            _finish(args, this, settings, dev)
        else:
            (teach if _has_recipe(args) else _train)(args, settings, pyramid, this, known, train, dev)
    leave()


def _train(
    args: argparse.Namespace,
    settings: TrainSettings,
    pyramid: dict[str, Any],
    this: dict[str, Any],
    known: Labels | None,
    train: Table,
    dev: dict[str, Table],
) -> None:
    """Trains on checked data, saves and evaluates."""
    from ..classifier import PyramidClassifier
    from ..runtimes.processes import first_process
    from ..tune.candidates import described

    out, start = Path(args.out), args.model or args.teacher
    classifier = PyramidClassifier.from_pretrained(start, **pyramid)
    remedy = "pass --max-length {positions} to cut long texts"
    train = options.encoded(classifier, train, remedy)
    dev = {prefix: options.encoded(classifier, table, remedy) for prefix, table in dev.items()}
    if args.speedup is not None:  # while a trained head is still there
        _speed_up(classifier, train, settings.eval_batch_size, args)
    if known is not None and known.numbered and args.teacher is None:
        options.name_classes(classifier, known, settings.seed, args.new_classes)
    if classifier.settings is not None and first_process():
        options.say(f"pyramid: {described(classifier.settings)}")
    watched = next(iter(dev.values()), None)
    args.goes_on = lambda: any((out / "checkpoints").rglob("checkpoint-*/trainer_state.json"))
    classifier.fit(
        train.texts,
        train.labels or None,
        settings=settings,
        teacher=PyramidClassifier.load(args.teacher, device=args.device) if args.teacher else None,
        dev=(watched.texts, watched.labels) if watched else None,
        target=args.target,
        new_classes=args.new_classes,
        output_dir=out / "checkpoints",
        log_dir=args.log_dir,
    )
    if first_process():
        classifier.save(out, run=this)
        options.say(f"saved to {out}")
        if dev:
            options.report(options.evaluate_all(classifier, dev, settings.eval_batch_size), args.json)


def _identity(
    args: argparse.Namespace, settings: TrainSettings, pyramid: dict[str, Any], train: Table
) -> dict[str, Any]:
    """What identifies this run: all that its result depends on."""
    from ..families.loading import model_digests
    from ..text.sampling import table_hash

    schedule = pyramid["schedule"]
    named = {f"--{name.replace('_', '-')}": getattr(args, name) for name in _RESULT_OPTIONS}
    selection = {name: value for name, value in pyramid.items() if name != "device"}
    return {
        **named,
        **asdict(settings),
        "selection": {**selection, "schedule": schedule.to_dict() if isinstance(schedule, Schedule) else schedule},
        "model": model_digests(args.model) if args.model else None,
        "teacher": model_digests(args.teacher) if args.teacher else None,
        "training data": table_hash(train),
    }


def _finish(args: argparse.Namespace, this: dict[str, Any], settings: TrainSettings, dev: dict[str, Table]) -> None:
    """Evaluates the model in --out, if this command trained it and was stopped after that; else refuses."""
    from ..classifier import PyramidClassifier
    from ..runtimes.processes import first_process

    out = Path(args.out)
    try:
        check_same_run(out / RUN, this, PyramidError)
    except PyramidError as error:
        raise _taken(out) from error
    if first_process():
        options.say(f"{out} holds the model that this command trains; --overwrite trains it again")
        if dev:
            classifier = PyramidClassifier.load(out, device=args.device)
            options.report(options.evaluate_all(classifier, dev, settings.eval_batch_size), args.json)


def _taken(out: Path) -> PyramidError:
    return PyramidError(f"{out} holds a trained model already; name another folder, or pass --overwrite")


def _has_recipe(args: argparse.Namespace) -> bool:
    """Whether --speedup stands for the whole recipe: no option names a selection of the user's own."""
    return args.speedup is not None and not options.pyramid_settings_from(args)


def _check_call(args: argparse.Namespace) -> None:
    """Raises for options that do not fit together, before anything is read."""
    options.check_task_call(args)
    wanted = args.speedup if isinstance(args.speedup, tuple) else (args.speedup,)
    for speed in wanted if args.speedup is not None else ():
        check_number("--speedup", speed, 1, 1000, "2 means twice as fast", error=UsageError)
    has_task, has_dev = args.task is not None, args.dev is not None
    without_teacher = [name for name in _DISTILLATION if getattr(args, name) is not None and args.teacher is None]
    for wrong, message in (
        ((args.train is None) != has_task, "give your own data with --train, or a --task; not both, not neither"),
        (has_task and has_dev, "--dev goes with --train; a --task brings its dev data"),
        (not has_task and args.data, "--data goes with --task; your own files are named by --train and --dev"),
        (has_task and args.target, "--target goes with --train; a --task knows whether it has classes or numbers"),
        (
            not args.model and not args.teacher,
            "give the model to start from with --model, or a --teacher to start from",
        ),
        (
            without_teacher and not _has_recipe(args),
            f"--{''.join(without_teacher[:1]).replace('_', '-')} goes with --teacher",
        ),
        (
            args.model and args.teacher and _has_recipe(args),
            "with --speedup the pyramid starts from the --teacher; leave out --model",
        ),
        ((args.ideal or args.save_dense) and not _has_recipe(args), "--ideal and --save-dense go with --speedup alone"),
        (len(wanted) > 1 and not _has_recipe(args), "a range for --speedup takes no options of selection"),
        (args.save_dense and args.teacher, "--save-dense keeps a dense model that is trained; leave out --teacher"),
        (
            args.patience is not None and not has_task and not has_dev,
            "--patience needs data to evaluate on after each epoch; name it with --dev",
        ),
    ):
        if wrong:
            raise UsageError(message)


def _read(args: argparse.Namespace, task: Task | None) -> tuple[Table, dict[str, Table]]:
    """The training data, and the dev data by the prefix of their metrics."""
    if task is None:
        labelled = args.teacher is None or options.has_labels(args.train, args)
        train = options.read_data(args.train, args, labels=labelled)
        return train, {"": options.read_data(args.dev, args)} if args.dev else {}
    from ..lab.glue.tasks import load_task

    return load_task(task.name, args.data), options.dev_tables(task, args.data)


def _settings(args: argparse.Namespace, task: Task | None) -> TrainSettings:
    from ..training import TrainSettings

    given = {name: getattr(args, name) for name in (*_TRAINING, *_DISTILLATION, "bf16")}
    if task is not None:
        own = {name: getattr(task, name) for name in ("epochs", "learning_rate", "batch_size", "eval_batch_size")}
        given = {**given, **{name: value for name, value in own.items() if given[name] is None}}
        given["dev_metric"] = given["dev_metric"] or task.metric
    return TrainSettings(**{name: value for name, value in given.items() if value is not None})


def _take_defaults(args: argparse.Namespace, task: Task | None) -> None:
    """Sets what a task knows and the call does not say."""
    if task is not None:
        args.max_length = task.max_length if args.max_length is None else args.max_length
        args.target = "number" if task.classes is None else None


def _check_labels(
    train: Table, dev: dict[str, Table], settings: TrainSettings, task: Task | None, target: Target | None
) -> Labels:
    """What is learned, printed in one line. Errors name the file and the row, before a model is loaded."""
    from ..runtimes.processes import first_process
    from ..text.labels import Labels

    known = Labels.of(train.labels, len(train.texts), where=train.where, target=target)
    if task is not None and task.classes is not None:
        known = Labels(task.classes, numbered=True)
    for table in dev.values():
        known.targets(table.labels, where=table.where)
    with options.usage_errors():
        settings.metric_for(regression=known.classes is None)
    if first_process():
        options.say(known.summary(train.labels))
    return known


def _speed_up(classifier: PyramidClassifier, train: Table, batch_size: int, args: argparse.Namespace) -> None:
    """Finds the schedule on a sample of the training texts, and gives it to the classifier."""
    from ..boundary import translating
    from ..families.hub import apply_settings
    from ..families.loading import model_digests
    from ..files import write_text
    from ..resuming import START_OVER, run_text
    from .bench import solution_text, solve_and_apply

    record = Path(args.out) / "checkpoints" / _SOLVED
    step = max(1, len(train.texts) // _TEXTS_TO_TIME)
    items = classifier.encode(train.texts[::step])
    run = {
        "--speedup": args.speedup,
        "model": model_digests(args.model or args.teacher),
        "selection": options.pyramid_settings_from(args),
        "training data": hashlib.blake2b(repr(items).encode(), digest_size=16).hexdigest(),
        "evaluation batch size": batch_size,
    }
    if record.is_file():  # a resumed run keeps its schedule
        found = check_same_run(record, run, CheckpointError, found=["schedule"])
        with translating(CheckpointError, f"{record} is damaged", START_OVER):
            apply_settings(classifier.model, Schedule.from_dict(found["schedule"]), {})
        return
    lengths = [len(item) for item in items]
    how: dict[str, Any] = {"batch_size": batch_size, "sample": items, "trained_head": classifier.labels is not None}
    pad_id = classifier.tokenizer.pad_token_id
    solution = solve_and_apply(classifier.model, args.speedup, lengths, pad_id=pad_id, **how)
    write_text(record, run_text({**run, "schedule": solution.schedule.to_dict()}))
    options.say(solution_text(solution))
