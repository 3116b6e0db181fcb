"""Small classifiers of graphs and of nodes: the architectures of the paper's experiments."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Linear, Module, ModuleList, ReLU, Sequential
from torch.nn.functional import normalize
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_mean_pool

ConvName: TypeAlias = Literal["gcn", "sage", "gin"]


class _Classifier(Module):
    """Convolutions with ReLU between them and two linear layers, which the two levels put together."""

    def __init__(
        self,
        conv: ConvName,
        in_channels: int,
        hidden_channels: int,
        num_classes: int,
        num_layers: int = 3,
        normalize: bool = True,
        l2_normalize: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = ModuleList(_convolution(conv, before, after, normalize) for before, after in pairwise(widths))
        self.l2_normalize = l2_normalize
        self.classifier = Sequential(
            Linear(hidden_channels, hidden_channels), ReLU(), Dropout(dropout), Linear(hidden_channels, num_classes)
        )

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return what the convolutions make of the nodes, ``[N, hidden_channels]``."""
        for conv in self.convs:
            x = conv(normalize(x) if self.l2_normalize else x, edge_index)
            if not isinstance(conv, GINConv):  # which has its ReLUs inside
                x = x.relu()
        return x


class GraphClassifier(_Classifier):
    r"""A graph neural network as in textbooks: convolutions with ReLU, mean pooling, and two linear layers.

    The paper's three are, with 3 layers and dropout 0.5, ``"gcn"`` with ``normalize=False`` and ``l2_normalize=True``,
    ``"sage"`` and ``"gin"``; :func:`~captum_goat.models.paper_model` makes them.

    Args:
        conv: ``"gcn"``; ``"sage"``, which sums over neighbours; or ``"gin"``, whose layers contain two linear layers
            and batch normalisation and learn epsilon.
        in_channels: The number of node features.
        hidden_channels: The width of every layer.
        num_classes: The number of classes.
        num_layers: The number of convolutions.
        normalize: Whether ``"gcn"`` adds self-loops and divides by degrees; the others ignore this. Averages hardly
            tell nodes apart that all have the same features, as in :func:`~captum_goat.datasets.ba_2motifs`: there it
            has to be False.
        l2_normalize: Whether the features of every node are divided by their Euclidean norm before each convolution.
        dropout: The share of units that are left out between the two linear layers in training.

    Examples::

        >>> import torch
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=32, num_classes=2).eval()
        >>> model(torch.ones(3, 10), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([1, 2])
    """

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the logits of every graph.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges ``[2, E]``.
            batch: The graph of every node ``[N]``; ``None`` for one graph.

        Returns:
            The logits ``[G, num_classes]``.
        """
        logits: Tensor = self.classifier(global_mean_pool(self.embed(x, edge_index), batch))
        return logits


class NodeClassifier(_Classifier):
    r"""The same network for nodes: convolutions with ReLU and two linear layers, without pooling.

    Takes the arguments of :class:`GraphClassifier`.

    Examples::

        >>> import torch
        >>> from captum_goat.models import NodeClassifier
        >>> model = NodeClassifier("gcn", in_channels=10, hidden_channels=32, num_classes=4).eval()
        >>> model(torch.ones(3, 10), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the logits of every node.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges ``[2, E]``.
            batch: Not used; it is there so that graphs and nodes are classified by the same call.

        Returns:
            The logits ``[N, num_classes]``.
        """
        logits: Tensor = self.classifier(self.embed(x, edge_index))
        return logits


class RootClassifier(Module):
    r"""A classifier of nodes as one of graphs: the output of a graph is that of its first node.

    With :func:`~captum_goat.datasets.computation_graphs`, whose first nodes are those to explain, whatever works on
    graphs works on nodes.

    Args:
        model: A function of ``(x, edge_index)`` that returns one row per node.

    Examples::

        >>> import torch
        >>> from captum_goat.models import NodeClassifier, RootClassifier
        >>> model = NodeClassifier("gcn", in_channels=10, hidden_channels=32, num_classes=4).eval()
        >>> x, edge_index, batch = torch.ones(3, 10), torch.tensor([[1], [0]]), torch.tensor([0, 0, 1])
        >>> torch.equal(RootClassifier(model)(x, edge_index, batch), model(x, edge_index)[[0, 2]])
        True
    """

    def __init__(self, model: Module) -> None:
        super().__init__()
        self.model = model
        self.train(model.training)  # a model in evaluation mode stays one

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the row of the first node of every graph.

        Args:
            x: The node features ``[N, F]``.
            edge_index: The edges ``[2, E]``.
            batch: The graph of every node ``[N]``, in ascending order; ``None`` for one graph.

        Returns:
            The rows ``[G, num_classes]``.
        """
        rows: Tensor = self.model(x, edge_index)
        if batch is None:
            return rows[:1]
        sizes = torch.unique_consecutive(batch, return_counts=True)[1]
        return rows[sizes.cumsum(0) - sizes]


def _convolution(name: ConvName, in_channels: int, out_channels: int, normalize: bool) -> Module:
    conv: Module
    if name == "gcn":
        conv = GCNConv(in_channels, out_channels, normalize=normalize)
    elif name == "sage":
        conv = SAGEConv(in_channels, out_channels, aggr="sum")
    elif name == "gin":
        inner = Sequential(
            Linear(in_channels, out_channels),
            ReLU(),
            Linear(out_channels, out_channels),
            ReLU(),
            BatchNorm1d(out_channels),
        )
        conv = GINConv(inner, train_eps=True)
    else:
        raise ValueError(f"Expected conv to be 'gcn', 'sage' or 'gin' (got {name!r}).")
    return conv
