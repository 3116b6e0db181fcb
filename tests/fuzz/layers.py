"""A message passing layer of our own, whose definition is printed with the programs that use it."""

from __future__ import annotations

from torch import Tensor
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
