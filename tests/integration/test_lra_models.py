"""Long Range Arena from rows to results, on rows of a few tokens."""

import dataclasses
import json
from itertools import product
from operator import eq

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from pyramid_bert import PyramidError, Schedule, pyramid_settings
from pyramid_bert.cli import main
from pyramid_bert.core.tokens import Tokens
from pyramid_bert.families import base_model
from pyramid_bert.lab.lra import run as lra_run
from pyramid_bert.lab.lra.data import LRA_TASKS, LraData, LraTask
from pyramid_bert.lab.lra.models import CLS, PAD, SPECIALS, attention_of, make_model, tokens_of
from pyramid_bert.lab.lra.presets import LRA_NAMES, load_presets, preset_for
from pyramid_bert.lab.lra.run import LraRows, default_settings, describe, run_lra
from pyramid_bert.lab.study.arena import STUDY_TASKS
from pyramid_bert.lab.study.preflight import all_cells
from pyramid_bert.lab.study.spec import read_study
from pyramid_bert.lab.study.store import Store
from pyramid_bert.text.inference import outputs_of

PRESETS = "\n".join(
    f"[{name}]\nepochs = {epochs}\n{sizes}\nlearning_rate = 1e-2\nbatch_size = 16\nlayers = 1\nheads = 2\n"
    "hidden_size = 16\nfeed_forward_size = 16\ndropout = 0.0"
    for name, epochs, sizes in (
        ("performer.cifar10", 2, "qkv_size = 8"),
        ("bigbird.cifar10", 2, "qkv_size = 16\nblock_size = 2"),
        ("bigbird.text", 1, "qkv_size = 16\nblock_size = 4"),
    )
)


def fake_rows(task, folder, split, *, rows=None, seed=0):
    """Two classes that differ in their brightness."""
    known, count = LRA_TASKS[task], rows or 48
    draw = np.random.default_rng(seed + (split == "dev"))
    labels = np.arange(count) % 2
    ids = draw.integers(0, known.vocabulary // 2, (count, known.length)) + labels[:, None] * (known.vocabulary // 2)
    return LraData(ids.astype(np.int16), np.full(count, known.length), labels)


@pytest.fixture
def arena(monkeypatch, tmp_path):
    """Tasks of few tokens, their rows, and a file of presets for them."""
    tasks = {
        name: LraTask(name, name, length, vocabulary, 2)
        for name, length, vocabulary in (("cifar10", 48, 8), ("text", 60, 16), ("pathfinder32", 48, 8))
    }
    monkeypatch.setattr("pyramid_bert.lab.lra.models.LRA_TASKS", tasks)
    monkeypatch.setitem(globals(), "LRA_TASKS", tasks)
    monkeypatch.setattr(lra_run, "load_lra", fake_rows)
    path = tmp_path / "presets.toml"
    path.write_text(PRESETS)
    return path


def call(*words):
    return main(["lra", *map(str, words)])


def test_rows_begin_with_cls_and_are_shifted():
    data = LraData(np.array([[0, 7, 3], [5, -1, -1]], np.int16), np.array([3, 1]), np.array([1, 0]))
    rows = LraRows.of(data)
    assert [item.input_ids for item in rows.items] == [[CLS, 2, 9, 5], [CLS, 7]]
    assert rows.labels == [1, 0]
    assert {PAD, CLS} == set(range(SPECIALS))
    assert LraRows.of(dataclasses.replace(data, labels=np.array([0, 0]))).digest != rows.digest


@pytest.mark.parametrize("name", sorted(load_presets()))
def test_models_of_the_papers_sizes_are_built(name):
    preset = load_presets()[name]
    model, again, other = (make_model(preset, Schedule.input_only(0.5), seed=seed) for seed in (0, 0, 1))
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads) == (preset.layers, preset.heads)
    assert (config.hidden_size, config.intermediate_size) == (preset.hidden_size, preset.feed_forward_size)
    assert config.max_position_embeddings >= tokens_of(preset)
    mine, same, differs = ([p for p in made.parameters() if p.dim() == 2] for made in (model, again, other))
    assert all(map(torch.equal, mine, same))
    assert not any(map(torch.equal, mine, differs))


@pytest.mark.parametrize("name", ["performer-cifar10", "bigbird-cifar10"])
def test_training_chooses_the_tokens_of_evaluation(name):
    model = make_model(load_presets()[name], Schedule.input_only(0.2), seed=0, reduce="drop")
    ids = torch.randint(SPECIALS, 258, (2, 1025), generator=torch.Generator().manual_seed(0))
    base = base_model(model)
    chosen = []
    for mode in (True, False):
        base.train(mode)
        tokens = Tokens.of(base.embeddings(ids, None, None), None)
        step = next(base.encoder.plan.steps(tokens.counts))
        chosen.append(tokens.reduced(base.encoder.reducer(tokens, step)).hidden)
    assert torch.equal(*chosen)


