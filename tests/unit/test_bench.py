"""What the speed ledger counts."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from pyramid_bert import Cost, PyramidClassifier, Schedule, pyramidize
from pyramid_bert.bench.ledger import measure
from pyramid_bert.bench.memory import PeakMemory
from pyramid_bert.bench.roofline import Roofline, measure_roofline
from pyramid_bert.bench.training import full_batch, measure_training
from pyramid_bert.bench.workload import Workload, forward_all
from pyramid_bert.cli import main
from pyramid_bert.errors import DataError, PyramidError
from pyramid_bert.runtimes import packed
from pyramid_bert.runtimes.packed import OPTIMIZATIONS, optimize
from pyramid_bert.text.labels import Labels

SCHEDULE = Schedule.exponential(0.5, last_layer=2)


@pytest.fixture
def pair(tiny_bert):
    dense = tiny_bert()
    return dense, pyramidize(copy.deepcopy(dense), SCHEDULE)


def ledger_of(pair, lengths, batch_size, rounds=1):
    rows = Workload.synthetic(lengths, vocabulary=200)
    return measure(*pair, rows, batch_size=batch_size, rounds=rounds, warmup=0)


def test_macs_of_full_rows_are_those_of_the_cost_module(pair):
    cost = Cost.of(SCHEDULE.lengths(32, 4), 32, 32, 64, cls_layers=1, heads=4)
    entries = ledger_of(pair, [32] * 6, 4).entries
    assert entries["sorted"].macs == entries["padded"].macs == 6 * cost.dense_macs
    assert entries["pyramid"].macs == 6 * cost.macs
    assert entries["pyramid"].ideal_over["sorted"] == cost.ideal_speedup
    assert entries["sorted"].token_layers == 6 * 32 * 4
    assert entries["pyramid"].peak_bytes <= entries["sorted"].peak_bytes


def test_padding_is_counted_where_it_is_computed(pair):
    tokens = {name: entry.token_layers for name, entry in ledger_of(pair, [8, 16, 8, 32], 2).entries.items()}
    assert tokens["padded"] == 4 * 4 * 32
    assert tokens["dynamic"] == 4 * (2 * 16 + 2 * 32)
    assert tokens["sorted"] == 4 * (2 * 8 + 2 * 32)
    assert tokens["pyramid"] == sum(2 * sum([n, *SCHEDULE.lengths(n, 4)[:-1]]) for n in (8, 32))


def test_a_ledger_is_json_and_names_machine_and_settings(pair):
    data = json.loads(json.dumps(ledger_of(pair, [16] * 2, 1, rounds=2).to_dict()))
    assert len(data["seconds"]["pyramid"]) == 2
    assert {"cpu", "threads", "torch", "transformers"} <= set(data["machine"])
    assert data["settings"]["schedule"]["kind"] == "exponential"
    assert 0 < data["selecting"] < 1
    realised = data["entries"]["pyramid"]["speedup_over"]["sorted"] / data["entries"]["pyramid"]["ideal_over"]["sorted"]
    assert data["realised_over"]["sorted"] == pytest.approx(realised)


def test_what_cannot_be_compared_is_refused(pair):
    dense, pyramid = pair
    for refused in (
        lambda: ledger_of((pyramid, dense), [4], 1),
        lambda: measure_training(pyramid, dense, 8, batch_size=2),
        lambda: measure_training(pyramid, pyramid, 8, batch_size=2),
    ):
        with pytest.raises(PyramidError, match="a dense model and a pyramid, in this order"):
            refused()
    with pytest.raises(DataError, match="at least one token"):
        Workload.synthetic([])
    with pytest.raises(PyramidError, match="both sides must run alike, got weights None and packed"):
        ledger_of((dense, optimize(pyramid)), [4], 1)


def test_peak_memory_counts_storages_once_and_forgets_what_is_freed():
    with PeakMemory() as memory:
        a = torch.ones(1000)
        b = a.view(10, 100)[1:]  # a view takes no memory
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
    call = "bench --size tiny --n 8,16 --rows 4 --batch-size 1,2 --rounds 1 --keep-ratio 0.5 --last-layer 1".split()
    assert main([*call, "--json"]) == 0
    assert [ledger["batch_size"] for ledger in json.loads(capsys.readouterr().out)] == [1, 2]
    assert main(call) == 0
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
    assert "a random model has no tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize(("how", "heads"), [("packed", 4), ("bf16", None), ("int8", None)])
def test_rounded_weights_are_counted_with_keys_and_values(can_optimize, pair, how, heads):
    can_optimize(how)
    ledger = ledger_of([optimize(copy.deepcopy(model), how) for model in pair], [32] * 2, 2)
    cost = Cost.of(SCHEDULE.lengths(32, 4), 32, 32, 64, cls_layers=1, heads=heads)
    assert ledger.entries["pyramid"].macs == 2 * cost.macs


# ---- roofline ----

ROOF = Roofline(bytes_per_second=8.0, macs_per_second=10.0, bytes_per_weight=4, hidden_size=1, intermediate_size=3)
READING = 1 + 1 + 3


@pytest.mark.parametrize(
    ("n", "how", "seconds"),
    [
        (20, {}, 4 + 4 + 12 + 80),  # each product takes longer than its weights; 80 are for attention scores
        (20, {"overlap": False}, 4 + 4 + 12 + 80 + READING),
        (1, {}, READING + 0.2),  # one token is bound by reading
        (20, {"cls_layers": 1}, 1 + 4 + 3 + 4),  # only CLS: reads all weights, multiplies few
        (20, {"cls_layers": 1, "heads": 1}, 1 + 1 + 3 + 4),  # without keys and values
    ],
)
def test_a_roofline_by_hand(n, how, seconds):
    """Weights: 2 for query and output, 2 for key and value, 6 for the feed-forward; 2 weights are read in 1 s."""
    roof = replace(ROOF, heads=how.pop("heads", None))
    assert roof.seconds([n], n, 1, placement="middle", **{"cls_layers": 0, **how}) == pytest.approx(seconds)


@pytest.mark.parametrize(("how", "size"), [(None, 4), ("packed", 4), ("bf16", 2), ("int8", 1)])
def test_a_measured_roofline_knows_the_form_of_the_weights(can_optimize, tiny_bert, how, size):
    can_optimize(how)
    model = tiny_bert() if how is None else optimize(tiny_bert(), how)
    roof = measure_roofline(model)
    assert (roof.bytes_per_weight, roof.hidden_size, roof.intermediate_size) == (size, 32, 64)
    assert min(roof.bytes_per_second, roof.macs_per_second) > 0


# ---- training ----


def test_training_is_counted_for_both_and_leaves_weights_alone(pair):
    before = [copy.deepcopy(model.state_dict()) for model in pair]
    ledger = measure_training(*pair, 32, batch_size=4, rounds=2)
    assert 0 < ledger.memory_share < 1  # counted, not timed: the same in every run
    assert len(ledger.seconds["dense"]) == 2
    assert 0 < ledger.selecting < 1
    for model, weights in zip(pair, before, strict=True):
        assert not model.training
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
        assert all(weight.grad is None for weight in model.parameters())
    json.dumps(ledger.to_dict())


def test_the_dense_side_of_training_may_compute_cls_alone(pair):
    dense = pyramidize(copy.deepcopy(pair[0]), Schedule.constant(1.0))
    ledger = measure_training(dense, pair[1], 32, batch_size=4, rounds=1)
    whole = measure_training(*pair, 32, batch_size=4, rounds=1)
    assert ledger.peak_bytes["pyramid"] < ledger.peak_bytes["dense"] < whole.peak_bytes["dense"]


# ---- other devices ----


def test_tensors_follow_the_model(tiny_bert):
    """The meta device computes shapes only, and refuses tensors of the CPU as an accelerator does."""
    model = tiny_bert().to("meta")
    assert measure_roofline(model).bytes_per_weight == 4
    batch = full_batch(model, 16, batch_size=3)
    assert {name: len(tensor) for name, tensor in batch.items()} == {"input_ids": 3, "labels": 3}
    assert all(tensor.device.type == "meta" for tensor in batch.values())
    model(**batch).loss.backward()
    forward_all(model, Workload.synthetic([8, 8], vocabulary=200).tensors([[0, 1]]))


# ---- the command line ----


def test_bench_measures_training(capsys):
    call = "bench --size tiny --training --n 8,16 --batch-size 2 --rounds 1 --json".split()
    assert main([*call, "--keep-ratio", "0.5", "--last-layer", "1"]) == 0
    assert [ledger["n"] for ledger in json.loads(capsys.readouterr().out)] == [8, 16]
    assert main([*call, "--optimize"]) == 2
    assert "leave out --data, --optimize and --speedup" in capsys.readouterr().err


def test_a_processor_without_bf16_is_told_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(packed, "_has_bf16", lambda: False)
    assert main("bench --size tiny --n 16 --rows 4 --rounds 1 --optimize bf16".split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "use 'packed' (the same logits)" in captured.err.splitlines()[-1]


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_bench_states_what_an_optimization_does_to_logits(can_optimize, how, capsys):
    can_optimize(how)
    call = [*"bench --size tiny --n 16 --rows 4 --rounds 1 --optimize".split(), how]
    assert main([*call, "--json"]) == 0
    (ledger,) = json.loads(capsys.readouterr().out)
    assert ledger["optimization"] == how
    assert ledger["optimization_effect"]["texts"] == 4
    assert (ledger["optimization_effect"]["largest_logit_difference"] < 1e-5) == (how == "packed")
    assert main(call) == 0
    assert "logits differ by at most" in " ".join(capsys.readouterr().out.split())


@pytest.fixture
def saved(tiny_bert, tokenizer, tmp_path):
    """A classifier that was saved with a max_length of 8, and a file whose second row has more tokens than it reads."""
    classifier = PyramidClassifier(tiny_bert(), tokenizer, labels=Labels(("neg", "pos")), max_length=8)
    classifier.save(tmp_path / "model")
    (tmp_path / "in.csv").write_text("text\na fine film\n" + "fine " * 200 + "\n")
    return ["bench", "--model", tmp_path / "model", "--data", tmp_path / "in.csv", "--rounds", 1]


def run_bench(*words):
    return main([str(word) for word in words])


def test_bench_prints_the_name_of_a_file_as_it_is(saved, tmp_path, capsys):
    named = (tmp_path / "in.csv").rename(tmp_path / "[bold]x[-b].csv")
    assert run_bench(*saved[:3], "--data", named, "--rounds", 1) == 0
    assert "[bold]x[-b].csv" in "".join(capsys.readouterr().out.split())


def test_bench_cuts_texts_as_the_saved_classifier_does(saved, capsys):
    assert run_bench(*saved, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["workload"]["padded_length"] == 8
    record = saved[2] / "classifier.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "max_length": None}))
    assert run_bench(*saved) == 1
    said = capsys.readouterr().err
    assert "in.csv, row 2" in said
    assert "--max-length 128" in said


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--n 0", "--n must be"),
        ("--n 600", "--n must be"),
        ("--n 600 --training", "--n must be"),
        ("--threads -1", "--threads must be"),
        ("--speedup nan", "--speedup must be"),
        ("--reduce replace", "--reduce replace"),
        ("--keep-ratio 2 --last-layer 1", "--keep-ratio must be"),
        ("--rest-from 40", "--rest-from must be"),
        ("--max-length 1", "--max-length must be"),
    ],
)
def test_bench_names_options_not_arguments(words, option, capsys):
    assert run_bench("bench", "--size", "tiny", "--rows", 2, "--rounds", 1, *words.split()) in (1, 2)
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith(f"pyramid-bert: {option}")


@pytest.mark.parametrize("family", ["distilbert", "mpnet"])
def test_a_random_model_of_any_family_is_measured(family, capsys):
    options = [
        "--size",
        "tiny",
        "--n",
        "16",
        "--rows",
        "2",
        "--rounds",
        "1",
        "--keep-ratio",
        "0.5",
        "--last-layer",
        "2",
    ]
    assert main(["bench", "--family", family, *options, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["speedup"]["ideal"] > 1
    assert main(["bench", "--family", "gpt", *options]) == 2
    assert "family must be" in capsys.readouterr().err
