"""A model and graphs for tests of whole datasets; the model notes which graphs it sees, and may die of one."""

from __future__ import annotations

import os
import signal

import torch
from conftest import randomize
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.models import GraphClassifier


class Watched(GraphClassifier):
    """Writes the numbers of the first graphs of its batches, of which x[:, 0] is made, to the file $WATCHED_LOG.

    At the graph $WATCHED_KILL it kills its process; at the graph $WATCHED_RAISE it raises an error.
    """

    def __init__(self) -> None:
        super().__init__("gin", 4, 8, 3, num_layers=2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        first = str(round(float(x[0, 0]) * 100))
        if "WATCHED_LOG" in os.environ:
            with open(os.environ["WATCHED_LOG"], "a", encoding="utf-8") as file:
                file.write(f"{first}\n")
        if os.environ.get("WATCHED_KILL") == first:
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ.get("WATCHED_RAISE") == first:
            raise KeyboardInterrupt
        return super().forward(x, edge_index, batch)


def watched_model(seed: int = 40) -> Watched:
    """Return a model with random weights, in eval mode."""
    model = Watched()
    randomize(model, seed)
    return model


def numbered_graphs(count: int, seed: int = 0) -> list[Data]:
    """Return random graphs, every fifth of them without edges."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for number in range(count):
        nodes, edges = 3 + number % 4, 0 if number % 5 == 4 else 4 + number % 7
        x = torch.randn(nodes, 4, generator=generator)
        x[:, 0] = number / 100
        edge_index = torch.randint(0, nodes, (2, edges), generator=generator)
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor([number % 3])))
    return graphs
