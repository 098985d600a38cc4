"""Tokens as people read them: without the marks by which tokenizers tell where a word begins.

WordPiece marks what continues a word ("##ing"). SentencePiece ("▁fine") and byte-level BPE ("Ġfine", of which each
character is a byte) mark what begins one, but not always the first word of a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<[^<>\s]+>")  # "[CLS]", "<s>", "<|endoftext|>"
_CONTINUES, _SENTENCE_PIECE, _BYTE_LEVEL = "##", "▁", "Ġ"
_PRINTED = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))
# Byte-level BPE writes these bytes as themselves, and the others as the characters from 256 on.
_BYTES = {chr(byte): byte for byte in _PRINTED}
_BYTES |= {chr(256 + i): byte for i, byte in enumerate(byte for byte in range(256) if byte not in _PRINTED)}


@dataclass(frozen=True)
class Piece:
    """A token as people read it; `attached` when it continues the word before it."""

    text: str
    attached: bool


def pieces(tokens: Sequence[str]) -> list[Piece]:
    """The tokens without their marks.

    Example:
        >>> [piece.text for piece in pieces(["[CLS]", "end", "##less", "[SEP]"])]
        ['[CLS]', 'end', 'less', '[SEP]']
        >>> [(piece.text, piece.attached) for piece in pieces(["<s>", "So", "Ġend", "less", "</s>"])]
        [('<s>', False), ('So', False), ('end', False), ('less', True), ('</s>', False)]
    """
    mark = next(
        (mark for mark in (_SENTENCE_PIECE, _BYTE_LEVEL) if any(token.startswith(mark) for token in tokens)), ""
    )
    found: list[Piece] = []
    for position, token in enumerate(tokens):
        if _SPECIAL.fullmatch(token):
            found.append(Piece(token, attached=False))
            continue
        follows = position > 0 and not _SPECIAL.fullmatch(tokens[position - 1])
        if not mark:
            attached = position > 0 and token.startswith(_CONTINUES) and len(token) > len(_CONTINUES)
            found.append(Piece(token[len(_CONTINUES) :] if attached else token, attached))
            continue
        text = _decoded(token) if mark == _BYTE_LEVEL else token.replace(mark, " ")
        found.append(Piece(text.strip() or token, attached=follows and not token.startswith(mark)))
    return found


def _decoded(token: str) -> str:
    """The text of a token of bytes; the token itself if it is none."""
    if any(character not in _BYTES for character in token):
        return token
    return bytes(_BYTES[character] for character in token).decode(errors="replace")
