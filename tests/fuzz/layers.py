"""Message passing layers of our own, whose definitions are printed with the programs that use it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from captum_goat import rules


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


def aggregated(messages: Tensor, index: Tensor, size: int, aggr: str) -> Tensor:
    """Bring messages together at nodes."""
    into = messages.new_zeros(size, *messages.shape[1:])
    if aggr == "max":
        return into.scatter_reduce(0, index.view(-1, 1).expand_as(messages), messages, "amax", include_self=False)
    count = torch.zeros(size, 1, dtype=messages.dtype).index_add(0, index, messages.new_ones(len(index), 1))
    total = into.index_add(0, index, messages)
    return total / count.clamp(min=1) if aggr == "mean" else total


@rules.message
class Sent(nn.Module):
    """Declared messages: x_j, x_j - x_i, relu(x_j) or x_j * x_i."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x_i: Tensor, x_j: Tensor) -> Tensor:
        return OwnConv.message(self, x_i, x_j)


class HandConv(nn.Module):
    """The same as OwnConv without PyG: messages that are recognized, declared, or made by a declared module."""

    def __init__(self, kind: str, aggr: str, flow: str, hand: str) -> None:
        super().__init__()
        self.kind, self.aggr, self.flow, self.hand, self.sent = kind, aggr, flow, hand, Sent(kind)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
        if self.hand == "declared":  # in an order in which they are not recognized
            order = torch.arange(len(source) - 1, -1, -1)
            target, messages = target[order], self.messages(x, source[order], target[order])
        else:
            send = self.sent if self.hand == "module" else self.message
            messages = send(x[target], x[source])
        return aggregated(messages, target, len(x), self.aggr)

    message = OwnConv.message

    @rules.message
    def messages(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return self.message(x[target], x[source])


class EdgeSoftmax(nn.Module):
    """A softmax over the messages to the same node, which is declared to be frozen."""

    def forward(self, score: Tensor, index: Tensor, size: int) -> Tensor:
        weight = score.exp()
        return weight / score.new_zeros(size, score.size(1)).index_add(0, index, weight)[index]


rules.freeze(EdgeSoftmax)


class HandGAT(nn.Module):
    """The same as GATConv without PyG: messages that are recognized, with frozen coefficients, or declared."""

    def __init__(
        self, width: int, channels: int, heads: int, concat: bool, add_self_loops: bool, flow: str, hand: str
    ) -> None:
        super().__init__()
        self.lin, self.heads, self.concat, self.flow = (
            nn.Linear(width, heads * channels, bias=False),
            heads,
            concat,
            flow,
        )
        self.att_src, self.att_dst = (nn.Parameter(torch.zeros(1, heads, channels)) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(heads * channels if concat else channels))
        self.softmax, self.hand = EdgeSoftmax(), hand

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        ends = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
        values = self.lin(x).unflatten(-1, (self.heads, -1))
        messages = self.messages(values, *ends) if self.hand == "declared" else self.attended(values, *ends)
        out = torch.zeros_like(values).index_add(0, ends[1], messages)
        return (out.flatten(1) if self.concat else out.mean(dim=1)) + self.bias

    def attended(self, values: Tensor, source: Tensor, target: Tensor) -> Tensor:
        score = (values * self.att_src).sum(dim=-1)[source] + (values * self.att_dst).sum(dim=-1)[target]
        score = nn.functional.leaky_relu(score, 0.2)
        return self.softmax(score, target, len(values)).unsqueeze(-1) * values[source]

    @rules.message
    def messages(self, values: Tensor, source: Tensor, target: Tensor) -> Tensor:
        return self.attended(values, source, target)
