"""A second process compiles nothing: the kernels are kept on disk."""

import json
import subprocess
import sys

import pytest

from pyramid_bert.core import compiled

SCRIPT = """
import json, torch
from pyramid_bert import Schedule, pyramidize
from pyramid_bert.core import kernels
from transformers import BertConfig, BertForSequenceClassification

tiny = BertConfig(hidden_size=8, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16, vocab_size=99)
model = BertForSequenceClassification(tiny).eval()
for selector, settings in (("coreset", {}), ("coreset", {"reduce": "drop"}), ("cluster", {"metric": "cosine"})):
    pyramidize(model, Schedule.exponential(0.5, 2), selector, **settings)
    with torch.inference_mode():
        model(torch.arange(40).view(2, 20))
used = [kernels.reduce_coreset, kernels.reduce_clusters]
print(json.dumps([[sum(k.stats.cache_hits.values()), sum(k.stats.cache_misses.values())] for k in used]))
"""


@pytest.mark.skipif(not compiled.available(), reason="numba is not installed: pip install 'pyramid-bert[fast]'")
def test_the_second_process_loads_what_the_first_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    runs = [
        subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True) for _ in range(2)
    ]
    first, second = (json.loads(run.stdout.splitlines()[-1]) for run in runs)
    assert all(hits == 0 and misses > 0 for hits, misses in first)
    assert [[misses, 0] for _, misses in first] == second
