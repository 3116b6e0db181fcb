"""The curves of a comparison: fidelities over sparsities."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError("Pictures need matplotlib: pip install captum-goat[plot]") from error

if TYPE_CHECKING:
    from captum_goat.compare.comparison import Comparison

MARKERS = "osv^<>DPX*h"  # matplotlib has ten colours: both together tell more lines apart
PANELS = (("fidelity_plus", "fid+ (more is better)"), ("fidelity_minus", "fid- (less is better)"))


def draw_curves(comparison: Comparison, path: Path) -> Path:
    """Draw the mean fidelities of all explainers with their standard errors, and write them as a PNG file."""
    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    axes = figure.subplots(1, len(PANELS))
    for axis, (metric, title) in zip(axes, PANELS, strict=True):
        for name, marker in zip(comparison.scores, cycle(MARKERS), strict=False):
            style: dict[str, Any] = {"linewidth": 1.0, "marker": marker, "markersize": 4}
            if name == comparison.reference:
                style |= {"color": "black", "linewidth": 2.2, "zorder": 5}
            rows = [comparison.get(name, metric, sparsity) for sparsity in comparison.sparsities]
            points = [(float(row.sparsity), row.value, row.error) for row in rows if row is not None]
            sparsities, means, errors = zip(*points, strict=True) if points else ((), (), ())
            axis.errorbar(sparsities, means, errors, label=name, capsize=2, **style)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("sparsity", fontsize=8)
        axis.set_xticks(comparison.sparsities)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    labels = axes[0].get_legend_handles_labels()
    if comparison.scores:
        figure.legend(*labels, loc="outside lower center", ncols=5, fontsize=8)
    figure.savefig(path, dpi=80)
    return path
