"""Models from folders (first) and from the hub (second): safetensors only, complete, and errors in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from ..boundary import printable, translating
from ..checks import check_choice
from ..errors import CheckpointError
from ..files import moved_aside
from ..resuming import digests_of
from .intake import (
    FETCH_AGAIN,
    check_complete,
    check_config,
    check_sizes,
    check_tokenizer,
    check_tokenizer_files,
    weight_names,
)
from .table import family_of

DTYPES = ("float32", "bfloat16", "float16", "float64")
_MOST_SHOWN = 300  # characters of a path in an error
# What is fetched of a model on the hub: no pickle, no code.
_FETCHED = ["*.json", "*.safetensors", "*.txt", "*.model"]


def load_model(
    path: str | Path, *, attn_implementation: str | None = None, dtype: str | torch.dtype | None = None
) -> tuple[Any, bool]:
    """A sequence classifier in evaluation mode, and whether its head is new (to be trained before it is of use).

    Args:
        path: A folder as written by `save_pretrained`, or a name on the hub.
        attn_implementation: "sdpa" or "eager"; None lets transformers choose.
        dtype: The precision of the loaded weights, however they are stored; None is float32.
    """
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    check_choice("dtype", name, DTYPES)
    folder = model_folder(path)
    check_config(folder)
    names = weight_names(folder)
    config = load_config(folder)
    family = family_of(config)
    check_sizes(folder, family, config, names)
    with translating(CheckpointError, f"cannot load a model from {path}", FETCH_AGAIN):
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, name),
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            attn_implementation=attn_implementation,
        )
    head_is_new = check_complete(path, family, model, report)
    return model.eval(), head_is_new


def model_digests(path: str | Path) -> dict[str, str]:
    """A digest of each file that a model can be loaded from, by its name: equal for equal models, wherever they are."""
    folder = model_folder(path)
    return digests_of({file for pattern in _FETCHED for file in folder.glob(pattern)})


def load_config(folder: Path) -> Any:
    """The config of a model folder."""
    with translating(CheckpointError, f"cannot read the config of {folder}", FETCH_AGAIN):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    # These change no answer, only how a model is called or how much memory it takes.
    config.return_dict, config.chunk_size_feed_forward = True, 0
    return config


def load_tokenizer(path: str | Path, model: Any = None) -> Any:
    """The tokenizer that belongs to a model, which it is checked against if given."""
    folder = model_folder(path)
    check_tokenizer_files(folder)
    with translating(CheckpointError, f"cannot load the tokenizer of {path}", FETCH_AGAIN):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        check_tokenizer(path, tokenizer, model)
    return tokenizer


def model_folder(path: str | Path) -> Path:
    """The folder at `path`, or the one into which the hub's model of that name was fetched."""
    folder, named = Path(path), printable(str(path))[:_MOST_SHOWN]
    with translating(CheckpointError, f"no model folder at {named}", "check the name"):  # a name can be too long
        if folder.is_dir():
            return folder
        aside = moved_aside(folder)
        if aside is not None:
            return aside
        looks_like_path = folder.is_absolute() or len(folder.parts) > 2 or folder.exists() or named.startswith(".")
    if looks_like_path:
        raise CheckpointError(f"no model folder at {named}; give a folder written by save_pretrained or a hub name")
    from huggingface_hub import snapshot_download

    remedy = "check the path, the name on the hub, or the network"
    with translating(CheckpointError, f"no model folder at {named}, and the hub gave none of that name", remedy):
        return Path(snapshot_download(str(path), allow_patterns=_FETCHED))
