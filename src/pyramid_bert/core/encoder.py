"""The module that replaces a model's encoder: it starts a pass and runs the loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModelError
from .loop import Halves, Pass, Plan, run
from .record import Both, Slots
from .reducer import Reducer
from .tokens import Tokens


class PyramidEncoder(nn.Module):
    """A stack of encoder layers in which later layers see fewer tokens.

    Takes over the `layer` list of the encoder it replaces and adds no parameter. It keeps no state of a call, so
    threads can share a model.

    Args:
        layer: The layers.
        family: How they run.
        plan: Which steps a pass takes.
        reducer: Which tokens stay at a step.
        replaces: Removed tokens are overwritten by copies of kept ones, so the length stays (the paper's pyramid*).
        spreads: The output has a vector for every input token: that of the token that represents it.
        seed: Seed of random choices in evaluation.
        owner: The model that contains this encoder.
        replaced: The encoder that this one replaces.
    """

    # What a family adds for a selection at the input.
    at_input: Any = None

    def __init__(
        self,
        layer: nn.ModuleList,
        family: Halves,
        plan: Plan,
        reducer: Reducer,
        *,
        replaces: bool,
        spreads: bool = False,
        seed: int,
        owner: Any,
        replaced: Any,
    ) -> None:
        super().__init__()
        plan.schedule.check(len(layer))
        self.layer = layer
        self.config = replaced.config
        # In tuples, so that torch does not register modules a second time.
        self.owner: tuple[Any] = (owner,)
        self.replaced: tuple[Any] = (replaced,)
        self.family = family
        self.plan = plan
        self.reducer = reducer
        self.selector = reducer.selector
        self.replaces, self.spreads = replaces, spreads
        self.weighted = reducer.how != "drop" and not replaces
        self.by_sensitivity = reducer.space.owner is not None
        self.seed = seed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module, but refused while a graph is made that would keep the tokens of one example."""
        if torch._C._get_tracing_state() is not None or torch.compiler.is_exporting():
            raise UnsupportedModelError(
                "a pyramid cannot be traced or exported: which tokens stay depends on the text, and a graph would keep "
                "those of the example for every text; run the model itself, or torch.compile it"
            )
        return super().__call__(*args, **kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def run(self, hidden: Tensor, mask: Tensor | None, this: Pass | None = None, *, whole: bool = False) -> Tensor:
        """The output of the last layer: (B, l_L, D), (B, 1, D) when it computes only CLS, (B, N, D) when it spreads.

        Args:
            hidden: (B, N, D) embeddings, CLS first.
            mask: (B, N) bool, True for real tokens; None when all are.
            this: The options of this call.
            whole: Compute every token of the last layer, whatever `this` says.
        """
        this = Pass() if this is None else this
        tokens = Tokens.of(hidden, mask, replaces=self.replaces and not this.dense)
        slots = Slots() if self.spreads else None
        record = this.record if slots is None else Both(this.record, slots)
        record.start(tokens, hidden.shape[1])
        seed = self.seed
        if self.training and self.selector.name == "random":
            seed = int(torch.randint(2**31, ()))
        steps = (this.plan or self.plan).steps(tokens.counts, dense=this.dense, whole=whole or this.whole, seed=seed)
        hidden = run(tokens, steps, self.family, self.reducer, record).hidden
        this.cls = hidden[:, 0]
        return hidden if slots is None else slots.spread(hidden)
