"""A tokenizer of made-up words for tiny models."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast


def tiny_tokenizer(model: Any) -> Any:
    """A tokenizer that knows "w0", "w1", … up to the size of a model's vocabulary, and the model's padding token."""
    words = {f"w{number}": number for number in range(model.config.vocab_size)}
    free = [number for number in range(6) if number != model.config.pad_token_id]
    special = dict(zip(("unk", "cls", "sep"), free, strict=False)) | {"pad": model.config.pad_token_id}
    for name, number in special.items():
        del words[f"w{number}"]
        words[f"[{name.upper()}]"] = number
    tokenizer: Any = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    ends = [(f"[{name.upper()}]", special[name]) for name in ("cls", "sep")]
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in special}
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=tokenizer, **names, model_input_names=["input_ids", "attention_mask"])
