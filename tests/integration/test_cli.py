"""The command line as people and programs use it."""

import json
import re
import subprocess
import sys
import time

import pytest
from helpers import output, run

from pyramid_bert import PyramidClassifier
from pyramid_bert.cli import COMMANDS, main
from pyramid_bert.cli.options import print_json
from pyramid_bert.counting import steps_shown
from pyramid_bert.errors import DataError, PyramidError


@pytest.fixture(scope="module")
def model(learner_dir, sentiment_files, tmp_path_factory):
    """A pyramid trained by the command line."""
    out = tmp_path_factory.mktemp("cli") / "model"
    how = (
        "--keep-ratio 0.5 --first-layer 2 --last-layer 3 --min-tokens 3 --epochs 8 --learning-rate 2e-3 --batch-size 16"
    )
    train = ("train", "--model", learner_dir, "--train", sentiment_files / "train.csv", "--out", out)
    assert run(*train, *how.split()) == 0
    return out


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_teaches_and_does_not_wait_for_torch(command):
    code = (
        "import sys; sys.argv = ['pyramid-bert', *sys.argv[1:]]\n"
        "from pyramid_bert.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    words = [command, "--help"] if command else ["--help"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout


RUN_MODELS = "demo train evaluate predict certify explain speedup bench theory report".split()


@pytest.mark.parametrize("command", [*RUN_MODELS, "lra train", "lra bench"])
def test_every_command_that_runs_a_model_takes_a_device(capsys, command):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    assert "--device {auto,cpu,cuda,mps}" in capsys.readouterr().out


def test_a_device_that_is_not_there(capsys, model, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    assert run("predict", model, "a fine film", "--device", "mps") == 1
    assert capsys.readouterr().err == "pyramid-bert: torch sees no device 'mps' here, only cpu; use one, or 'auto'\n"


def test_train_evaluate_predict_explain(capsys, model, sentiment_files, tmp_path):
    metrics = json.loads(output(capsys, "evaluate", model, "--data", sentiment_files / "dev.csv", "--json"))
    assert metrics["accuracy"] > 0.9
    text = output(capsys, "evaluate", model, "--data", sentiment_files / "dev.csv")
    assert f"accuracy {metrics['accuracy']:.4f}" in text

    lines = output(capsys, "predict", model, "the film is brilliant", "the film is boring").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["pos", "neg"]
    out = tmp_path / "labels.jsonl"
    assert output(capsys, "predict", model, "--data", sentiment_files / "dev.csv", "--out", out) == ""
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 64
    assert set(rows[0]) == {"text", "label", "prediction", "probability"}

    page = tmp_path / "page.html"
    shown = output(capsys, "explain", model, "the film is a brilliant story", "--html", page)
    assert "layer" in shown
    assert "brilliant" in page.read_text()
    data = json.loads(output(capsys, "explain", model, "the film is a brilliant story", "--json"))
    assert data["prediction"] == "pos"
    assert len(data["layers"]) == 4


def test_train_refuses_to_overwrite(capsys, model, learner_dir, sentiment_files):
    assert run("train", "--model", learner_dir, "--train", sentiment_files / "train.csv", "--out", model) == 1
    assert "holds a trained model already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("the film,meh", "the label is 'meh', which the model does not know"),
        (f"{'fine ' * 200},pos", "the text has 202 tokens and the model reads at most 128; shorten it"),
    ],
)
def test_evaluate_names_the_row_that_it_cannot_use(capsys, model, tmp_path, row, message):
    data = tmp_path / "test.csv"
    data.write_text(f"text,label\nthe film,pos\n{row}\n")
    assert run("evaluate", model, "--data", data) == 1
    assert f"{data}, row 2: {message}" in capsys.readouterr().err


def test_schedule_prints_the_paper(capsys):
    rows = json.loads(output(capsys, "schedule", "--paper", "--json"))
    assert len(rows) == 30
    assert rows[11]["lengths"][:4] == [80, 50, 32, 32]
    assert round(rows[11]["ideal_speedup"], 2) == 3.23
    table = output(capsys, "schedule", "--keep-ratio", "0.25", "--last-layer", "3", "--rounding", "floor")
    assert "80 50 32" in table
    assert "3.23x" in table