def test_attention_is_full_where_blocks_run_out():
    text, image = preset_for("bigbird", "text"), preset_for("bigbird", "cifar10")
    assert attention_of(text) == attention_of(text, Schedule.input_only(0.8)) == "block_sparse"
    assert attention_of(text, Schedule.input_only(0.5)) == "original_full"
    assert attention_of(image, Schedule.input_only(0.1)) == "block_sparse"
    assert describe(image, Schedule.input_only(0.3))["kept"] == 312  # 308, in blocks of 8
    assert describe(text, Schedule.input_only(0.3))["kept"] == 301
    for keep, kept in ((0.05, 51), (0.06, 61)):
        with pytest.raises(PyramidError, match=rf"{kept} of 1001 tokens are less than a block of 64; .* least 0\.07,"):
            describe(text, Schedule.input_only(keep))
    assert describe(text, Schedule.input_only(0.07))["kept"] == 71


@pytest.mark.parametrize(
    ("backbone", "keep", "kept"),
    [("performer", None, 49), ("performer", 0.5, 25), ("bigbird", None, 49), ("bigbird", 0.5, 26)],
)
def test_a_model_learns_what_can_be_learned(arena, backbone, keep, kept):
    preset = preset_for(backbone, "cifar10", arena)
    rows = [LraRows.of(fake_rows("cifar10", None, split)) for split in ("train", "dev")]
    given = {} if keep is None else {"schedule": Schedule.input_only(keep), "settings": {"reduce": "drop"}}
    result = run_lra(preset, *rows, default_settings(preset, epochs=6), **given, progress=False)
    assert result.metrics["accuracy"] > 0.9
    assert result.facts["kept"] == kept
    assert pyramid_settings(result.model) is not None


def test_bigbird_takes_short_rows_at_the_full_length(arena, monkeypatch):
    """Half of the length is too short for blocks."""
    preset = dataclasses.replace(preset_for("bigbird", "text", arena), layers=2)  # the last one computes only CLS
    whole = fake_rows("text", None, "train")
    ids = np.where(np.arange(60) < 30, whole.ids, -1)
    rows = LraRows.of(LraData(ids, np.full(len(ids), 30), whole.labels))
    seen = []

    def watched(*args, **kwargs):
        model = make_model(*args, **kwargs)
        attention = base_model(model).encoder.layer[0].attention.self
        attention.register_forward_hook(lambda module, _, out: seen.append((type(module).__name__, *out[0].shape[:2])))
        return model

    monkeypatch.setattr(lra_run, "make_model", watched)
    run_lra(preset, rows, rows, default_settings(preset), schedule=Schedule.input_only(0.9), progress=False)
    # Three steps and one evaluation, each on the twelve blocks of 4 that are the fewest.
    assert seen == [("BigBirdBlockSparseAttention", count, 48) for count in (16, 16, 16, 48)]


def test_a_sequence_shorter_than_a_block(arena, tmp_path, capsys):
    path = tmp_path / "large.toml"
    path.write_text(PRESETS.replace("block_size = 2", "block_size = 64"))
    preset = preset_for("bigbird", "cifar10", path)
    for schedule in (None, Schedule.input_only(0.5)):
        with pytest.raises(PyramidError, match=r"a sequence of 49 tokens is less than a block of 64; .* at most 49"):
            make_model(preset, schedule, seed=0)
    assert call("space", "--task", "cifar10", "--backbone", "bigbird", "--preset", path) == 2
    assert "a sequence of 49 tokens is less than a block of 64" in capsys.readouterr().err


# ---- the command ----


def test_train_from_the_command_line(arena, tmp_path, capsys):
    out = tmp_path / "model"
    words = ("--task", "cifar10", "--backbone", "performer", "--preset", arena, "--rows", 32, "--dev-rows", 16)
    assert call("train", *words, "--keep", "0.5", "--method", "Merge", "--epochs", 8, "--out", out, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["kept"], record["method"], record["rows"]) == (25, "Merge", {"train": 32, "dev": 16})
    assert json.loads((out / "lra.json").read_text()) == record
    rows = LraRows.of(fake_rows("cifar10", None, "dev", rows=16))
    saved = AutoModelForSequenceClassification.from_pretrained(out)
    chosen = outputs_of(saved.eval(), rows.items, PAD, batch_size=16).logits.argmax(dim=1).tolist()
    assert record["accuracy"] == sum(map(eq, chosen, rows.labels)) / 16 > 0.5
    dense = tmp_path / "dense"
    assert call("train", *words, "--method", "Dense", "--out", dense) == 0
    accuracy = json.loads((dense / "lra.json").read_text())["accuracy"]
    assert capsys.readouterr().out.splitlines()[0] == f"accuracy {accuracy:.4f}"


def test_space_from_the_command_line(capsys):
    assert call("space", "--task", "text", "--backbone", "bigbird", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["keep"] for row in rows] == [tenth / 10 for tenth in range(1, 11)]
    assert rows[-1]["space"]["printed"] == 0


