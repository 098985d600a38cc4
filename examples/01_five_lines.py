"""Turn a transformers classifier into a pyramid, run it, and turn it back.

python examples/01_five_lines.py PATH_TO_A_BERT_MODEL
"""

import sys

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pyramid_bert import Schedule, pyramidize, restore


def main(path: str) -> None:
    """Prints the logits of the dense model, of the pyramid, and of the restored model."""
    model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=2, dtype=torch.float32).eval()
    batch = AutoTokenizer.from_pretrained(path)("a fine film with a great cast and a clever plot", return_tensors="pt")
    half = model.config.num_hidden_layers // 2
    with torch.no_grad():
        dense = model(**batch).logits
        pyramidize(model, Schedule.exponential(keep_ratio=0.5, last_layer=half))
        pyramid = model(**batch).logits
        restore(model)
        restored = model(**batch).logits
    print("dense   ", dense.tolist())
    print("pyramid ", pyramid.tolist())
    print("restored", "as before" if torch.equal(dense, restored) else "DIFFERS")


if __name__ == "__main__":
    main(sys.argv[1])
