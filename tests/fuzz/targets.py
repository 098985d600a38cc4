"""What is damaged, and what is done with it afterwards.

The property: an answer, or one `PyramidError` in one line. Never another exception, an endless run, a number that is
not finite, two loads with two answers, or a change to a file outside of the folder.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.cli import main
from pyramid_bert.errors import PyramidError
from pyramid_bert.front import Front, Point

from . import mutations
from .mutations import BYTES, JSON, LINES, SAFETENSORS, TABLE, ZIPPED, Mutation

SAVED = Path(__file__).parent.parent / "data" / "saved"
TEXTS = ["a fine film", "the worst story of the year", "so dull that nothing works"]


class Broken(AssertionError):
    """The property does not hold."""


@dataclass(frozen=True)
class Target:
    """One file of a folder, and its use.

    Attributes:
        prepare: Makes the folder.
        file: What is damaged in it.
        mutations: How.
        use: Returns the answer, in a form that can be compared; raises `PyramidError` for a refusal.
    """

    prepare: Callable[[Path], None]
    file: str
    mutations: list[Mutation]
    use: Callable[[Path], object]


# ---- a classifier ----


def _classifier(folder: Path) -> None:
    shutil.copytree(SAVED / "classifier", folder, dirs_exist_ok=True)


def _sharded(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    _classifier(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _answers(folder: Path) -> object:
    first, second = (PyramidClassifier.load(folder, device="cpu").predict_logits(TEXTS) for _ in range(2))
    if not np.isfinite(first).all():
        raise Broken(f"outputs are not finite: {first}")
    if not np.array_equal(first, second):
        raise Broken("two loads, two answers")
    labels = PyramidClassifier.load(folder, device="cpu").predict(TEXTS).tolist()
    return np.round(first, 4).tolist(), labels


def _certified(folder: Path) -> object:
    """What the certificate says about answers, and which texts it makes run again."""
    found = PyramidClassifier.load(folder, device="cpu").answers(TEXTS, fallback=0.5, streaming=True)
    if not ((found.chance >= 0) & (found.chance <= 1)).all():
        raise Broken(f"no chances: {found.chance}")
    return np.round(found.logits, 4).tolist(), np.round(found.chance, 4).tolist(), found.rerun.tolist()


def _elastic(folder: Path) -> None:
    _classifier(folder)
    settings = PyramidClassifier.load(folder, device="cpu").settings
    ratios = {1.0: 1.0, 1.5: 0.6, 2.0: 0.4}
    points = (Point(x, x, 0.9, settings.replace(schedule=Schedule.constant(y)), {"f1": 0.8}) for x, y in ratios.items())
    Front(tuple(points)).save(folder)


def _at_every_speed(folder: Path) -> object:
    """The answers of an elastic model at each of its speeds."""
    found, classifier = [], PyramidClassifier.load(folder, device="cpu")
    if classifier.front is None:
        raise Broken("the model lost its speeds without a word")
    for point in classifier.front.points:
        classifier.speed = point.speed
        found.append((point.speed, np.round(classifier.predict_logits(TEXTS), 4).tolist()))
    return found


def _exported(folder: Path) -> None:
    """The classifier in OpenVINO; it is written once."""
    if not _EXPORTED:
        scratch = tempfile.TemporaryDirectory()
        PyramidClassifier.load(SAVED / "classifier", device="cpu").export(scratch.name)
        _EXPORTED.append(scratch)
    shutil.copytree(_EXPORTED[0].name, folder, dirs_exist_ok=True)


_EXPORTED: list[tempfile.TemporaryDirectory[str]] = []


# ---- commands on data ----


def _command(*words: object) -> int:
    """Runs a command; a refusal is one line on stderr and exit code 1 or 2."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(word) for word in words])
        except SystemExit as ended:  # argparse
            code = int(ended.code or 0)
    if code:
        said = [line for line in err.getvalue().splitlines() if line.startswith("pyramid-bert:")]
        if len(said) != 1 or not said[0].isprintable():
            raise Broken(f"exit code {code} and {len(said)} lines: {err.getvalue()[-500:]!r}")
        raise PyramidError(said[0])
    return code


def _predict(data: Path, out: Path) -> int:
    return _command("predict", SAVED / "classifier", "--data", data, "--out", out, "--device", "cpu")


ROWS = [{"text": text, "label": label} for text, label in zip(TEXTS * 4, ["good", "bad", "bad"] * 4, strict=True)]


