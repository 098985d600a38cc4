"""Theorem 1 with constants that are proved, on encoders small enough to have them; and the measuring of it by hand.

The encoder of these tests has no softmax and no normalization, so that its Lipschitz constants are products of operator
norms. In the Frobenius norm of a state X (N, D):

- attention X -> A X W with A = (1 − β) I + β 1 1ᵀ / N, which mixes every token with the mean. A is symmetric with the
  eigenvalues 1 and 1 − β, so ‖A X W − A X' W‖ <= ‖A‖ ‖X − X'‖ ‖W‖ = ‖W‖ ‖X − X'‖.
- feed-forward x -> r(x V) U, of each token, where r halves negative numbers: it is 1-Lipschitz, so the constant is
  ‖V‖ ‖U‖.
- the loss: cross-entropy of c C has the gradient (softmax(c C) − e_y) Cᵀ. The difference of two probability vectors is
  at most √2 long, so the constant is √2 ‖C‖.

Norms of matrices are spectral, and W, V and U turn and scale, so that these constants are not far off. The theorem's
proof holds for any such layers: it uses nothing else of a BERT.
"""

import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule, pyramid_settings, pyramidize
from pyramid_bert.bench.ideal import kept_lengths
from pyramid_bert.core.encoder import PyramidEncoder
from pyramid_bert.errors import PyramidError
from pyramid_bert.families.halves import TwoHalves
from pyramid_bert.lab.theory.bound import BOUNDS, Constants, right_hand_sides
from pyramid_bert.lab.theory.measure import measure_input, measure_theorem
from pyramid_bert.planning import plan_and_reducer

LAYERS, WIDTH, CLASSES = 3, 6, 3
PLACEMENTS = ("middle", "end", "input")


class Layer(nn.Module):
    def __init__(self, generator, mixing=0.5):
        super().__init__()
        self.mixing = mixing
        self.w, self.v, self.u = (self._turn(generator) for _ in range(3))

    @staticmethod
    def _turn(generator):
        random = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
        return torch.linalg.qr(random).Q * (0.8 + 0.4 * torch.rand((), generator=generator, dtype=torch.float64))

    @property
    def constants(self):
        """Of attention and of the feed-forward network."""
        return spectral(self.w), spectral(self.v) * spectral(self.u)


class Mixing(TwoHalves):
    """The halves of such layers."""

    def attend(self, layer, hidden, bias, *, queries=None, votes=None):
        assert bias is None
        mixed = (1 - layer.mixing) * hidden + layer.mixing * hidden.mean(dim=1, keepdim=True)
        return mixed @ layer.w, None

    def feed_forward(self, layer, hidden):
        return F.leaky_relu(hidden @ layer.v, 0.5) @ layer.u


def spectral(matrix):
    return float(torch.linalg.matrix_norm(matrix, 2))


def small_encoder(layers, placement, schedule=None, selector="coreset", m=1):
    usual = Schedule.input_only(0.5) if placement == "input" else Schedule.exponential(0.4, 2)
    config = PyramidConfig(
        schedule=schedule or usual, selector=selector, reduce="replace", placement=placement, centers_per_step=m
    )
    layers, family = nn.ModuleList(layers), Mixing()
    plan, reducer = plan_and_reducer(config, list(layers), family.halves, None, cls_only=False)
    dense, owner = nn.Module(), SimpleNamespace(config=None)
    dense.layer = layers
    return PyramidEncoder(family, plan, reducer, replaces=True, seed=0, owner=owner, replaced=dense).eval()


def proved(layers, placement, head):
    """The constants of what lies between two replacements, by the placement."""
    attention, feed_forward = zip(*(layer.constants for layer in layers), strict=True)
    following = [*attention[1:], 1.0]
    halves = {
        "middle": (feed_forward, following),
        "end": ([*feed_forward[1:], 1.0], following),
        "input": (feed_forward, attention),
    }[placement]
    constants = [f * a for f, a in zip(*halves, strict=True)]
    above = tuple(math.prod(constants[j:]) for j in range(len(constants)))
    return Constants(tuple(constants), above, math.sqrt(2) * spectral(head))


def case(seed, placement, **settings):
    """What a random encoder shows on a random input, and its proved constants."""
    generator = torch.Generator().manual_seed(seed)
    layers = [Layer(generator) for _ in range(LAYERS)]
    head = torch.randn(WIDTH, CLASSES, generator=generator, dtype=torch.float64)
    hidden = torch.randn(1, 14, WIDTH, generator=generator, dtype=torch.float64)

    def loss(cls):
        return float(F.cross_entropy(cls @ head, torch.tensor([seed % CLASSES])))

    measured = measure_input(small_encoder(layers, placement, **settings), hidden, loss, generator=generator)
    return measured, proved(layers, placement, head)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("settings", [{}, {"m": "all"}, {"selector": "first"}, {"selector": "random"}], ids=str)
