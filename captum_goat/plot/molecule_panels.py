"""One molecule as several methods explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from captum_goat.plot.edge_scores import Sign
from captum_goat.plot.molecule_picture import coloured_molecule, visualize_molecule_attr
from captum_goat.plot.panels import Arrangement, Colours, draw_panels, named_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

PANEL_SIZE = (5.4, 3.8)  # inches


def visualize_molecule_attr_multiple(
    attributions: Mapping[str, Tensor] | Sequence[Tensor],
    molecule: Any,
    *,
    titles: Sequence[str] | None = None,
    shared_scale: bool = True,
    columns: int | None = None,
    sign: Sign = "all",
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    alpha_overlay: float = 0.85,
    show_colorbar: bool = True,
    show_legend: bool = True,
    title: str | None = None,
    fig_size: tuple[float, float] | None = None,
    use_pyplot: bool = True,
    plt_fig_axis: tuple[Figure, Sequence[Axes]] | None = None,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """Draw one molecule as several methods explain it, by default with one scale.

    Args:
        attributions: One number per edge, ``[E]``, of every method: by name, or in a sequence.
        molecule: As in :func:`visualize_molecule_attr`.
        titles: The panels' titles; by default the names.
        shared_scale: Whether a colour means the same attribution in every panel; see
            :func:`visualize_graph_attr_multiple`.
        columns: How many panels are in a row; by default at most 4.
        sign: As in :func:`visualize_molecule_attr`.
        vmax: The magnitude that has the full colour in all panels; ``None`` to find it in the attributions.
        outlier_perc: As in :func:`visualize_molecule_attr`; the shared scale is the largest of the panels'.
        cmap: As in :func:`visualize_molecule_attr`.
        alpha_overlay: As in :func:`visualize_molecule_attr`.
        show_colorbar: Whether to draw the colour bar, or one per panel if the scale is not shared.
        show_legend: Whether to say below the panels what the dotted outlines mean.
        title: A title above all panels.
        fig_size: The size of a new figure in inches; by default it grows with the panels.
        use_pyplot: Whether pyplot makes and shows the figure. Given axes are left for their owner to show.
        plt_fig_axis: A figure and as many axes as there are methods, instead of a new figure.
        **options: Other options of :func:`visualize_molecule_attr`: ``atoms``, ``ground_truth``, ``hydrogens``, ...

    Returns:
        The figure and the axes, one per method.

    Raises:
        ImportError: As :func:`visualize_molecule_attr`.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr_multiple
        >>> methods = {"GOAt": torch.tensor([2.0, -1.0]), "gradients": torch.ones(2)}
        >>> fig, axes = visualize_molecule_attr_multiple(methods, "CCO", use_pyplot=False)
        >>> [ax.get_title() for ax in axes]
        ['GOAt', 'gradients']
    """
    panels = named_panels(attributions, titles)
    colours = Colours(sign, vmax, outlier_perc, cmap, alpha_overlay)
    scores = [coloured_molecule(each, molecule, **colours._asdict(), **options).scores() for _, each in panels]
    return draw_panels(
        panels,
        scores,
        partial(visualize_molecule_attr, molecule=molecule, **options),
        colours,
        Arrangement(shared_scale, columns, show_colorbar, show_legend, title, fig_size, use_pyplot, plt_fig_axis),
        PANEL_SIZE,
    )