def test_schedule_reads_a_models_sizes(capsys, learner_dir):
    row = json.loads(
        output(capsys, "schedule", "--model", learner_dir, "--last-layer", 2, "--keep-ratio", 0.5, "--json")
    )[0]
    assert len(row["lengths"]) == 4


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        ("schedule --keep-ratio 1.5 --last-layer 3", 2, "--keep-ratio must be in (0, 1], got 1.5"),
        ("schedule --schedule constant --last-layer 3", 2, "unexpected argument 'last-layer'"),
        ("schedule --lengths 8,x", 2, "--lengths takes whole numbers"),
        ("schedule --schedule random", 2, "schedule-seed"),
        ("schedule --hidden-size 0", 2, "sizes must be at least 1"),
        ("schedule --n 0", 2, "n must be an integer in 1-1e+07, got 0"),
        ("schedule --placement input", 2, "--placement input goes with --schedule input_only"),
        ("schedule --model nowhere", 1, "cannot read the sizes of a model"),
        ("predict nowhere/at/all text", 1, "no model folder at nowhere/at/all"),
        ("predict somewhere", 2, "give texts to label, or a file"),
        ("predict", 2, "give a model and texts to label, or --data FILE"),
        ("train --model m --out o --train .", 1, ". is a folder; name a file in it"),
        ("predict m text --out o.csv", 2, "--out goes with --data"),
        ("predict m text --restart", 2, "--restart goes with --out"),
        ("predict m --data {csv} --out {csv}", 1, "is the input itself"),
        ("evaluate m --data none.csv", 1, "no such file: none.csv"),
        ("explain m text --html .", 1, "it is a folder; name a file"),
        ("train --train a.csv --out o", 2, "give the model to start from with --model, or a --teacher"),
        ("train --model m --out o --train none.csv", 1, "no such file"),
        ("train --model m --out o", 2, "give your own data with --train, or a --task"),
        ("train --model m --out o --train a.csv --task sst2", 2, "not both, not neither"),
        ("train --model m --out o --task sst2 --dev a.csv", 2, "--dev goes with --train"),
        ("train --model m --out o --task sst2 --text-column sentence", 2, "a --task knows its columns"),
        ("train --model m --out o --train a.csv --data glue", 2, "--data goes with --task"),
        ("train --model m --out o --task sst2 --target classes", 2, "--target goes with --train"),
        ("train --model m --out o --train a.csv --temperature 3", 2, "--temperature goes with --teacher"),
        ("train --model m --out o --train a.csv --patience 2", 2, "--patience needs data to evaluate on"),
        ("train --model m --out o --task sst3", 2, "unknown task 'sst3'; did you mean 'sst2'"),
        ("train --model m --out o --train {csv} --epochs 0", 2, "epochs must be a number"),
        ("train --model m --out o --train {csv} --seed -1", 2, "seed must be an integer"),
        (
            "train --model m --out o --train {csv} --keep-ratio 0.5 --last-layer 2 --selector corset",
            *(2, "did you mean 'coreset'"),
        ),
        (
            "train --model m --out o --train {csv} --keep-ratio 0.5 --last-layer 2 --dense",
            *(2, "--dense keeps every token"),
        ),
    ],
)
def test_mistakes_get_a_message_before_any_work(capsys, sentiment_files, tmp_path, monkeypatch, call, code, message):
    monkeypatch.chdir(tmp_path)
    assert run(*(word.format(csv=sentiment_files / "train.csv") for word in call.split())) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_settings_are_those_that_were_asked_for(capsys, learner_dir, sentiment_files, tmp_path, monkeypatch):
    def fit(self, texts, labels, *, settings, **places):
        raise PyramidError(f"{settings.bf16} {settings.warmup_ratio} {settings.weight_decay}")

    monkeypatch.setattr(PyramidClassifier, "fit", fit)
    train = ("train", "--model", learner_dir, "--train", sentiment_files / "train.csv", "--out", tmp_path / "out")
    for options, said in (("", "False 0.0 0.0"), ("--bf16 --warmup-ratio 0.1 --weight-decay 0.01", "True 0.1 0.01")):
        assert run(*train, *options.split()) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("train", "dev", "options", "message"),
    [
        ("fine,a\ndull,a\n", "", (), "train.csv"),
        ("fine,0.5\ndull,nan\n", "", (), "train.csv, row 2"),
        (
            "fine,a\ndull,b\n",
            "text,label\nfine,a\ndull,c\n",
            (),
            "dev.csv, row 2: the label is 'c', which the model does",
        ),
        ("fine,a\ndull,b\n", "text,label\n", (), "dev.csv has no rows"),
        (
            "fine,good\n",
            "",
            ("--target", "number"),
            "train.csv, row 1: the label is 'good'; a regression target must be",
        ),
        ("fine,1.0\ndull,0.5\n", "", ("--target", "classes"), "train.csv, row 2: the label is 0.5; a class must be"),
    ],
)
def test_bad_data_is_named_before_a_model_is_loaded(capsys, tmp_path, train, dev, options, message):
    (tmp_path / "train.csv").write_text(f"text,label\n{train}")
    (tmp_path / "dev.csv").write_text(dev)
    call = (
        "train",
        "--model",
        "nowhere/at/all",
        "--train",
        tmp_path / "train.csv",
        "--out",
        tmp_path / "out",
        *options,
    )
    assert run(*call, *(("--dev", tmp_path / "dev.csv") if dev else ())) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "model folder" not in error
    assert not (tmp_path / "out").exists()


