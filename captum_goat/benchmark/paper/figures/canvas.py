"""Figures without a display, and one look for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image  # which matplotlib needs, too
except ImportError as error:
    raise ImportError("The benchmark's pictures need matplotlib: pip install captum-goat[plot]") from error

from captum_goat.benchmark.paper.results import REFERENCE

DOTS_PER_INCH = 80
COLOURS = 64
MARKERS = "osv^<>DPX*hp"


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Any]]]:
    """Return a figure and its axes ``[rows][columns]``; width and height are those of one of the axes, in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False).tolist()


def save(figure: Figure, path: Path) -> Path:
    """Write a figure with a palette of few colours, which makes the file several times smaller."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = BytesIO()
    figure.savefig(buffer, dpi=DOTS_PER_INCH, format="png")
    buffer.seek(0)
    with Image.open(buffer) as image:
        image.convert("RGB").quantize(COLOURS).save(path, optimize=True)
    return path


def line_style(name: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the look of an explainer's line: GOAt's is black and thick, random's is grey."""
    if name == REFERENCE:
        return {"color": "black", "linewidth": 2.5, "marker": "o", "zorder": 5}
    if name == "random":
        return {"color": "grey", "linestyle": ":", "linewidth": 2.0}
    place = names.index(name)
    colours = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")
    marker = MARKERS[place % len(MARKERS)]
    return {"color": colours[place % len(colours)], "linewidth": 1.0, "marker": marker, "markersize": 4}
