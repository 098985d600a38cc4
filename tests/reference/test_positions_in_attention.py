"""Kept tokens attend by the places that they had in the input: as transformers does when it is told these places."""

import gc
import json

import pytest
import torch
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from pyramid_bert import Schedule, pyramidize, restore
from pyramid_bert.core.loop import Pass, Recorder
from pyramid_bert.core.record import Trace
from pyramid_bert.errors import CheckpointError, UnsupportedModelError
from pyramid_bert.families import FAMILIES, base_model
from pyramid_bert.families.deberta import DEBERTA
from pyramid_bert.families.loading import load_model
from pyramid_bert.testing import batch_of, tiny_model

WINDOW = 3
DISENTANGLED = {
    "relative_attention": True,
    "position_buckets": 8,
    "pos_att_type": ["p2c", "c2p"],
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "position_biased_input": False,
}
OWN = {"share_att_key": False, "position_buckets": -1}
ROTARY = {
    "modernbert": {"local_attention": 2 * WINDOW},
    "nomic_bert": {},
    "gte": {},
    "jina_embeddings_v3": {},
    "eurobert": {"classifier_pooling": "bos"},
}


def tiny(model_type, attention=None, **config):
    family = next(family for family in FAMILIES if family.model_type == model_type)
    return tiny_model(family, config, attention=attention)


def kept_by(model, batch, selector="coreset"):
    """The logits of a pyramid that selects at its input, and the places (B, K) of the tokens that it keeps."""
    trace = Trace()
    pyramidize(model, Schedule.input_only(0.5), selector, reduce="drop")
    with torch.no_grad():
        logits = model(**batch, pyramid_pass=Pass(trace)).logits
    restore(model)
    return logits, trace.layers[0].kept


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("model_type", ROTARY)
def test_rotations_and_windows_are_those_of_the_input(model_type, attention):
    model = tiny(model_type, attention, **ROTARY[model_type])
    batch = batch_of(model, (24, 24))
    logits, kept = kept_by(model, batch)
    for row, places in enumerate(kept):
        given = {"input_ids": batch["input_ids"][row : row + 1, places], "position_ids": places[None]}
        if model_type == "modernbert":
            near = (places[:, None] - places[None]).abs() <= WINDOW
            assert not near.all()
            local = near[None, None] if attention == "sdpa" else (~near * torch.finfo(torch.float32).min)[None, None]
            given["attention_mask"] = {"full_attention": None, "sliding_attention": local}
        with torch.no_grad():
            alone = model(**given).logits[0]
            in_order = model(input_ids=given["input_ids"]).logits[0]
        torch.testing.assert_close(logits[row], alone, atol=1e-5, rtol=0)
        assert (in_order - alone).abs().max() > 1e-3  # the places matter


@pytest.mark.parametrize("config", [{}, OWN, {"pos_att_type": ["c2p"]}, {"pos_att_type": ["p2c"]}], ids=str)
def test_relative_positions_are_those_of_the_input(config):
    model = tiny("deberta-v2", **{**DISENTANGLED, **config})
    batch = batch_of(model, (24, 24))
    logits, kept = kept_by(model, batch)
    base, mask = base_model(model), torch.ones(1, kept.shape[1])
    for row, places in enumerate(kept):
        apart = places[:, None] - places[None]
        if base.encoder.position_buckets > 0:
            apart = make_log_bucket_position(apart, base.encoder.position_buckets, base.config.max_position_embeddings)
        with torch.no_grad():
            hidden = base.embeddings(batch["input_ids"][row : row + 1, places])
            alone, in_order = (
                model.classifier(model.pooler(base.encoder(hidden, mask, relative_pos=relative)[0]))[0]
                for relative in (apart.long()[None], None)
            )
        torch.testing.assert_close(logits[row], alone, atol=1e-5, rtol=0)
        assert (in_order - alone).abs().max() > 1e-3


# ---- heads that read a mean ----


