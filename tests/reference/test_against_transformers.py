"""The pyramid against the untouched transformers model, and against itself under other padding and batching."""

import itertools

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel

from pyramid_bert import PyramidConfig, PyramidError, Schedule, is_pyramid, pyramidize, restore
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Trace
from pyramid_bert.core.selectors import Ranker, get_selector, selector_names
from pyramid_bert.errors import UnsupportedModelError
from pyramid_bert.families import pyramid_encoder
from pyramid_bert.families.attention import key_mask

LAYERS = 4
LENGTHS = (24, 17, 24, 9, 5, 2, 1)
MODES = [{"reduce": "drop"}, {"reduce": "merge"}, {"reduce": "drop", "weighted": True}, {"reduce": "replace"}]


def settings(placements):
    """Every selector, way to reduce and placement that go together."""
    for name, mode, placement in itertools.product(selector_names(), MODES, placements):
        selector = get_selector(name)
        schedule = Schedule.input_only(0.4) if placement == "input" else Schedule.exponential(0.4, 3)
        schedule = Schedule.strided(2, at_layers=[1, 3]) if name == "pool" else schedule
        merging = {"cluster": [{"reduce": "merge"}], "bipartite": [{"reduce": "merge"}]}
        modes = {**merging, "pool": [{"reduce": "drop"}]}.get(name, MODES)
        takes_input = not selector.voters and name != "pool"
        if mode in modes and selector.placement in (None, placement) and (takes_input or placement != "input"):
            config = PyramidConfig(schedule=schedule, selector=name, placement=placement, **mode)
            weighted = "-weighted" if config.weighted else ""
            yield pytest.param(config, id=f"{name}-{config.reduce}{weighted}-{placement}")


EVERY_SETTING, MOST_SETTINGS = list(settings(["middle", "end", "input"])), list(settings(["middle", "input"]))
ADAPTIVE = [
    pytest.param(PyramidConfig(schedule=Schedule.adaptive(0.6), **changes), id=f"adaptive-{changes}")
    for changes in ({"reduce": "drop"}, {"reduce": "merge"}, {"placement": "end"}, {"selector": "cluster"})
]
every_setting = pytest.mark.parametrize("config", EVERY_SETTING)
most_settings = pytest.mark.parametrize("config", MOST_SETTINGS)
both_attentions = pytest.mark.parametrize("impl", ["eager", "sdpa"])
shrinking_at_any_length = pytest.mark.parametrize(
    "name",
    [name for name in selector_names() if isinstance(get_selector(name), Ranker) and not get_selector(name).placement],
)


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


def kept_tokens(trace, row, length):
    """The positions of a row's tokens after each layer, whether it reduced or not; the input is layer 0."""
    reductions = {layer.layer: layer.kept[row] for layer in trace.layers}
    kept, current = [], list(range(length))
    for layer in range(LAYERS + 1):
        if layer in reductions:
            current = [position for position in reductions[layer].tolist() if position >= 0]
        kept.append(current)
    return kept


# ---- a pyramid that keeps everything is the dense model ----

KEEP_EVERYTHING = [
    (Schedule.constant(1.0), "middle"),
    (Schedule.constant(1.0), "end"),
    (Schedule.exponential(1.0, 3, first_layer=2), "middle"),
    (Schedule.custom([24] * LAYERS), "end"),
    (Schedule.custom([24] * LAYERS, n=24), "middle"),
    (Schedule.input_only(1.0), "input"),
]
BATCHES = {  # lengths of the rows, and what they are padded to
    "one row": ((24,), 24),
    "one row, padded": ((24,), 30),
    "32 rows": ((24,) * 32, 24),
    "32 rows, padded": (tuple(range(24, 8, -1)) * 2, 24),
    "32 rows, all padded": (tuple(range(24, 8, -1)) * 2, 30),
}


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize(("lengths", "width"), BATCHES.values(), ids=BATCHES.keys())
@both_attentions
def test_keeping_everything_gives_the_dense_logits(tiny_bert, tiny_batch, logits_of, impl, lengths, width, mode):
    model, batch = tiny_bert(impl=impl), tiny_batch(lengths, width)
    dense = logits_of(model, batch)
    for schedule, placement in KEEP_EVERYTHING:
        for cls_only in (True, False):
            pyramidize(model, schedule, placement=placement, cls_only=cls_only, **mode)
            assert_close(logits_of(model, batch), dense)


