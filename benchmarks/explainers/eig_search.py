"""EiG-Search: what the logit loses without one directed edge."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import LARGEST_CALL, Graphs, MaskedTargets
from captum_goat.metrics.counted_edges import position_in_graph


class EiGSearch(Explainer):
    r"""The "linear gradient" of an edge's message, :math:`(f(\mathbf 1) - f(\mathbf 1 - \mathbf 1_e)) / (1 - 0)`.

    Each *direction* of an edge is masked for itself, which is what tells it from ``occlusion``. The linear search over
    the numbers of best edges, which follows in the paper, is what the protocol calls ``"search"`` and gives to every
    method (:func:`benchmarks.paper_metrics.search_prefix`).
    """

    name = "eig_search"
    citation = (
        "Lu, Liu, Mills, He, Niu: EiG-Search: Generating Edge-Induced Subgraphs for GNN Explanation in Linear Time, "
        "ICML 2024"
    )
    batched = True

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the drops, the k-th edges of all graphs at once."""
        targets, graph = MaskedTargets(model, graphs), graphs.edges.columns_graph
        position = position_in_graph(graph, len(graphs.target))
        size = max(1, LARGEST_CALL // graphs.num_edges)
        with torch.no_grad():
            whole = targets.values(torch.ones(1, graphs.num_edges, dtype=graphs.x.dtype, device=graphs.x.device))
            drops = [
                whole - targets.values((positions.view(-1, 1) != position).to(graphs.x.dtype))
                for positions in torch.arange(int(position.max()) + 1, device=graphs.x.device).split(size)
            ]
        return torch.cat(drops)[position, graph]
