"""From attributions to what a picture shows: merged edges, the chosen sign, the strongest edges, the scale."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.utils import coalesce, is_undirected

from captum_goat.inputs.feature_masks import average_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

Sign = Literal["all", "positive", "negative", "absolute_value"]
ROUNDING = 1e-5  # of attributions that are equal


def edge_scores(
    attributions: Tensor,
    edge_index: Tensor,
    ground_truth: Tensor | None = None,
    *,
    directed: bool = False,
    feature_mask: Tensor | None = None,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the distinct edges ``[M, 2]``, the sums of their attributions ``[M]`` and which are marked, bool ``[M]``.

    Both directions of an edge are merged unless ``directed``; it is marked if any of them is in the ground truth.
    """
    edges = plain_edges(edge_index)
    scores = _one_per_edge("attributions", attributions, edges).double()
    if wrong := int((~scores.isfinite()).sum()):
        got = f"{wrong} of {len(scores)} that are infinite or nan"
        raise ValueError(f"Expected finite attributions (got {got}). Check the model's output.")
    if feature_mask is not None and len(scores):
        scores = _share_features(scores, as_tensor(feature_mask, "feature_mask"))
    marks = torch.zeros_like(scores) if ground_truth is None else _one_per_edge("ground_truth", ground_truth, edges)
    edges = edges if directed else edges.sort(dim=0).values
    edges, values = coalesce(edges, torch.stack([scores, marks.double()], dim=1), reduce="sum")
    return edges.t().numpy(), values[:, 0].numpy(), values[:, 1].numpy() > 0


def _share_features(scores: Tensor, feature_mask: Tensor) -> Tensor:
    """Share the sum of each feature, which all of its edges have, equally among them."""
    means, near = average_features(scores, feature_mask), ROUNDING * float(scores.abs().max())
    if not torch.allclose(scores, means, ROUNDING, near):
        raise ValueError(
            "Expected attributions that were computed with this feature_mask, and so are equal within a feature (got "
            "different ones). Leave feature_mask out if they were computed without it."
        )
    feature = feature_mask.expand(scores.shape)
    return scores / feature.bincount()[feature]


def as_tensor(values: Any, name: str) -> Tensor:
    """Return a tensor, a NumPy array or a list of numbers as a tensor on the CPU, without gradient."""
    try:
        return torch.as_tensor(values).detach().cpu()
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"Expected {name} as a tensor or a NumPy array (got {type(values).__name__}).") from error


def plain_edges(edge_index: Any) -> Tensor:
    """Return the edges as integers, ``[2, E]``; an empty ``edge_index`` may have a floating dtype."""
    edges = as_tensor(edge_index.as_tensor() if isinstance(edge_index, EdgeIndex) else edge_index, "edge_index")
    if edges.dim() != 2 or edges.size(0) != 2:
        raise ValueError(f"Expected edge_index of shape [2, num_edges] (got {list(edges.shape)}).")
    if edges.numel() and (edges.is_floating_point() or (edges < 0).any()):
        got = f"{edges.dtype} from {edges.min().item()}"
        raise ValueError(f"Expected edge_index to hold node indices, integers from 0 (got {got}).")
    return edges.long()


def is_directed(edge_index: Any) -> bool:
    """Return whether any edge has no reverse."""
    return not is_undirected(coalesce(plain_edges(edge_index)))


def _one_per_edge(name: str, values: Any, edges: Tensor) -> Tensor:
    """Return one number per edge; Captum's ``[1, E]`` is accepted."""
    tensor = as_tensor(values, name)
    tensor = tensor[0] if tensor.dim() == 2 and len(tensor) == 1 else tensor
    if tensor.shape != edges.shape[1:]:
        got, advice = list(tensor.shape), "" if tensor.dim() == 1 else " Draw one row at a time."
        raise ValueError(f"Expected {name} of shape [{edges.size(1)}], one per edge (got {got}).{advice}")
    return tensor


def with_sign(scores: NDArray[Any], sign: Sign) -> NDArray[Any]:
    """Return the scores of the chosen sign, as Captum does: zero in place of the others."""
    if sign not in get_args(Sign):
        raise ValueError(f"Expected sign to be one of {', '.join(map(repr, get_args(Sign)))} (got {sign!r}).")
    signed: dict[str, NDArray[Any]]
    signed = {"positive": scores.clip(min=0), "negative": scores.clip(max=0), "absolute_value": np.abs(scores)}
    return signed.get(sign, scores)


def strongest(scores: NDArray[Any], top_k: int | None) -> NDArray[Any]:
    """Return a mask of the ``top_k`` largest magnitudes (the first of equal ones); all True for ``None``."""
    if top_k is not None and top_k < 0:
        raise ValueError(f"Expected top_k of at least 0, or None for all edges (got {top_k}).")
    mask = np.zeros(len(scores), dtype=bool)
    mask[np.argsort(-np.abs(scores), kind="stable")[:top_k]] = True
    return mask


def magnitude_scale(scores: NDArray[Any], outlier_perc: float) -> float:
    """Return the magnitude at which the smaller ones make up all but ``outlier_perc`` percent of the sum."""
    if not 0 <= outlier_perc <= 100:
        raise ValueError(f"Expected outlier_perc between 0 and 100 (got {outlier_perc}).")
    ascending = np.sort(np.abs(scores[scores != 0]))
    if not len(ascending):
        return 0.0
    sums = ascending.cumsum()
    return float(ascending[np.searchsorted(sums, sums[-1] * (1 - outlier_perc / 100))])


def node_count(edges: NDArray[Any], num_nodes: int | None = None, **per_node: Sized | None) -> int:
    """Return the number of nodes on which ``num_nodes`` and the arguments with one entry per node agree."""
    needed = int(edges.max(initial=-1)) + 1
    counts = {len(values) for values in per_node.values() if values is not None}
    counts |= set() if num_nodes is None else {num_nodes}
    if len(counts) > 1 or min(counts, default=needed) < needed:
        raise ValueError(
            f"Expected {' and '.join(['num_nodes', *per_node])} to agree on one number of nodes, at least {needed} "
            f"for the nodes in edge_index (got {sorted(counts)})."
        )
    return counts.pop() if counts else needed
