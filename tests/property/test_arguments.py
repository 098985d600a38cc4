"""Arguments of the wrong kind: every public call answers or raises one PyramidError, never a raw TypeError."""

import inspect
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyramid_bert import PyramidClassifier, PyramidConfig, PyramidError, Schedule, pyramidize
from pyramid_bert.training import TrainSettings
from tests.fuzz.mutations import HOSTILE

SCHEDULE = Schedule.constant(0.5)
VALUES = st.sampled_from([*HOSTILE, object(), int, b"x", {1}, np.zeros((2, 3)), np.array(5), range(3), SCHEDULE, -0.0])
# Constructor -> arguments that are right.
MAKERS = {
    Schedule.exponential: {"keep_ratio": 0.5, "last_layer": 2},
    Schedule.constant: {"keep_ratio": 0.5},
    Schedule.input_only: {"keep_ratio": 0.5},
    Schedule.custom: {"lengths": [3, 2], "n": 8},
    Schedule.random: {"seed": 0},
    Schedule.strided: {"window": 2, "at_layers": [1]},
    Schedule.adaptive: {"radius": 0.5},
    Schedule.from_dict: {"data": SCHEDULE.to_dict()},
    SCHEDULE.lengths: {"n": 8, "layers": 2},
    PyramidConfig: {"schedule": SCHEDULE},
    PyramidConfig.from_dict: {"data": PyramidConfig(schedule=SCHEDULE).to_dict()},
    TrainSettings: {},
}


def refused_in_one_line(call, *args, **kwargs):
    """Whether a call was refused; any error but a PyramidError in one line fails the test."""
    said = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call(*args, **kwargs)
    except PyramidError as error:
        said = str(error)
    assert said.isprintable(), said
    assert len(said) < 2000
    return bool(said)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__qualname__)
@settings(max_examples=150)
@given(data=st.data())
def test_plain_data(make, data):
    name = data.draw(st.sampled_from(list(inspect.signature(make).parameters)))
    refused_in_one_line(make, **{**MAKERS[make], name: data.draw(VALUES)})


@pytest.fixture(scope="module")
def clf(tiny_bert, tokenizer):
    return PyramidClassifier(tiny_bert(layers=2, hidden=8), tokenizer, schedule=SCHEDULE)


def test_models_and_classifiers(clf, tiny_bert, tokenizer):
    model, texts, labels = tiny_bert(layers=2, hidden=8), ["fine", "dull"], ["a", "b"]
    values = [*HOSTILE, object(), b"x", {1}, np.zeros((2, 3)), np.array(5)]

    def made(**parameters):
        return PyramidClassifier(**{"model": model, "tokenizer": tokenizer, **parameters}).predict

    names = ("model", "schedule", "selector", "labels", "max_length", "device", "attn_implementation", "training")
    names += ("reduce", "within", "metric", "seed", "rest_from", "placement", "weighted", "centers_per_step")
    calls = {
        "pyramidize": lambda value: pyramidize(value, SCHEDULE),
        "config": lambda value: pyramidize(model, config=0 if value is None else value),
        "selector": lambda value: pyramidize(model, SCHEDULE, value),
        "predict": lambda value: clf.predict(value),
        "texts": lambda value: clf.predict([value]),
        "batch_size": lambda value: clf.predict(texts, batch_size=value),
        "fallback": lambda value: clf.predict(texts, fallback=value),
        "fit texts": lambda value: clf.fit(value, labels, epochs=-1),
        "evaluate": lambda value: clf.evaluate(texts, value),
        "load": lambda value: PyramidClassifier.load(value),
        **{name: lambda value, name=name: made(**{name: value})(texts) for name in names},
    }
    before = {"labels": labels, "teacher": None, "dev": None, "target": None, "settings": None}
    for name in before:  # with an output folder that cannot be: nothing is trained
        calls[f"fit {name}"] = lambda value, name=name: clf.fit(
            texts, **{**before, name: value}, output_dir="/dev/null/x", progress=False
        )
    for name, call in calls.items():
        refused = [refused_in_one_line(call, value) for value in values]
        assert any(refused), name


def test_unknown_names_have_the_nearest(clf, tiny_bert):
    for call, near in (
        (lambda: clf.fit(["fine", "dull"], ["a", "b"], lr=1e-3), "learning_rate"),
        (lambda: clf.fit(["fine", "dull"], ["a", "b"], epoch=1), "epochs"),
        (lambda: pyramidize(tiny_bert(), SCHEDULE, reduced="drop"), "reduce"),
        (lambda: PyramidConfig(schedule=SCHEDULE).replace(seeed=1), "seed"),
    ):
        with pytest.raises(PyramidError, match=f"did you mean '{near}'"):
            call()
