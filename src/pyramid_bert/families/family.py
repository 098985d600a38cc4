"""What a row of the table of families holds: its classes, the names of its parts, and how its layers run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..config import PyramidConfig
from ..core.encoder import PyramidEncoder
from ..core.loop import Halves


@dataclass(frozen=True, kw_only=True)
class Where:
    """What the parts of a family's models are called. Defaults are BERT's names.

    Attributes:
        base: The attribute of a classifier that is the model without a head.
        encoder: The attribute of that model that the pyramid replaces.
        layers: The attribute of the encoder that is the list of layers; empty if the encoder is the list itself.
        embeddings: The attribute of the model that is its embeddings.
        head: The modules of a classifier between the last states and the logits, as paths with dots, in order.
        output: The path of the linear layer that gives the logits.
        stored: The path of the list of layers in saved weights, if transformers renames it there; empty if not.
        norm: The path of the norm between the last layer and the head; empty if there is none.
        inner_size: The attribute of the config that is the inner width of the feed-forward network.
        activation: The attribute of the config that names its activation.
    """

    base: str
    encoder: str = "encoder"
    layers: str = "layer"
    embeddings: str = "embeddings"
    head: tuple[str, ...] = ("classifier",)
    output: str = "classifier.out_proj"
    stored: str = ""
    norm: str = ""
    inner_size: str = "intermediate_size"
    activation: str = "hidden_act"


def in_turn(model: Any, head: Sequence[Any], hidden: Tensor, weights: Tensor | None) -> Tensor:
    """What the modules of a head give, one after the other. The first takes the states (B, N, D)."""
    for part in head:
        hidden = part(hidden)
    return hidden


@dataclass(frozen=True, kw_only=True)
class How:
    """How a family's models run.

    Attributes:
        halves: How layers run.
        stand_in: The class of the pyramid encoder; its `forward` takes the calls that the model makes.
        check: Raises unless a pyramid can replace an encoder.
        by_number: The layers in the order in which they run, from the list of layers and the config.
        stored: How many layers the weights hold, from the config.
        enter: What the first layer is given, from the model without a head and what its embeddings return.
        read: The logits (B, classes), from a classifier, the modules of its head (`Where.norm` first, if there is one),
            the states (B, N, D) of the last layer, and how many input tokens stand behind each (B, N); None for one.
        positions: The largest number of tokens that a model with a config can read.
        reads_without_keys: CLS needs no keys and values in layers that compute only CLS (families/reading.py).
        reads_positions: Attention depends on the input positions of tokens.
        gated: The feed-forward network has a third matrix, as large as the others.
        settings: Adapts the pyramid's settings to a model's config; raises for settings that the family cannot run.
        around: Adds hooks to a model, and to the model in it that has no head, as long as it is a pyramid (`around`).
        watch: Adds further hooks to the model while a pyramid selects at its input.
    """

    halves: Halves
    stand_in: type[PyramidEncoder]
    check: Callable[[Any], None]
    by_number: Callable[[Any, Any], Sequence[nn.Module]] = lambda layers, config: list(layers)
    stored: Callable[[Any], int] = lambda config: int(config.num_hidden_layers)
    enter: Callable[[Any, Tensor], Tensor] = lambda base, embedded: embedded
    read: Callable[[Any, Sequence[Any], Tensor, Tensor | None], Tensor] = in_turn
    positions: Callable[[Any], int] = lambda config: int(config.max_position_embeddings)
    reads_without_keys: bool = False
    reads_positions: bool = False
    gated: bool = False
    settings: Callable[[PyramidConfig, Any], PyramidConfig] = lambda settings, config: settings
    around: Callable[[Any, Any], Sequence[RemovableHandle]] = lambda model, base: ()
    watch: Callable[[Any], Sequence[RemovableHandle]] = lambda model: ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """One model family: a row of the table. See docs/families.md for how to write one.

    Attributes:
        model_type: `config.model_type` of dense models. That of saved pyramids starts with "pyramid-".
        config: The config class.
        classifier: The class of sequence classifiers.
        model: The class of the model without a head; None if it cannot be a pyramid.
        where: The names of its parts.
        how: How it runs.
    """

    model_type: str
    config: type[Any]
    classifier: type[Any]
    model: type[Any] | None
    where: Where
    how: How

    @property
    def pyramid_type(self) -> str:
        """`config.model_type` of saved pyramids."""
        return f"pyramid-{self.model_type.replace('_', '-')}"

    @property
    def supported(self) -> str:
        """The classes that can be pyramids, for messages."""
        names = f"{self.classifier.__name__}, Pyramid{self.classifier.__name__}"
        return names if self.model is None else f"{names} and the bare encoder model"
