"""Writes `saved/`: tiny random pyramids of every family, as version 0.1.0 (commit a749ff5) saved them, and their logits.

Run by that version, once. Later versions must load what is here and give the same logits; nobody runs this again.
"""

import sys
from pathlib import Path

import torch
from pyramid_bert.data import Encoded
from pyramid_bert.models import PerformerConfig, PerformerForSequenceClassification, PerformerModel
from safetensors.torch import save_file
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    BigBirdConfig,
    BigBirdForSequenceClassification,
)

from pyramid_bert import Certificate, PyramidClassifier, Schedule, measure_sensitivity, pyramidize

HERE = Path(__file__).parent / "saved"
SIZES = dict(hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=16, num_labels=3)
SIZES |= dict(vocab_size=32, max_position_embeddings=64, initializer_range=0.3)
EXPONENTIAL = Schedule.exponential(0.3, last_layer=3)
BERT = {
    "merge": (EXPONENTIAL, "coreset", {}),
    "weighted": (EXPONENTIAL, "coreset", {"reduce": "drop", "weighted": True, "centers_per_step": 0.4}),
    "drop-end": (Schedule.constant(0.5, first_layer=2), "coreset", {"reduce": "drop", "placement": "end"}),
    "replace": (EXPONENTIAL, "coreset", {"reduce": "replace", "metric": "cosine"}),
    "attention": (EXPONENTIAL, "attention", {}),
    "cls-attention": (EXPONENTIAL, "cls-attention", {"reduce": "merge"}),
    "random": (Schedule.random(3), "random", {"seed": 5}),
    "first": (Schedule.custom([9, 7, 5, 3], n=12), "first", {}),
    "pool": (Schedule.strided(2, [1, 3]), "pool", {}),
    "input": (Schedule.input_only(0.4), "coreset", {"reduce": "drop"}),
    "input-first": (Schedule.input_only(0.4), "input-first", {}),
    "cluster": (EXPONENTIAL, "cluster", {"metric": "cosine", "within": 3}),
    "resting": (Schedule.exponential(0.5, 2), "cluster", {"rest_from": 3}),
    "adaptive": (Schedule.adaptive(0.6, growth=1.1, min_tokens=2), "coreset", {}),
    "sensitivity": (
        Schedule.adaptive(0.05, relative=False, last_layer=2, min_tokens=2),
        "cluster",
        {"metric": "sensitivity", "rest_from": 4},
    ),
}


def inputs(n=40):
    torch.manual_seed(1)
    ids = torch.randint(5, 32, (4, n))
    ids[:, 0] = 2
    mask = torch.ones_like(ids)
    for row, length in enumerate((n, n - 9, n - 20, n)):
        mask[row, length:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def write(name, model):
    batch = inputs()
    with torch.no_grad():
        output = model.eval()(**batch)
    model.save_pretrained(HERE / name)
    for left in ("generation_config.json",):
        (HERE / name / left).unlink(missing_ok=True)
    found = output.logits if "logits" in output else output.last_hidden_state
    save_file({**batch, "expected": found.contiguous()}, HERE / name / "expected.safetensors")


def main():
    for name, (schedule, selector, settings) in BERT.items():
        torch.manual_seed(0)
        model = BertForSequenceClassification._from_config(BertConfig(**SIZES), attn_implementation="sdpa").eval()
        if settings.get("metric") == "sensitivity":
            rows = inputs()
            items = [Encoded(row[: 10 + i].tolist()) for i in range(7) for row in rows["input_ids"]]
            measure_sensitivity(model, items)
        write(f"bert-{name}", pyramidize(model, schedule, selector, **settings))
    torch.manual_seed(0)
    write("bert-bare", pyramidize(BertModel(BertConfig(**SIZES)), EXPONENTIAL))
    performer = PerformerConfig(**SIZES)
    torch.manual_seed(0)
    write("performer", pyramidize(PerformerForSequenceClassification(performer), EXPONENTIAL))
    torch.manual_seed(0)
    write("performer-input", pyramidize(PerformerForSequenceClassification(performer), Schedule.input_only(0.4)))
    torch.manual_seed(0)
    write("performer-bare", pyramidize(PerformerModel(performer), EXPONENTIAL))
    for kind in ("block_sparse", "original_full"):
        config = BigBirdConfig(**SIZES, attention_type=kind, block_size=2, num_random_blocks=1)
        torch.manual_seed(0)
        write(f"bigbird-{kind}", pyramidize(BigBirdForSequenceClassification(config), Schedule.input_only(0.5)))
    whole_classifier()


def whole_classifier():
    """A folder as `PyramidClassifier.save` writes it: tokenizer, labels, certificate."""
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a fine dull film and the is not very good bad long short story".split()
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**{**SIZES, "num_labels": 2})).eval()
    pyramidize(model, EXPONENTIAL)
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)}, model_max_length=64)
    classifier = PyramidClassifier(model, tokenizer, max_length=32)
    texts = [" ".join(words[5 + (i * j) % 14] for j in range(1, 4 + i % 9)) for i in range(60)]
    from pyramid_bert.labels import Labels

    classifier.labels = Labels(("bad", "good"))
    classifier.certificate = Certificate.fit(classifier, texts)
    classifier.save(HERE / "classifier")
    logits = torch.from_numpy(classifier.predict_logits(texts))
    save_file({"expected": logits}, HERE / "classifier" / ".expected.safetensors")
    (HERE / "classifier" / ".texts.txt").write_text("\n".join(texts) + "\n")


if __name__ == "__main__":
    sys.exit(main())
