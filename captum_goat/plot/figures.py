"""Figures with axes, colour bars and legends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from captum_goat.plot.edge_scores import Sign

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from captum_goat.plot.palette import ColourScale

BAR_LABELS: dict[Sign, str] = {
    "all": "against  ←  attribution  →  for",
    "positive": "positive attribution",
    "negative": "negative attribution",
    "absolute_value": "magnitude of attribution",
}


def new_figure(fig_size: tuple[float, float], use_pyplot: bool, **options: Any) -> tuple[Figure, Any]:
    """Return a new figure and its axes; ``options`` go to ``Figure.subplots``, and ``layout`` to the figure."""
    try:
        from matplotlib import pyplot
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_matplotlib() from error
    layout = options.pop("layout", None)
    fig = pyplot.figure(figsize=fig_size, layout=layout) if use_pyplot else Figure(figsize=fig_size, layout=layout)
    return fig, fig.subplots(**options)


def show() -> None:
    """Show the figures of pyplot."""
    from matplotlib import pyplot

    pyplot.show()


def close(fig: Figure) -> None:
    """Close a figure of pyplot."""
    from matplotlib import pyplot

    pyplot.close(fig)


def add_colour_bar(
    fig: Figure, axes: Axes | Sequence[Axes], scale: ColourScale, sign: Sign, scores: NDArray[Any]
) -> None:
    """Draw a colour bar beside the axes; its ends are pointed where scores are cut off."""
    from matplotlib.cm import ScalarMappable

    low, high = scale.norm.vmin or 0.0, scale.norm.vmax or 0.0
    over = high > 0 and np.max(scores, initial=0.0) > high * (1 + 1e-6)
    under = low < 0 and np.min(scores, initial=0.0) < low * (1 + 1e-6)
    extend = "both" if over and under else "max" if over else "min" if under else "neither"
    mappable = ScalarMappable(scale.norm, scale.cmap)
    fig.colorbar(mappable, ax=axes, label=BAR_LABELS[sign], shrink=0.8, extend=extend, alpha=scale.alpha)


def add_dotted_handle(ax: Axes) -> None:
    """Give the legend a dotted line for the ground truth, which is drawn as an outline."""
    ax.plot([], [], color="#404040", linestyle=":", label="ground truth")


def add_legend(owner: Any, ax: Axes, **options: Any) -> None:
    """Say below the axes, or on a figure, what the marks on edges are; nothing if there are none."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        owner.legend(handles, labels, frameon=False, ncols=len(handles), **options)


def missing_matplotlib() -> ImportError:
    """Return the error that says what to install."""
    return ImportError("matplotlib is needed to draw the graph: pip install captum-goat[plot]")
