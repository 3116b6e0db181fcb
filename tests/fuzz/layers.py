"""Message passing layers of our own, whose definitions are printed with the programs that use it."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing


class OwnConv(MessagePassing):
    """Aggregate x_j, x_j - x_i, relu(x_j) or x_j * x_i."""

    def __init__(self, kind: str, aggr: str, flow: str) -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.kind = kind

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        if self.kind == "difference":
            return x_j - x_i
        if self.kind == "relu":
            return x_j.relu()
        return x_j * x_i if self.kind == "product" else x_j


class AttributedConv(MessagePassing):
    """Aggregate x_j + W e or x_j * (W e), with the edge attributes e."""

    def __init__(self, width: int, edge_dim: int, kind: str, aggr: str, flow: str) -> None:
        super().__init__(aggr=aggr, flow=flow)
        self.kind, self.lin = kind, nn.Linear(edge_dim, width)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        offer = self.lin(edge_attr)
        return x_j * offer if self.kind == "product" else x_j + offer
