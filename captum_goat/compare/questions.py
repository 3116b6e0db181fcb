"""What explainers are asked: a class of each of some graphs, of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data


class Questions(Protocol):
    """A model, graphs, and the class of each that is to be explained: all that explaining needs to know."""

    @property
    def model(self) -> Module:
        """The model, in evaluation mode, called as ``model(x, edge_index, batch)``."""

    @property
    def graphs(self) -> Sequence[Data]:
        """G graphs with edges."""

    @property
    def training_graphs(self) -> Sequence[Data]:
        """Other graphs, for explainers that have to learn."""

    @property
    def target(self) -> Tensor:
        """The class of each graph, ``[G]``."""
