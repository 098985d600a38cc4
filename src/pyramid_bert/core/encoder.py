"""The module that stands in for a model's encoder: it begins a pass and hands it to the loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..cost import Placement
from ..errors import UnsupportedModelError
from ..schedule import Schedule
from .distances import Metric
from .loop import Halves, Pass, Plan, run
from .reducer import Reducer, Space
from .selectors import get_selector
from .tokens import Tokens


class PyramidEncoder(nn.Module):
    """A stack of encoder layers that gets narrower on the way up.

    Takes over the `layer` list of the encoder it stands in for, and adds no parameter. It keeps no state of a call, so
    threads can share a model. All arguments are validated by `PyramidConfig`, which is what users make.

    Args:
        layer: The layers.
        family: How they run.
        schedule: How many tokens each layer keeps.
        selector: Which tokens stay, by name.
        reduce: What becomes of the others: "drop", "merge" or "replace".
        weighted: With "drop": kept tokens weigh as much as the tokens that they stand for.
        placement: Where a layer reduces.
        knobs: Settings of the selector: "centers_per_step", "within".
        metric: How distances between tokens are measured.
        by_sensitivity: Distances are changes of the answer; `owner` has what was measured.
        cls_only: The last layer computes only CLS.
        rest_from: From this layer on only CLS is computed.
        seed: Of random choices in evaluation.
        owner: The model that this encoder is a part of.
        replaced: The encoder that it stands in for.
    """

    # What a family adds for a selection at the input.
    at_input: Any = None

    def __init__(
        self,
        layer: nn.ModuleList,
        family: Halves,
        *,
        schedule: Schedule,
        selector: str,
        reduce: str,
        weighted: bool,
        placement: Placement,
        knobs: Mapping[str, Any],
        metric: Metric,
        by_sensitivity: bool,
        cls_only: bool,
        rest_from: int | None,
        seed: int,
        owner: Any,
        replaced: Any,
    ) -> None:
        super().__init__()
        schedule.check(len(layer))
        self.layer = layer
        self.config = replaced.config
        # In tuples, so that torch does not register modules a second time.
        self.owner: tuple[Any] = (owner,)
        self.replaced: tuple[Any] = (replaced,)
        self.family = family
        self.selector = get_selector(selector)
        self.reduce = reduce
        self.weighted = weighted or reduce == "merge"
        self.by_sensitivity = by_sensitivity
        self.seed = seed
        self.plan = Plan(
            list(layer), family.halves, schedule, placement, cls_only, rest_from, voters=self.selector.voters
        )
        how: Any = "merge" if reduce == "merge" else "weigh" if weighted or reduce == "replace" else "drop"
        space = Space(metric, self.owner if by_sensitivity else None)
        self.reducer = Reducer(self.selector, {"window": getattr(schedule, "window", None), **knobs}, space, how)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module, but refused while a graph is made that would keep the tokens of one example."""
        if torch.jit.is_tracing() or torch.compiler.is_exporting():
            raise UnsupportedModelError(
                "a pyramid cannot be traced or exported: which tokens stay depends on the text, and a graph would keep "
                "those of the example for every text; run the model itself, or torch.compile it"
            )
        return super().__call__(*args, **kwargs)

    @torch.compiler.disable
    def run(self, hidden: Tensor, mask: Tensor | None, this: Pass | None = None, *, whole: bool = False) -> Tensor:
        """The output of the last layer: (B, l_L, D), or (B, 1, D) when it computes only CLS.

        Args:
            hidden: (B, N, D) embeddings, CLS first.
            mask: (B, N) bool, True for real tokens; None when all are.
            this: What is asked of this pass.
            whole: Compute every token of the last layer, whatever `this` says.
        """
        this = Pass() if this is None else this
        tokens = Tokens.of(hidden, mask, replaces=self.reduce == "replace" and not this.dense)
        this.record.start(tokens, hidden.shape[1])
        steps = self.plan.steps(tokens.counts, dense=this.dense, whole=whole or this.whole, seed=self._seed())
        tokens = run(tokens, steps, self.family, self.reducer, this.record)
        this.cls = tokens.hidden[:, 0]
        return tokens.hidden

    def _seed(self) -> int:
        """The seed of a pass: drawn from torch's own state in training, fixed in evaluation."""
        if self.training and self.selector.name == "random":
            return int(torch.randint(2**31, ()))
        return self.seed