@pytest.mark.parametrize("model_type", ["modernbert", "eurobert"])
def test_a_mean_counts_a_merged_token_once_for_each_that_it_stands_for(model_type):
    model = tiny(model_type, classifier_pooling="mean")
    batch, trace = batch_of(model, (24, 15)), Trace()
    pyramidize(model, Schedule.exponential(0.4, 3), "cluster")
    this = Pass(trace)
    with torch.no_grad():
        logits = model(**batch, pyramid_pass=this).logits
        norm = base_model(model).final_norm if model_type == "modernbert" else base_model(model).norm
        states, last = norm(this.tokens.hidden), trace.layers[-1]
        for row, n in enumerate((24, 15)):
            slot = {place: slot for slot, place in enumerate(last.kept[row].tolist())}
            expanded = torch.stack([states[row, slot[place]] for place in last.home[row, :n].tolist()])
            vector = expanded.mean(0, keepdim=True)
            if model_type == "modernbert":
                wanted = model.classifier(model.head(vector))
            else:
                wanted = model.classifier(model.activation(model.dense(vector)))
            torch.testing.assert_close(logits[row], wanted[0], atol=1e-5, rtol=0)
            assert len(slot) < n


def test_a_mean_misses_tokens_that_were_dropped():
    model = tiny("modernbert", classifier_pooling="mean")
    batch, this = batch_of(model, (24, 15)), Pass()
    pyramidize(model, Schedule.exponential(0.4, 3), reduce="drop")
    with torch.no_grad():
        logits = model(**batch, pyramid_pass=this).logits
        states = base_model(model).final_norm(this.tokens.hidden)
        wanted = torch.stack([states[row, :count].mean(0) for row, count in enumerate(this.tokens.counts)])
        torch.testing.assert_close(logits, model.classifier(model.head(wanted)), atol=1e-5, rtol=0)
    assert min(this.tokens.counts) < max(this.tokens.counts) < 24


def test_the_vector_of_cls_is_that_after_the_last_norm():
    model, this = tiny("modernbert"), Pass(whole=True)
    batch = batch_of(model, (24, 15))
    with torch.no_grad():
        wanted = model(**batch, output_hidden_states=True).hidden_states[-1][:, 0]
        pyramidize(model, Schedule.constant(1.0))(**batch, pyramid_pass=this)
    torch.testing.assert_close(this.cls, wanted, atol=1e-5, rtol=0)


# ---- what selectors compare ----


class Compared(Recorder):
    """Keeps the tokens of the first reduction before it, after the norm of the layer, and as the selector sees them."""

    def ran(self, step, tokens):
        if step.keep is not None and not hasattr(self, "normed"):
            norm = step.layer.mlp_norm if hasattr(step.layer, "mlp_norm") else step.layer.post_attention_layernorm
            self.hidden, self.normed = tokens.hidden, norm(tokens.hidden)

    def reduced(self, step, decision, tokens):
        if not hasattr(self, "seen"):
            self.seen, self.kept = decision.candidates.hidden, tokens.hidden


@pytest.mark.parametrize(("model_type", "config"), [("modernbert", {}), ("eurobert", {"classifier_pooling": "bos"})])
def test_pre_norm_models_compare_tokens_after_a_norm_and_keep_them_before(model_type, config):
    model, record = pyramidize(tiny(model_type, **config), Schedule.exponential(0.5, 2), reduce="drop"), Compared()
    with torch.no_grad():
        model(**batch_of(model, (24, 24)), pyramid_pass=Pass(record))
    torch.testing.assert_close(record.seen, record.normed)
    assert (record.seen - record.hidden).abs().max() > 0.1
    assert torch.equal(record.kept[:, 0], record.hidden[:, 0])


# ---- projections of relative positions ----


