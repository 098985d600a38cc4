"""What a metric can be tabulated against. No torch, no numpy."""

from __future__ import annotations

_SPEEDUPS, _SPACES = (1.5, 2.0, 3.0, 3.5), (0.3, 0.7)

# Axis -> what it is, and where tables read it if nobody says (the paper's points).
AXES: dict[str, tuple[str, tuple[float, ...]]] = {
    "ideal-c": ("ideal speed-up over c (dense at true lengths)", _SPEEDUPS),
    "ideal-a": ("ideal speed-up over a (dense padded to N)", _SPEEDUPS),
    "measured-c": ("measured speed-up over c (dense, length-sorted)", _SPEEDUPS),
    "measured-a": ("measured speed-up over a (dense padded to N)", _SPEEDUPS),
    "space": ("attention space saved at N, with the tokens that attention sees", _SPACES),
    "space-printed": ("attention space saved at N, by the printed formula", _SPACES),
}