def test_steps_are_measured_from_the_command_line(arena, capsys):
    words = ("--task", "cifar10", "--backbone", "performer", "--preset", arena, "--keep", "0.5", "--rounds", 1)
    assert call("bench", *words, "--json") == 0
    short = json.loads(capsys.readouterr().out)
    assert call("bench", *words, "--json", "--all-tokens", "--batch-size", 3) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (short["settings"]["cls_only"], whole["settings"]["cls_only"]) == (True, False)
    assert (short["batch_size"], whole["batch_size"]) == (load_presets(arena)["performer-cifar10"].batch_size, 3)
    assert (short["method"], short["kept"]) == ("CS-1", 25)
    assert 0 < short["selecting"] < 1
    assert call("bench", *words) == 0
    assert "choice" in capsys.readouterr().out
    assert call("bench", *words, "--batch-size", 0) == 2
    assert call("bench", *words[:-4], "--keep", 1) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--backbone perfomer --keep 0.5", "did you mean 'performer'"),
        ("--backbone performer --keep 0.5 --method CS1", "did you mean 'CS-1'"),
        ("--backbone performer --keep 0.5 --method Att", "unknown method 'Att'"),
        ("--backbone performer --keep 1.5", "must be in (0, 1], got 1.5"),
        ("--backbone performer", "needs --keep"),
        ("--backbone performer --method Dense --keep 0.5", "leave out --keep"),
        ("--backbone bigbird --keep 0.001", "less than a block of 8"),
        ("--backbone performer --keep 0.5 --rows 1", "--rows must be at least 2, got 1"),
        ("--backbone performer --keep 0.5 --epochs 0", "epochs must be"),
    ],
)
def test_wrong_calls(words, message, capsys):
    assert call("train", "--task", "cifar10", *words.split()) == 2
    assert message in capsys.readouterr().err


# ---- studies ----

STUDY = """
methods = ["1st", "CS-1"]
start = "pretrained"
tasks.performer-cifar10 = { rows = 32, dev_rows = 16 }
dense.epochs = 1
pyramid.epochs = 1
configurations.input = [{ keep_ratio = 0.5 }]
"""


@pytest.fixture
def study(arena, monkeypatch, tmp_path):
    """Runs `study ACTION` on an experiment with the small presets."""
    small = load_presets(arena)
    monkeypatch.setattr("pyramid_bert.lab.study.arena.load_presets", lambda: {**load_presets(), **small})

    def run(action, text=STUDY, *words):
        file = tmp_path / "tiny.toml"
        file.write_text(text)
        where = ["--work", tmp_path / "work"] if action == "run" else []
        return main(["study", action, str(file), "--results", str(tmp_path / "results"), *map(str, [*where, *words])])

    return run


def test_a_study_of_long_range_arena(study, tmp_path, monkeypatch, capsys):
    task = STUDY_TASKS["performer-cifar10"]
    monkeypatch.setitem(STUDY_TASKS, "performer-cifar10", type(task)(**{**vars(task), "max_length": 49}))
    assert study("run") == 0
    records = [record for key, record in Store.of(tmp_path / "results", "tiny").records.items() if key != "study"]
    assert {record["cell"]["method"] for record in records} == {"Dense", "1st", "CS-1"}
    assert all(record["status"] == "done" for record in records)
    assert {record["kept"] for record in records} == {25, 49}
    assert all("--model" not in record["command"] for record in records)
    capsys.readouterr()
    assert study("table", STUDY, "--axis", "space", "--json") == 0
    table = json.loads(capsys.readouterr().out)
    assert table["tasks"] == {"performer-cifar10": "Performer CIFAR-10"}
    assert study("run") == 0
    assert "nothing is left" in capsys.readouterr().err


def test_a_study_takes_every_method_of_the_paper():
    methods = ["1st", "Rand", "CS-k-1", "CS-1", "CS-0.1", "CS-0.2", "CS-0.3", "CS-0.4", "Merge"]
    keeps = [tenth / 10 for tenth in range(1, 10)]
    spec = {"name": "all", "tasks": list(LRA_NAMES), "methods": methods, "start": "pretrained"}
    study = read_study({**spec, "configurations": {"input": [{"keep_ratio": keep} for keep in keeps]}})
    found = {(cell.task, cell.method, cell.schedule.keep_ratio) for cell in all_cells(study) if not cell.is_dense}
    assert found == set(product(LRA_NAMES, methods, keeps))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('start = "pretrained"', "", "trained from nothing; set start = 'pretrained'"),
        ('"CS-1"', '"Att"', "cannot select at the input"),
        ("configurations.input", "configurations.select", "configurations.input is missing, and 1st, CS-1"),
        ("rows = 32", "max_length = 64", "leave out max_length"),
        ("methods", "measure = true\nmethods", "lra bench"),
    ],
)
def test_experiments_that_cannot_be_run(study, old, new, message, capsys):
    assert study("run", STUDY.replace(old, new, 1)) == 2
    assert message in " ".join(capsys.readouterr().err.split())
