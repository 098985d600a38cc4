"""The README's code blocks run, and its commands exist."""

import re
from pathlib import Path

import pytest

import pyramid_bert
from pyramid_bert.cli import COMMANDS
from pyramid_bert.families import FAMILIES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)


@pytest.fixture
def deep_model_dir(tmp_path, tiny_bert, tokenizer):
    """As deep as BERT-base, so that the documents' layer numbers fit."""
    tiny_bert(layers=12).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def reranking(tmp_path, tiny_bert, tokenizer):
    """A reranker and a small collection, under the names that documents use."""
    tiny_bert(layers=12, labels=1).save_pretrained(tmp_path / "my-reranker")
    tokenizer.save_pretrained(tmp_path / "my-reranker")
    (tmp_path / "cranfield").mkdir()
    for part, rows in {
        "docs": ["id\ttext", "a\ta fine film", "b\ta dull play"],
        "queries": ["id\ttext", "1\twhat film ?"],
        "candidates": ["query\tdoc\trank", "1\tb\t1", "1\ta\t2"],
        "qrels": ["query\tdoc\tgrade", "1\ta\t1"],
    }.items():
        (tmp_path / "cranfield" / f"{part}.tsv").write_text("\n".join(rows) + "\n")


@pytest.fixture
def own_families():
    """Takes families that a test registers out of the table again."""
    before = list(FAMILIES)
    yield
    FAMILIES[:] = before


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, deep_model_dir, reranking, tmp_path, monkeypatch, capsys, own_families):
    monkeypatch.chdir(tmp_path)
    names = {
        "path": str(deep_model_dir),
        "texts": ["a fine film", "a dull mess"] * 4,
        "labels": ["good", "bad"] * 4,
        "text": "a fine film with a clever plot",
        "query": "what film is good ?",
        "documents": ["a fine film", "a dull play", "no"],
    }
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)


def test_readme_has_blocks_to_run():
    assert len(blocks(ROOT / "README.md", "python")) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    used = re.findall(r"^(?:\$ )?pyramid-bert (\w+)", "\n".join(blocks(page, "(?:sh|bash|console)")), flags=re.M)
    assert set(used) <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    assert set(re.findall(r"\bmake ([a-z]+)\b`?", "\n".join(blocks(page, "(?:sh|bash|console)")))) <= targets


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_the_public_names_are_documented():
    text = (ROOT / "README.md").read_text() + (ROOT / "docs" / "api.md").read_text()
    missing = [name for name in pyramid_bert.__all__ if not name.startswith("_") and f"`{name}" not in text]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_placeholder_is_left(page):
    assert not re.findall(r"^[A-Z][A-Z_]{5,}$", page.read_text(encoding="utf-8"), flags=re.M)
