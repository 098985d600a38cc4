"""What families share: layers that run in two halves, the call of the pyramid encoder, checkpointing and hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.utils.generic import ModelOutput

from ..core.encoder import PyramidEncoder
from ..core.loop import Half, Pass, Recorder, Step
from ..core.reducer import Decision
from ..core.tokens import Tokens


class TwoHalves:
    """Runs a layer in two halves, with a reduction between them. Implements `core.loop.Halves`.

    A family implements `attend` and `feed_forward`. Forward hooks of a layer fire as if it had been called, because
    transformers needs them for `output_hidden_states`.
    """

    halves: tuple[Half, ...] = ("attention", "feed_forward")

    def run(self, step: Step, tokens: Tokens) -> Tokens:
        """The tokens after one half of a layer."""
        if step.half == "input":
            return tokens
        if step.half == "attention":
            return self._attention(step, tokens)
        if step.half == "feed_forward":
            return self._feed_forward(step, tokens)
        assert tokens.given is not None
        output = fire_hooks(step.layer, tokens.given, self.output(tokens.hidden))
        return replace(tokens, hidden=output[0] if isinstance(output, tuple) else output, given=None)

    def _attention(self, step: Step, tokens: Tokens) -> Tokens:
        if tokens.masks is None:
            tokens.masks = self.masks(tokens)
        queries = 1 if step.cls_only else None
        hidden, received = self.attend(
            step.layer, tokens.hidden, tokens.masks, queries=queries, votes=_votes(step, tokens)
        )
        resting = tokens.hidden[:, 1:] if step.cls_only else None
        given = tokens.hidden if step.layer._forward_hooks else None
        compared = None if step.keep is None else self.compared(step.layer, hidden)
        how: dict[str, Any] = {"received": received, "compared": compared, "resting": resting, "given": given}
        return replace(tokens, hidden=hidden, tables=None, **how)

    def _feed_forward(self, step: Step, tokens: Tokens) -> Tokens:
        tokens = replace(tokens, hidden=self.feed_forward(step.layer, tokens.hidden))
        return tokens.rejoined() if step.cls_only and not step.final else tokens

    def compared(self, layer: Any, hidden: Tensor) -> Tensor | None:
        """The vectors (B, N, D) that selectors compare in the middle of `layer`; None for the tokens themselves."""
        return None

    def output(self, hidden: Tensor) -> Any:
        """What a layer returns, which hooks on it get: the tokens, or a tuple that begins with them."""
        return hidden

    def masks(self, tokens: Tokens) -> Any:
        """What `attend` gets besides the tokens, computed once for each set of tokens: the bias (B, 1, 1, N) of keys.

        A family with relative positions adds what follows from `tokens.places()` and from the weights of
        `tokens.owner`: a bias (B, H, N, N), rotations, the masks of local layers.
        """
        return tokens.key_bias()

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of `layer`, with its residual connection and norm, and the attention that tokens receive.

        Args:
            layer: One of the model's layers.
            hidden: (B, N, D).
            masks: What `masks` returned.
            queries: Compute only this many tokens, the first ones; None for all.
            votes: Whose attention counts as received; None if it is not needed.
        """
        raise NotImplementedError

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """The rest of `layer`: its feed-forward network with residual connection and norm."""
        raise NotImplementedError


def run_encoder(
    encoder: PyramidEncoder, hidden: Tensor, mask: Tensor | None, this: Pass | None, options: dict[str, Any]
) -> ModelOutput:
    """The output of a pyramid encoder, as transformers expects it; `options` are the other keywords of the call."""
    wants_all = options.get("output_hidden_states") or encoder.config.output_hidden_states
    hidden = encoder.run(hidden, mask, this, whole=bool(wants_all))
    return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=cast(torch.FloatTensor, hidden))


class States(Recorder):
    """Keeps what the first layer is given and the states after each layer, for encoders that return them themselves."""

    def __init__(self) -> None:
        self.found: list[Tensor] = []

    def start(self, tokens: Tokens, n: int) -> None:
        """Begins with the embeddings."""
        self.found = [tokens.hidden]

    def ran(self, step: Step, tokens: Tokens) -> None:
        """Keeps a state, or replaces it by what hooks made of it."""
        if step.half == "end":
            self.found.pop()
        if step.half in ("feed_forward", "end"):
            self.found.append(tokens.hidden)

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        """A layer that reduces at its end, or a reduction at the input, gives what is left."""
        if step.half != "attention":
            self.found[-1] = tokens.hidden


class Votes(NamedTuple):
    """Whose attention counts as received: the queries (B, Q) that are True among the first Q; all if None."""

    mask: Tensor | None


def _votes(step: Step, tokens: Tokens) -> Votes | None:
    if step.voters is None:
        return None
    if step.voters == "cls":
        return Votes(torch.ones_like(tokens.hidden[:, :1, 0], dtype=torch.bool))
    return Votes(tokens.mask if tokens.copies is None else tokens.copies.stands_for_itself())


def checkpointed(layer: Any, run: Callable[..., Any], *args: Any) -> Any:
    """`run(*args)`, under gradient checkpointing if it is enabled.

    Each half of a layer is one segment. The selection between them runs once, so recomputation cannot change it.
    """
    if getattr(layer, "gradient_checkpointing", False) and layer.training:
        return layer._gradient_checkpointing_func(run, *args)
    return run(*args)


def fire_hooks(module: nn.Module, given: Tensor, output: Any) -> Any:
    """`output` after the forward hooks of a module whose parts were run one by one."""
    for key, hook in module._forward_hooks.items():
        with_kwargs = key in module._forward_hooks_with_kwargs
        result = hook(module, (given,), {}, output) if with_kwargs else hook(module, (given,), output)
        output = output if result is None else result
    return output