def _table(name: str) -> Callable[[Path], None]:
    def prepare(folder: Path) -> None:
        target = folder / name
        if ".jsonl" in name:
            target.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        elif ".parquet" in name:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(ROWS), target)
        else:
            text = io.StringIO()
            writer = csv.DictWriter(
                text, ["text", "label"], delimiter="\t" if ".tsv" in name else ",", lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(ROWS)
            data = text.getvalue().encode()
            if name.endswith(".gz"):
                import gzip

                data = gzip.compress(data, mtime=0)
            target.write_bytes(data)

    return prepare


def _labelled(name: str) -> Callable[[Path], object]:
    def use(folder: Path) -> object:
        out = folder / "out.jsonl"
        _predict(folder / name, out)
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
        if any("prediction" not in row for row in rows):
            raise Broken("a row without an answer")
        # What was read must also come back from the formats that people use.
        _predict(folder / name, folder / "out.csv")
        return [(row.get("text"), row["prediction"]) for row in rows]

    return use


def _evaluated(name: str) -> Callable[[Path], object]:
    return lambda folder: _command("evaluate", SAVED / "classifier", "--data", folder / name, "--device", "cpu")


# ---- what a stopped run left ----


def _parts(folder: Path) -> None:
    """A `predict` that was stopped after its only part."""
    _table("in.csv")(folder)
    from pyramid_bert.text import stream

    real, stream._join = stream._join, _stop
    try:
        _predict(folder / "in.csv", folder / "out.jsonl")
    finally:
        stream._join = real


def _stop(*_: object, **__: object) -> int:
    raise SystemExit  # which no handler sees


def _resumed(folder: Path) -> object:
    out = folder / "out.jsonl"
    _predict(folder / "in.csv", out)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return [(row["text"], row["prediction"]) for row in rows]


# ---- experiments and their results ----


def _experiment(folder: Path) -> None:
    source = Path(__file__).parent.parent.parent / "experiments" / "ablation-m.toml"
    shutil.copy(source, folder / "small.toml")


def _status(folder: Path) -> object:
    return _command("study", "status", folder / "small.toml", "--results", folder)


def _study(folder: Path) -> None:
    root = Path(__file__).parent.parent.parent
    shutil.copy(root / "experiments" / "ablation-m.toml", folder)
    shutil.copy(root / "results" / "ablation-m.jsonl", folder)


def _shown(folder: Path) -> object:
    return _command("study", "table", folder / "ablation-m.toml", "--results", folder)


TARGETS: dict[str, Target] = {
    "config": Target(_classifier, "config.json", JSON, _answers),
    "weights": Target(_classifier, "model.safetensors", SAFETENSORS, _answers),
    "tokenizer": Target(_classifier, "tokenizer.json", JSON, _answers),
    "tokenizer-config": Target(_classifier, "tokenizer_config.json", JSON, _answers),
    "labels": Target(_classifier, "classifier.json", JSON, _answers),
    "certificate": Target(_classifier, "certificate.json", JSON, _certified),
    "front": Target(_elastic, "front.json", JSON, _at_every_speed),
    "exported": Target(_exported, "exported.json", JSON, _answers),
    "graph": Target(_exported, "stretch-0.xml", BYTES, _answers),
    "index": Target(_sharded, "model.safetensors.index.json", JSON, _answers),
    "shard": Target(_sharded, "model-00002-of-00002.safetensors", SAFETENSORS, _answers),
    "csv": Target(_table("in.csv"), "in.csv", TABLE, _labelled("in.csv")),
    "tsv": Target(_table("in.tsv"), "in.tsv", TABLE, _labelled("in.tsv")),
    "jsonl": Target(_table("in.jsonl"), "in.jsonl", LINES, _labelled("in.jsonl")),
    "gzip": Target(_table("in.csv.gz"), "in.csv.gz", ZIPPED, _labelled("in.csv.gz")),
    "parquet": Target(_table("in.parquet"), "in.parquet", BYTES, _labelled("in.parquet")),
    "labelled-csv": Target(_table("in.csv"), "in.csv", TABLE, _evaluated("in.csv")),
    "labelled-jsonl": Target(_table("in.jsonl"), "in.jsonl", LINES, _evaluated("in.jsonl")),
    "run-record": Target(_parts, "out.jsonl.parts/run.json", JSON, _resumed),
    "part": Target(_parts, "out.jsonl.parts/000000.jsonl", LINES, _resumed),
    "experiment": Target(_experiment, "small.toml", [mutations.line_moved, *BYTES], _status),
    "results": Target(_study, "ablation-m.jsonl", LINES, _shown),
}


def attack(name: str, seed: int, folder: Path) -> str:
    """Damages a fresh folder and uses it: "same", "other" (another answer), or the refusal. Raises what must not be."""
    target = TARGETS[name]
    inside, outside = folder / "inside", folder / "outside"
    for path in (inside, outside):
        path.mkdir(parents=True)
    (outside / "witness").write_text("untouched")
    target.prepare(inside)
    before = _before(name, inside)
    random = Random(f"{name} {seed}")
    file = inside / target.file
    file.write_bytes(random.choice(target.mutations)(file.read_bytes(), random))
    try:
        after = target.use(inside)
    except PyramidError as error:
        text = str(error)
        if "\n" in text or not text.isprintable():
            raise Broken(f"a message that is not one line: {text!r}") from error
        return text
    finally:
        if sorted(path.name for path in folder.iterdir()) != ["inside", "outside"] or leftover(outside):
            raise Broken("a file outside of the folder")
    return "same" if after == before else "other"


def leftover(outside: Path) -> bool:
    """Whether anything happened beside the folder."""
    return [path.name for path in outside.iterdir()] != ["witness"] or (outside / "witness").read_text() != "untouched"


_BEFORE: dict[str, object] = {}


def _before(name: str, inside: Path) -> object:
    """The answer without damage, from a copy of the folder."""
    if name not in _BEFORE:
        copy = inside.parent / "copy"
        shutil.copytree(inside, copy)
        _BEFORE[name] = TARGETS[name].use(copy)
        shutil.rmtree(copy)
    return _BEFORE[name]
