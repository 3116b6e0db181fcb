"""A molecule as chemists draw it, its bonds coloured by attribution."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.plot.drawn_edges import full_scale
from captum_goat.plot.edge_scores import Sign, strongest, with_sign
from captum_goat.plot.figures import add_colour_bar, add_dotted_handle, add_legend, new_figure, show
from captum_goat.plot.molecule_drawing import draw_molecule
from captum_goat.plot.molecule_graph import molecule_of, rdkit_module
from captum_goat.plot.molecule_scores import (
    Hydrogens,
    ScoredMolecule,
    bond_index,
    scored_molecule,
    with_hydrogens,
)
from captum_goat.plot.palette import ColourScale, check_scale, colour_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

PIXELS_PER_INCH = 200


class ColouredMolecule(NamedTuple):
    """A molecule with its colours."""

    scored: ScoredMolecule
    scale: ColourScale
    chosen: tuple[NDArray[Any], NDArray[Any]]  # which bonds and which atoms are coloured

    def scores(self) -> NDArray[Any]:
        """Return all that is coloured: bonds and atoms."""
        return np.concatenate([self.scored.bonds, self.scored.atoms])

    def draw(self, size: tuple[int, int], kind: Any) -> bytes:
        """Return the picture as a file."""
        return draw_molecule(self.scored, self.scale, size, kind, self.chosen)


def visualize_molecule_attr(
    attributions: Tensor,
    molecule: Any,
    *,
    edge_index: Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
    node_attributions: Tensor | None = None,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    hydrogens: Hydrogens = "all",
    sign: Sign = "all",
    top_k: int | None = None,
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    alpha_overlay: float = 0.85,
    show_colorbar: bool = False,
    show_legend: bool = False,
    title: str | None = None,
    fig_size: tuple[float, float] = (6, 4),
    use_pyplot: bool = True,
    plt_fig_axis: tuple[Figure, Axes] | None = None,
) -> tuple[Figure, Axes]:
    """Draw a molecule with RDKit, its bonds coloured by attribution: blue speaks for the target, red against it.

    The two directions of a bond are one, with the sum of their attributions. Molecules need not make chemical sense:
    they are drawn as the graph has them.

    Args:
        attributions: One number per edge, ``[E]``.
        molecule: A PyG ``Data``, or an RDKit molecule or SMILES with the graph's numbering of atoms.
        edge_index: The edges, ``[2, E]``; by default those of the ``Data``, or the molecule's bonds in their order.
        atoms: The elements of a ``Data``'s nodes, as symbols or atomic numbers; ``one_hot_atoms(data.x)`` for
            Mutagenicity. By default they are taken from its ``z`` or, if bonds are the same there, its ``smiles``.
        bond_types: The orders of a ``Data``'s edges, ``[E]`` (1, 2, 3, and 1.5 for aromatic bonds), or one-hot
            ``[E, 3]`` or ``[E, 4]``, such as the ``edge_attr`` of Mutagenicity and QM9; all single bonds if ``None``.
        node_attributions: One number per atom, ``[N]``, for discs below the atoms, on the same scale.
        feature_mask: The ``feature_mask`` that the attributions were made with, if any, ``[E]``, such as
            :func:`~captum_goat.undirected_feature_mask`. All edges of a feature have its sum: it is shared equally
            among them, so that nothing counts twice.
        ground_truth: The edges that a good explanation finds, bool ``[E]``: they have a dotted outline.
        hydrogens: Which hydrogens to draw: ``"all"``, ``"polar"`` (those not bound to carbon), or ``"none"``. The
            attributions of those that are left out colour the atom that they are bound to. One of the ground truth
            stays.
        sign: Which attributions to show: ``"all"``, only ``"positive"``, only ``"negative"`` (the others count as
            zero), or the ``"absolute_value"``.
        top_k: How many bonds to colour, those of largest magnitude after ``sign``; ``None`` for all of them.
        vmax: The magnitude that has the full colour, so that several pictures can share one scale; ``None`` to find it
            in these attributions.
        outlier_perc: If ``vmax`` is not given, the share (in percent) of the summed magnitudes that may be cut off.
        cmap: A colour map of matplotlib. The default is red, grey, blue, or the half of it that ``sign`` needs.
        alpha_overlay: How strong the colours are; paler ones leave letters easier to read.
        show_colorbar: Whether to draw a colour bar.
        show_legend: Whether to say below the molecule what the dotted outline means.
        title: The title.
        fig_size: The size of a new figure in inches.
        use_pyplot: Whether pyplot makes and shows the figure. Given axes are left for their owner to show.
        plt_fig_axis: A figure and axes to draw in, instead of a new figure.

    Returns:
        The figure and the axes. :func:`molecule_svg` has the same picture as SVG.

    Raises:
        ImportError: If RDKit or matplotlib is missing.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import visualize_molecule_attr
        >>> fig, ax = visualize_molecule_attr(torch.tensor([2.0, -1.0]), "CCO", title="Ethanol", use_pyplot=False)
        >>> ax.get_title(), len(ax.images)
        ('Ethanol', 1)
    """
    coloured = coloured_molecule(
        attributions,
        molecule,
        edge_index=edge_index,
        atoms=atoms,
        bond_types=bond_types,
        node_attributions=node_attributions,
        feature_mask=feature_mask,
        ground_truth=ground_truth,
        hydrogens=hydrogens,
        sign=sign,
        top_k=top_k,
        vmax=vmax,
        outlier_perc=outlier_perc,
        cmap=cmap,
        alpha_overlay=alpha_overlay,
    )
    fig, ax = plt_fig_axis or new_figure(fig_size, use_pyplot)
    if show_colorbar:
        add_colour_bar(fig, ax, coloured.scale, sign, coloured.scores())
    _draw_on(fig, ax, coloured)
    if coloured.scored.truth.any():
        add_dotted_handle(ax)
    if show_legend:
        add_legend(ax, ax, loc="upper center", bbox_to_anchor=(0.5, 0.02))
    if title is not None:
        ax.set_title(title)
    if plt_fig_axis is None and use_pyplot:
        show()
    return fig, ax


def molecule_svg(attributions: Tensor, molecule: Any, *, size: tuple[int, int] = (600, 400), **options: Any) -> str:
    """Return the picture of :func:`visualize_molecule_attr` as SVG, for web pages and for print.

    Args:
        attributions: One number per edge, ``[E]``.
        molecule: A PyG ``Data``, an RDKit molecule, or a SMILES.
        size: The width and height in pixels.
        **options: The options of :func:`visualize_molecule_attr` from ``edge_index`` to ``alpha_overlay``.

    Returns:
        The SVG, without colour bar and title.

    Raises:
        ImportError: If RDKit or matplotlib is missing.
        ValueError: If the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from captum_goat.plot import molecule_svg
        >>> svg = molecule_svg(torch.tensor([2.0, -2.0]), "CCO", alpha_overlay=1.0)
        >>> svg.count("fill:#0571B0"), svg.count("fill:#CA0020")
        (1, 1)
    """
    return coloured_molecule(attributions, molecule, **options).draw(size, "svg").decode()


def coloured_molecule(
    attributions: Tensor,
    molecule: Any,
    *,
    edge_index: Tensor | None = None,
    atoms: Sequence[str | int] | Tensor | None = None,
    bond_types: Tensor | Sequence[float] | None = None,
    node_attributions: Tensor | None = None,
    feature_mask: Tensor | None = None,
    ground_truth: Tensor | None = None,
    hydrogens: Hydrogens = "all",
    sign: Sign = "all",
    top_k: int | None = None,
    vmax: float | None = None,
    outlier_perc: float = 2,
    cmap: str | Colormap | None = None,
    alpha_overlay: float = 0.85,
) -> ColouredMolecule:
    """Find the molecule, its scores and its colours; the arguments are those of :func:`visualize_molecule_attr`.

    Raises:
        ImportError: If RDKit or matplotlib is missing.
        ValueError: If the arguments do not fit together.
    """
    check_scale(vmax, alpha_overlay)
    if hydrogens not in get_args(Hydrogens):
        names = ", ".join(map(repr, get_args(Hydrogens)))
        raise ValueError(f"Expected hydrogens to be one of {names} (got {hydrogens!r}).")
    rdkit_molecule, edges = _molecule_and_edges(molecule, edge_index, atoms, bond_types)
    scored = with_hydrogens(
        scored_molecule(rdkit_molecule, attributions, edges, node_attributions, ground_truth, feature_mask), hydrogens
    )
    scored = scored._replace(bonds=with_sign(scored.bonds, sign), atoms=with_sign(scored.atoms, sign))
    full = full_scale(np.concatenate([scored.bonds, scored.atoms]), vmax, outlier_perc)
    chosen = strongest(scored.bonds, top_k), scored.atoms != 0
    return ColouredMolecule(scored, colour_scale(sign, full, cmap, alpha_overlay), chosen)


def _molecule_and_edges(
    molecule: Any,
    edge_index: Tensor | None,
    atoms: Sequence[str | int] | Tensor | None,
    bond_types: Tensor | Sequence[float] | None,
) -> tuple[Any, Tensor]:
    if isinstance(molecule, Data):
        edges = molecule.edge_index if edge_index is None else edge_index
        if edges is None:
            raise ValueError("Expected a Data with edge_index (got one without).")
        return molecule_of(molecule, edges, atoms, bond_types), edges
    chem = rdkit_module()
    found = chem.MolFromSmiles(molecule) if isinstance(molecule, str) else molecule
    if not isinstance(found, chem.Mol):
        raise ValueError(f"Expected a Data, an RDKit molecule, or a valid SMILES (got {molecule!r}).")
    return found, bond_index(found) if edge_index is None else edge_index


def _draw_on(fig: Figure, ax: Axes, coloured: ColouredMolecule) -> None:
    """Fill the axes with a picture that is as large as they are."""
    from matplotlib.image import imread

    box = ax.get_window_extent()
    width, height = (max(50, round(side / fig.dpi * PIXELS_PER_INCH)) for side in (box.width, box.height))
    ax.imshow(imread(BytesIO(coloured.draw((width, height), "png"))), interpolation="antialiased")
    ax.set_axis_off()
