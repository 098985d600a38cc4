"""One interleaved run of the dense model (padded, dynamic, length-sorted) and the pyramid, and what it did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ..config import PyramidConfig
from ..cost import Sizes, tokens_seen
from ..errors import PyramidError
from ..families import pyramid_encoder, pyramid_settings, sizes_of
from ..runtimes.packed import optimization_of
from .ideal import kept_lengths
from .machine import describe_machine
from .memory import PeakMemory
from .roofline import Roofline, measure_roofline
from .timing import Timing, share_selecting, time_interleaved
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
        return dense.roofline_seconds / pyramid.roofline_seconds, dense.stalled_seconds / pyramid.stalled_seconds

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
    if (ours := optimization_of(pyramid)) != (theirs := optimization_of(dense)):
        raise PyramidError(f"both sides must run alike, got weights {theirs} and {ours}; optimize both or neither")
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
    counting = partial(_work, workload, settings.replace(cls_only=encoder.plan.cls_only), roofline, sizes_of(pyramid))
    work = {
        name: counting(rows, width, kept if model is pyramid else None) for name, (model, rows, width) in plans.items()
    }
    return Ledger(
        entries={name: _entry(name, run, timing, work, workload.padded_length) for name, run in runs.items()},
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


def _forward(workload: Workload, model: Any, rows: list[list[int]], width: int | None) -> Callable[..., None]:
    batches = workload.tensors(rows, width, model.device)
    return lambda record=None: forward_all(model, batches, record)


def _entry(name: str, run: Callable[[], None], timing: Timing, work: dict[str, dict[str, Any]], n: int) -> Entry:
    with PeakMemory() as memory:
        run()
    return Entry(
        name=NAMES[name].format(n=n),
        seconds=timing.median(name),
        **work[name],
        peak_bytes=memory.peak,
        speedup_over={base: timing.speedup(name, over=base) for base in BASELINES},
        ideal_over={base: work[base]["macs"] / work[name]["macs"] for base in BASELINES},
    )


def _work(
    workload: Workload,
    settings: PyramidConfig,
    roofline: Roofline,
    sizes: Sizes,
    batches: list[list[int]],
    width: int | None,
    kept: Sequence[Sequence[int]] | None,
) -> dict[str, Any]:
    """What the pyramid computes, or the dense model where `kept` is None, counting every slot, pads included."""
    work = dict[str, Any](token_layers=0, macs=0, roofline_seconds=0.0, stalled_seconds=0.0)
    for batch in batches:
        rows, n = len(batch), width or max(len(workload.items[i]) for i in batch)
        # A batch is as wide as its widest row, at every layer.
        slots = (n,) * sizes.layers if kept is None else [max(of) for of in zip(*(kept[i] for i in batch), strict=True)]
        cost = settings.cost(slots, n, sizes, with_keys=roofline.heads is None)
        slots = slots if kept is None else settings.run_lengths(slots)
        how: dict[str, Any] = {"placement": settings.placement or "middle"}
        work["token_layers"] += rows * sum(tokens_seen(slots, n, **how)[0])
        work["macs"] += rows * (cost.dense_macs if kept is None else cost.macs)
        how["cls_layers"] = 0 if kept is None else settings.cls_layers(sizes.layers)
        work["roofline_seconds"] += roofline.seconds(slots, n, rows, **how)
        work["stalled_seconds"] += roofline.seconds(slots, n, rows, overlap=False, **how)
    return work
