"""What a model folder must be before anything in it is loaded, and what a model must be after.

A folder may come from a stranger. Only its config, its tokenizer and its safetensors are read, and only inside of it; a
config chooses no code, no kernel and no quantization. A model is complete, or refused in one line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from ..boundary import read_object, translating
from ..checks import check_number
from ..errors import CheckpointError
from .family import Family
from .parts import base_model, positions_of
from .table import FAMILIES

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FETCH_AGAIN = "fetch or train the model again"

# Keys of a config that make transformers fetch or run something that the folder's author chose.
_REFUSED = {
    "quantization_config": "quantized weights are not supported; load the model in its full precision and save it",
    "transformers_weights": f"weights are read from {WEIGHTS} or {INDEX} only; remove the key",
}
_ATTENTION_KEYS = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
_ATTENTION = ("eager", "sdpa", None)
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

# Attribute of a config -> least, most. Wide enough for every encoder that exists, and finite.
_LIMITS: dict[str, tuple[float, float]] = {
    "num_hidden_layers": (1, 1_000),
    "hidden_size": (1, 1 << 16),
    "num_attention_heads": (1, 1 << 12),
    "vocab_size": (1, 1 << 24),
    "type_vocab_size": (0, 1 << 16),
    "embedding_size": (1, 1 << 16),
}
_INNER = (1, 1 << 20)  # of the inner width of feed-forward networks
_OTHER_HEADS = ("ForMultipleChoice", "ForNextSentencePrediction")  # whose weights would pass for a classifier's
_MOST_LABELS, _MOST_POSITIONS = 1 << 16, 1 << 24


def check_config(folder: Path) -> None:
    """Raises unless the folder's config.json can be handed to transformers."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder} is not a model folder: it has no {CONFIG}")
    config = read_object(path, CheckpointError, FETCH_AGAIN)
    for key, remedy in _REFUSED.items():
        if config.get(key) is not None:
            raise CheckpointError(f"{path} asks for {key!r}: {remedy}")
    for key in _ATTENTION_KEYS:
        if config.get(key) not in _ATTENTION:
            raise CheckpointError(f"{path} asks for attention by {config[key]!r}; only eager and sdpa are run")
    kind = config.get("model_type")
    if config.get("auto_map") and not any(kind in (family.model_type, family.pyramid_type) for family in FAMILIES):
        have = ", ".join(family.model_type for family in FAMILIES)
        raise CheckpointError(
            f"{folder} holds a model of type {kind!r} that comes with its own code (trust_remote_code), which is never "
            f"run; families that transformers has itself and that can be pyramids: {have}"
        )
    if (folder / "adapter_config.json").exists():
        raise CheckpointError(f"{folder} holds an adapter; merge it into its model and save that")
    kinds = config.get("architectures")
    for kind in kinds if isinstance(kinds, list) else ():
        if isinstance(kind, str) and kind.endswith(_OTHER_HEADS):
            raise CheckpointError(f"{folder} holds a {kind}, which gives a text no label; give a sequence classifier")
    for key in ("num_labels", "id2label", "label2id"):  # transformers makes a dict of as many entries
        value = config.get(key)
        number = len(value) if isinstance(value, dict) else value
        if number is not None:
            check_number(f"{path}: {key}", number, 0, _MOST_LABELS, FETCH_AGAIN, whole=True, error=CheckpointError)


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that a model folder names, each of them inside of it."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    index = folder / INDEX
    if not index.is_file():
        pickled = any(folder.glob("*.bin"))
        why = (
            "its weights are pickles, which are never loaded; convert them to safetensors" if pickled else "no weights"
        )
        raise CheckpointError(f"{folder} has no {WEIGHTS}: {why}")
    names = read_object(index, CheckpointError, FETCH_AGAIN).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise CheckpointError(f"{index} is damaged: it has no weight_map; {FETCH_AGAIN}")
    for name in names.values():
        plain = isinstance(name, str) and re.fullmatch(r"[\w.-]+\.safetensors", name)
        if not plain:
            raise CheckpointError(
                f"{index} names the file {name!r}; only safetensors files inside of the folder are loaded"
            )
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder} lacks {name}, which {index.name} names; {FETCH_AGAIN}")
    return sorted({folder / name for name in names.values()})


def weight_names(folder: Path) -> set[str]:
    """The names of all tensors in the folder's safetensors files, whose headers are checked on the way."""
    names: set[str] = set()
    for path in weight_files(folder):
        with translating(CheckpointError, f"{path} is damaged", FETCH_AGAIN), safe_open(path, framework="pt") as file:
            names |= set(file.keys())
    return names


