"""What all pictures share: options, colours, figures, colour bars, legends, and panels side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np
from torch import Tensor

from captum_goat.plot.edge_scores import Sign, magnitude_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Red and blue can be told apart with any kind of colour vision. The middle is grey, not white: an edge without
# attribution is still an edge of the graph and must not vanish.
NEGATIVE, NEUTRAL, POSITIVE, MAGNITUDE = "#ca0020", "#d0d0d0", "#0571b0", "#5e3c99"
INK = "#404040"
CMAP_COLORS: dict[Sign, list[str]] = {
    "all": [NEGATIVE, NEUTRAL, POSITIVE],
    "positive": [NEUTRAL, POSITIVE],
    "negative": [NEGATIVE, NEUTRAL],
    "absolute_value": [NEUTRAL, MAGNITUDE],
}
BAR_LABELS: dict[Sign, str] = {
    "all": "against  ←  attribution  →  for",
    "positive": "positive attribution",
    "negative": "negative attribution",
    "absolute_value": "magnitude of attribution",
}
MAX_COLUMNS = 4  # of panels
DOT, DOT_GAP, DOTS_WIDTH = 1.4, 2.2, 9.0  # points: length of dots, between them, and how much wider than an edge


class PictureOptions(TypedDict, total=False):
    """The keyword arguments that all pictures take, with Captum's names where Captum has them.

    Attributes:
        sign: The attributions to show: ``"all"`` (default), ``"positive"``, ``"negative"``, or ``"absolute_value"``.
        top_k: The number of edges to colour, those of largest magnitude after ``sign``; by default all of them.
        feature_mask: The ``feature_mask`` that was passed to ``attribute``, if any, ``[E]``, such as
            :func:`~captum_goat.undirected_feature_mask`. Attributions then are sums over features: each is shared
            equally among the edges of its feature, so that a picture does not show it once per edge.
        ground_truth: The edges that a good explanation finds, bool ``[E]``: they have a dotted outline.
        vmax: The magnitude that has the full colour and width, so that several pictures can share a scale.
        outlier_perc: If ``vmax`` is not given, the percentage of the summed magnitudes that may be cut off (2).
        cmap: A matplotlib colour map. The default is red, grey, blue, or the half of it that ``sign`` needs.
        show_colorbar: Whether to draw a colour bar. The default is False for one picture and True for panels.
        title: The title.
        fig_size: The size of a new figure in inches.
        use_pyplot: Whether pyplot creates and shows the figure (True).
        plt_fig_axis: A figure and axes to draw in (as many axes as panels), instead of a new figure. They are left for
            their owner to show, and to add a legend to: ``ax.legend()``.
    """

    sign: Sign
    top_k: int | None
    feature_mask: Tensor | None
    ground_truth: Tensor | None
    vmax: float | None
    outlier_perc: float
    cmap: str | Colormap | None
    show_colorbar: bool
    title: str | None
    fig_size: tuple[float, float] | None
    use_pyplot: bool
    plt_fig_axis: tuple[Figure, Any] | None


def checked(options: Mapping[str, Any], kind: Any = PictureOptions) -> Any:
    """Return the options of a picture of a kind, a ``TypedDict``, with their defaults."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("matplotlib is needed to draw graphs: pip install captum-goat[plot]") from error
    names = kind.__annotations__
    if unknown := options.keys() - names.keys():
        raise TypeError(f"Expected options of a picture, {', '.join(names)} (got {', '.join(unknown)}).")
    complete = dict.fromkeys(names) | {"sign": "all", "outlier_perc": 2, "use_pyplot": True} | dict(options)
    vmax = complete["vmax"]
    if vmax is not None and not 0 <= vmax < np.inf:
        raise ValueError(f"Expected vmax to be a magnitude, finite and at least 0 (got {vmax}).")
    return complete


class Picture(NamedTuple):
    """The content of a panel: all numbers that are coloured, and the function that draws them with a colour scale."""

    scores: NDArray[Any]
    draw: Callable[[Axes, ScalarMappable], None]


