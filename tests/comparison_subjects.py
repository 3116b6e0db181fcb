"""A model, graphs and explainers for tests of comparisons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from conftest import make_gnn, random_edges
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from captum_goat.compare import Comparison, compare
from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import Graphs


def some_graphs(count: int = 5, dtype: torch.dtype = torch.float32) -> list[Data]:
    random = torch.Generator().manual_seed(3)
    graphs = []
    for number in range(count):
        nodes, edges = 5 + number % 3, random_edges(5 + number % 3, 12 + number, seed=number)
        x = torch.randn(nodes, 4, generator=random, dtype=dtype)
        graphs.append(Data(x=x, edge_index=edges, edge_label=torch.arange(edges.size(1)) % 3 == 0))
    return graphs


GRAPHS, MODEL = some_graphs(), make_gnn("gcn", dtype=torch.float32)


def compared(*explainers: Any, **options: Any) -> Comparison:
    given: dict[str, Any] = {"model": MODEL, "graphs": GRAPHS, "show_progress": False} | options
    return compare(explainers=explainers, **given)


def without_times(comparison: Comparison, name: str) -> list[str]:
    return [repr(row) for row in comparison.rows if row.explainer == name and not row.metric.startswith("seconds")]


class Sources(Explainer):
    """An explainer of one's own: the first feature of an edge's source."""

    name, citation = "sources", "none"

    def scores(self, model: nn.Module, graphs: Graphs) -> Tensor:
        return graphs.x[graphs.edge_index[0], 0]


class Plain:
    """An object that is no Explainer, and does everything wrong that it can to its model and graphs."""

    name, complete = "plain", False

    def __init__(self) -> None:
        self.calls = 0

    def fit(self, model: nn.Module, graphs: Any) -> None:
        pass

    def __call__(self, model: nn.Module, data: Data | Batch, target: Tensor) -> Tensor:
        self.calls += 1
        scores = torch.rand(data.num_edges)
        for parameter in model.parameters():
            parameter.data.zero_()
        model(data.x, data.edge_index, data.batch).sum().backward()
        model.train()
        data.x.zero_()
        return scores


class Failing(Plain):
    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.error = name, error

    def __call__(self, model: nn.Module, data: Data | Batch, target: Tensor) -> Tensor:
        raise self.error


class Scored:
    """An object that gives any scores."""

    complete = False

    def __init__(self, name: Any, scores: Callable[[Data | Batch], Tensor], *, batched: bool = False) -> None:
        self.name, self.scores, self.batched = name, scores, batched

    def fit(self, model: nn.Module, graphs: Any) -> None:
        pass

    def __call__(self, model: nn.Module, data: Data | Batch, target: Tensor) -> Tensor:
        return self.scores(data)


class NeedsArguments(Sources):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth


class Unlucky(Failing):
    def __init__(self) -> None:
        super().__init__("unlucky", RuntimeError("out\nof luck"))
