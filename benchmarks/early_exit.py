"""What early exit loses: the dense classifier with an exit above every layer, all trained together.

python benchmarks/early_exit.py MODEL TASK DATA --epochs EPOCHS

MODEL is a trained dense classifier. Each layer gets a copy of its pooler and head, and reads CLS there. Encoder and
exits learn from the dense model's outputs as pyramids do in experiments/prize-e5.toml (nine tenths of the loss,
temperature 2, no dropout, bf16). A text leaves at the first layer whose answer is sure enough: the probability of its
class for classes; for numbers, how little the answer differs from that of the layer below. One threshold serves a
speed-up. It is chosen on the dev rows, without their labels, so early exit gets the speed it is asked for. Ideal
speed-ups are by multiply-accumulates at true lengths, without what exits cost. Prints JSON.
"""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from common import arguments, show
from torch import Tensor, nn

from pyramid_bert import PyramidClassifier
from pyramid_bert.cost import Cost
from pyramid_bert.families import sizes_of
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.progress import Bar
from pyramid_bert.text.batches import Encoded, sorted_batches
from pyramid_bert.text.inference import collate, outputs_of
from pyramid_bert.text.metrics import metrics_of
from pyramid_bert.text.sampling import sample_rows, table_hash
from pyramid_bert.training.data import LengthSampler, TrainingData
from pyramid_bert.training.distillation import soft_loss

SPEEDUPS = (1.5, 2.0, 2.5, 3.0, 4.0)
TEMPERATURE, TEACHER = 2.0, 0.9
_THRESHOLDS = 2001


def main() -> None:
    """Trains the exits, and prints what they give at each speed."""
    options = {"rows": 0, "dev_rows": 0, "max_length": 0, "seed": 0, "threads": 0}
    args = arguments(__doc__, epochs=3.0, learning_rate=1e-4, batch_size=32, **options)
    if args.threads:
        torch.set_num_threads(args.threads)
    task, train, dev = TASKS[args.task], load_task(args.task, args.data), load_task(args.task, args.data, "dev")
    train = sample_rows(train, args.rows, 0) if args.rows else train
    dev = sample_rows(dev, args.dev_rows, 0) if args.dev_rows else dev
    dense = PyramidClassifier.load(args.model)
    dense.max_length = args.max_length or dense.max_length
    known, pad_id = dense.known_labels(), dense.tokenizer.pad_token_id
    items, dev_items = dense.encode(train.texts), dense.encode(dev.texts)
    data = TrainingData(items, known.targets(train.labels), pad_id)
    data.taught = outputs_of(dense.model, items, pad_id, batch_size=32, title="asking the dense model", bf16=True)
    before = metrics_of(known, dev.labels, outputs_of(dense.model, dev_items, pad_id, batch_size=32).logits.numpy())
    exits = WithExits(copy.deepcopy(dense.model))
    _train(exits, data, args)
    logits = _logits(exits, dev_items, pad_id)  # (n, L, C)
    speeds = []
    for speedup in SPEEDUPS:
        layers, ideal = _leaving(logits, [len(item) for item in dev_items], dense.model, speedup)
        answers = logits[torch.arange(len(layers)), torch.tensor(layers)]
        metric = metrics_of(known, dev.labels, answers.numpy())[task.metric]
        speeds.append({"speedup": speedup, "ideal": ideal, "metric": metric, "mean_layer": float(np.mean(layers)) + 1})
    training = {name: getattr(args, name) for name in ("epochs", "learning_rate", "batch_size", "seed")}
    rows = {"train": len(items), "dev": len(dev_items), "sha256": table_hash(dev)}
    full = metrics_of(known, dev.labels, logits[:, -1].numpy())[task.metric]
    about = {"task": args.task, "metric": task.metric, "dense": before[task.metric], "last_exit": full}
    show({**about, "exits": speeds, "training": training, "rows": rows})


