"""Panels side by side, one per method, with one scale, one colour bar and one legend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from captum_goat.plot.edge_scores import Sign, magnitude_scale
from captum_goat.plot.figures import add_colour_bar, add_legend, close, new_figure, show
from captum_goat.plot.palette import colour_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

COLUMNS = 4


class Colours(NamedTuple):
    """How the panels are coloured; see :func:`captum_goat.plot.visualize_graph_attr`."""

    sign: Sign
    vmax: float | None
    outlier_perc: float
    cmap: str | Colormap | None
    alpha_overlay: float


class Arrangement(NamedTuple):
    """How the panels are arranged; see :func:`captum_goat.plot.visualize_graph_attr_multiple`."""

    shared_scale: bool
    columns: int | None
    show_colorbar: bool
    show_legend: bool
    title: str | None
    fig_size: tuple[float, float] | None
    use_pyplot: bool
    plt_fig_axis: tuple[Figure, Sequence[Axes]] | None


def named_panels(
    attributions: Mapping[str, Tensor] | Sequence[Tensor], titles: Sequence[str] | None
) -> list[tuple[str | None, Tensor]]:
    """Return the attributions of every panel with its title.

    Raises:
        ValueError: If there are none, or not as many titles.
    """
    if isinstance(attributions, Tensor) or not len(attributions):
        got = "a single tensor" if isinstance(attributions, Tensor) else "none"
        raise ValueError(f"Expected the attributions of one or more methods, {{name: [E], ...}} (got {got}).")
    panels = list(attributions.values() if isinstance(attributions, Mapping) else attributions)
    if titles is not None and len(titles) != len(panels):
        raise ValueError(f"Expected titles for {len(panels)} panels (got {len(titles)}).")
    names: Sequence[str | None] = list(attributions) if isinstance(attributions, Mapping) else [None] * len(panels)
    names = names if titles is None else titles
    return list(zip(names, panels, strict=True))


def draw_panels(
    panels: Sequence[tuple[str | None, Tensor]],
    scores: Sequence[NDArray[Any]],
    draw: Callable[..., object],
    colours: Colours,
    arrangement: Arrangement,
    panel_size: tuple[float, float],
) -> tuple[Figure, list[Axes]]:
    """Draw the panels.

    Args:
        panels: Their titles and attributions.
        scores: What is drawn of the attributions, for the scale.
        draw: A function that draws attributions, with the options of Captum's visualizers.
        colours: How they are coloured.
        arrangement: How they are arranged.
        panel_size: The size of a panel of a new figure, in inches.

    Returns:
        The figure and the panels' axes.
    """
    vmax = colours.vmax
    if vmax is None and arrangement.shared_scale:
        vmax = max(magnitude_scale(each, colours.outlier_perc) for each in scores)
    fig, axes = _axes(len(panels), arrangement, panel_size)
    options = {**colours._replace(vmax=vmax)._asdict(), "show_colorbar": arrangement.show_colorbar and vmax is None}
    new = arrangement.plt_fig_axis is None
    try:
        for ax, (name, attributions) in zip(axes, panels, strict=True):
            draw(attributions, **options, title=name, plt_fig_axis=(fig, ax))
    except Exception:
        if new and arrangement.use_pyplot:
            close(fig)  # nothing is left behind
        raise
    if arrangement.show_colorbar and vmax is not None:
        scale = colour_scale(colours.sign, vmax or 1.0, colours.cmap, colours.alpha_overlay)
        add_colour_bar(fig, axes, scale, colours.sign, np.concatenate(scores))
    if arrangement.show_legend:
        add_legend(fig, axes[0], loc="outside lower center" if new else "lower center")
    if arrangement.title is not None:
        fig.suptitle(arrangement.title)
    if new and arrangement.use_pyplot:
        show()
    return fig, axes


def _axes(count: int, arrangement: Arrangement, panel_size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    if arrangement.plt_fig_axis is not None:
        fig, given = arrangement.plt_fig_axis
        flat = list(np.array(given, dtype=object).ravel())
        if len(flat) != count:
            raise ValueError(f"Expected plt_fig_axis with {count} axes, one per method (got {len(flat)}).")
        return fig, flat
    if arrangement.columns is not None and arrangement.columns < 1:
        raise ValueError(f"Expected columns of at least 1 (got {arrangement.columns}).")
    wide = min(count, arrangement.columns or COLUMNS)
    high = -(-count // wide)
    size = arrangement.fig_size or (panel_size[0] * wide + 1, panel_size[1] * high)
    grid: NDArray[Any]
    fig, grid = new_figure(size, arrangement.use_pyplot, nrows=high, ncols=wide, squeeze=False, layout="constrained")
    for unused in grid.flat[count:]:
        unused.set_axis_off()
    return fig, list(grid.flat[:count])
