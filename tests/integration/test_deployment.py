"""docs/deployment.md: what it says about processes, compilers and graphs. Threads: tests/unit/test_threads.py."""

import multiprocessing

import numpy as np
import pytest
import torch

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.core.selectors import selector_names
from pyramid_bert.errors import UnsupportedModelError

SCHEDULE = Schedule.exponential(0.4, 3, min_tokens=3)
TEXTS = ["a fine film with a clever plot and some music", "dull", "the worst story of the year"]


def _answer(folder, pipe, classifier=None):
    torch.set_num_threads(1)  # after a fork, OpenMP's threads are gone
    classifier = PyramidClassifier.load(folder, device="cpu") if classifier is None else classifier
    pipe.send(classifier.predict_logits(TEXTS))


@pytest.mark.parametrize("way", ["spawn", "fork", "fork with the model"])
def test_other_processes_give_the_same_answers(way, tiny_model_dir, tmp_path):
    classifier = PyramidClassifier(tiny_model_dir, schedule=SCHEDULE)
    classifier.save(tmp_path / "model")
    expected = classifier.predict_logits(TEXTS)
    context = multiprocessing.get_context(way.split()[0])
    mine, theirs = context.Pipe(duplex=False)
    shared = classifier if way == "fork with the model" else None
    process = context.Process(target=_answer, args=(tmp_path / "model", theirs, shared))
    process.start()
    assert mine.poll(120)
    assert np.array_equal(mine.recv(), expected)
    process.join(30)
    assert process.exitcode == 0


def test_compiled_it_gives_the_same_logits(tiny_bert, tiny_batch, logits_of):
    model, batch = pyramidize(tiny_bert(layers=2), Schedule.constant(0.5)), tiny_batch([9, 12])
    expected = logits_of(model, batch)
    compiled = torch.compile(model, backend="eager")  # the graphs that a compiler would get, without one
    assert torch.allclose(logits_of(compiled, batch), expected, atol=1e-5)
    longer = tiny_batch([20, 5, 7])
    assert torch.allclose(logits_of(compiled, longer), logits_of(model, longer), atol=1e-5)


def test_traces_and_exports_are_refused(tiny_bert, tiny_batch):
    model, ids = pyramidize(tiny_bert(layers=2), Schedule.constant(0.5)), tiny_batch([9])["input_ids"]
    with pytest.raises(UnsupportedModelError, match="cannot be traced or exported"):
        torch.jit.trace(model, (ids,), strict=False)
    with pytest.raises(Exception, match="cannot be traced or exported"):
        torch.export.export(model, (ids,))


def test_threads_are_tried_with_every_selector():
    from tests.unit.test_threads import WAYS

    tried = {settings.get("selector", "coreset") for _, settings in filter(None, WAYS.values())}
    assert tried == set(selector_names())