def test_projections_are_kept_until_a_weight_changes(monkeypatch):
    model = tiny("deberta-v2", **DISENTANGLED)
    pyramidize(model, Schedule.constant(1.0))
    batch, calls = batch_of(model, (24, 15)), []
    from pyramid_bert.families import deberta

    project = deberta._project
    monkeypatch.setattr(deberta, "_project", lambda *args: calls.append(1) or project(*args))
    layers = model.config.num_hidden_layers

    def logits():
        calls.clear()
        with torch.no_grad():
            return model(**batch).logits

    logits()
    assert len(calls) == layers
    before = logits()
    assert not calls
    for weight in (base_model(model).encoder.rel_embeddings.weight, base_model(model).encoder.LayerNorm.weight):
        with torch.no_grad():
            weight.mul_(-0.5)
        changed = logits()
        assert len(calls) == layers
        assert (changed - before).abs().max() > 1e-3
        with torch.no_grad():
            torch.testing.assert_close(restore(model)(**batch).logits, changed, atol=1e-5, rtol=0)
        pyramidize(model, Schedule.constant(1.0))
        before = changed
    base_model(model).encoder.layer[0].attention.self.key_proj.load_state_dict(
        base_model(model).encoder.layer[1].attention.self.key_proj.state_dict()
    )
    logits()
    assert len(calls) == 1


def test_projections_learn_and_leave_with_their_model():
    DEBERTA.halves._known.clear()
    model = pyramidize(tiny("deberta-v2", **DISENTANGLED), Schedule.constant(0.5))
    batch = batch_of(model, (24, 15))
    with torch.inference_mode():
        model(**batch)
    assert len(DEBERTA.halves._known) == model.config.num_hidden_layers
    model(**batch).logits.sum().backward()
    assert base_model(model).encoder.rel_embeddings.weight.grad.abs().sum() > 0
    del model
    gc.collect()
    assert not DEBERTA.halves._known


# ---- refused by name ----

REFUSED = {
    "conv_kernel_size": ("deberta-v2", {"conv_kernel_size": 3}, {}),
    "dynamic": ("nomic_bert", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, {}),
    "layer_types": ("modernbert", {"layer_types": ["sliding_attention"] * 4}, {}),
    "'late'": ("eurobert", {"classifier_pooling": "late"}, {}),
    "rest_from": ("modernbert", {"classifier_pooling": "mean"}, {"rest_from": 3}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_a_pyramid_is_refused_by_name(what):
    model_type, config, settings = REFUSED[what]
    model = tiny(model_type, **config)
    with pytest.raises(UnsupportedModelError, match=what):
        pyramidize(model, Schedule.exponential(0.5, 2), **settings)
    assert type(model.config).__name__.startswith(model_type[0].upper())


@pytest.mark.parametrize("model_type", ["modernbert", "nomic_bert"])
def test_other_positions_are_refused(model_type):
    model = pyramidize(tiny(model_type), Schedule.constant(0.5))
    batch = batch_of(model, (24,))
    in_order = torch.arange(24)[None]
    torch.testing.assert_close(model(**batch, position_ids=in_order).logits, model(**batch).logits)
    with pytest.raises(UnsupportedModelError, match="position_ids"):
        model(**batch, position_ids=in_order + 1)


def test_a_pyramid_of_deberta_has_no_attention_matrices():
    model = pyramidize(tiny("deberta-v2", **DISENTANGLED), Schedule.constant(0.5))
    with pytest.raises(UnsupportedModelError, match="output_attentions"):
        model(**batch_of(model, (24,)), output_attentions=True)
    assert model(**batch_of(model, (24,))).logits.isfinite().all()  # nothing is left of the call that failed


def test_a_model_with_its_own_code_is_refused_by_name(tmp_path):
    config = {"model_type": "new", "auto_map": {"AutoConfig": "configuration.NewConfig"}, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"'new'.*own code.*modernbert"):
        load_model(tmp_path)
    tiny("gte").save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**saved, "auto_map": config["auto_map"]}))
    assert load_model(tmp_path)[0].config.model_type == "gte"
