"""A saved pyramid as transformers' users meet it: Auto classes, pipeline, Trainer, and no dense run by accident."""

import subprocess
import sys

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from pyramid_bert import Schedule, is_pyramid, pyramid_settings, pyramidize, restore
from pyramid_bert.errors import CheckpointError, PyramidError, UnsupportedModelError

SCHEDULE = Schedule.exponential(0.4, last_layer=3, first_layer=2, min_tokens=2)
TEXTS = ["a fine film", "the plot is thin and the cast is tired , but the music has charm", "no"]


@pytest.fixture
def saved(tmp_path, tiny_bert, tokenizer):
    model = pyramidize(
        tiny_bert(labels=3), SCHEDULE, centers_per_step=0.5, metric="cosine", weighted=True, reduce="drop"
    )
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path, model


def test_auto_classes_bring_the_same_pyramid_back(saved, tiny_batch, logits_of):
    folder, model = saved
    loaded = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert pyramid_settings(loaded) == pyramid_settings(model)
    batch = tiny_batch([9, 30, 4])
    assert torch.equal(logits_of(loaded, batch), logits_of(model, batch))
    bare = AutoModel.from_pretrained(folder).eval()
    assert is_pyramid(bare)
    with torch.no_grad():
        kept = SCHEDULE.lengths(30, 4)[-1]
        assert bare(**batch).last_hidden_state.shape[1] == kept  # the bare model gives all tokens that are left


def test_saved_config_records_schedule_selector_and_version(saved):
    config = AutoConfig.from_pretrained(saved[0])
    assert config.model_type == "pyramid-bert"
    assert Schedule.from_dict(config.pyramid["schedule"]) == SCHEDULE
    assert config.pyramid["selector"] == "coreset"
    assert config.pyramid["library_version"]
    assert {path.suffix for path in saved[0].iterdir()} <= {".json", ".safetensors", ".txt"}  # no pickle
    with pytest.raises(KeyError, match="pyramid-bert"):  # nor does the config make a dense model
        BertForSequenceClassification(config)


def test_pipeline_runs_the_pyramid(saved, logits_of):
    folder, model = saved
    classify = pipeline("text-classification", model=str(folder))
    assert is_pyramid(classify.model)
    encoded = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    expected = logits_of(model, dict(encoded)).softmax(-1).max(-1).values
    scores = [answer["score"] for answer in classify(TEXTS, batch_size=3)]
    assert scores == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("loader", ["AutoModelForSequenceClassification", "BertForSequenceClassification"])
def test_without_the_library_loading_fails_and_names_it(saved, loader):
    code = f"import sys; from transformers import {loader} as M; M.from_pretrained(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(saved[0])], capture_output=True, text=True)
    assert done.returncode != 0
    assert "import pyramid_bert" in done.stderr


def test_restored_model_saves_as_plain_bert(saved, tmp_path):
    loaded = restore(AutoModelForSequenceClassification.from_pretrained(saved[0]))
    loaded.save_pretrained(tmp_path / "dense")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "dense")
    assert type(again).__name__ == type(loaded).__name__ == "BertForSequenceClassification"
    assert again.config.model_type == "bert"
    assert not hasattr(again.config, "pyramid")


@pytest.mark.parametrize("checkpointing", [False, True])
def test_an_ordinary_trainer_script_trains_a_pyramid(tmp_path, tiny_bert, tokenizer, checkpointing):
    model = pyramidize(tiny_bert(), SCHEDULE)
    before = model.bert.encoder.layer[0].output.dense.weight.detach().clone()
    rows = [{**tokenizer(text), "labels": i % 2} for i, text in enumerate(TEXTS * 4)]
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=4,
        gradient_checkpointing=checkpointing,
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = Trainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer), train_dataset=rows)
    trainer.train()
    trainer.save_model(tmp_path / "out")
    assert not torch.equal(before, model.bert.encoder.layer[0].output.dense.weight)
    assert is_pyramid(AutoModelForSequenceClassification.from_pretrained(tmp_path / "out"))


def test_a_newer_format_is_refused_and_unknown_settings_are_named(saved):
    folder, model = saved
    newer = {**model.config.pyramid, "format": 99}
    with pytest.raises(PyramidError, match=r"format 99.*pip install -U"):
        AutoModelForSequenceClassification.from_pretrained(folder, pyramid=newer)
    with pytest.warns(UserWarning, match="sparkle"):
        AutoModelForSequenceClassification.from_pretrained(folder, pyramid={**model.config.pyramid, "sparkle": 1})


def test_pyramid_class_on_a_dense_checkpoint_says_what_to_do(tiny_model_dir):
    from pyramid_bert.families.saved import PyramidBertForSequenceClassification

    with pytest.raises(CheckpointError, match=r"pyramidize\(model, schedule\)"):
        PyramidBertForSequenceClassification.from_pretrained(tiny_model_dir)


def test_other_heads_and_families_are_refused_by_name():
    from transformers import (
        BertForMultipleChoice,
        BertForNextSentencePrediction,
        BertForTokenClassification,
        RoFormerConfig,
        RoFormerForSequenceClassification,
    )

    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    with pytest.raises(UnsupportedModelError, match="BertForTokenClassification reads more than the CLS vector"):
        pyramidize(BertForTokenClassification(AutoConfig.for_model("bert", **tiny)), Schedule.constant(0.5))
    for kind in (BertForMultipleChoice, BertForNextSentencePrediction):
        with pytest.raises(UnsupportedModelError, match=f"{kind.__name__} reads only the CLS vector, but"):
            pyramidize(kind(AutoConfig.for_model("bert", **tiny)), Schedule.constant(0.5))
    with pytest.warns(UserWarning, match="read its CLS vector"):
        pyramidize(AutoModel.from_config(AutoConfig.for_model("bert", **tiny)), Schedule.constant(0.5))
    other = RoFormerForSequenceClassification(RoFormerConfig(**tiny))
    with pytest.raises(UnsupportedModelError, match=r"no adapter for model family 'roformer'.*have one: bert"):
        pyramidize(other, Schedule.constant(0.5))


def test_models_made_from_one_config_do_not_change_together(tiny_bert, tmp_path):
    from transformers import BertConfig

    tiny = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    one, other = BertForSequenceClassification(tiny), BertForSequenceClassification(tiny)
    pyramidize(one, Schedule.constant(0.5))
    assert other.config.model_type == "bert"
    assert not hasattr(other.config, "pyramid")


def test_restore_takes_any_model():
    from transformers import DistilBertConfig, DistilBertModel

    other = DistilBertModel(DistilBertConfig(dim=8, n_layers=1, n_heads=2, hidden_dim=8))
    assert restore(other) is other
    assert not is_pyramid(other)


def test_forward_hooks_may_change_a_layers_output(tiny_bert, tiny_batch, logits_of):
    model, batch = pyramidize(tiny_bert(), SCHEDULE), tiny_batch([9, 12])
    before = logits_of(model, batch)
    handle = model.bert.encoder.layer[1].register_forward_hook(lambda module, given, output: output * 0)
    assert not torch.equal(logits_of(model, batch), before)
    handle.remove()
    assert torch.equal(logits_of(model, batch), before)


def test_importing_from_another_package_run_with_m_registers_too(saved, tmp_path):
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").write_text("import pyramid_bert")
    code = "import sys; from transformers import AutoConfig; AutoConfig.from_pretrained(sys.argv[1])"
    (package / "__main__.py").write_text(code)
    done = subprocess.run([sys.executable, "-m", "app", str(saved[0])], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