@both_attentions
def test_keeping_everything_gives_the_dense_states_for_any_mask_and_under_autocast(tiny_bert, tiny_batch, impl):
    model, batch = tiny_bert(impl=impl), tiny_batch((24, 24))
    holes = {**batch, "attention_mask": batch["attention_mask"].clone()}
    holes["attention_mask"][0, 3:5] = 0
    holes["attention_mask"][1, 1] = 0

    @torch.no_grad()
    def answers():
        whole = model(**batch, output_hidden_states=True, output_attentions=impl == "eager")
        masked = [model(**given).logits for given in (holes, {"input_ids": batch["input_ids"]})]
        return [whole.logits, *masked, *whole.hidden_states, *(whole.attentions or ())]

    @torch.no_grad()
    def in_half_precision():
        with torch.autocast("cpu", torch.bfloat16):
            return model(**batch).logits

    dense, half = answers(), in_half_precision()
    pyramidize(model, Schedule.constant(1.0), cls_only=False)
    assert torch.equal(in_half_precision(), half)
    pyramidize(model, Schedule.constant(1.0))
    assert len(dense) == 3 + LAYERS + 1 + (LAYERS if impl == "eager" else 0)
    for mine, theirs in zip(answers(), dense, strict=True):
        assert_close(mine, theirs)


@shrinking_at_any_length
@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("placement", ["middle", "end"])
def test_rows_that_keep_everything_beside_rows_that_do_not(tiny_bert, tiny_batch, logits_of, name, mode, placement):
    # The reduction runs for the whole batch here, and must do nothing to the short rows.
    model, batch = tiny_bert(), tiny_batch((24, 8, 20, 5, 1))
    dense = logits_of(model, batch)
    pyramidize(model, Schedule.custom([8] * LAYERS), name, placement=placement, **mode)
    reduced = logits_of(model, batch)
    assert_close(reduced[[1, 3, 4]], dense[[1, 3, 4]])
    assert (reduced[[0, 2]] - dense[[0, 2]]).abs().amax(dim=1).min() > 1e-3


# ---- surgery leaves no trace ----


def anatomy(model):
    """All that surgery might leave traces in, but the weights."""
    return {
        "class": type(model),
        "modules": [(name, type(module), module.training) for name, module in model.named_modules()],
        "state dict": list(model.state_dict()),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tensors": [parameter.data_ptr() for parameter in model.parameters()],
        "config class": type(model.config),
        "config": model.config.to_dict(),
        "config attributes": dict(vars(model.config)),
        "one config": model.config is model.bert.config is model.bert.encoder.config,
    }


@most_settings
def test_restore_leaves_no_trace(tiny_bert, tiny_batch, logits_of, config):
    model, batch = tiny_bert(), tiny_batch(LENGTHS)
    before, dense = anatomy(model), logits_of(model, batch)
    inside = anatomy(pyramidize(model, config=config))
    assert all(inside[part] == before[part] for part in ("state dict", "parameters", "tensors"))
    logits_of(model, batch)
    assert is_pyramid(model)
    assert restore(model) is model
    assert not is_pyramid(model)
    assert torch.equal(logits_of(model, batch), dense)
    assert anatomy(model) == before
    assert type(model.config) is BertConfig
    assert type(model) is BertForSequenceClassification


def test_restore_follows_the_training_mode(tiny_bert, tiny_batch, logits_of):
    model, batch = tiny_bert().train(), tiny_batch(LENGTHS)
    model.bert.encoder.layer[0].eval()  # a frozen layer without dropout
    before = anatomy(model)
    pyramidize(model, Schedule.constant(0.5))
    assert not model.bert.encoder.layer[0].attention.self.dropout.training
    assert anatomy(restore(model)) == before
    dense, before = logits_of(model.eval(), batch), anatomy(model)
    for first, second in itertools.product([True, False], repeat=2):
        model.train(first)
        pyramidize(model, Schedule.constant(0.5))
        assert {module.training for module in model.modules()} == {first}
        model.train(second)
        restore(model)
        assert {module.training for module in model.modules()} == {second}
    assert torch.equal(logits_of(model, batch), dense)
    assert anatomy(model) == before


def test_refused_and_repeated_changes_leave_no_trace(tiny_bert, tiny_batch, logits_of):
    model, batch = tiny_bert(), tiny_batch(LENGTHS)
    before, answers = anatomy(model), []
    for change in (lambda: None, lambda: pyramidize(model, Schedule.constant(0.5))):
        change()
        unchanged, logits = anatomy(model), logits_of(model, batch)
        with pytest.raises(PyramidError, match="last_layer must be in 1-4, got 5"):
            pyramidize(model, Schedule.exponential(0.5, 5))
        assert anatomy(model) == unchanged
        assert torch.equal(logits_of(model, batch), logits)
        answers.append(logits)
    dense, half = answers
    assert not torch.equal(logits_of(pyramidize(model, Schedule.exponential(0.2, 2), "first"), batch), half)
    assert torch.equal(logits_of(pyramidize(model, Schedule.constant(0.5)), batch), half)
    assert anatomy(restore(restore(model))) == before
    assert torch.equal(logits_of(model, batch), dense)