@pytest.fixture
def glue(tmp_path, sentiment):
    """SST-2 and MNLI as small as can be, in the layout of plain files."""
    for task, splits in (("sst2", ("train", "dev")), ("mnli", ("train", "dev_matched", "dev_mismatched"))):
        (tmp_path / "glue" / task).mkdir(parents=True)
        for seed, split in enumerate(splits):
            texts, labels = sentiment(48 if split == "train" else 12, seed)
            rows = [(text, str(int(label == "pos"))) for text, label in zip(texts, labels, strict=True)]
            if task == "mnli":
                rows = [(text, text, str(i % 3)) for i, (text, _) in enumerate(rows)]
            header = ("sentence", "label") if task == "sst2" else ("sentence", "sentence2", "label")
            lines = ["\t".join(row) for row in (header, *rows)]
            (tmp_path / "glue" / task / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return tmp_path / "glue"


def test_a_task_dense_then_a_pyramid_that_learns_from_it(capsys, learner_dir, glue, tmp_path):
    dense, pyramid = tmp_path / "dense", tmp_path / "pyramid"
    task = ("--task", "sst2", "--data", glue, "--json")
    output(capsys, "train", "--model", learner_dir, "--dense", *task, "--out", dense, "--epochs", 1)
    saved = json.loads((dense / "classifier.json").read_text())
    assert saved["max_length"] == 64  # the task's
    assert json.loads((dense / "config.json").read_text())["id2label"] == {"0": "negative", "1": "positive"}
    steps = [json.loads(line)["step"] for line in (dense / "log.jsonl").read_text().splitlines()]
    assert steps == [1, 1]  # 48 rows a batch: the task's too
    taught = ("--teacher", dense, "--patience", 1, "--batch-size", 16, "--out", pyramid, "--hidden-weight", 1)
    metrics = json.loads(output(capsys, "train", *taught, *task))
    assert metrics == json.loads(output(capsys, "evaluate", pyramid, *task))
    log = [json.loads(line) for line in (pyramid / "log.jsonl").read_text().splitlines()]
    assert max(line.get("dev_accuracy", 0) for line in log) == metrics["accuracy"]
    said = output(capsys, "predict", pyramid, "the film is brilliant", "the film is boring").splitlines()
    assert {line.split("\t")[0] for line in said} <= {"negative", "positive"}
    numbers = glue / "sst2" / "dev.tsv"  # its labels are 0 and 1
    own = ("--data", numbers, "--text-column", "sentence", "--json")
    assert json.loads(output(capsys, "evaluate", pyramid, *own)) == metrics


def test_mnli_is_evaluated_on_both_of_its_dev_sets(capsys, learner_dir, glue, tmp_path):
    task = ("--task", "mnli", "--data", glue, "--json")
    call = ("train", "--model", learner_dir, "--epochs", 1, "--out", tmp_path / "model", *task)
    metrics = json.loads(output(capsys, *call))
    assert PyramidClassifier.load(tmp_path / "model").classes_.tolist() == ["entailment", "neutral", "contradiction"]
    names = ["accuracy", "f1", "matthews"]
    assert list(metrics) == [*names, *(f"mismatched_{name}" for name in names)]
    assert metrics == json.loads(output(capsys, "evaluate", tmp_path / "model", *task))


def test_wrong_call_exits_with_2_and_debug_shows_the_traceback():
    with pytest.raises(SystemExit) as end:
        main(["trian"])
    assert end.value.code == 2
    with pytest.raises(DataError):
        main(["evaluate", "m", "--data", "none.csv", "--debug"])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyError("a\x1bb"), "internal error: KeyError: 'a\\x1bb'; run again with --debug"),
        (type("PanicException", (BaseException,), {})("index out of bounds"), "internal error: PanicException"),
        (OSError(28, "No space left on device", "out/log.jsonl"), "out/log.jsonl: No space left on device"),
        (MemoryError(), "out of memory"),
        (PyramidError("first\nsecond \x1b[31m"), "first\nsecond \\x1b[31m"),
        (KeyboardInterrupt(), "stopped\n"),
    ],
)
def test_whatever_escapes_is_told_in_plain_words(capsys, monkeypatch, error, message):
    def fails(args):
        raise error

    monkeypatch.setattr("pyramid_bert.cli.schedule.run", fails)
    assert run("schedule") == (130 if isinstance(error, KeyboardInterrupt) else 1)
    said = capsys.readouterr().err
    assert said.startswith(f"pyramid-bert: {message}")
    assert "Traceback" not in said


def test_progress_goes_to_a_log_as_plain_lines(capsys, monkeypatch):
    monkeypatch.setattr("pyramid_bert.progress.EVERY", 0.01)
    with steps_shown("pre\x1bdicting", 20_000) as advance:
        advance(8192)
        time.sleep(0.1)
    lines = capsys.readouterr().err.split("\n")[:-1]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d pre\\x1bdicting: 8,192 of 20,000.*", line) for line in lines)
    assert lines
    assert all(line.isprintable() for line in lines)


def test_what_is_not_a_number_is_null_in_json(capsys):
    print_json({"spearman": float("nan"), "rows": [1.5, (float("inf"), 2)], "name": "ä"})
    expected = {"spearman": None, "rows": [1.5, [None, 2]], "name": "ä"}
    assert capsys.readouterr().out == json.dumps(expected, ensure_ascii=False, indent=1) + "\n"
