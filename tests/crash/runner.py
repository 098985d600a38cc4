"""Kills commands at random moments with signal 9 and gives them again: `python -m tests.crash --kills 300`.

The property: what the command writes in the end is what it writes when nobody kills it; at every moment before, an
output is missing, the old one, or the new one, whole. Nothing is lost, written twice or mixed. Commands run in forks of
one process, so that a run takes a fraction of a second and most kills fall into work, not into imports. OpenVINO hangs
in forks: what needs it runs in fresh processes, which are killed at random moments after their work has begun.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

SAVED = Path(__file__).parent.parent / "data" / "saved"
WORDS = "a fine film the worst story of year so dull that nothing works great fun for people who love it".split()


@dataclass(frozen=True)
class Case:
    """One command.

    Attributes:
        prepare: Makes the inputs in a folder.
        words: The command line, for that folder.
        result: What the command left, in a form that can be compared; None while there is nothing.
        begun: For a command that runs in a fresh process: whether its work has begun. None runs it in a fork.
    """

    prepare: Callable[[Path], None]
    words: Callable[[Path], list[object]]
    result: Callable[[Path], object]
    begun: Callable[[Path], bool] | None = None


# ---- one run ----


def start_fresh(words: list[object], log: Path) -> int:
    """Starts a command in a process of its own, and returns its number."""
    quiet = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "pyramid_bert", *map(str, words)],
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), quiet, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def start(words: list[object], log: Path) -> int:
    """Starts a command in a fork, and returns its process number."""
    process = os.fork()
    if process:
        return process
    os.setsid()  # its own processes are killed with it
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDONLY) if stream == 0 else out, stream)
    code = 1
    try:
        from pyramid_bert.cli import main

        code = main([str(word) for word in words])
    finally:
        sys.stderr.flush()
        os._exit(code)


def finish(process: int, seconds: float, begun: Callable[[], bool] | None = None) -> tuple[int | None, float]:
    """The exit code of a process, and the seconds that it worked; see `run`.

    None if it was still running so many seconds after its work had begun, and was killed.
    """
    start: float | None = None
    while start is None or time.monotonic() < start + seconds:
        if start is None and (begun is None or begun()):
            start = time.monotonic()
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), time.monotonic() - (start or time.monotonic())
        time.sleep(0.002)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return None, seconds


def run(case: Case, folder: Path, random: Random, kills: int, length: float) -> tuple[int, object, float]:
    """Gives a command until it ends by itself; the kills on the way, what it left, and how long it worked at last."""
    done, log = 0, folder.parent / f"{folder.name}.log"
    while True:
        patience = random.uniform(0, length) if done < kills else 600
        process = (start if case.begun is None else start_fresh)(case.words(folder), log)
        code, worked = finish(process, patience, None if case.begun is None else partial(case.begun, folder))
        if code == 0:
            return done, case.result(folder), worked
        if code is not None:
            raise AssertionError(f"exit code {code} after {done} kills: {log.read_text()[-2000:]}")
        done += 1
        case.result(folder)  # whole, or not there: reading it raises where neither is true


# ---- predict ----


def _rows(count: int) -> list[dict[str, object]]:
    random = Random(0)
    return [{"id": row, "text": " ".join(random.choices(WORDS, k=random.randrange(3, 12)))} for row in range(count)]


def _predict(source: str, target: str) -> Case:
    def prepare(folder: Path) -> None:
        path, rows = folder / source, _rows(9000)
        if source.endswith(".parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist(rows), path)
        elif source.endswith(".jsonl"):
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            opener = gzip.open if source.endswith(".gz") else open
            with opener(path, "wt", newline="") as file:
                writer = csv.DictWriter(file, ["id", "text"])
                writer.writeheader()
                writer.writerows(rows)

    def words(folder: Path) -> list[object]:
        return ["predict", SAVED / "classifier", "--data", folder / source, "--out", folder / target, "--device", "cpu"]

    def result(folder: Path) -> object:
        from pyramid_bert.text.tables import iterate_rows

        path = folder / target
        return [dict(row) for _, row in iterate_rows(path)] if path.exists() else None

    return Case(prepare, words, result)


# ---- train and speedup: a folder with a model ----


def _labelled(folder: Path, count: int) -> None:
    with (folder / "train.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows([row["text"], "good" if "fine" in str(row["text"]) else "bad"] for row in _rows(count))


def _dense(folder: Path) -> None:
    from pyramid_bert import PyramidClassifier

    PyramidClassifier.from_pretrained(SAVED / "classifier", "dense").save(folder / "dense")


def _model(folder: Path) -> object:
    """The answers of the model in a folder; None while there is none."""
    from pyramid_bert import PyramidClassifier

    if not (folder / "out" / "config.json").exists():
        assert not any((folder / "out").glob("*.safetensors")), "half a model"
        return None
    return PyramidClassifier.load(folder / "out", device="cpu").predict_logits(WORDS).tolist()


def _train() -> Case:
    def words(folder: Path) -> list[object]:
        given = ["train", "--model", SAVED / "classifier", "--train", folder / "train.csv", "--out", folder / "out"]
        return [*given, "--epochs", 3, "--batch-size", 16, "--device", "cpu", "--keep-ratio", 0.5, "--last-layer", 2]

    return Case(lambda folder: _labelled(folder, 300), words, _model)


def _recipe() -> Case:
    def words(folder: Path) -> list[object]:
        given = ["train", "--model", folder / "dense", "--train", folder / "train.csv", "--out", folder / "out"]
        return [*given, "--speedup", 1.4, "--ideal", "--epochs", 1, "--batch-size", 16, "--device", "cpu"]

    def prepare(folder: Path) -> None:
        _dense(folder)
        _labelled(folder, 300)

    return Case(prepare, words, _model)


def _speedup() -> Case:
    def prepare(folder: Path) -> None:
        _dense(folder)
        _labelled(folder, 200)

    def words(folder: Path) -> list[object]:
        given = ["speedup", folder / "dense", "--data", folder / "train.csv", "--out", folder / "out"]
        return [*given, "--speedup", 1.2, "--ideal", "--minutes", 0.05, "--device", "cpu", "--overwrite"]

    def result(folder: Path) -> object:
        """Which pyramid is found depends on the time that is left; that it is whole does not."""
        return None if _model(folder) is None else "a model"

    return Case(prepare, words, result)


# ---- a study ----

EXPERIMENT = """
name = "crash"
methods = ["CS-1", "1st"]
seeds = [0, 1]
start = "dense"
[tasks]
sst2 = { rows = 64 }
[dense]
epochs = 1
batch_size = 16
[pyramid]
epochs = 1
batch_size = 16
[configurations]
select = [{ keep_ratio = 0.5, last_layer = 1 }]
"""


def _study() -> Case:
    def prepare(folder: Path) -> None:
        _dense(folder)
        (folder / "crash.toml").write_text(EXPERIMENT)
        data = folder / "data" / "sst2"
        data.mkdir(parents=True)
        for split, count in (("train", 64), ("dev", 32)):
            with (data / f"{split}.tsv").open("w") as file:
                file.write("sentence\tlabel\n")
                file.writelines(f"{row['text']}\t{int('fine' in str(row['text']))}\n" for row in _rows(count))

    def words(folder: Path) -> list[object]:
        given = ["study", "run", folder / "crash.toml", "--model", folder / "dense", "--data", folder / "data"]
        return [*given, "--results", folder / "results", "--work", folder / "work"]

    def result(folder: Path) -> object:
        file = folder / "results" / "crash.jsonl"
        if not file.exists():
            return None
        records = [json.loads(line) for line in file.read_text().splitlines() if line]
        cells = [record for record in records if "metrics" in record]
        assert len({record["key"] for record in cells}) == len(cells), "a cell twice"
        return sorted((record["key"], json.dumps(record["metrics"], sort_keys=True)) for record in cells)

    return Case(prepare, words, result)


# ---- export ----


def _export() -> Case:
    def words(folder: Path) -> list[object]:
        return ["export", SAVED / "classifier", "--out", folder / "out", "--overwrite"]

    def begun(folder: Path) -> bool:
        """Whether the first graph is being written."""
        return any(folder.glob(".*unfinished*/stretch-*")) or (folder / "out").exists()

    def result(folder: Path) -> object:
        """What the folder says of itself, and its weights. Nothing of a runtime is loaded."""
        from pyramid_bert.export.record import Export

        out = folder / "out"
        if not out.exists():
            return None
        made = Export.load(out)  # which looks for all graphs, and at their sizes
        return made, {file.name: file.read_bytes() for file in out.glob("*.bin")}

    return Case(lambda folder: None, words, result, begun)


CASES: dict[str, Callable[[], Case]] = {
    "predict-csv": lambda: _predict("in.csv", "out.csv"),
    "predict-jsonl": lambda: _predict("in.jsonl", "out.jsonl"),
    "predict-parquet": lambda: _predict("in.parquet", "out.parquet"),
    "predict-gzip": lambda: _predict("in.csv.gz", "out.csv.gz"),
    "train": _train,
    "train-speedup": _recipe,
    "speedup": _speedup,
    "study": _study,
    "export": _export,
}


def crash(name: str, kills: int, seed: int = 0) -> int:
    """Kills a command `kills` times in all and compares each end with that of a run that nobody kills."""
    import torch

    import pyramid_bert.classifier  # noqa: F401 - forks start with everything imported

    torch.set_num_threads(1)  # a fork would wait for threads that only its parent has
    case, random, done, round_ = CASES[name](), Random(f"{name} {seed}"), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        clean = Path(scratch) / "clean"
        clean.mkdir()
        case.prepare(clean)
        _, expected, length = run(case, clean, random, 0, 0)  # of the first run, which may compile
        while done < kills:
            folder = Path(scratch) / f"round-{round_}"
            folder.mkdir()
            case.prepare(folder)
            more, found, worked = run(case, folder, random, min(6, kills - done), length)
            length = min(length, worked) if not more else length
            assert found == expected, f"round {round_}, after {more} kills: another result"
            left = sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
            assert not [name for name in left if name.endswith(".lock") or "unfinished" in name], left
            shutil.rmtree(folder)
            done, round_ = done + more, round_ + 1
    return done


def main() -> int:
    """Runs the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300, help="in all, shared by the commands (default: 300)")
    parser.add_argument("--case", choices=CASES, action="append", help="only this one; may be given again")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    names = args.case or list(CASES)
    total, bad = 0, 0
    for name in names:
        began = time.monotonic()
        try:
            done, end = crash(name, -(-args.kills // len(names)), args.seed), "nothing lost"
        except AssertionError as error:
            done, end, bad = 0, f"BAD: {error}", bad + 1
        total += done
        print(f"{name:16} {done:4} kills  {time.monotonic() - began:5.0f} s  {end}", flush=True)
    print(f"{total} kills, {bad} bad")
    return 1 if bad else 0