# ---- what must not matter ----


@every_setting
def test_dropping_tokens_changes_logits_and_cls_only_and_tracing_do_not(tiny_bert, tiny_batch, logits_of, config):
    model, batch = tiny_bert(), tiny_batch(LENGTHS)
    dense = logits_of(model, batch)
    whole = logits_of(pyramidize(model, config=config.replace(cls_only=False)), batch)
    reduced = logits_of(pyramidize(model, config=config), batch)
    assert (reduced[0] - dense[0]).abs().max() > 1e-3
    assert_close(reduced, whole)
    assert_close(logits_of(model, batch, Pass(Trace(), whole=True)), reduced)
    assert_close(logits_of(model, batch, Pass(dense=True)), dense)
    assert torch.equal(logits_of(model, batch), reduced)


@pytest.fixture
def check_rows(tiny_batch, one_row, logits_of, traced):
    """Checks that neither padding nor the other rows change the tokens that a row keeps and its logits."""

    def check(model, lengths):
        batch, wide = tiny_batch(lengths), tiny_batch(lengths, width=2 * max(lengths))
        logits, trace, wide_trace = logits_of(model, batch), traced(model, batch), traced(model, wide)
        assert_close(logits_of(model, wide), logits)
        for row, length in enumerate(lengths):
            alone, kept = one_row(batch, row), kept_tokens(trace, row, length)
            assert_close(logits_of(model, alone)[0], logits[row])
            assert kept_tokens(traced(model, alone), 0, length) == kept
            assert kept_tokens(wide_trace, row, length) == kept

    return check


@both_attentions
@pytest.mark.parametrize("config", EVERY_SETTING + ADAPTIVE)
def test_neither_padding_nor_other_rows_change_anything(tiny_bert, check_rows, config, impl):
    check_rows(pyramidize(tiny_bert(impl=impl), config=config), LENGTHS)


@pytest.mark.parametrize("mode", MODES, ids=str)
@shrinking_at_any_length
def test_a_row_that_shrinks_later_than_its_neighbours(tiny_bert, check_rows, name, mode):
    # The first layer reduces only the long row. That must not use up the randomness of the others.
    check_rows(pyramidize(tiny_bert(), Schedule.custom([16, 8, 4, 4]), name, **mode), (24, 14, 13, 12))


# ---- the trace ----


@every_setting
def test_as_many_are_kept_as_the_schedule_says_in_order_and_for_themselves(tiny_bert, tiny_batch, traced, config):
    model, batch = pyramidize(tiny_bert(), config=config), tiny_batch(LENGTHS)
    trace = traced(model, batch)
    assert trace.layers
    for row, length in enumerate(LENGTHS):
        kept = [len(tokens) for tokens in kept_tokens(trace, row, length)]
        lengths = config.schedule.lengths(length, LAYERS)
        assert kept == [lengths[0] if config.placement == "input" else length, *lengths]
    for layer in trace.layers:
        assert (layer.radius >= 0).all()
        for row, length in enumerate(LENGTHS):
            kept = [position for position in layer.kept[row].tolist() if position >= 0]
            home = layer.home[row].tolist()
            assert kept[0] == 0
            assert kept == sorted(set(kept))
            assert [home[position] for position in kept] == kept
            assert set(home[:length]) <= {*kept, -1}
            assert set(home[length:]) <= {-1}


def test_positions_are_those_of_the_input_also_with_holes_in_the_mask(tiny_bert, tiny_batch, traced):
    model, batch = pyramidize(tiny_bert(), Schedule.custom([5] * LAYERS), "first"), tiny_batch((12,))
    batch["attention_mask"][0, 1:4] = 0
    layer = traced(model, batch).layers[0]
    assert layer.kept.tolist() == [[0, 4, 5, 6, 7]]
    assert layer.home[0, :8].tolist() == [0, -1, -1, -1, 4, 5, 6, 7]


# ---- hidden states and attention maps ----