def test_the_inequality_with_proved_constants(placement, settings):
    tightest = math.inf
    for seed in range(12):
        measured, constants = case(seed, placement, **settings)
        sides = right_hand_sides(measured, constants)
        assert measured.loss_change > 0
        for name, value in sides.items():
            assert measured.loss_change <= value, (seed, name)
        assert sides["printed"] >= sides["layer_radii"] >= sides["moved"] > 0
        tightest = min(tightest, sides["moved"] / measured.loss_change)
    assert tightest < 1e3  # the inequality is not one between numbers of other worlds


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_is_estimated_never_exceeds_what_is_proved(placement):
    for seed in range(12):
        measured, constants = case(seed, placement)
        within = 1 + 1e-9
        for seen, limits in (
            (measured.layer, constants.layer),
            (measured.layer_random, constants.layer),
            (measured.above, constants.above),
            (measured.above_random, constants.above),
        ):
            assert all(ratio <= limit * within for ratio, limit in zip(seen, limits, strict=True))
        assert max(measured.head, measured.head_random) <= constants.head * within
        assert max(measured.layer_random) > 0.1 * min(constants.layer)
        for length, radius, moved in zip(measured.lengths, measured.radius, measured.moved, strict=True):
            assert moved <= math.sqrt(measured.n - length) * radius * within


def test_a_case_by_hand():
    # Two tokens at distance 1, one of which is replaced by CLS before the first layer. Every token becomes the mean:
    # CLS moves by 1/2, the state by sqrt(1/4 + 1/4). The loss is the first number of CLS. The bound is 1.
    layer = Layer(torch.Generator(), mixing=1.0)
    layer.w = layer.v = layer.u = torch.eye(WIDTH, dtype=torch.float64)
    hidden = torch.ones(1, 2, WIDTH, dtype=torch.float64)
    hidden[0, 1, 0] = 2.0
    encoder = small_encoder([layer], "input")
    asked = []

    def loss(cls):
        asked.append(cls)
        return float(cls[0, 0])

    row = measure_input(encoder, hidden, loss, directions=3)
    random_changes = [float((cls - asked[0]).norm()) for cls in asked[-3:]]
    assert random_changes == [pytest.approx(0.5)] * 3  # as large as what the replacement does to CLS
    assert (row.n, row.lengths, row.radius, row.moved) == (2, (1,), (1.0,), (1.0,))
    assert row.layer == (pytest.approx(math.sqrt(0.5)),)
    assert row.above == (0.5,)
    assert row.head == 1.0
    assert (row.loss, row.loss_change) == (1.5, 0.5)
    sides = right_hand_sides(row, proved([layer], "input", torch.eye(WIDTH) / math.sqrt(2)))
    assert sides == {name: pytest.approx(1.0) for name in BOUNDS}


# ---- on a BERT ----


SHRINKING = Schedule.exponential(0.3, 3)
SCHEDULES = {"middle": SHRINKING, "end": SHRINKING, "input": Schedule.input_only(0.4)}


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("selector", ["coreset", "first", "attention"])
def test_the_bound_holds_for_every_input_of_the_sample(tiny_bert, tiny_batch, items_of, placement, selector):
    if (placement, selector) == ("input", "attention"):
        pytest.skip("no attention at the input")
    schedule = SCHEDULES[placement]
    model = pyramidize(tiny_bert(), schedule, selector, placement=placement)
    report = measure_theorem(model, items_of(tiny_batch((24, 15, 9))), [0, 1, 1])
    for name, bound in report.bounds().items():
        assert bound["least_margin"] >= -1e-9, name
        assert bound["loose"] >= 1
    assert report.loss == "cross-entropy on the labels"
    assert [row.lengths for row in report.rows] == [schedule.lengths(n, 4) for n in (24, 15, 9)]


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_losses_and_radii_are_those_of_the_models(tiny_bert, tiny_batch, items_of, logits_of, traced, placement):
    model, batch = tiny_bert().double(), tiny_batch((24, 24))
    dense = logits_of(model, batch)
    pyramidize(model, SCHEDULES[placement], reduce="replace", placement=placement)
    star = logits_of(model, batch)
    trace = traced(model, batch)
    report = measure_theorem(model, items_of(batch), [1, 0])
    for row, label in enumerate([1, 0]):
        target = torch.tensor([label])
        before, after = (float(F.cross_entropy(logits[row : row + 1], target)) for logits in (dense, star))
        assert report.rows[row].loss == pytest.approx(before, abs=1e-9)
        assert report.rows[row].loss_change == pytest.approx(abs(after - before), abs=1e-9)
        for entry in trace.layers:
            assert report.rows[row].radius[max(entry.layer, 1) - 1] == pytest.approx(float(entry.radius[row]), abs=1e-6)


