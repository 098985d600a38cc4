"""Two processes train one model on the CPU, as torchrun starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import near

import pyramid_bert
from pyramid_bert.errors import PyramidError

pytestmark = pytest.mark.serial

# What each process of a Python user runs: it trains, and leaves a digest of its weights.
SCRIPT = """
import hashlib, json, os, sys
from pathlib import Path
from transformers import TrainerCallback
from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.training import PyramidTrainer, TrainingData

model, teacher, data, out, stop, settings = sys.argv[1:]
data, settings, out, stop = json.loads(Path(data).read_text()), json.loads(settings), Path(out), int(stop)

class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == stop:
            os._exit(3)  # like a kill: nothing is tidied up

train = PyramidTrainer.train
def stopped(self, **kwargs):
    self.add_callback(Stop())
    return train(self, **kwargs)
PyramidTrainer.train = stopped

rows, batch = [], TrainingData.batch
def counted(self, chosen):
    rows.extend(chosen)
    return batch(self, chosen)
TrainingData.batch = counted

clf = PyramidClassifier.from_pretrained(model, Schedule.exponential(0.5, last_layer=3, min_tokens=2))
clf.fit(*data["train"], dev=data["dev"], output_dir=out / "run", progress=False,
        teacher=PyramidClassifier.load(teacher) if teacher else None, **settings)
clf.save(out / "model")
digest = hashlib.sha256()
for value in clf.model.state_dict().values():
    digest.update(value.numpy().tobytes())
rank = os.environ.get("RANK", "0")
(out / f"digest{rank}").write_text(digest.hexdigest())
(out / f"history{rank}").write_text(json.dumps(clf.history))
(out / f"rows{rank}").write_text(json.dumps(rows))
"""
SETTINGS = {"epochs": 2, "learning_rate": 1e-3, "batch_size": 16}


@pytest.fixture(scope="module")
def job(tmp_path_factory, learner_dir, sentiment):
    """Runs the script in two processes, or in one, and returns its folder."""
    place = tmp_path_factory.mktemp("jobs")
    (place / "script.py").write_text(SCRIPT)
    (place / "data.json").write_text(json.dumps({"train": sentiment(128), "dev": sentiment(30, 1)}))

    def run(name, processes=2, stop=-1, teacher="", killed=False, **settings):
        out = place / name
        out.mkdir(exist_ok=True)
        how = json.dumps({**SETTINGS, **settings})
        done = python(processes, place / "script.py", learner_dir, teacher, place / "data.json", out, stop, how)
        assert (done.returncode != 0) is killed, done.stderr
        return out

    return run


def python(processes, *arguments):
    """Runs a script, or a module with "-m", in one process or in several."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", processes] if processes > 1 else []
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(pyramid_bert.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    command = map(str, (sys.executable, *launcher, *arguments))
    return subprocess.run([*command], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def two(job):
    """A run of two processes from beginning to end."""
    return job("two")


def read(folder, name):
    return (folder / name).read_text()


def test_two_processes_train_the_model_that_one_would(job, two, weights_in):
    """128 rows make 8 whole batches of 16, without dropout: only the order of sums differs from one process."""
    one = job("one", processes=1)
    parts = [json.loads(read(two, f"rows{rank}")) for rank in (0, 1)]
    assert [len(part) for part in parts] == [128, 128]  # two epochs of a half each
    assert sorted(parts[0] + parts[1]) == sorted([*range(128)] * 2)
    assert read(two, "digest0") == read(two, "digest1")  # bit for bit, in both processes
    assert read(two, "history0") == read(two, "history1")
    assert near(weights_in(two / "model"), weights_in(one / "model"), atol=1e-4)
    steps = [[entry["step"] for entry in json.loads(read(out, "history0"))] for out in (two, one)]
    assert steps[0] == steps[1]  # a batch is shared, so the steps are the same
    assert not list(two.glob(".*"))  # one process wrote, and nothing was left over


def test_two_processes_go_on_where_they_were_killed(job, two):
    parts = job("parts", stop=14, killed=True)  # in the second epoch; checkpoints are at every fourth step
    assert not (parts / "model").exists()
    assert (parts / "run" / "checkpoint-12" / "rng1-training_state.json").exists()
    job("parts")
    assert read(parts, "digest0") == read(parts, "digest1") == read(two, "digest0")
    assert read(parts, "run/log.jsonl") == read(two, "run/log.jsonl")


def test_two_processes_learn_from_a_teacher_and_stop_together(job, weights_in, learner_dir, sentiment, tmp_path):
    teacher = pyramid_bert.PyramidClassifier.from_pretrained(learner_dir, "dense")
    teacher.fit(*sentiment(64), epochs=1, progress=False).save(tmp_path / "teacher")
    settings = {"teacher": tmp_path / "teacher", "patience": 1, "epochs": 4, "learning_rate": 1e-9, "hidden_weight": 1}
    both, one = job("taught by two", **settings), job("taught by one", processes=1, **settings)
    history = json.loads(read(both, "history0"))
    assert [entry["step"] for entry in history if "dev_f1" in entry] == [8, 16]  # too small a rate to gain anything
    assert read(both, "digest0") == read(both, "digest1")
    assert near(weights_in(both / "model"), weights_in(one / "model"), atol=1e-4)


def test_the_command_prints_once(learner_dir, sentiment_files, tmp_path):
    files = (
        "--train",
        sentiment_files / "train.csv",
        "--dev",
        sentiment_files / "dev.csv",
        "--out",
        tmp_path / "model",
    )
    how = ("--epochs", 1, "--keep-ratio", 0.5, "--last-layer", 2, "--json")
    done = python(2, "-m", "pyramid_bert", "train", "--model", learner_dir, *files, *how)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)) == {"accuracy", "f1", "matthews"}
    assert done.stderr.count("saved to") == 1
    assert (tmp_path / "model" / "config.json").exists()
    assert not (tmp_path / "model" / "checkpoints").exists()


def test_a_batch_that_cannot_be_shared_is_refused(learner_dir, sentiment, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    clf = pyramid_bert.PyramidClassifier.from_pretrained(learner_dir)
    with pytest.raises(PyramidError, match="batch_size 15 cannot be divided among 2 processes"):
        clf.fit(*sentiment(64), batch_size=15)


def test_only_the_first_process_saves(learner_dir, sentiment, tmp_path, monkeypatch):
    clf = pyramid_bert.PyramidClassifier.from_pretrained(learner_dir)
    clf.fit(*sentiment(32), epochs=1, progress=False)
    monkeypatch.setenv("RANK", "1")
    clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
