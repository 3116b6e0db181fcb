"""DEGREE: how much of the logit comes from the two nodes of an edge."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from benchmarks.explainers.decomposition import decompose
from captum_goat import UnsupportedModelError
from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
from captum_goat.compare.graphs import LARGEST_CALL, Graphs
from captum_goat.metrics.counted_edges import position_in_graph


class DEGREE(Explainer):
    r"""DEGREE: the part of the target's logit that comes from an edge's two nodes, and from no other.

    The forward pass is decomposed for every edge, with its two nodes as the group, as the authors' code does for edges
    (see :func:`~benchmarks.explainers.decomposition.decompose`). The directions of an undirected edge have
    the same group, and share its score equally. Models that cannot be decomposed are skipped.
    """

    name = "degree"
    citation = "Feng, Liu, Yang, Tang, Du, Hu: DEGREE: Decomposition Based Explanation for GNNs, ICLR 2022"
    batched = True

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the parts of all graphs' edges."""
        edges = graphs.edges
        position = position_in_graph(edges.graph, edges.num_graphs)
        groups = torch.zeros(int(edges.counts.max()), graphs.x.size(0), dtype=torch.bool, device=graphs.x.device)
        for end in graphs.edge_index:
            groups[position[edges.number], end] = True
        at_once = max(1, LARGEST_CALL // graphs.num_edges)
        try:
            parts = [graphs.of_target(decompose(model, graphs, some).part) for some in groups.split(at_once)]
        except UnsupportedModelError as error:
            raise ExplainerSkippedError(str(error)) from error
        return graphs.shared(torch.cat(parts)[position, edges.graph])