def test_direct_ratios_are_those_of_runs_that_stop_replacing_at_a_layer(tiny_bert, tiny_batch, items_of):
    model, batch = tiny_bert().double(), tiny_batch((24,))
    lengths = SHRINKING.lengths(24, 4)
    vectors = []
    for done in range(5):
        stopped = [*lengths[:done], *[lengths[done - 1] if done else 24] * (4 - done)]
        pyramidize(model, Schedule.custom(stopped), reduce="replace")
        with torch.no_grad():
            vectors.append(model.bert(**batch).last_hidden_state[:, 0])
    pyramidize(model, Schedule.custom(lengths))
    (row,) = measure_theorem(model, items_of(batch)).rows
    assert row.lengths == lengths
    for layer in range(4):
        change = float((vectors[layer + 1] - vectors[layer]).norm())
        assert row.above[layer] * row.moved[layer] == pytest.approx(change, abs=1e-9)
    assert row.above[0] > 0.01


def test_without_labels_the_dense_prediction_is_the_label(tiny_bert, tiny_batch, items_of, logits_of):
    model, batch = tiny_bert(), tiny_batch((24, 24, 20))
    said = logits_of(model, batch).argmax(1).tolist()
    pyramidize(model, SHRINKING)
    texts = items_of(batch)
    by_itself, told = measure_theorem(model, texts), measure_theorem(model, texts, said)
    assert by_itself.loss == "cross-entropy on the dense model's own predictions"
    assert by_itself.rows == told.rows


def test_a_regressor_is_measured_by_its_squared_error(tiny_bert, tiny_batch, items_of):
    report = measure_theorem(pyramidize(tiny_bert(labels=1), SHRINKING), items_of(tiny_batch((24,))), [2.5])
    assert report.loss == "squared error on the labels"
    assert report.bounds()["printed"]["least_margin"] >= 0


def test_the_model_is_left_as_it_was_and_a_seed_repeats(tiny_bert, tiny_batch, items_of, logits_of):
    batch = tiny_batch((24, 15))
    model = pyramidize(tiny_bert(), SHRINKING, reduce="drop")
    before = logits_of(model, batch)
    one, again, other = (measure_theorem(model, items_of(batch), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(logits_of(model, batch), before)
    assert pyramid_settings(model).reduce == "drop"
    assert one == again
    assert one.rows[0].layer_random != other.rows[0].layer_random
    assert one.rows[0].layer == other.rows[0].layer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": []}, "no texts given"),
        ({"targets": [1]}, "1 targets for 2 texts"),
        ({"directions": 0}, "directions must be at least 1, got 0"),
        ({"schedule": Schedule.constant(1.0)}, "keeps every token of the 2 texts .of up to 15 tokens."),
        ({"schedule": Schedule.custom([15] * 4)}, "keeps every token"),
        ({"schedule": Schedule.strided(2, [1]), "selector": "pool"}, "'pool' averages tokens"),
        ({"schedule": Schedule.constant(0.5), "selector": "cluster"}, "'cluster' averages tokens"),
        ({"schedule": None}, "use pyramidize"),
        ({"bare": True}, "needs a classifier"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(tiny_bert, tiny_batch, items_of, change, message):
    given = {"schedule": SHRINKING, "selector": "coreset", "items": items_of(tiny_batch((15, 9))), **change}
    model = tiny_bert().bert if given.pop("bare", False) else tiny_bert()
    schedule, selector = given.pop("schedule"), given.pop("selector")
    if schedule is not None:
        pyramidize(model, schedule, selector)
    with pytest.raises(PyramidError, match=message):
        measure_theorem(model, **given)


def test_an_adaptive_schedule_is_measured_by_what_it_keeps(tiny_bert, tiny_batch, items_of):
    texts = items_of(tiny_batch((24, 15, 9)))
    model = pyramidize(tiny_bert(), Schedule.adaptive(0.6, min_tokens=2), reduce="replace", cls_only=False)
    report = measure_theorem(model, texts)
    assert [row.lengths for row in report.rows] == kept_lengths(model, texts)
    assert report.observed["max"] > 0
    assert all(bound["least_margin"] >= -1e-9 for bound in report.bounds().values())


def test_tokens_that_rest_are_awake_for_the_theorem(tiny_bert, tiny_batch, items_of):
    texts, schedule = items_of(tiny_batch((24, 15, 9))), Schedule.exponential(0.5, 2)
    awake = measure_theorem(pyramidize(tiny_bert(), schedule), texts)
    resting = measure_theorem(pyramidize(tiny_bert(), schedule, rest_from=3), texts)
    assert resting.to_dict() == awake.to_dict()


def test_pairs_keep_their_token_types(tiny_model_dir):
    schedule, pair = Schedule.exponential(0.5, 2), ("a good film with a story", "it was a very dull and long day")
    clf = PyramidClassifier.from_pretrained(tiny_model_dir, schedule)
    report = measure_theorem(clf.model, clf.encode([pair]))
    dense = PyramidClassifier.from_pretrained(tiny_model_dir, "dense")
    star = PyramidClassifier.from_pretrained(tiny_model_dir, schedule, reduce="replace")
    logits = [torch.from_numpy(model.predict_logits([pair])) for model in (dense, star)]
    losses = [float(F.cross_entropy(one, logits[0].argmax(1))) for one in logits]
    assert report.rows[0].loss == pytest.approx(losses[0], abs=1e-5)
    assert report.rows[0].loss_change == pytest.approx(abs(losses[1] - losses[0]), abs=1e-5)
