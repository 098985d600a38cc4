"""What several tests need: a short training run, weights, a run that is stopped, the commands, a model as graphs."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.cli import main
from pyramid_bert.core.reducer import Reducer, Space
from pyramid_bert.families import family_of, pyramid_encoder
from pyramid_bert.runtimes.graphs import Graphs
from pyramid_bert.runtimes.stretches import example, stretches_of
from pyramid_bert.training import PyramidTrainer

SCHEDULE = Schedule.exponential(0.4, last_layer=3, min_tokens=2)
FAST = {"epochs": 2, "learning_rate": 1e-3, "batch_size": 16, "progress": False}


def fresh(folder, **settings):
    return PyramidClassifier.from_pretrained(folder, SCHEDULE, **settings)


def run(*arguments):
    return main([str(argument) for argument in arguments])


def output(capsys, *arguments):
    """What a command prints, which must succeed."""
    assert run(*arguments) == 0
    return capsys.readouterr().out


def weights(classifier):
    return {name: value.clone() for name, value in classifier.model.state_dict().items()}


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def near(a, b, atol=1e-5):
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=atol) for name in a)


class _StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            raise KeyboardInterrupt


@contextmanager
def stopped_at(step, *, escapes=True):
    """The training inside of the block is stopped after this many steps; `escapes`: and nothing catches it."""
    train = PyramidTrainer.train

    def interrupted(self, **kwargs):
        self.add_callback(_StopAt(step))
        return train(self, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PyramidTrainer, "train", interrupted)
        with pytest.raises(KeyboardInterrupt) if escapes else nullcontext():
            yield


def graphs_of(model, longest, compiled):
    """A pyramid as graphs; `compiled` makes a graph out of a stretch and an example of its inputs."""
    encoder, positions = pyramid_encoder(model), family_of(model).how.reads_positions
    found = {}
    for stretch in stretches_of(model, encoder.plan, longest):
        end = stretch.parts[-1]
        with torch.no_grad():
            given = example(stretch, model.config.hidden_size, types=True, positions=positions)
            found[end.number, end.half] = compiled(stretch, given)
    reducer = encoder.reducer
    if encoder.by_sensitivity:
        held = SimpleNamespace(sensitivity=encoder.owner[0].sensitivity.numpy())
        reducer = Reducer(reducer.selector, reducer.knobs, Space(reducer.space.metric, (held,)), reducer.how)
    return Graphs(encoder.plan, reducer, found, types=True, positions=positions)
