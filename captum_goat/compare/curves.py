"""The picture of a comparison: fidelities over sparsities."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from captum_goat.compare.figures import cycled_style, legend_below, new_figure, save

if TYPE_CHECKING:
    from captum_goat.compare.comparison import Comparison

PANELS = (("fidelity_plus", "fid+ (more is better)"), ("fidelity_minus", "fid- (less is better)"))


def draw_curves(comparison: Comparison, path: Path) -> Path:
    """Draw the mean fidelities of all explainers with their standard errors, and write them as a PNG file.

    Args:
        comparison: The result.
        path: Where to write.

    Returns:
        The path.
    """
    figure, axes = new_figure(1, len(PANELS), 5.0, 3.6)
    for axis, (metric, title) in zip(axes[0], PANELS, strict=True):
        for place, name in enumerate(comparison.scores):
            _draw(axis, comparison, name, metric, place)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("sparsity", fontsize=8)
        axis.set_xticks(comparison.sparsities)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    legend_below(figure, axes)
    return save(figure, path)


def _draw(axis: Any, comparison: Comparison, name: str, metric: str, place: int) -> None:
    rows = [comparison.get(name, metric, each) for each in comparison.sparsities]
    found = [row for row in rows if row is not None]
    look = cycled_style(place)
    if name == comparison.reference:
        look |= {"color": "black", "linewidth": 2.2, "zorder": 5}
    sparsities, means, errors = ([getattr(row, field) for row in found] for field in ("sparsity", "value", "error"))
    axis.errorbar([float(each) for each in sparsities], means, errors, label=name, capsize=2, **look)
