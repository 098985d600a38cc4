"""Fine-tune a pyramid classifier on your own texts, use it, save it, load it.

python examples/02_fit_predict_explain.py PATH_TO_A_BERT_MODEL
"""

import sys
import tempfile
from pathlib import Path

from rich import print as show

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.explain.terminal import token_pyramid

GOOD = ["a fine film", "a great story , brilliant and funny", "sweet and clever", "the best of the year"]
BAD = ["a dull mess", "a boring story , slow and sad", "weak and tired", "the worst of the year"]


def main(path: str) -> None:
    """Trains on a handful of sentences (far too few for real use) and shows every verb."""
    texts, labels = (GOOD + BAD) * 8, (["good"] * len(GOOD) + ["bad"] * len(BAD)) * 8
    clf = PyramidClassifier.from_pretrained(path, Schedule.exponential(0.5, last_layer=2), selector="coreset")
    clf.fit(texts, labels, epochs=4, learning_rate=1e-3, batch_size=8)
    print(clf.predict(["a clever and funny film", "a slow mess"]))
    print(clf.predict_proba(["a clever and funny film"]).round(2))
    print(clf.evaluate(texts, labels))
    show(token_pyramid(clf.explain("a brilliant story with a boring end")))
    with tempfile.TemporaryDirectory() as folder:
        clf.save(Path(folder) / "model")
        again = PyramidClassifier.load(Path(folder) / "model")
        print(
            "loaded:",
            again.predict(["a fine film"]),
            again.settings.schedule.lengths(20, len(again.model.bert.encoder.layer)),
        )


if __name__ == "__main__":
    main(sys.argv[1])
