"""Tiny models, batches and a tokenizer that every test can use. Offline, on the CPU, the same on every run."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

from types import SimpleNamespace

import pytest
import torch
from hypothesis import settings
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

from pyramid_bert.core import compiled
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Radii, Trace
from pyramid_bert.runtimes import packed
from pyramid_bert.testing import tiny_model
from pyramid_bert.text.batches import Encoded

# Derandomised: a red run can be repeated. No deadline: how long an example takes is nothing to assert.
settings.register_profile("pyramid", deadline=None, derandomize=True, max_examples=30)
settings.load_profile("pyramid")
torch.set_num_threads(1)  # tensors here are tiny: threads cost more than they give

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(len(SPECIALS))
_WORDS = """
. , ! ? ' - ##s ##ed ##ing ##ly ##er
a about after again all also an and another any are as at back be because been before best better big bit boring both
brilliant but by came can cast character charm child clever cold come could day dead did direct do does down drama dull
each end enjoy even ever every fail fall far feel few film fine first for friend from full fun funny get give go good
great had happy hard has have he heart her here him his how i idea if in into is it its joy just keep know last laugh
less life light like little long look lost love made make man many may me mess more most movie much music must my need
never new no not nothing now of off old on one only or other our out over own people perfect performance play plot poor
quite rather really right sad say scene script see seem she should show slow small smart so some story strong such sweet
take tale talent than that the their them then there these they thin thing think this those time tired to too true
under up us use very want was way we weak well were what when where which who why will wit with without work world worse
worst would year you young your
"""
WORDS = _WORDS.split()


@pytest.fixture(scope="session")
def can_optimize():
    """Skips a test, by name, whose optimization this processor does not have."""

    def check(how):
        if how == "bf16" and not packed._has_bf16():
            pytest.skip("bf16: this processor has neither amx_bf16 nor avx512_bf16")

    return check


@pytest.fixture(scope="session")
def tiny_bert():
    """Makes small random BERT classifiers in evaluation mode, with weights so large that tokens differ."""

    def make(layers=4, hidden=32, heads=4, impl="sdpa", labels=2, seed=0, **settings):
        config = BertConfig(
            vocab_size=len(SPECIALS) + len(WORDS),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=2 * hidden,
            max_position_embeddings=128,
            num_labels=labels,
            initializer_range=0.2,
            **settings,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return BertForSequenceClassification._from_config(config, attn_implementation=impl).eval()

    return make


# What tiny models of a family need, or what shows more.
_OF_FAMILY = {
    "albert": {"embedding_size": 8, "num_hidden_groups": 2},
    "big_bird": {"attention_type": "original_full"},  # blocks depend on the width of the batch
    "deberta-v2": {
        "relative_attention": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    },
    "electra": {"embedding_size": 8},
    "eurobert": {"classifier_pooling": "bos", "num_key_value_heads": 1},
    "modernbert": {"local_attention": 8},
    "performer": {"num_features": 32},
}


@pytest.fixture(scope="session")
def family_config():
    """Gives the keys of the config that tiny models of a family need, or that show more."""
    return lambda family: _OF_FAMILY.get(family.model_type, {})


@pytest.fixture(scope="session")
def tiny_of(family_config):
    """Makes small random classifiers of a row of the table of families, in evaluation mode and without dropout."""

    def make(family, *, dropout=0.0, **settings):
        blocks = {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}
        usual = blocks if family.model_type == "big_bird" else family_config(family)
        return tiny_model(family, {"num_hidden_layers": 2, **usual, **settings}, dropout=dropout)

    return make


@pytest.fixture(scope="session")
def tiny_batch():
    """Makes batches for `tiny_bert`, padded on the right: `[CLS] words [SEP] [PAD] ...`.

    Row i holds the same tokens whatever the other rows are and however wide the batch is padded.
    """

    def make(lengths, width=None, seed=0):
        width = max(lengths) if width is None else width
        input_ids = torch.full((len(lengths), width), PAD)
        attention_mask = torch.zeros(len(lengths), width, dtype=torch.long)
        for row, length in enumerate(lengths):
            generator = torch.Generator().manual_seed(1000 * seed + row)
            low, high = len(SPECIALS), len(SPECIALS) + len(WORDS)
            words = torch.randint(low, high, (length,), generator=generator)
            words[-1] = SEP
            words[0] = CLS
            input_ids[row, :length] = words
            attention_mask[row, :length] = 1
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    return make


@pytest.fixture(scope="session")
def one_row():
    """Takes one row of a batch out of it, without its padding."""

    def take(batch, row):
        length = int(batch["attention_mask"][row].sum())
        return {name: tensor[row : row + 1, :length] for name, tensor in batch.items()}

    return take


@pytest.fixture(scope="session")
def logits_of():
    """The logits that a model gives to a batch, without gradients; `this` is what a pyramid is asked for."""

    def run(model, batch, this=None):
        with torch.no_grad():
            return model(**batch, **({} if this is None else {"pyramid_pass": this})).logits

    return run


@pytest.fixture(scope="session")
def traced(logits_of):
    """The trace of a pass, in which the last layer reduces too."""

    def run(model, batch):
        trace = Trace()
        logits_of(model, batch, Pass(trace, whole=True))
        return trace

    return run


@pytest.fixture(scope="session")
def covers_of(logits_of):
    """The logits of a batch, and how well each layer covers what it drops."""

    def run(model, batch):
        radii = Radii(model.config.num_hidden_layers)
        return logits_of(model, batch, Pass(radii)), radii.coverage

    return run


@pytest.fixture(scope="session")
def items_of():
    """The rows of a batch as encoded texts."""

    def make(batch):
        lengths = batch["attention_mask"].sum(1).tolist()
        return [Encoded(row[:n].tolist()) for row, n in zip(batch["input_ids"], lengths, strict=True)]

    return make


@pytest.fixture(params=["compiled", "torch"])
def both_ways(request, monkeypatch):
    """Runs a test with the compiled loops and with the torch code that is their reference."""
    if request.param == "torch":
        monkeypatch.setattr(compiled, "available", lambda: False)


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory):
    """A folder with a WordPiece tokenizer of some 200 common words."""
    folder = tmp_path_factory.mktemp("tokenizer")
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(SPECIALS + WORDS) + "\n", encoding="utf-8")
    tokens = vocabulary.read_text(encoding="utf-8").split()
    BertTokenizer(vocab={token: number for number, token in enumerate(tokens)}, model_max_length=128).save_pretrained(
        folder
    )
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_dir):
    """The tokenizer of `tokenizer_dir`, loaded."""
    return BertTokenizer.from_pretrained(tokenizer_dir)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory, tiny_bert, tokenizer):
    """A folder with a dense classifier and its tokenizer, as a user would have it."""
    folder = tmp_path_factory.mktemp("model")
    tiny_bert().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def write_study():
    """Writes an experiment and made-up results of it under a folder.

    By default dense is 0.90 on every task; a pyramid loses two points for each x of its speed-up beyond 1, and `worse`
    by method more, a point for "Rand"; seed 1 is half a point better than seed 0. Speed-ups are 1 / (share of the
    tokens kept in the middle layer). `score` gives other (value, speed-up over c, speed-up over a) of a cell, or None
    for a cell that was not run.
    """
    from pyramid_bert.lab.study.runs import Run
    from pyramid_bert.lab.study.spec import load_study
    from pyramid_bert.lab.study.store import Store

    machine = {"cpu": "a CPU", "capability": "AVX2", "cores": 2, "threads": 1}
    machine |= dict.fromkeys(("python", "torch", "transformers", "pyramid_bert"), "1.0")
    usual = "[{ keep_ratio = 0.5, last_layer = 1 }, { keep_ratio = 0.25, last_layer = 1 }]"
    names = ("CS-1", "Rand")

    def write(
        root, name, *, methods=names, tasks=("rte", "mrpc"), select=usual, more="", harm=1.0, worse=None, score=None
    ):
        worse = {"Rand": 1.0} if worse is None else worse
        lines = [f'name = "{name}"', f"methods = {list(methods)}", f"tasks = {list(tasks)}", "seeds = [0, 1]", more]
        file = root / "experiments" / f"{name}.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([*lines, f"configurations.select = {select}"]))
        run = Run(f"experiments/{name}.toml", load_study(file), Store.of(root / "results", name))

        def by_formula(cell):
            over_c = 1.0 if cell.is_dense else round(256 / cell.schedule.lengths(256, 6)[2], 6)
            lost = 0.0 if cell.is_dense else harm * 0.02 * (over_c - 1) + 0.01 * worse.get(cell.method, 0.0)
            return 0.9 - lost + 0.005 * cell.seed, over_c, 3 * over_c

        for cell in run.cells:
            if (found := (score or by_formula)(cell)) is None:
                continue
            value, over_c, over_a = found
            record = {
                "status": "done",
                "cell": cell.to_dict(),
                "value": value,
                "ideal": {"over_a": over_a, "over_c": over_c},
                "space": {"printed": 1 - 1 / over_c, "attention_input": 1 - 1 / over_c},
                "rows": {"train": 2490, "dev": 277},
                "mean_length": {"rte": 64.0}.get(cell.task, 12.0),
                "seconds": {"train": 1.0, "total": 60.0 if cell.is_dense else 20.0},
                "weights": "f00dcafe" * 8,
                "machine": machine,
                "commit": "c0ffee" * 6,
                "command": f"pyramid-bert study run experiments/{name}.toml --only {cell.id} --again",
            }
            run.store.write(cell.key, record)
            if run.study.measure and not cell.is_dense:
                speeds = {"over_c": over_c - 0.2, "over_a": over_c, "dense_over_a": 1.5}
                made = {name: record[name] for name in ("weights", "machine", "commit", "command")}
                run.store.write(cell.measurement(run.study.measure), {"status": "done", **speeds, **made})
        return run

    return write


@pytest.fixture(scope="session")
def table_rows():
    """The rows of all tables of a Markdown page, each a list of cells; without the lines under the heads."""

    def rows(page):
        lines = (line for line in page.splitlines() if line.startswith("|") and not line.startswith("|---"))
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]

    return rows


@pytest.fixture(scope="session")
def vocabulary():
    """The ids of the special tokens and the list of ordinary words."""
    return SimpleNamespace(pad=PAD, unk=UNK, cls=CLS, sep=SEP, mask=MASK, words=tuple(WORDS))
