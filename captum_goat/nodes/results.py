"""The explanations of many nodes of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explanation

from captum_goat.bulk.files import merge
from captum_goat.bulk.part_folder import PartFolder, Ranks
from captum_goat.bulk.tables import joined_table


class NodeAttributions(NamedTuple):
    """The attributions, ``[edges]`` or ``[edges, C]`` for all classes, of the edges of one node's computation graph."""

    edges: Tensor  # as numbers in the whole graph, in ascending order
    attributions: Tensor


@dataclass(frozen=True)
class NodeExplanations:
    """The explanations of some nodes of one graph: ``explanations[k]`` is that of ``nodes[k]``.

    ``targets`` has their explained classes, ``[K]``, or is ``None``; ``outputs`` the model's outputs without a last
    softmax or sigmoid, and ``deltas`` the convergence deltas. Only the edges of computation graphs are kept, as no
    other edge has an attribution: ``edges``, as numbers in the whole graph, and their ``attributions``, ``[M]`` or
    ``[M, C]``, of node k from ``ptr[k]`` to ``ptr[k + 1]``; ``explanations[k]`` is a named tuple of both. If the
    method attributes node features as well, ``features`` has these of the nodes in computation graphs, in the same way:
    ``(ptr, nodes, attributions)``.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import GCN
        >>> from captum_goat.nodes import explain_nodes
        >>> data = Data(x=torch.ones(4, 2), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> explanations = explain_nodes(GCN(2, 8, num_layers=2, out_channels=2).eval(), data, nodes=[3, 1])
        >>> explanations
        NodeExplanations(2 nodes, 3 edges)
        >>> explanations[0].edges, explanations[1].edges
        (tensor([1, 2]), tensor([0]))
        >>> explanations.edge_mask(1).shape, explanations.subgraph(0).n_id
        (torch.Size([3]), tensor([3, 1, 2]))
    """

    data: Data
    nodes: Tensor
    targets: Tensor | None
    outputs: Tensor
    deltas: Tensor
    ptr: Tensor
    edges: Tensor
    attributions: Tensor
    features: tuple[Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return self.nodes.numel()

    def __getitem__(self, position: int) -> NodeAttributions:
        if not -len(self) <= position < len(self):
            raise IndexError(f"Expected the position of one of {len(self)} explained nodes (got {position}).")
        begin, end = self.ptr[position % len(self) :][:2].tolist()
        return NodeAttributions(self.edges[begin:end], self.attributions[begin:end])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} nodes, {self.edges.numel()} edges)"

    def edge_mask(self, position: int) -> Tensor:
        """Return one node's attributions of all edges of the graph, ``[E]`` or ``[E, C]``."""
        edges, attributions = self[position]
        mask = attributions.new_zeros(self.data.edge_index.size(1), *attributions.shape[1:])
        return mask.index_copy_(0, edges, attributions)

    def node_mask(self, position: int) -> Tensor:
        """Return one node's attributions of the features of all nodes, ``[N, F]`` or ``[N, F, C]``.

        Raises:
            ValueError: If features were not attributed.
        """
        if self.features is None:
            advice = "Explain with GOAtAttribution(model, mask_type='node_and_edge')."
            raise ValueError(f"Expected attributions of features (got none). {advice}")
        ptr, nodes, attributions = self.features
        own = slice(*ptr[position % len(self) :][:2].tolist())
        mask = attributions.new_zeros(self.data.num_nodes, *attributions.shape[1:])
        return mask.index_copy_(0, nodes[own], attributions[own])

    def subgraph(self, position: int) -> Explanation:
        """Return one node's explanation on its computation graph, in which it is node 0 (``index``).

        Nodes and edges have the numbers ``n_id`` and ``e_id`` in the whole graph.
        """
        edges, attributions = self[position]
        root = self.nodes[position].view(1)
        ends = self.data.edge_index[:, edges]
        others = torch.unique(ends)
        nodes = torch.cat([root, others[others != root]])
        order = nodes.argsort()
        edge_index = order[torch.searchsorted(nodes[order], ends)]
        explanation = Explanation(edge_index=edge_index, edge_mask=attributions, n_id=nodes, e_id=edges, index=0)
        explanation.num_nodes = len(nodes)
        explanation.prediction, explanation.delta = self.outputs[position][None], self.deltas[position][None]
        if self.data.x is not None:
            explanation.x = self.data.x[nodes]
        if self.targets is not None:
            explanation.target = self.targets[position].view(1)
        if self.features is not None:
            explanation.node_mask = self.node_mask(position)[nodes]
        return explanation

    def to_table(self, *, node_names: Sequence[Any] | None = None, **options: Any) -> Any:
        """Return the attributions of all nodes as a table; see :func:`~captum_goat.bulk.edge_table`.

        The columns ``node`` and ``target_class`` (if one was explained) come first.
        """
        targets: Any = repeat(None) if self.targets is None else self.targets.tolist()
        rows: Any = (
            (node, target, {}, own.attributions, Data(edge_index=self.data.edge_index[:, own.edges], e_id=own.edges))
            for node, target, own in zip(self.nodes.tolist(), targets, map(self.__getitem__, count()), strict=False)
        )
        return joined_table("node", rows, node_names, **options)

    def save(self, path: Path, options: dict[str, Any]) -> None:
        """Write the edges' attributions to a file, as those of graphs are, with ``options`` in its ``meta``."""
        folder = PartFolder(path, {**options, "graphs": len(self), "nodes": self.nodes.tolist()}, count=1)
        names = ("attributions", "targets", "outputs", "deltas", "edges")
        part = {name: None if (value := getattr(self, name)) is None else value.cpu() for name in names}
        edges = self.data.edge_index.cpu()[:, self.edges.cpu()].int().t()
        with folder.claimed(Ranks()):
            folder.prepare(resume=False)
            folder.write(0, part | {"edge_index": edges, "sizes": self.ptr.cpu().diff(), "columns": [{}] * len(self)})
            merge(folder)
