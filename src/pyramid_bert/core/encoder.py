"""The module that replaces a model's encoder: it starts a pass and runs the loop."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModelError
from .loop import Both, Halves, Pass, Plan, Recorder, run
from .record import Slots
from .reducer import Reducer
from .tokens import Tokens

# For models that pass on no keywords: the options of the calls under way, each with the id of the module called.
HANDED_OVER: ContextVar[tuple[tuple[int, Pass], ...]] = ContextVar("pyramid_passes", default=())


class PyramidEncoder(nn.Module):
    """A stack of encoder layers in which later layers see fewer tokens.

    Takes over the modules of the encoder it replaces, under their names, and adds no parameter. It keeps no state of a
    call, so threads can share a model.

    Args:
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
    # Hooks of a family on the model around this encoder.
    hooks: tuple[Any, ...] = ()

    def __init__(
        self,
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
        plan.schedule.check(len(plan.layers))
        for name, part in replaced.named_children():
            self.add_module(name, part)
        self.config = owner.config
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
    def run(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        this: Pass | None = None,
        *,
        whole: bool = False,
        also: Recorder | None = None,
    ) -> Tensor:
        """The output of the last layer: (B, l_L, D), (B, 1, D) when it computes only CLS, (B, N, D) when it spreads.

        Args:
            hidden: (B, N, D) embeddings, CLS first.
            mask: (B, N) bool, True for real tokens; None when all are.
            this: The options of this call.
            whole: Compute every token of the last layer, whatever `this` says.
            also: A recorder beside that of `this`.
        """
        handed_over = HANDED_OVER.get()
        this = this or (handed_over[-1][1] if handed_over else Pass())
        protected = None if this.dense else this.protected
        replaces = self.replaces and not this.dense
        tokens = Tokens.of(hidden, mask, replaces=replaces, owner=self.owner[0], protected=protected)
        slots = Slots() if self.spreads else None
        record = this.record if also is None else Both(this.record, also)
        record = record if slots is None else Both(record, slots)
        record.start(tokens, hidden.shape[1])
        seed = self.seed
        if self.training and self.selector.name == "random":
            seed = int(torch.randint(2**31, ()))
        steps = (this.plan or self.plan).steps(tokens.counts, dense=this.dense, whole=whole or this.whole, seed=seed)
        this.tokens = run(tokens, steps, self.family, self.reducer, record)
        last: Tensor = this.tokens.hidden
        this.cls = last[:, 0]
        return last if slots is None else slots.spread(last)
