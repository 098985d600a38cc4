"""The front of runtimes, precisions and pyramids: as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ..errors import MissingExtraError, UsageError
from ..files import check_writable_file, replacing_file
from .compared import metric_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..tune.options import Option
    from ..tune.runtimes import RuntimeSearch

FORMATS = (".png", ".svg", ".pdf")
# Distinct for colour-blind readers too (after Okabe and Ito). A runtime is a colour, a precision is a shape.
_COLOURS = {"torch": "#D55E00", "openvino": "#0072B2", "onnxruntime": "#009E73"}
_SHAPES = {"fp32": "o", "packed": "s", "bf16": "^", "int8": "D"}
_CHOSEN, _WANTED, _GREY = "#CC79A7", "#444444", "#777777"
_NEAR = 0.9  # of the answers: with less agreement, a word is said
_TITLE = 80  # characters a line


def front_table(search: RuntimeSearch) -> Table:
    """The options that no other one beats in speed and agreement at once, and the chosen one."""
    table = Table(
        title=f"fast enough and nearest to the dense model, on {search.rows} rows that no search saw",
        caption=f"Chosen (→) among {len(search.options)} measured in {search.seconds / 60:.1f} minutes, for "
        f"{search.wanted:g}x over c. c: dense in torch, fp32, length-sorted batches. d: the fastest dense one, here "
        f"{' '.join(search.fastest)}. Agreement with c; ±: half of a 95 % interval.",
    )
    table.add_column("")
    table.add_column("runtime", no_wrap=True)
    table.add_column("pyramid")
    for name in ("over c", "over d", "agreement", *([search.metric] if search.metric else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for option in _shown(search):
        chosen = option is search.chosen
        low, high = option.interval
        table.add_row(
            "→" if chosen else "",
            " ".join(option.place),
            option.pyramid,
            f"{option.over_c:.2f}x",
            f"{option.over_d:.2f}x",
            f"{100 * option.agreement:.1f} ± {50 * (high - low):.1f}",
            *([metric_text(search.metric, (option.metrics or {}).get(search.metric))] if search.metric else []),
            style="bold" if chosen else None,
        )
    return table


def doubt(search: RuntimeSearch) -> str | None:
    """What to say if the chosen one gives the dense model's answer too seldom; None if it does not."""
    near = [option for option in search.front if option.agreement >= _NEAR]
    if not near or search.chosen.agreement >= _NEAR:
        return None
    chosen, faster = f"{100 * search.chosen.agreement:.1f}", near[-1]
    return (
        f"what is {search.wanted:g}x as fast has an agreement of only {chosen} with the dense model; the fastest with "
        f"{100 * _NEAR:g} or more is {faster.over_c:.2f}x. Ask for less, or train a pyramid (train --teacher)"
    )


def _shown(search: RuntimeSearch) -> list[Option]:
    """The front, and the chosen one where its metric and not its agreement decided."""
    front = search.front
    missing = [] if search.chosen in front else [search.chosen]
    return sorted([*front, *missing], key=lambda option: option.over_c)


def check_picture(file: str) -> Path:
    """Where a picture goes; raises before any work if it cannot be drawn or written there."""
    path = Path(file)
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot must end in {', '.join(FORMATS)}, got {file}")
    check_writable_file(path)
    _figure_class()
    return path


def draw_front(search: RuntimeSearch, path: Path) -> None:
    """Draws everything that was measured: speed over c against agreement."""
    picture = front_figure(search)
    with replacing_file(path) as scratch:
        picture.savefig(scratch, format=path.suffix.lower().removeprefix("."), dpi=150)


def front_figure(search: RuntimeSearch) -> Figure:
    """The picture that `draw_front` writes."""
    picture = _figure_class()(figsize=(8.4, 5.0), layout="constrained")
    panel = picture.subplots()
    for option in search.options:
        colour, dense = _COLOURS[option.runtime], option.settings is None
        face = "white" if dense else colour
        how: dict[str, Any] = {"markerfacecolor": face, "markeredgecolor": colour, "markeredgewidth": 1.6}
        panel.plot(option.over_c, 100 * option.agreement, _SHAPES[option.precision], markersize=8, zorder=3, **how)
    front = search.front
    places = [(option.over_c, 100 * option.agreement) for option in front]
    panel.plot(*zip(*places, strict=True), color=_GREY, linewidth=1, zorder=1, drawstyle="steps-pre")
    panel.axvline(search.wanted, color=_WANTED, linestyle="--", linewidth=1.2, zorder=1)
    chosen = search.chosen
    panel.plot(chosen.over_c, 100 * chosen.agreement, "o", markersize=17, zorder=4, **_ring())
    panel.set(
        xlabel="speed over c: the dense model in torch, fp32, length-sorted batches", ylabel="agreement with c, %"
    )
    panel.set_title(f"chosen: {' '.join(chosen.place)}\n{fill(chosen.pyramid, _TITLE)}", fontsize=9, loc="left")
    panel.set_xlim(left=0)
    panel.margins(y=0.12)
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    picture.legend(handles=_legend(search.options, search.wanted), loc="outside right center", frameon=False)
    return picture


def _ring() -> dict[str, Any]:
    return {"markerfacecolor": "none", "markeredgecolor": _CHOSEN, "markeredgewidth": 2.2}


def _legend(options: Sequence[Option], wanted: float) -> list[Any]:
    """What colours, shapes and lines mean; only of those that are drawn."""
    from matplotlib.lines import Line2D

    def sign(label: str, marker: str, **how: Any) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, markersize=8, label=label, **how)

    runtimes = dict.fromkeys(option.runtime for option in options)
    precisions = dict.fromkeys(option.precision for option in options)
    grey = {"markeredgecolor": _GREY, "markeredgewidth": 1.6}
    return [
        *(sign(name, "o", color=_COLOURS[name]) for name in runtimes),
        *(sign(name, _SHAPES[name], markerfacecolor="none", **grey) for name in precisions),
        sign("hollow: dense", "o", markerfacecolor="white", **grey),
        sign("filled: pyramid", "o", markerfacecolor=_GREY, **grey),
        sign("chosen", "o", **_ring()),
        Line2D([], [], color=_GREY, linewidth=1, label="front"),
        Line2D([], [], color=_WANTED, linestyle="--", linewidth=1.2, label=f"{wanted:g}x wanted"),
    ]


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing the front") from error
    return Figure
