"""The edges of a picture and how each is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from captum_goat.plot.edge_scores import Sign, edge_scores, magnitude_scale, strongest, with_sign

if TYPE_CHECKING:
    from numpy.typing import NDArray


class DrawnEdges(NamedTuple):
    """Merged edges, their attributions of the chosen sign, and their marks."""

    edges: NDArray[Any]  # [M, 2]
    scores: NDArray[Any]  # [M]
    coloured: NDArray[Any]  # bool [M], the others are grey
    halo: NDArray[Any]  # bool [M], with a yellow halo
    dotted: NDArray[Any]  # bool [M], inside a dotted line


def drawn_edges(
    attributions: Tensor,
    edge_index: Tensor,
    *,
    directed: bool,
    sign: Sign,
    top_k: int | None = None,
    edge_label: Tensor | None = None,
    ground_truth: Tensor | None = None,
    feature_mask: Tensor | None = None,
) -> DrawnEdges:
    """Merge repeated edges, and both directions of an edge unless ``directed``; choose which are coloured.

    Raises:
        ValueError: If the arguments do not fit together.
    """
    if ground_truth is not None and ground_truth.shape != edge_index.shape[1:]:
        raise ValueError(
            f"Expected ground_truth of shape [{edge_index.size(1)}], one per edge (got {list(ground_truth.shape)})."
        )
    edges, scores, halo = edge_scores(
        attributions, edge_index, edge_label, directed=directed, feature_mask=feature_mask
    )
    dotted = edge_scores(attributions, edge_index, ground_truth, directed=directed).marked
    scores = with_sign(scores, sign)
    return DrawnEdges(edges, scores, strongest(scores, top_k), halo, dotted)


def full_scale(scores: NDArray[Any], vmax: float | None, outlier_perc: float) -> float:
    """Return the magnitude that has the full colour, never zero: ``vmax``, or what the scores say."""
    return (magnitude_scale(scores, outlier_perc) if vmax is None else vmax) or 1.0
