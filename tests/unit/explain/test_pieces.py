"""Tokens as people read them, for the marks of every kind of tokenizer."""

import pytest

from pyramid_bert.explain.pieces import pieces

KINDS = {
    "WordPiece": (["[CLS]", "end", "##less", "##ly", "fun", "##", "[SEP]"], "[CLS] end+less+ly fun ## [SEP]"),
    "SentencePiece": (["[CLS]", "▁end", "less", "▁fun", "!", "[SEP]", "▁why"], "[CLS] end+less fun+! [SEP] why"),
    "a mark alone": (["<s>", "▁", "end", "▁fun", "</s>"], "<s> ▁+end fun </s>"),
    "byte-level": (
        ["<s>", "end", "less", "Ġfun", "</s>", "</s>", "why", "</s>"],
        "<s> end+less fun </s> </s> why </s>",
    ),
    "bytes": (["[CLS]", "Caf", "Ã©", "ĠÃ©t", "Ã©", "[SEP]"], "[CLS] Caf+é ét+é [SEP]"),
    "half a character": (
        ["<|endoftext|>", "Ġx", "Ã", "<|endoftext|>"],
        "<|endoftext|> x+\N{REPLACEMENT CHARACTER} <|endoftext|>",
    ),
    "another letter": (["[CLS]", "Ġx", "字", "[SEP]"], "[CLS] x+字 [SEP]"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_words_begin_where_the_tokenizer_says(kind):
    tokens, wanted = KINDS[kind]
    found = pieces(tokens)
    assert len(found) == len(tokens)
    shown = "".join(("+" if piece.attached else " ") + piece.text for piece in found)
    assert shown.strip() == wanted
