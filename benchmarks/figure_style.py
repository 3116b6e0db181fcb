"""The style of the figures of all benchmarks."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image  # which matplotlib needs, too

DOTS_PER_INCH = 80
PALETTE_SIZE = 128
COLORS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")
MARKERS = "osv^<>DPX*h"
ENTRY_WIDTH = 1.8  # of a legend's entries, in inches


def new_figure(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Any]]]:
    """Return a figure and its axes ``[rows][columns]``; width and height are those of one panel, in inches."""
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


def cycled_style(index: int) -> dict[str, Any]:
    """Return the style of one of many lines: colours and markers cycle with different periods."""
    marker = MARKERS[index % len(MARKERS)]
    return {"color": COLORS[index % len(COLORS)], "linewidth": 1.0, "marker": marker, "markersize": 4}


def legend_below(figure: Figure, axes: list[list[Any]], last: str | None = None) -> None:
    """Put one legend for all axes under the figure, with every label once; ``last`` is the label that comes last."""
    handles: dict[str, Any] = {}
    for axis in (axis for row in axes for axis in row):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = sorted(handles, key=lambda label: label == last)
    if labels:
        columns = max(1, min(len(labels), int(figure.get_figwidth() / ENTRY_WIDTH)))
        figure.legend(
            [handles[label] for label in labels], labels, loc="outside lower center", ncols=columns, fontsize=8
        )
