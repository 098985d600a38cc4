"""A pyramid in an ordinary transformers training script: one line is new.

python examples/03_ordinary_trainer.py PATH_TO_A_BERT_MODEL OUTPUT_FOLDER
"""

import sys

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    pipeline,
)

from pyramid_bert import Schedule, pyramidize

ROWS = [("a fine film", 1), ("a dull mess", 0), ("brilliant and funny", 1), ("slow , weak and boring", 0)] * 8


def main(path: str, out: str) -> None:
    """Trains, saves, and classifies with a pipeline."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2, dtype=torch.float32)
    pyramidize(model, Schedule.exponential(keep_ratio=0.5, last_layer=2))  # the new line

    arguments = TrainingArguments(out, num_train_epochs=2, learning_rate=1e-3, report_to="none", save_strategy="no")
    rows = [{**tokenizer(text), "labels": label} for text, label in ROWS]
    trainer = Trainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer), train_dataset=rows)
    trainer.train()
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    print(pipeline("text-classification", model=out)("a fine film"))


if __name__ == "__main__":
    main(*sys.argv[1:3])
