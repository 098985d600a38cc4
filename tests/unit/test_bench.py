"""What the speed ledger counts."""

import copy
import json

import pytest
import torch

from pyramid_bert import Cost, Schedule, pyramidize
from pyramid_bert.bench import PeakMemory, Workload, measure
from pyramid_bert.cli import main
from pyramid_bert.errors import DataError, PyramidError

SCHEDULE = Schedule.exponential(0.5, last_layer=2)


@pytest.fixture
def pair(tiny_bert):
    dense = tiny_bert()
    return dense, pyramidize(copy.deepcopy(dense), SCHEDULE)


def test_macs_of_full_rows_are_those_of_the_cost_module(pair):
    dense, pyramid = pair
    ledger = measure(dense, pyramid, Workload.synthetic([32] * 6, vocabulary=200), batch_size=4, rounds=1, warmup=0)
    cost = Cost.of(SCHEDULE.lengths(32, 4), 32, 32, 64, cls_only=True)
    entries = ledger.entries
    assert entries["sorted"].macs == entries["padded"].macs == 6 * cost.dense_macs
    assert entries["pyramid"].macs == 6 * cost.macs
    assert entries["pyramid"].ideal_over["sorted"] == cost.ideal_speedup
    assert entries["sorted"].token_layers == 6 * 32 * 4
    assert entries["pyramid"].peak_bytes <= entries["sorted"].peak_bytes


def test_padding_is_counted_where_it_is_computed(pair):
    lengths = [8, 32, 8, 32]
    ledger = measure(*pair, Workload.synthetic(lengths, vocabulary=200), batch_size=2, rounds=1, warmup=0)
    tokens = {name: entry.token_layers for name, entry in ledger.entries.items()}
    assert tokens["padded"] == tokens["dynamic"] == 4 * 4 * 32  # every batch holds a long row
    assert tokens["sorted"] == 4 * (2 * 8 + 2 * 32)
    kept = [sum([n, *SCHEDULE.lengths(n, 4)[:-1]]) for n in lengths]
    assert tokens["pyramid"] == sum(kept)


def test_a_ledger_is_json_and_names_machine_and_settings(pair):
    ledger = measure(*pair, Workload.synthetic([16] * 2, vocabulary=200), batch_size=1, rounds=2, warmup=0)
    data = json.loads(json.dumps(ledger.to_dict()))
    assert len(data["seconds"]["pyramid"]) == 2
    assert {"cpu", "threads", "torch", "transformers"} <= set(data["machine"])
    assert data["settings"]["schedule"]["kind"] == "exponential"
    assert 0 < data["selecting"] < 1
    realised = data["entries"]["pyramid"]["speedup_over"]["sorted"] / data["entries"]["pyramid"]["ideal_over"]["sorted"]
    assert data["realised_over"]["sorted"] == pytest.approx(realised)


def test_models_in_the_wrong_order_are_refused(pair):
    with pytest.raises(PyramidError, match="a dense model and a pyramid, in this order"):
        measure(pair[1], pair[0], Workload.synthetic([4]), batch_size=1)
    with pytest.raises(DataError, match="at least one token"):
        Workload.synthetic([])


def test_peak_memory_counts_storages_once_and_forgets_what_is_freed():
    with PeakMemory() as memory:
        a = torch.ones(1000)
        b = a.view(10, 100)[1:]  # no memory of its own
        assert memory.alive == 4000
        c = a + 1
        del a, b
        assert memory.alive == 4000
        d = c.mul_(2)  # in place
        assert memory.alive == 4000
        del c, d
    assert (memory.peak, memory.alive) == (8000, 0)


def test_peak_memory_sees_what_autograd_keeps():
    weight = torch.ones(10, 10, requires_grad=True)
    with PeakMemory() as memory:
        out = torch.relu(torch.ones(5, 10) @ weight).sum()
        kept = memory.alive
        out.backward()
    assert kept >= 5 * 10 * 4 * 2  # the input of the product and the result of relu
    assert weight.grad is not None


def test_bench_command(capsys):
    arguments = ["bench", "--size", "tiny", "--n", "8,16", "--rows", "4", "--batch-size", "1,2", "--rounds", "1"]
    assert main([*arguments, "--keep-ratio", "0.5", "--last-layer", "1", "--json"]) == 0
    ledgers = json.loads(capsys.readouterr().out)
    assert [ledger["batch_size"] for ledger in ledgers] == [1, 2]
    assert main([*arguments, "--keep-ratio", "0.5", "--last-layer", "1"]) == 0
    assert "speed-up over c" in capsys.readouterr().out


def test_bench_runs_on_a_file_with_a_saved_pyramid(capsys, tmp_path, tiny_bert, tokenizer):
    pyramidize(tiny_bert(), SCHEDULE).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.csv").write_text("text\na fine film\nthe plot is thin and the cast is tired\n")
    model, data = str(tmp_path / "model"), str(tmp_path / "texts.csv")
    assert main(["bench", "--model", model, "--data", data, "--rounds", "1", "--json"]) == 0
    (ledger,) = json.loads(capsys.readouterr().out)
    assert ledger["settings"]["schedule"] == SCHEDULE.to_dict()
    assert ledger["workload"]["rows"] == 2
    assert main(["bench", "--data", data, "--rounds", "1"]) == 2
    assert "a random BERT has no tokenizer" in capsys.readouterr().err
