"""The settings of a pyramid: one frozen, validated dataclass, saved with the model and read back from it."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .checks import check_choice, check_flag, check_int, check_kind, check_layer, check_number
from .core.coreset import CentersPerStep, centers_in_a_step
from .core.distances import METRICS
from .core.protection import PROTECTED, Protection
from .core.selectors import Grouper, Selector, get_selector
from .cost import PLACEMENTS, Cost, Placement, Sizes
from .errors import PyramidError, shown
from .schedule.base import Schedule
from .schedule.kinds import AdaptiveSchedule, StridedSchedule

FORMAT_VERSION = 1
Reduce = Literal["drop", "merge", "replace"]
TokenMetric = Literal["euclidean", "cosine", "sensitivity"]
TOKEN_METRICS: tuple[str, ...] = (*METRICS, "sensitivity")
REDUCES: tuple[str, ...] = ("drop", "merge", "replace")
SENSITIVITY_RANK = 64  # directions per layer; more change little (docs/design/0018-sensitivity.md)


@dataclass(frozen=True, kw_only=True)
class PyramidConfig:
    """How a model is turned into a pyramid.

    Attributes:
        schedule: How many tokens each layer keeps.
        selector: Which tokens stay; one of `pyramid_bert.core.selector_names()`.
        reduce: What becomes of the others: "drop" forgets them (the paper), "merge" averages each into its nearest
            kept token, "replace" writes the nearest kept token over each (the paper's pyramid*, the subject of
            Theorem 1). "replace" keeps the full length at every layer, so it saves nothing; it gives the same logits as
            "drop" with `weighted`. None means "merge" for "coreset", "cluster" and "bipartite", "drop" for the others.
        weighted: With "drop": weigh each kept token in attention by the number of tokens it stands for (the paper's
            Remark 1). "merge" always does; "replace" has the tokens themselves.
        placement: Where a layer reduces: "middle", after attention and before the feed-forward network (the paper);
            "end", after the layer; "input", once, before the first layer. None takes what schedule and selector need.
        centers_per_step: The paper's m for "coreset": an int, a fraction of k, or "all".
        metric: Distance between tokens: "euclidean", "cosine", or "sensitivity", the change of the answer. Sensitivity
            has to be measured on texts first (`measure_sensitivity`).
        within: With the selector "cluster": merge only tokens at most this many places apart; None for any.
        cls_only: Compute only CLS in the last layer, as a classifier reads nothing else of it. Changes no logit.
        rest_from: Only CLS is computed from this layer on. The other tokens rest: CLS reads them as they were before
            this layer. Changes logits, unless it is the last layer. The schedule must be done by then.
        skip: Numbers of layers that are left out, as in a model with fewer layers. A layer that is left out reduces
            nothing; the next one that runs then reduces to its own length.
        spread: A model without a head gives a vector for every input token: that of the token that represents it, so
            that a mean over tokens counts each of them. Otherwise it gives only the tokens that are left.
        protect: Which tokens of a pair of texts stay as they are, beside CLS: "query", the first text; "separators".
            They are neither dropped nor merged, so more tokens stay than the schedule says where it keeps fewer.
        separator: With `protect`: the id of the separator, by which the texts of a pair are told apart. None tells them
            apart by token types, where the model reads these.
        seed: Seed of the selector "random" in evaluation.

    Example:
        >>> config = PyramidConfig(schedule=Schedule.exponential(0.25, 3))
        >>> PyramidConfig.from_dict(config.to_dict()) == config
        True
    """

    schedule: Schedule
    selector: str = "coreset"
    reduce: Reduce | None = None
    weighted: bool = False
    placement: Placement | None = None
    centers_per_step: CentersPerStep = 1
    metric: TokenMetric = "euclidean"
    within: int | None = None
    cls_only: bool = True
    rest_from: int | None = None
    skip: tuple[int, ...] = ()
    spread: bool = False
    protect: tuple[str, ...] = ()
    separator: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_kind(
            "schedule", self.schedule, Schedule, "for example Schedule.exponential(keep_ratio=0.25, last_layer=3)"
        )
        get_selector(self.selector)
        if self.reduce is None:
            merges = self.selector == "coreset" or _merges(get_selector(self.selector))
            object.__setattr__(self, "reduce", "merge" if merges else "drop")
        if self.placement is None:
            at_input = self.schedule.selects_at_input or get_selector(self.selector).placement == "input"
            object.__setattr__(self, "placement", "input" if at_input else "middle")
        check_choice("reduce", self.reduce, REDUCES)
        check_choice("placement", self.placement, PLACEMENTS)
        check_choice("metric", self.metric, TOKEN_METRICS)
        check_number("seed", self.seed, 0, 2**31 - 1, whole=True)
        check_flag("weighted", self.weighted)
        check_flag("cls_only", self.cls_only)
        check_flag("spread", self.spread)
        object.__setattr__(self, "protect", _protected(self.protect))
        if self.separator is not None:
            check_number("separator", self.separator, 0, 2**31 - 1, "the id of a token", whole=True)
        if self.rest_from is not None:
            check_int("rest_from", self.rest_from, 2, "the first layer computes every token")
        object.__setattr__(self, "skip", _layer_numbers("skip", self.skip))
        centers = self.centers_per_step
        centers_in_a_step(centers if isinstance(centers, Hashable) else str(centers), 2)
        self._check_combination()

    def _check_combination(self) -> None:
        """Raises for settings that are valid one by one but not together."""
        selector, placement = get_selector(self.selector), self.placement
        at_input, pools, merges = placement == "input", self.selector == "pool", _merges(selector)
        if self.within is not None:
            check_int("within", self.within, 1, "neighbours stand one place apart")
        problems = {
            f"the selector {self.selector!r} works with placement={selector.placement!r} only, got {placement!r}": (
                selector.placement not in (None, placement)
            ),
            f"placement {placement!r} and a schedule of kind {self.schedule.kind!r} do not fit: selection at the input "
            "happens once and takes Schedule.input_only(keep_ratio), any other placement another schedule": (
                at_input != self.schedule.selects_at_input
            ),
            f"the selector {self.selector!r} cannot select at the input: no attention has been computed there; "
            "use 'coreset', 'first' or 'random'": selector.voters is not None and at_input,
            f"sensitivity is measured in the middle of layers, got placement={placement!r}; leave it out, or "
            "use metric='euclidean' or 'cosine'": self.metric == "sensitivity" and placement != "middle",
            f"within goes with the selector 'cluster', got {self.selector!r}; leave it out": (
                self.within is not None and self.selector != "cluster"
            ),
            f"the selector {self.selector!r} merges by itself, got reduce={self.reduce!r}; leave it out": (
                merges and self.reduce != "merge"
            ),
            f"the selector {self.selector!r} has no centres, got centers_per_step={self.centers_per_step!r}; leave it "
            "out, or use 'coreset'": merges and self.centers_per_step != 1,
            f"the selector {self.selector!r} cannot tell how many tokens a text needs; use 'cluster' or 'coreset' with "
            "an adaptive schedule": (
                merges and isinstance(self.schedule, AdaptiveSchedule) and getattr(selector, "count", None) is None
            ),
            "the selector 'pool' takes Schedule.strided(window, at_layers), got a schedule of kind "
            f"{self.schedule.kind!r}": pools and not isinstance(self.schedule, StridedSchedule),
            "with reduce='replace' every token is still there and needs no weight; leave weighted=False, "
            "or use reduce='drop', weighted=True for the same logits at less cost": (
                self.reduce == "replace" and self.weighted
            ),
            "the selector 'pool' averages by itself; leave reduce='drop' and weighted=False": (
                pools and (self.reduce != "drop" or self.weighted)
            ),
        }
        for problem, found in problems.items():
            if found:
                raise PyramidError(problem)

    @property
    def protection(self) -> Protection | None:
        """Which tokens are protected; None if only CLS is."""
        return Protection(self.protect, self.separator) if self.protect else None

    def check_saves(self) -> None:
        """Raises when these settings save no work, so that no speed-up can be claimed for them."""
        if self.reduce == "replace":
            raise PyramidError(
                "reduce='replace' keeps the full length at every layer and saves nothing: there is no speed-up to "
                "measure or to ask for; reduce='drop', weighted=True gives the same logits and saves"
            )

    def cost(self, kept: Sequence[int], n: int, sizes: Sizes, *, with_keys: bool = False) -> Cost:
        """What a text of `n` tokens costs when layers keep these numbers of them.

        Args:
            kept: Tokens kept at each layer.
            n: The text's true length.
            sizes: Of the model.
            with_keys: Layers that compute only CLS still compute keys and values of all tokens, as with 8-bit weights.
        """
        cost = Cost.of(
            self.run_lengths((n,) * len(kept) if self.reduce == "replace" else kept),
            n,
            sizes.hidden_size,
            sizes.intermediate_size,
            placement=self.placement or "middle",
            cls_layers=self.cls_layers(len(kept)),
            heads=None if with_keys else sizes.heads,
            layers=len(kept),
        )
        return dataclasses.replace(cost, macs=cost.macs + self._projecting(kept, n, sizes.hidden_size))

    def _projecting(self, kept: Sequence[int], n: int, hidden_size: int) -> int:
        """Multiply-accumulates for projecting tokens on directions of sensitivity, where they are compared.

        Products of tokens with tokens are few and are not counted, for any selector.
        """
        if self.metric != "sensitivity":
            return 0
        run = self.run_lengths(kept)
        seen = list(zip([n, *run], run, strict=False))[: len(run) - self.cls_layers(len(kept))]
        if isinstance(self.schedule, AdaptiveSchedule):  # it compares in order to know whether to reduce
            compared = [before for before, _ in seen[self.schedule.first_layer - 1 : self.schedule.done_at(len(kept))]]
        else:
            compared = [before for before, after in seen if after < before]
        return sum(compared) * hidden_size * min(SENSITIVITY_RANK, hidden_size)

    def cls_layers(self, layers: int) -> int:
        """How many of the last layers that run compute only CLS, in a model with `layers` layers."""
        resting = range(layers + 1 if self.rest_from is None else self.rest_from, layers + 1)
        return max(int(self.cls_only), len(set(resting) - set(self.skip)))

    def run_lengths(self, lengths: Sequence[int]) -> list[int]:
        """The lengths of the layers that run, of those of all layers.

        Example:
            >>> PyramidConfig(schedule=Schedule.constant(0.5), skip=(2,)).run_lengths([8, 4, 2])
            [8, 2]
        """
        return [length for layer, length in enumerate(lengths, start=1) if layer not in self.skip]

    def check(self, layers: int) -> None:
        """Raises unless these settings fit a model with `layers` layers."""
        self.schedule.check(layers)
        for layer in self.skip:
            check_layer("skip", layer, layers)
        if len(self.skip) == layers:
            raise PyramidError(f"skip leaves out all {layers} layers; leave at least one")
        if self.rest_from is None:
            return
        check_layer("rest_from", self.rest_from, layers)
        if (last := self.schedule.done_at(layers)) >= self.rest_from:
            raise PyramidError(
                f"tokens that rest are not reduced any more: rest_from={self.rest_from} takes a schedule that is done "
                f"by layer {self.rest_from - 1}, and this one reduces up to layer {last}; let it end earlier, or "
                "let them rest later"
            )

    def replace(self, **changes: Any) -> PyramidConfig:
        """A copy with some settings changed."""
        for name in changes:
            check_choice("setting", name, [field.name for field in dataclasses.fields(self)])
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_dict` makes an equal config."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["skip"], data["protect"] = list(self.skip), list(self.protect)
        # Not written while unused, as in versions without them.
        for name in ("rest_from", "skip", "spread", "protect", "separator"):
            if data[name] in (None, False, []):
                del data[name]
        return {"format": FORMAT_VERSION, **data, "schedule": self.schedule.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PyramidConfig:
        """The config that `to_dict` described. Unknown keys are left out with a warning that names them."""
        check_kind("saved pyramid settings", data, Mapping, "the config is damaged")
        fields = dict(data)
        version = fields.pop("format", None)
        if isinstance(version, bool) or not isinstance(version, int) or version > FORMAT_VERSION:
            raise PyramidError(
                f"this pyramid was saved in format {version!r} and this release reads up to {FORMAT_VERSION}; "
                "upgrade with: pip install -U pyramid-bert"
            )
        fields.pop("library_version", None)
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(fields) - known):
            warnings.warn(f"ignoring unknown pyramid settings: {', '.join(unknown)}", stacklevel=2)
        if "schedule" not in fields:
            raise PyramidError("a saved pyramid needs a 'schedule'; the config is damaged")
        fields["schedule"] = Schedule.from_dict(fields["schedule"])
        return cls(**{key: value for key, value in fields.items() if key in known})


def _merges(selector: Selector) -> bool:
    """Whether a selector replaces groups of tokens by their weighted means."""
    return isinstance(selector, Grouper) and selector.weighs


def _protected(parts: Any) -> tuple[str, ...]:
    """What is protected, in a fixed order; one part may be given by its name alone."""
    given = (parts,) if isinstance(parts, str) else parts
    if not isinstance(given, list | tuple):
        raise PyramidError(f"protect must be a list of {', '.join(PROTECTED)}, got {shown(parts)}; () protects nothing")
    for part in given:
        check_choice("part to protect", part, PROTECTED)
    return tuple(part for part in PROTECTED if part in given)


def _layer_numbers(name: str, values: Any) -> tuple[int, ...]:
    """Numbers of layers, ascending; raises for anything else and for a number that is there twice."""
    if not isinstance(values, list | tuple):
        raise PyramidError(f"{name} must be a list of layers, got {shown(values)}; give (3, 6), or () for none")
    for value in values:
        check_int(f"each of {name}", value, 1, "layers are counted from 1")
    if len(set(values)) != len(values):
        raise PyramidError(f"{name} names a layer twice: {list(values)}")
    return tuple(sorted(values))