@both_attentions
@pytest.mark.parametrize("cls_only", [True, False])
@most_settings
def test_hidden_states_follow_the_schedule(tiny_bert, tiny_batch, logits_of, config, cls_only, impl):
    model, batch = pyramidize(tiny_bert(impl=impl), config=config.replace(cls_only=cls_only)), tiny_batch(LENGTHS)
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    widest = max(LENGTHS)
    expected = [widest, *config.schedule.lengths(widest, LAYERS)]
    if config.placement == "input":
        expected[0] = expected[1]  # what the first layer is given
    if config.reduce == "replace":
        expected = [widest] * (LAYERS + 1)
    assert [tuple(state.shape) for state in output.hidden_states] == [(len(LENGTHS), n, 32) for n in expected]
    assert_close(output.logits, logits_of(model, batch))


@pytest.mark.parametrize("cls_only", [True, False])
def test_attention_maps_follow_the_schedule(tiny_bert, tiny_batch, cls_only):
    model, batch = tiny_bert(impl="eager"), tiny_batch((24, 24))
    pyramidize(model, Schedule.exponential(0.4, 3), cls_only=cls_only)
    with torch.no_grad():
        output = model(**batch, output_attentions=True)
    lengths = Schedule.exponential(0.4, 3).lengths(24, LAYERS)
    seen = [24, *lengths[:-1]]
    asking = [*seen[:-1], 1] if cls_only else seen
    assert [tuple(a.shape) for a in output.attentions] == [(2, 4, q, k) for q, k in zip(asking, seen, strict=True)]
    for attention in output.attentions:
        assert_close(attention.sum(-1), torch.ones(attention.shape[:-1]))


def test_the_bare_model_returns_every_token_that_is_left(tiny_bert, tiny_batch):
    model, batch = tiny_bert().bert, tiny_batch((24, 24))
    assert type(model) is BertModel
    with torch.no_grad():
        dense = model(**batch).last_hidden_state
        everything = pyramidize(model, Schedule.constant(1.0))(**batch).last_hidden_state
        half = pyramidize(model, Schedule.constant(0.5))(**batch).last_hidden_state
    assert_close(everything, dense)
    assert half.shape == (2, 12, 32)


# ---- precision ----


@both_attentions
@every_setting
def test_bfloat16_runs(tiny_bert, tiny_batch, logits_of, config, impl):
    model = pyramidize(tiny_bert(impl=impl).to(torch.bfloat16), config=config)
    logits = logits_of(model, tiny_batch(LENGTHS))
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()


@both_attentions
@pytest.mark.parametrize("config", MOST_SETTINGS + ADAPTIVE)
def test_autocast_trains(tiny_bert, tiny_batch, config, impl):
    model, batch = pyramidize(tiny_bert(impl=impl).train(), config=config), tiny_batch(LENGTHS)
    with torch.random.fork_rng(), torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(0)
        output = model(**batch, labels=torch.arange(len(LENGTHS)) % 2)
    assert output.logits.dtype == torch.bfloat16
    assert output.logits.isfinite().all()
    output.loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert all(gradient.isfinite().all() for gradient in gradients.values())


# ---- training ----


def gradients_of(model, batch):
    """All gradients, and how often the first layer's feed-forward network ran."""
    runs = []
    hook = model.bert.encoder.layer[0].intermediate.register_forward_hook(lambda *_: runs.append(1))
    with torch.random.fork_rng():
        torch.manual_seed(0)  # the selector "random" draws from it in training
        model(**batch, labels=torch.arange(len(batch["input_ids"])) % 2).loss.backward()
    hook.remove()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return gradients, len(runs)


@both_attentions
@most_settings
def test_gradient_checkpointing_changes_no_gradient(tiny_bert, tiny_batch, config, impl):
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model, batch = tiny_bert(impl=impl, **no_dropout).train(), tiny_batch(LENGTHS)
    pyramidize(model, config=config)
    plain, runs = gradients_of(model, batch)
    assert runs == 1
    restore(model).gradient_checkpointing_enable()  # before or after surgery
    pyramidize(model, config=config)
    checkpointed, runs = gradients_of(model, batch)
    assert runs == 2  # once more, on the way back
    assert checkpointed.keys() == plain.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, atol=1e-6, rtol=1e-5)
        assert gradient.isfinite().all()