def colour_scale(options: PictureOptions, scores: Sequence[NDArray[Any]], opacity: float = 1.0) -> ScalarMappable:
    """Return the map from attributions to colours, up to ``vmax`` or the largest magnitude of these scores.

    Zero is in the middle, or at an end if one sign is shown. Colours of a lower opacity are paler.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, ListedColormap, Normalize

    vmax, sign, cmap = options["vmax"], options["sign"], options["cmap"]
    if vmax is None:
        vmax = max(magnitude_scale(values, options["outlier_perc"]) for values in scores)
    vmax = vmax or 1.0
    norm = Normalize(-vmax if sign in ("all", "negative") else 0, vmax if sign != "negative" else 0)
    if cmap is None:  # an odd number of colours, so that zero has the grey itself
        cmap = LinearSegmentedColormap.from_list(f"goat_{sign}", CMAP_COLORS[sign], N=257)
    cmap = colormaps.get_cmap(cmap)
    if opacity < 1:  # on white, so that bands that overlap are not darker
        cmap = ListedColormap(1 - opacity * (1 - cmap(np.arange(cmap.N))[:, :3]))
    return ScalarMappable(norm, cmap)


def draw_pictures(
    pictures: Mapping[str, Picture],
    options: PictureOptions,
    panel_size: tuple[float, float],
    *,
    shared_scale: bool = True,
    opacity: float = 1.0,
) -> tuple[Figure, list[Axes]]:
    """Draw pictures side by side, with their titles; return the figure and the axes of the panels."""
    scores = [picture.scores for picture in pictures.values()]
    is_shared, is_new = shared_scale or options["vmax"] is not None, options["plt_fig_axis"] is None
    groups = [scores] * len(scores) if is_shared else [[values] for values in scores]
    scales = [colour_scale(options, group, opacity) for group in groups]
    fig, axes = _panel_axes(len(pictures), options, panel_size)
    if options["show_colorbar"]:
        bars = [(axes, scales[0], np.concatenate(scores))] if is_shared else zip(axes, scales, scores, strict=True)
        for beside, scale, shown in bars:
            _add_colour_bar(fig, beside, scale, shown, options["sign"])
    for ax, title in zip(axes, pictures, strict=True):
        ax.set_title(title)
        ax.set_axis_off()
    if options["title"] is not None:
        axes[0].set_title(options["title"]) if list(pictures) == [""] else fig.suptitle(options["title"])
    if is_new:
        fig.draw_without_rendering()  # gives the axes their sizes, in which molecules are drawn
    for ax, scale, picture in zip(axes, scales, pictures.values(), strict=True):
        picture.draw(ax, scale)
    handles, labels = axes[0].get_legend_handles_labels()
    if is_new and handles:
        fig.legend(handles, labels, frameon=False, ncols=len(handles), loc="outside lower center")
    if is_new and options["use_pyplot"]:
        from matplotlib import pyplot

        pyplot.show()
    return fig, axes


def _panel_axes(count: int, options: PictureOptions, panel_size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    given = options["plt_fig_axis"]
    if given is not None:
        axes = list(np.array(given[1], dtype=object).ravel())
        if len(axes) != count:
            raise ValueError(f"Expected plt_fig_axis with {count} axes, one per picture (got {len(axes)}).")
        return given[0], axes
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    columns = min(count, MAX_COLUMNS)
    rows = -(-count // columns)
    size = options["fig_size"] or (panel_size[0] * columns + bool(options["show_colorbar"]), panel_size[1] * rows)
    fig = (pyplot.figure if options["use_pyplot"] else Figure)(figsize=size, layout="constrained")
    grid = fig.subplots(rows, columns, squeeze=False)
    for unused in grid.flat[count:]:
        unused.set_axis_off()
    return fig, list(grid.flat[:count])


def _add_colour_bar(fig: Figure, axes: Any, scale: ScalarMappable, scores: NDArray[Any], sign: Sign) -> None:
    """Draw a colour bar beside the axes; its ends are pointed where scores are cut off."""
    low, high = (1 + 1e-6) * np.array(scale.get_clim(), dtype=float)
    over, under = np.max(scores, initial=0.0) > high, np.min(scores, initial=0.0) < low
    extend = "both" if over and under else "max" if over else "min" if under else "neither"
    fig.colorbar(scale, ax=axes, label=BAR_LABELS[sign], shrink=0.8, extend=extend)


def add_lines(ax: Axes, lines: Sequence[NDArray[Any]], widths: Any, **style: Any) -> None:
    """Draw lines with round ends."""
    from matplotlib.collections import LineCollection

    ax.add_collection(LineCollection(lines, linewidths=widths, **{"capstyle": "round"} | style))


def draw_truth(ax: Axes, lines: Sequence[NDArray[Any]], widths: NDArray[Any], shrink: float = 1.0) -> None:
    """Draw a dotted outline around lines of these widths, and add it to the legend."""
    if not len(lines):
        return
    wide = widths + shrink * DOTS_WIDTH
    dashes = [(0, (DOT / width, DOT_GAP / width)) for width in wide]  # matplotlib counts in widths
    add_lines(ax, lines, wide, colors=INK, linestyles=dashes, capstyle="butt", zorder=0.8)
    # Painted over, so that only a rim of dots stays.
    add_lines(ax, lines, wide - 2 * shrink * DOT, colors=[ax.get_facecolor()], zorder=0.9)
    ax.plot([], [], color=INK, linestyle=":", label="ground truth")