class WithExits(nn.Module):
    """A classifier that answers after every layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, layers = model, model.config.num_hidden_layers
        self.poolers = nn.ModuleList(copy.deepcopy(model.bert.pooler) for _ in range(layers))
        self.heads = nn.ModuleList(copy.deepcopy(model.classifier) for _ in range(layers))

    def forward(self, batch: dict[str, Tensor]) -> list[Tensor]:
        """The logits (B, C) after each layer."""
        states = self.model.bert(**batch, output_hidden_states=True).hidden_states[1:]
        return [head(pool(state)) for state, pool, head in zip(states, self.poolers, self.heads, strict=True)]


def _train(exits: WithExits, data: TrainingData, args: Any) -> None:
    for module in exits.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    torch.manual_seed(args.seed)
    exits.model.set_attn_implementation("eager")  # faster backward on a CPU
    optimizer = torch.optim.AdamW(exits.parameters(), lr=args.learning_rate, weight_decay=0.0, fused=True)
    total = int(-(-len(data) // args.batch_size) * args.epochs)
    exits.train()
    with Bar() as bar:
        task = bar.add_task("training exits", total=total)
        for step, rows in enumerate(_batches(data, args.batch_size, args.seed, total)):
            for group in optimizer.param_groups:
                group["lr"] = args.learning_rate * (1 - step / total)
            batch = data.batch(rows)
            labels, taught = batch.pop("labels"), batch.pop("teacher_logits")
            with torch.autocast("cpu", torch.bfloat16):
                losses = [_loss(logits, labels, taught) for logits in exits(batch)]
            torch.stack(losses).mean().backward()
            nn.utils.clip_grad_norm_(exits.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            bar.advance(task)
    exits.eval()


def _batches(data: TrainingData, size: int, seed: int, steps: int) -> Iterator[list[int]]:
    sampler, done = LengthSampler([len(item) for item in data.items], size, seed), 0
    while done < steps:
        order = list(sampler)
        for start in range(0, len(order), size)[: steps - done]:
            yield order[start : start + size]
            done += 1
        sampler.set_epoch(sampler.epoch + 1)


def _loss(logits: Tensor, labels: Tensor, taught: Tensor) -> Tensor:
    if logits.shape[1] == 1:
        hard = nn.functional.mse_loss(logits[:, 0].float(), labels.float())
    else:
        hard = nn.functional.cross_entropy(logits.float(), labels)
    return (1 - TEACHER) * hard + TEACHER * soft_loss(logits, taught, TEMPERATURE)


@torch.inference_mode()
def _logits(exits: WithExits, items: Sequence[Encoded], pad_id: int) -> Tensor:
    """The logits of all exits, (n, L, C)."""
    found: list[Tensor] = [torch.empty(0)] * len(items)
    for rows in sorted_batches([len(item) for item in items], 32):
        batch = torch.stack(exits(collate([items[i] for i in rows], pad_id)), dim=1).float()
        for row, logits in zip(rows, batch, strict=True):
            found[row] = logits
    return torch.stack(found)


def _leaving(logits: Tensor, lengths: Sequence[int], model: Any, speedup: float) -> tuple[list[int], float]:
    """The layer, from 0, at which each text leaves, and the ideal speed-up: the least that reaches `speedup`."""
    if logits.shape[2] == 1:
        changes = (logits[:, 1:, 0] - logits[:, :-1, 0]).abs()
        sure = torch.cat([torch.full_like(changes[:, :1], -torch.inf), -changes], dim=1)  # (n, L)
    else:
        sure = logits.softmax(2).amax(2)
    sure[:, -1] = torch.inf
    sizes = sizes_of(model)
    layers, of_layer = logits.shape[1], [Cost.of((n,), n, sizes.hidden_size, sizes.intermediate_size) for n in lengths]
    macs = np.array([cost.dense_macs for cost in of_layer], dtype=float)
    best = np.full(len(lengths), 0), float("inf")
    for threshold in np.quantile(sure[:, 1:-1].numpy(), np.linspace(0, 1, _THRESHOLDS)):
        leaving = (sure >= threshold).int().argmax(1).numpy()
        ideal = layers * macs.sum() / (macs * (leaving + 1)).sum()
        if speedup <= ideal < best[1]:
            best = leaving, ideal
    return best[0].tolist(), float(best[1])


if __name__ == "__main__":
    main()