@most_settings
def test_gradients_reach_the_embedding_of_every_token_that_is_seen(tiny_bert, tiny_batch, traced, config):
    model, batch = pyramidize(tiny_bert(), config=config), tiny_batch(LENGTHS)
    embedded = model.bert.embeddings.word_embeddings(batch["input_ids"]).detach().requires_grad_()
    model(inputs_embeds=embedded, attention_mask=batch["attention_mask"]).logits.square().sum().backward()
    reached = embedded.grad.abs().sum(-1) > 0
    trace = traced(model, batch)
    for row, length in enumerate(LENGTHS):
        # Before the first layer, what is dropped or replaced is never seen; what is merged is.
        unseen_are_dropped = config.placement == "input" and config.reduce != "merge"
        expected = set(kept_tokens(trace, row, length)[0]) if unseen_are_dropped else set(range(length))
        if config.placement == "input" and len(kept_tokens(trace, row, length)[0]) == 1:
            expected = {0}  # only CLS is left, and nothing is merged into it
        assert set(reached[row].nonzero()[:, 0].tolist()) == expected


def test_random_selection_is_fixed_in_evaluation_and_not_in_training(tiny_bert, tiny_batch, traced):
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "classifier_dropout": 0.0}
    model, batch = tiny_bert(**no_dropout), tiny_batch((24, 24))
    pyramidize(model, Schedule.constant(0.3), "random")
    first, second = (kept_tokens(traced(model, batch), 0, 24) for _ in range(2))
    assert first == second
    pyramidize(model, Schedule.constant(0.3), "random", seed=1)
    assert kept_tokens(traced(model, batch), 0, 24) != first
    model.train()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        in_training = [kept_tokens(traced(model, batch), 0, 24) for _ in range(3)]
    assert in_training[0] != in_training[1] != in_training[2]


# ---- masks ----


def test_every_form_of_a_mask_is_understood(tiny_batch):
    """In which transformers passes a (B, N) mask on to encoders."""
    mask = tiny_batch((6, 3))["attention_mask"]
    real = mask.bool()
    keys = real[:, None, None]  # (B, 1, 1, N)
    square = keys.expand(-1, 1, 6, 6)
    added = torch.zeros(keys.shape).masked_fill(~keys, torch.finfo(torch.float32).min)
    infinite = torch.zeros(keys.shape).masked_fill(~keys, -torch.inf)
    added_square = added.expand(-1, 1, 6, 6).contiguous()
    assert key_mask(None) is None
    for form in (mask, real, keys, square, square.contiguous(), added, added_square, infinite):
        assert torch.equal(key_mask(form), real)


def test_masks_that_a_pyramid_cannot_follow_are_refused_by_name():
    for mask, message in (
        (torch.ones(1, 1, 4, 4, dtype=torch.bool).tril(), "differs between queries or heads"),
        (torch.tensor([[0.0, -1.5, 0.0]]), "adds a bias to some keys"),
        (torch.tensor([[0.0, 1.5, 0.0]]), "adds a bias to some keys"),
        (torch.ones(1, 4, 4), r"got \(1, 4, 4\); load the model with attn_implementation"),
    ):
        with pytest.raises(UnsupportedModelError, match=message):
            key_mask(mask)


def test_padding_on_the_left_is_refused(tiny_bert, tiny_batch, logits_of):
    model, batch = pyramidize(tiny_bert(), Schedule.constant(0.5)), tiny_batch((8, 8, 8))
    batch["attention_mask"][1, :2] = 0
    with pytest.raises(PyramidError, match=r"^row 1 masks its first token.*padding_side = 'right'"):
        logits_of(model, batch)


@pytest.mark.parametrize("selector", ["attention", "cls-attention"])
def test_attention_that_is_ranked_by_is_the_models_own(selector, tiny_bert, tiny_batch, traced):
    batch, keep = tiny_batch([11] * 8), 5
    with torch.no_grad():
        shares = tiny_bert(impl="eager")(**batch, output_attentions=True).attentions[0]  # (B, H, N, N)
    votes = shares[:, :, :1] if selector == "cls-attention" else shares
    wanted = votes.sum((1, 2))[:, 1:].topk(keep - 1).indices.add(1).sort().values
    model = pyramidize(tiny_bert(), Schedule.custom([keep] * LAYERS), selector)
    assert traced(model, batch).layers[0].kept[:, 1:].tolist() == wanted.tolist()


def test_another_attention_implementation_is_refused_by_name(tiny_bert, tiny_batch):
    other = tiny_bert()
    other.config._attn_implementation = "flex_attention"
    with pytest.raises(UnsupportedModelError, match=r"'flex_attention' is not supported.*eager, sdpa"):
        pyramidize(other, Schedule.constant(0.5))
    model, batch = pyramidize(tiny_bert(), Schedule.constant(0.5)), tiny_batch((8, 8))
    model.config._attn_implementation = "paged|sdpa"
    with pytest.raises(UnsupportedModelError, match="one of eager, sdpa"):
        pyramid_encoder(model)(torch.randn(2, 8, 32), batch["attention_mask"])
