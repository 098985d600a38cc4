"""How texts of different lengths should share a batch: tight padding, exact-length buckets, or packed rows.

python benchmarks/batching.py MODEL TASK DATA [--rows N]

  tight   sorted by length, 32 texts a batch, padded to the longest (what predict does)
  exact   batches of texts of one length, up to 32: no pad at all, but smaller batches
  packed  8 texts one after another in a row, attention kept apart by a mask: no pad, but masked attention is computed
          for pairs of tokens of different texts too

Each in fp32 with the dense model. Prints JSON.
"""

from collections import defaultdict
from functools import partial

import torch
from common import arguments, show

from pyramid_bert.bench.timing import time_interleaved
from pyramid_bert.bench.workload import forward_all
from pyramid_bert.families.loading import load_model, load_tokenizer
from pyramid_bert.lab.glue.tasks import load_task
from pyramid_bert.text.batches import encode, sorted_batches
from pyramid_bert.text.inference import collate

BATCH, PACK = 32, 8


def main() -> None:
    """Measures and prints."""
    args = arguments(__doc__, rows=600)
    model, tokenizer = load_model(args.model)[0], load_tokenizer(args.model)
    texts = load_task(args.task, args.data, "dev").texts[: args.rows]
    items = encode(tokenizer, texts, positions=512, max_length=512)
    lengths = [len(item) for item in items]
    by_length = defaultdict(list)
    for row, length in enumerate(lengths):
        by_length[length].append(row)
    exact = [rows[start : start + BATCH] for rows in by_length.values() for start in range(0, len(rows), BATCH)]
    ways = {
        "tight": [collate([items[i] for i in rows], 0) for rows in sorted_batches(lengths, BATCH)],
        "exact": [collate([items[i] for i in rows], 0) for rows in exact],
        "packed": [_packed([items[i] for i in rows]) for rows in sorted_batches(lengths, PACK)],
    }
    runs = {name: partial(forward_all, model, batches) for name, batches in ways.items()}
    timing = time_interleaved(runs, rounds=3)
    found = {
        name: {
            "seconds": timing.median(name),
            "speed_of_tight": timing.speedup(name, over="tight"),
            "batches": len(batches),
            "padding": sum(batch["input_ids"].numel() for batch in batches) / sum(lengths) - 1,
        }
        for name, batches in ways.items()
    }
    show({"task": args.task, "texts": len(items), "tokens": sum(lengths), "ways": found})


def _packed(items: list) -> dict[str, torch.Tensor]:
    """Texts one after another in one row: (1, S), with positions from 0 for each text and a mask (1, 1, S, S)."""
    ids = torch.tensor([[token for item in items for token in item.input_ids]])
    positions = torch.tensor([[place for item in items for place in range(len(item))]])
    owner = torch.tensor([number for number, item in enumerate(items) for _ in range(len(item))])
    mask = (owner[:, None] == owner)[None, None]
    return {"input_ids": ids, "position_ids": positions, "attention_mask": mask}


if __name__ == "__main__":
    main()
