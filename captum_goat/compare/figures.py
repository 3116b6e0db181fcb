"""Figures without a display, and one look for all of them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image  # which matplotlib needs, too
except ImportError as error:
    raise ImportError("Pictures need matplotlib: pip install captum-goat[plot]") from error

DOTS_PER_INCH = 80
PALETTE_SIZE = 128
CYCLE = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")
MARKERS = "osv^<>DPX*h"
ENTRY_WIDTH = 1.8  # inches of an entry in a legend


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
        image.convert("RGB").quantize(PALETTE_SIZE).save(path, optimize=True)
    return path


def cycled_style(place: int) -> dict[str, Any]:
    """Return the look of one of many lines: colours and markers take turns, so that few pairs come twice."""
    marker = MARKERS[place % len(MARKERS)]
    return {"color": CYCLE[place % len(CYCLE)], "linewidth": 1.0, "marker": marker, "markersize": 4}


def legend_below(figure: Figure, axes: list[list[Any]], last: str | None = None) -> None:
    """Put one legend for all axes under the figure, each line in it once; ``last`` is the label that comes last."""
    found: dict[str, Any] = {}
    for axis in (axis for row in axes for axis in row):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    labels = sorted(found, key=lambda label: label == last)
    if labels:
        columns = max(1, min(len(labels), int(figure.get_figwidth() / ENTRY_WIDTH)))
        handles = [found[label] for label in labels]
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, fontsize=8)
