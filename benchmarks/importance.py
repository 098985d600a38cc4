"""Are tokens that a core-set takes first the important ones? One token less, by rank: the paper's second ablation.

python benchmarks/importance.py MODEL TASK DATA [--ranks N]

MODEL is a dense fine-tuned classifier; TASK and DATA as in `pyramid-bert evaluate --task TASK --data DATA`. Of the dev
set, the texts with at least as many tokens as there are ranks are taken. Prints JSON.
"""

import dataclasses
from math import isnan
from typing import Any

from common import arguments, show
from rich.console import Console
from rich.progress import Progress

from pyramid_bert import PyramidClassifier
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.lab.theory.importance import Importance, token_importance
from pyramid_bert.text.batches import encode
from pyramid_bert.text.sampling import table_hash

BATCH = 32


def main() -> None:
    """Measures and prints."""
    args = arguments(__doc__, ranks=24)
    classifier = PyramidClassifier.load(args.model)
    dev = load_task(args.task, args.data, "dev")
    model = classifier.model
    positions = model.config.max_position_embeddings
    items = encode(classifier.tokenizer, dev.texts, positions=positions, max_length=TASKS[args.task].max_length)
    long = [item for item in items if len(item) >= args.ranks]
    if not long:
        most = max(map(len, items))
        raise SystemExit(f"no dev text has {args.ranks} tokens, the longest has {most}; give fewer --ranks")
    depth = model.config.num_hidden_layers
    layers = sorted({max(1, round(depth * share)) for share in (1 / 12, 3 / 12, 6 / 12, 9 / 12)})
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("one token less", total=-(-len(long) // BATCH))
        found = token_importance(
            model, long, layers=layers, ranks=args.ranks, batch_size=BATCH, after_each=lambda: progress.advance(bar)
        )
    report = {
        "task": TASKS[args.task].title,
        "command": f"python benchmarks/importance.py MODEL {args.task} DATA --ranks {args.ranks}",
        "model": {"layers": depth, "hidden_size": model.config.hidden_size},
        "dev_texts": len(items),
        "data_sha256": table_hash(dev),
        "rows": [_row(one) for one in found],
    }
    show(report)


def _row(found: Importance) -> dict[str, Any]:
    """As the report reads it."""
    method = {1: "CS-1", "all": "CS-k-1"}[found.centers_per_step]
    fields = dataclasses.asdict(found)
    rho, information = fields.pop("spearman"), fields.pop("information")
    return {"method": method, "mutual_information": information, **fields, "spearman": None if isnan(rho) else rho}


if __name__ == "__main__":
    main()
