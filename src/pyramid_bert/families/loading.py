"""Loading models from folders or the hub: only safetensors, with errors that say what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ..errors import CheckpointError, PyramidError
from .table import family_of


def load_model(
    path: str | Path, *, attn_implementation: str | None = None, dtype: torch.dtype = torch.float32
) -> tuple[Any, bool]:
    """A sequence classifier in evaluation mode, and whether its head is new and has to be trained.

    Args:
        path: A folder as written by `save_pretrained`, or a name on the hub.
        attn_implementation: "sdpa" or "eager"; None lets transformers choose.
        dtype: The precision of the loaded weights, however they are stored.
    """
    _check_folder(Path(path))
    model, report = _load(
        path,
        AutoModelForSequenceClassification,
        dtype=dtype,
        use_safetensors=True,
        output_loading_info=True,
        attn_implementation=attn_implementation,
    )
    family, missing = family_of(model), report["missing_keys"]
    inside = [key for key in missing if key.startswith(f"{family.base}.")]
    if any(f".{family.encoder}.{family.layers}." in key or key.endswith(".sensitivity") for key in inside):
        raise CheckpointError(f"{path} lacks weights that the model needs, for example {inside[0]}; it is damaged")
    # A head without a pooler was trained to label tokens. One for several labels at a time has no single best label.
    several = model.config.problem_type == "multi_label_classification"
    untrained = any(key == f"{family.head}.weight" or f".{family.pooler}." in key for key in missing)
    return model.eval(), several or untrained


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer that belongs to a model."""
    _check_folder(Path(path))
    return _load(path, AutoTokenizer)


def _load(path: str | Path, loader: Any, **kwargs: Any) -> Any:
    try:
        return loader.from_pretrained(path, **kwargs)
    except PyramidError:
        raise
    except (OSError, ValueError, SafetensorError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        folder = Path(path).is_dir()
        what = "cannot load a model from folder" if folder else "neither a folder nor a model that the hub gives:"
        raise CheckpointError(f"{what} {path}: {reason}") from error


def _check_folder(folder: Path) -> None:
    """Raises for a missing or damaged model folder, with a better message than that of transformers. Hub names pass."""
    if not folder.is_dir():
        looks_like_path = (
            folder.is_absolute() or len(folder.parts) > 2 or folder.exists() or str(folder).startswith(".")
        )
        if looks_like_path:
            raise CheckpointError(
                f"no model folder at {folder}; give a folder written by save_pretrained or a hub name"
            )
        return
    config = folder / "config.json"
    if not config.is_file():
        raise CheckpointError(f"{folder} is not a model folder: it has no config.json")
    try:
        json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{config} is damaged: {error}") from error
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        pickled = any(folder.glob("*.bin"))
        hint = (
            "its weights are pickles, which are never loaded; convert them to safetensors" if pickled else "no weights"
        )
        raise CheckpointError(f"{folder} has no .safetensors file: {hint}")
    for path in weights:
        try:
            with safe_open(path, framework="pt"):
                pass
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged ({error}); fetch or train the model again") from error
