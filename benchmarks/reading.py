"""Is it reading the weights that batch 1 waits for? The same products with weights from memory and from the cache.

python benchmarks/reading.py

Twelve pairs of feed-forward weights of BERT-base, packed, in turn (226 MB: from memory) against one pair twelve times
(19 MB: from the cache), with 128 tokens and with 32. What differs between the two is where the weights come from. Also
with plain and 8-bit weights. Prints JSON.
"""

from functools import partial

import torch
from common import bytes_per_second, show
from torch import nn

from pyramid_bert.bench.timing import time_interleaved
from pyramid_bert.runtimes.packed import Int8Linear, PackedLinear

FORMS = {"plain": nn.Linear, "packed": PackedLinear, "int8": Int8Linear}
PAIRS, TOKENS = 12, (128, 32, 1)


def main() -> None:
    """Measures and prints."""
    torch.manual_seed(0)
    result = {"memory_gb_per_second": bytes_per_second() / 1e9}
    for name, kind in FORMS.items():
        pairs = [(kind(768, 3072), kind(3072, 768)) for _ in range(PAIRS)]
        runs = {}
        for tokens in TOKENS:
            x = torch.randn(1, tokens, 768)
            runs[f"memory {tokens}"] = partial(_through, pairs, x)
            runs[f"cache {tokens}"] = partial(_through, pairs[:1] * PAIRS, x)
        timing = time_interleaved(runs, rounds=15, warmup=2)
        result[name] = {run: timing.median(run) * 1e3 for run in runs}
        for where in ("memory", "cache"):
            result[name][f"128 over 32, {where}"] = timing.speedup(f"{where} 32", over=f"{where} 128")
    show(result)


@torch.inference_mode()
def _through(pairs: list[tuple[nn.Module, nn.Module]], x: torch.Tensor) -> None:
    for up, down in pairs:
        x = down(up(x))


if __name__ == "__main__":
    main()