def check_sizes(folder: Path, family: Family, config: Any, names: set[str]) -> None:
    """Raises unless the sizes in a config are possible, and its layers are those of the weights."""
    file, where = folder / CONFIG, family.where
    for name, (low, high) in {**_LIMITS, where.inner_size: _INNER}.items():
        value = getattr(config, name, low)
        check_number(f"{file}: {name}", value, low, high, FETCH_AGAIN, whole=True, error=CheckpointError)
    check_number(
        f"{file}: positions", positions_of(config), 1, _MOST_POSITIONS, FETCH_AGAIN, whole=True, error=CheckpointError
    )
    for name, value in config.to_dict().items():
        if name.endswith("norm_eps"):
            check_number(f"{file}: {name}", value, 0, 1, FETCH_AGAIN, above=True, error=CheckpointError)
        elif name.endswith(("dropout", "dropout_prob")) and value is not None:
            check_number(f"{file}: {name}", value, 0, 1, FETCH_AGAIN, error=CheckpointError)
    paths = [".".join(filter(None, (where.encoder, where.layers))), *filter(None, [where.stored])]
    pattern = re.compile(rf"(?:{re.escape(where.base)}\.)?(?:{'|'.join(map(re.escape, paths))})\.(\d+)\.")
    found = {int(match[1]) for name in names if (match := pattern.match(name))}
    layers = family.how.stored(config)
    if found != set(range(layers)):
        raise CheckpointError(
            f"{folder} is damaged: {CONFIG} says {layers} layers, the weights have {len(found)}; {FETCH_AGAIN}"
        )


def check_complete(path: str | Path, family: Family, model: Any, report: Mapping[str, Any]) -> bool:
    """Raises unless every weight was there, fits and is finite; returns whether the head has to be trained.

    Args:
        path: Where the model is from.
        family: Its family.
        model: The model as transformers loaded it.
        report: What transformers says about loading it.
    """
    for key, stored, wanted in sorted(report["mismatched_keys"]):
        raise CheckpointError(
            f"{path} does not fit its config: {key} has the shape {tuple(stored)}, and {tuple(wanted)} is needed; "
            f"{FETCH_AGAIN}"
        )
    where = family.where
    trained = tuple(f"{path}." for path in where.head)  # what training makes, where a model comes without it
    missing = sorted(report["missing_keys"])
    inside = [key for key in missing if not key.startswith(trained)]
    if inside:
        raise CheckpointError(f"{path} lacks weights that the model needs, for example {inside[0]}; {FETCH_AGAIN}")
    inside_base = (where.embeddings, where.encoder)
    own = (*trained, *(path.removeprefix(f"{where.base}.") for path in trained))
    own += tuple(f"{prefix}{part}." for prefix in ("", f"{where.base}.") for part in inside_base)
    unused = [key for key in sorted(report["unexpected_keys"]) if key.startswith(own) and not _old_buffer(key)]
    if unused:
        raise CheckpointError(
            f"{path} has weights that its config has no place for, for example {unused[0]}; {FETCH_AGAIN}"
        )
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise CheckpointError(f"{path} is damaged: {name} holds values that are not finite; {FETCH_AGAIN}")
    several = model.config.problem_type == "multi_label_classification"
    return several or bool(missing)


def _old_buffer(key: str) -> bool:
    """Whether a tensor is one that older versions of transformers saved and that is made anew."""
    return key.endswith((".position_ids", ".token_type_ids"))


def check_tokenizer_files(folder: Path) -> None:
    """Raises unless the folder has a vocabulary: transformers would make one of five words."""
    if not any(any(folder.glob(name)) for name in _TOKENIZERS):
        raise CheckpointError(
            f"{folder} has no tokenizer ({', '.join(_TOKENIZERS[:3])}); save the one that it was trained with there"
        )


def check_tokenizer(path: str | Path, tokenizer: Any, model: Any = None) -> None:
    """Raises unless a tokenizer knows words, has the special tokens that we use, and fits the embeddings of a model."""
    words = len(tokenizer)
    special: Sequence[str] = tokenizer.all_special_tokens
    if words <= len(set(special)):
        raise CheckpointError(f"the tokenizer of {path} knows no words, only {words} special tokens; {FETCH_AGAIN}")
    for name in ("pad_token_id", "cls_token_id", "sep_token_id"):
        if getattr(tokenizer, name) is None:
            raise CheckpointError(f"the tokenizer of {path} has no {name.removesuffix('_id')}; {FETCH_AGAIN}")
    if model is None:
        return
    rows = base_model(model).get_input_embeddings().num_embeddings
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise CheckpointError(
            f"the tokenizer of {path} gives numbers up to {largest}, the model has embeddings for {rows}; "
            "they do not belong together: save the tokenizer that the model was trained with"
        )
