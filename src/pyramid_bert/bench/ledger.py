"""One interleaved run of the dense model (padded, dynamic, length-sorted) and the pyramid, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..config import PyramidConfig
from ..cost import Cost, Sizes
from ..errors import PyramidError
from ..families import pyramid_encoder, sizes_of
from ..families.hub import pyramid_settings
from ..runtimes.packed import optimization_of
from .ideal import kept_lengths
from .machine import describe_machine
from .memory import PeakMemory
from .roofline import Roofline, measure_roofline
from .selecting import share_selecting
from .timing import Timing, time_interleaved
from .workload import Workload, forward_all

NAMES = {
    "padded": "dense, padded to {n}",
    "dynamic": "dense, dynamic padding",
    "sorted": "dense, length-sorted",
    "pyramid": "pyramid, length-sorted",
}
BASELINES = ("padded", "dynamic", "sorted")


@dataclass(frozen=True)
class Entry:
    """One way to run the workload.

    Attributes:
        name: What ran.
        seconds: Median of the rounds.
        token_layers: Tokens times layers that went through attention, pads included.
        macs: Multiply-accumulates of the matrix products, pads included.
        peak_bytes: Most bytes of tensors alive at once, weights and inputs not counted.
        speedup_over: Baseline -> how many times faster this is, by the median of the ratios within each round.
        ideal_over: Baseline -> the ratio of multiply-accumulates.
        roofline_seconds: The least time of reading weights and multiplying on this machine, both at once.
        stalled_seconds: The same when the processor waits for its weights: one after the other.
    """

    name: str
    seconds: float
    token_layers: int
    macs: int
    peak_bytes: int
    speedup_over: dict[str, float]
    ideal_over: dict[str, float]
    roofline_seconds: float
    stalled_seconds: float

    def realised(self, baseline: str = "sorted") -> float:
        """The share of the ideal speed-up over a baseline that was measured."""
        return self.speedup_over[baseline] / self.ideal_over[baseline]


@dataclass(frozen=True)
class Ledger:
    """What a benchmark measured, and on what."""

    entries: dict[str, Entry]
    selecting: float
    batch_size: int
    roofline: Roofline
    optimization: str | None
    workload: dict[str, Any]
    settings: dict[str, Any]
    machine: dict[str, Any]
    rounds: int
    seconds: dict[str, list[float]]

    @property
    def limits(self) -> tuple[float, float]:
        """The speed-up over the length-sorted dense model when both read and multiply at once, or in turn."""
        dense, pyramid = self.entries["sorted"], self.entries["pyramid"]
        return (
            dense.roofline_seconds / pyramid.roofline_seconds,
            dense.stalled_seconds / pyramid.stalled_seconds,
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict; the pyramid's shares of the ideal are in it as well."""
        data = asdict(self)
        data["realised_over"] = {name: self.entries["pyramid"].realised(name) for name in BASELINES}
        data["limits"] = dict(zip(("roofline", "stalled"), self.limits, strict=True))
        return data


def measure(
    dense: Any,
    pyramid: Any,
    workload: Workload,
    *,
    batch_size: int,
    rounds: int = 5,
    warmup: int = 1,
    after_each: Callable[[], object] | None = None,
) -> Ledger:
    """Times the dense model three ways and the pyramid, in turn, on the same rows.

    Args:
        dense: The untouched transformers model.
        pyramid: The same model as a pyramid.
        workload: The rows.
        batch_size: Rows a batch.
        rounds: How many times each is timed.
        warmup: Rounds before that do not count.
        after_each: Called after each single run, for a progress bar.
    """
    settings, encoder = pyramid_settings(pyramid), pyramid_encoder(pyramid)
    if settings is None or encoder is None or pyramid_encoder(dense) is not None:
        raise PyramidError("measure takes a dense model and a pyramid, in this order")
    settings.check_saves()
    _check_alike(optimization_of(dense), optimization_of(pyramid))
    plain, by_length = workload.as_they_come(batch_size), workload.by_length(batch_size)
    plans: dict[str, tuple[Any, list[list[int]], int | None]] = {
        "padded": (dense, plain, workload.padded_length),
        "dynamic": (dense, plain, None),
        "sorted": (dense, by_length, None),
        "pyramid": (pyramid, by_length, None),
    }
    runs = {name: _forward(workload, *plan) for name, plan in plans.items()}
    timing = time_interleaved(runs, rounds=rounds, warmup=warmup, after_each=after_each)
    roofline = measure_roofline(pyramid)
    kept = kept_lengths(pyramid, workload.items, workload.pad_id, batch_size=batch_size)
    work, as_it_runs = {}, settings.replace(cls_only=encoder.plan.cls_only)
    for name, (model, rows, width) in plans.items():
        shapes = _shapes(workload, rows, width, kept if model is pyramid else None, len(encoder.layer))
        work[name] = _work(shapes, roofline, as_it_runs if model is pyramid else None, sizes_of(pyramid))
    entries = {name: _entry(name, timing, work, runs, workload) for name in plans}
    return Ledger(
        entries=entries,
        selecting=share_selecting(runs["pyramid"]),
        batch_size=batch_size,
        roofline=roofline,
        optimization=optimization_of(pyramid),
        workload={
            "source": workload.source,
            "rows": len(workload.items),
            "mean_length": sum(workload.lengths) / len(workload.items),
            "padded_length": workload.padded_length,
        },
        settings=settings.to_dict(),
        machine={**describe_machine(), "device": str(pyramid.device)},
        rounds=rounds,
        seconds=timing.seconds,
    )


