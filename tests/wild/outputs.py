"""Models that return more than one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, Wild, mlp


class LogitsAndEmbedding(nn.Module):
    """A graph classifier that also returns what it pools."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = GINConv(mlp(C, C, C)), GINConv(mlp(C, C, C)), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        pooled = global_add_pool(hidden, batch)
        return self.head(pooled), pooled


class NamedOutputs(nn.Module):
    """A model whose results have names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GCNConv(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> dict[str, Tensor]:
        hidden = F.elu(self.conv(x, edge_index))
        logits = self.head(global_mean_pool(hidden, batch))
        return {"hidden": hidden, "logits": logits, "probabilities": logits.softmax(dim=-1)}


class TaskHeads(nn.Module):
    """One head per task, in a list; some return nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.heads = SAGEConv(C, C), nn.ModuleList(nn.Linear(C, CLASSES) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> list[Any]:
        pooled = global_mean_pool(self.conv(x, edge_index).relu(), batch)
        return [None, *(head(pooled) for head in self.heads)]


class VariationalEncoder(nn.Module):
    """The mean and the logarithm of the deviation of every node's code."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.mean, self.log = GCNConv(C, C), GCNConv(C, CLASSES), GCNConv(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.shared(x, edge_index).relu()
        return self.mean(hidden, edge_index), self.log(hidden, edge_index)


class _Result(NamedTuple):
    loss: Tensor | None
    scores: tuple[Tensor, dict[str, Tensor]]


class Nested(nn.Module):
    """A named tuple with a tuple with a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> _Result:
        pooled = global_add_pool(self.conv(x, edge_index).relu(), batch)
        return _Result(None, (pooled, {"logits": self.head(pooled)}))


@dataclass
class _ModelOutput:
    logits: Tensor
    attention: Any


class DataclassOutput(nn.Module):
    """The logits, and the attention coefficients with their edges, in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GATConv(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> _ModelOutput:
        hidden, attention = self.conv(x, edge_index, return_attention_weights=True)
        return _ModelOutput(self.head(global_mean_pool(hidden.relu(), batch)), attention)


class LastSoftmaxInTuple(nn.Module):
    """Probabilities beside the code of the graph: logits are explained."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = GINConv(mlp(C, C)), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        pooled = global_add_pool(self.conv(x, edge_index).relu(), batch)
        return torch.softmax(self.head(pooled), dim=-1), pooled


CASES = [
    Wild(LogitsAndEmbedding, output=0, deletes=True),
    Wild(NamedOutputs, output="logits"),
    Wild(TaskHeads, output=2),
    Wild(VariationalEncoder, lambda g: (g.x, g.edge_index), target=(3, 1), output=1),
    Wild(Nested, output=lambda result: result.scores[1]["logits"], deletes=True),
    Wild(DataclassOutput, output="logits"),
    Wild(LastSoftmaxInTuple, output=0),
    Wild(LogitsAndEmbedding, refused="output="),
    Wild(NamedOutputs, refused="'logits': torch.float64"),
]
