"""Graphs, a model with one number per graph, and single attributions, for tests of explain_dataset."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from torch import Tensor, nn
from torch_geometric.data import Data

from captum_goat import GOAtAttribution

NUM_GRAPHS = 11


@pytest.fixture(scope="module")
def graphs() -> list[Data]:
    return numbered_graphs(NUM_GRAPHS)


class Column(nn.Module):
    """A model with one number per graph."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = watched_model()
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.inner(x, edge_index, batch)[:, 1]


def one_by_one(model: nn.Module, graphs: list[Data], targets: list[Any], **options: Any) -> list[Tensor]:
    """Return the attributions that single graphs get."""
    goat = GOAtAttribution(model)
    return [
        goat.attribute(torch.ones(graph.num_edges), target, (graph.x, graph.edge_index), **options)
        for graph, target in zip(graphs, targets, strict=True)
    ]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
