"""find_pyramid: from a dense classifier and some rows to a pyramid with the same weights, and how both compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

from ..checks import check_choice, check_number
from ..classifier import PyramidClassifier
from ..errors import DataError, PyramidError
from ..families import family_of, is_pyramid
from ..progress import Bar
from ..text.labels import Labels
from ..text.metrics import CLASSIFICATION, REGRESSION
from ..text.tables import Text
from .candidates import METHODS, Method
from .finder import MINIMUM_ROWS, Finder, Search, rows_held_out
from .solver import check_speedup, extreme_schedule
from .strategy import Deadline

TARGETS = ("time", "ideal")


def find_pyramid(
    classifier: PyramidClassifier,
    speedup: float,
    texts: Sequence[Text],
    labels: Sequence[Any] | None = None,
    *,
    target: str = "time",
    metric: str | None = None,
    minutes: float = 10.0,
    held_out: float | None = None,
    batch_size: int = 32,
    methods: Sequence[Method] = METHODS,
    on_best: Callable[[PyramidClassifier], object] | None = None,
    progress: bool = False,
) -> Search:
    """The best pyramid of the wanted speed-up that has the weights of a dense classifier: no training.

    A fixed share of the texts is held out for the comparison; the others are searched on. With target="ideal" the same
    call gives the same pyramid again, unless its time is up.

    Args:
        classifier: A trained dense classifier or regressor; it is not changed.
        speedup: The wanted speed-up over the dense model on length-sorted batches.
        texts: At least 50 texts like those that it will be used on.
        labels: One a text. Without them the pyramid that stays nearest to the dense outputs is taken.
        target: What the speed-up is of: "time" on this machine, or the "ideal" count of multiply-accumulates.
        metric: The metric that decides among the last candidates; accuracy or spearman if None.
        minutes: How long it may take, everything included. A batch that has begun is finished.
        held_out: The share of the texts for the comparison; a larger one makes it more certain. If None, half of them,
            or up to 200 as long as 100 are left to search on.
        batch_size: Texts a batch.
        methods: What to try.
        on_best: Called with the best pyramid so far whenever that changes, from the end of the first rounds on, and the
            last time with the one that is returned: save it there, and an interruption costs no more than precision.
        progress: Show a bar on stderr.
    """
    check_number("minutes", minutes, above=True)
    deadline = Deadline(60 * minutes)
    check_speedup(speedup)
    check_choice("target", target, TARGETS)
    metric = check_rows(classifier, texts, labels, metric, held_out)
    check_number("batch_size", batch_size, 1, whole=True)
    if not methods:
        raise PyramidError("methods must not be empty; leave them out to try all")
    for method in methods:  # raises for what the family cannot run
        family_of(classifier.model).how.settings(method.settings(extreme_schedule()), classifier.model.config)
    with Bar(shown=progress) as bar:
        finder = Finder(classifier, texts, labels, held_out, tuple(methods), batch_size, deadline, on_best, bar)
        return finder.find(speedup, target, metric)


def check_rows(
    classifier: PyramidClassifier,
    texts: Sequence[Text],
    labels: Sequence[Any] | None,
    metric: str | None,
    held_out: float | None,
) -> str | None:
    """The metric that decides, None without labels; raises unless a search can be made with this model and rows."""
    check_dense(classifier)
    if len(texts) < MINIMUM_ROWS:
        raise DataError(f"a search needs at least {MINIMUM_ROWS} texts, got {len(texts)}; better are a few hundred")
    if labels is not None:
        classifier.known_labels().targets(labels, texts=len(texts))
        metric = metric_for(classifier.known_labels(), metric)
    elif metric is not None:
        raise DataError(
            f"the metric {metric!r} needs labels; give them, or leave the metric out to compare by agreement"
        )
    check_held_out(held_out, len(texts))
    return metric


def check_dense(classifier: PyramidClassifier) -> None:
    """Raises unless this is a trained dense classifier that can become a pyramid."""
    classifier.known_labels()
    if is_pyramid(classifier.model):
        raise PyramidError(
            "this model is a pyramid already; give the dense classifier that it was made from, or its "
            'weights without the pyramid: PyramidClassifier.from_pretrained(path, "dense")'
        )
    if classifier.model.config.num_hidden_layers < 2:
        raise PyramidError(
            "a search needs a model of at least 2 layers, got 1: the last layer of any pyramid computes only CLS, so "
            "tokens that it drops save nothing more; pyramidize(model, Schedule.constant(1.0)) saves all there is"
        )


def metric_for(known: Labels, metric: str | None) -> str:
    """The metric by which last candidates are compared; raises unless the one that is named suits the labels."""
    names = [name for name in (REGRESSION if known.classes is None else CLASSIFICATION) if name != "rmse"]
    if metric is not None:
        check_choice("metric", metric, names)
    return metric or names[0]


def check_held_out(held_out: float | None, texts: int) -> None:
    """Raises unless a share of the texts, and what is left of them, are enough to compare and to search on."""
    if held_out is None:
        return
    if isinstance(held_out, bool) or not isinstance(held_out, Real) or not 0 < held_out < 1:
        raise PyramidError(f"the share held out must be a number between 0 and 1, got {held_out!r}; 0.5 is half")
    least, rows = MINIMUM_ROWS // 2, rows_held_out(held_out, texts)
    if not least <= rows <= texts - least:
        raise PyramidError(
            f"the share held out must be {least} to {texts - least} of {texts} texts, so that {least} at least are "
            f"searched on and compared on, got {held_out:g}, which is {rows}; 0.5 is always enough"
        )
