"""The paper's printed table of sequence-length configurations (its appendix on the GLUE set-up)."""

from __future__ import annotations


def _row(last_layer: int, keep_ratio: float, text: str) -> tuple[int, float, tuple[int, ...]]:
    head = tuple(int(word) for word in text.split())
    return last_layer, keep_ratio, head + head[-1:] * (12 - len(head))


PAPER_TABLE: tuple[tuple[int, float, tuple[int, ...]], ...] = (
    # The paper's 30 configurations for N = 128 and 12 layers, in its order; (3, 0.25) stands there twice.
    # The last length of a row repeats to layer 12.
    _row(2, 0.15, "49 19"),
    _row(3, 0.15, "68 36 19"),
    _row(4, 0.15, "79 49 30 19"),
    _row(3, 0.10, "59 27 12"),
    _row(4, 0.10, "71 40 22 12"),
    _row(3, 0.20, "74 43 25"),
    _row(4, 0.20, "85 57 38 25"),
    _row(3, 0.17, "70 39 21"),
    _row(3, 0.18, "72 40 23"),
    _row(3, 0.19, "73 42 24"),
    _row(3, 0.22, "77 46 28"),
    _row(3, 0.25, "80 50 32"),
    _row(1, 0.25, "32"),
    _row(2, 0.25, "64 32"),
    _row(3, 0.25, "80 50 32"),
    _row(5, 0.25, "97 73 55 42 32"),
    _row(9, 0.25, "109 94 80 69 59 50 43 37 32"),
    _row(11, 0.25, "112 99 87 77 68 60 52 46 41 36 32"),
    _row(1, 0.50, "64"),
    _row(2, 0.50, "90 64"),
    _row(3, 0.50, "101 80 64"),
    _row(5, 0.50, "111 97 84 73 64"),
    _row(9, 0.50, "118 109 101 94 87 80 74 69 64"),
    _row(11, 0.50, "120 112 105 99 93 87 82 77 72 68 64"),
    _row(1, 0.75, "96"),
    _row(2, 0.75, "110 96"),
    _row(3, 0.75, "116 105 96"),
    _row(7, 0.75, "122 117 113 108 104 100 96"),
    _row(9, 0.75, "123 120 116 112 109 105 102 99 96"),
    _row(11, 0.75, "124 121 118 115 112 109 106 103 101 98 96"),
)