def _check_alike(dense: str | None, pyramid: str | None) -> None:
    if dense != pyramid:
        raise PyramidError(f"both sides must run alike, got weights {dense} and {pyramid}; optimize both or neither")


def _forward(workload: Workload, model: Any, rows: list[list[int]], width: int | None) -> Callable[..., None]:
    batches = workload.tensors(rows, width, model.device)
    return lambda record=None: forward_all(model, batches, record)


@dataclass(frozen=True)
class _Work:
    token_layers: int
    macs: int
    roofline_seconds: float
    stalled_seconds: float


def _shapes(
    workload: Workload,
    batches: list[list[int]],
    width: int | None,
    pyramid: Sequence[Sequence[int]] | None,
    layers: int,
) -> Iterator[tuple[int, int, Sequence[int]]]:
    """(rows, width, width after each layer) of each batch: it is as wide as its widest row, at every layer."""
    lengths = workload.lengths
    for rows in batches:
        n = width or max(lengths[i] for i in rows)
        kept: Sequence[int] = (n,) * layers
        if pyramid is not None:
            kept = tuple(map(max, zip(*(pyramid[i] for i in rows), strict=True)))
        yield len(rows), n, kept


def _work(
    shapes: Iterator[tuple[int, int, Sequence[int]]], roofline: Roofline, settings: PyramidConfig | None, sizes: Sizes
) -> _Work:
    """What a pyramid with these settings computes, or the dense model, counting every slot, pads included."""
    tokens = macs = 0
    seconds = {True: 0.0, False: 0.0}
    placement = "middle" if settings is None else settings.placement
    for rows, n, kept in shapes:
        cls_layers = 0 if settings is None else settings.cls_layers(len(kept))
        if settings is None:
            cost = Cost.of(kept, n, sizes.hidden_size, sizes.intermediate_size)
        else:
            cost = settings.cost(kept, n, sizes, with_keys=roofline.heads is None)
        macs += rows * cost.macs
        tokens += rows * sum([n, *kept[:-1]] if placement != "input" else kept)
        for overlap in seconds:
            seconds[overlap] += roofline.seconds(
                kept, n, rows, placement=placement, cls_layers=cls_layers, overlap=overlap
            )
    return _Work(tokens, macs, roofline_seconds=seconds[True], stalled_seconds=seconds[False])


def _entry(
    name: str,
    timing: Timing,
    work: dict[str, _Work],
    runs: dict[str, Callable[..., None]],
    workload: Workload,
) -> Entry:
    with PeakMemory() as memory:
        runs[name]()
    return Entry(
        name=NAMES[name].format(n=workload.padded_length),
        seconds=timing.median(name),
        token_layers=work[name].token_layers,
        macs=work[name].macs,
        peak_bytes=memory.peak,
        speedup_over={base: timing.speedup(name, over=base) for base in BASELINES},
        ideal_over={base: work[base].macs / work[name].macs for base in BASELINES},
        roofline_seconds=work[name].roofline_seconds,
        stalled_seconds=work[name].stalled_seconds,
    )
