"""Small classifiers of nodes and graphs, and a function that trains them: for examples, tutorials and tests."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Dropout, Linear, Module, ModuleList, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_mean_pool

from captum_goat.runs import progress_bar

__all__ = ["GraphClassifier", "NodeClassifier", "RootClassifier", "TrainingResult", "train_model"]

ConvName: TypeAlias = Literal["gcn", "sage", "gin"]
MASKS = ("train_mask", "val_mask", "test_mask")


class NodeClassifier(Module):
    """A textbook node classifier: convolutions with ReLU, and two linear layers.

    ``conv`` is ``"gcn"``; ``"sage"``, which sums over neighbours; or ``"gin"``, whose layers contain two linear layers
    and batch normalisation and learn epsilon. ``normalize`` is whether ``"gcn"`` adds self-loops and divides by
    degrees: set it to False if all nodes have the same features, as in :func:`~captum_goat.datasets.ba_2motifs`.
    ``dropout`` is the dropout probability between the two linear layers.

    Examples:
        >>> from captum_goat.models import NodeClassifier
        >>> model = NodeClassifier("gcn", in_channels=10, hidden_channels=32, num_classes=4).eval()
        >>> model(torch.ones(3, 10), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        conv: ConvName,
        in_channels: int,
        hidden_channels: int,
        num_classes: int,
        num_layers: int = 3,
        normalize: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = ModuleList(_convolution(conv, before, after, normalize) for before, after in pairwise(widths))
        self.classifier = Sequential(
            Linear(hidden_channels, hidden_channels), ReLU(), Dropout(dropout), Linear(hidden_channels, num_classes)
        )

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the node embeddings after the last convolution, ``[N, hidden_channels]``."""
        for conv in self.convs:
            x = conv(x, edge_index)
            if not isinstance(conv, GINConv):  # which has its ReLUs inside
                x = x.relu()
        return x

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the logits of every node, ``[N, num_classes]``; ``batch`` allows the same call as for graphs."""
        logits: Tensor = self.classifier(self.embed(x, edge_index))
        return logits


class GraphClassifier(NodeClassifier):
    """The same network with mean pooling before the linear layers, for graphs."""

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the logits of every graph, ``[G, num_classes]``; ``batch`` is ``None`` for one graph."""
        logits: Tensor = self.classifier(global_mean_pool(self.embed(x, edge_index), batch))
        return logits


class RootClassifier(Module):
    """Turn a node classifier into a graph classifier: the output of a graph is that of its first node.

    With :func:`~captum_goat.compare.computation_graphs`, which puts the node to explain first, everything that works on
    graphs works on nodes. The model is called as ``model(x, edge_index, *others)`` and returns one row per node.

    Examples:
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

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, *others: Any) -> Tensor:
        """Return the row of the first node of every graph, ``[G, num_classes]``; ``batch`` is in ascending order."""
        return self.of_roots(self.model(x, edge_index, *others), batch)

    def of_roots(self, rows: Tensor, batch: Tensor | None) -> Tensor:
        """Select the rows of the first nodes."""
        if batch is None:
            return rows[:1]
        sizes = torch.unique_consecutive(batch, return_counts=True)[1]
        return rows[sizes.cumsum(0) - sizes]


def _convolution(name: ConvName, in_channels: int, out_channels: int, normalize: bool) -> Any:
    if name == "gcn":
        return GCNConv(in_channels, out_channels, normalize=normalize)
    if name == "sage":
        return SAGEConv(in_channels, out_channels, aggr="sum")
    if name != "gin":
        raise ValueError(f"Expected conv to be 'gcn', 'sage' or 'gin' (got {name!r}).")
    first, second = Linear(in_channels, out_channels), Linear(out_channels, out_channels)
    return GINConv(Sequential(first, ReLU(), second, ReLU(), BatchNorm1d(out_channels)), train_eps=True)


class TrainingResult(NamedTuple):
    """The accuracy on the test set, the indices of each part's graphs or nodes, and the epoch of the weights.

    :func:`train_model` returns it. ``best_epoch`` is 0 if no epoch was better than the initial weights.
    """

    test_accuracy: float
    train_set: Tensor
    validation_set: Tensor
    test_set: Tensor
    best_epoch: int


def train_model(
    model: Module,
    data: Data | Sequence[Data],
    *,
    epochs: int,
    lr: float = 0.005,
    weight_decay: float = 0.0,
    batch_size: int = 64,
    seed: int = 0,
    show_progress: bool = True,
) -> TrainingResult:
    """Train a classifier on 80 % of the data, choose its weights on 10 % and test them on 10 %.

    The model keeps the weights of the epoch with the best validation accuracy (of several, the one with the lowest
    validation loss; the initial weights count as well) and is left in evaluation mode.

    Args:
        model: A model called as ``model(x, edge_index, batch)``, or ``model(x, edge_index)`` for nodes, with logits.
        data: At least 10 graphs with labels ``y``, split at random; or one graph whose nodes have labels ``y``, split
            by its ``train_mask``, ``val_mask`` and ``test_mask``, with one step per epoch.
        epochs: The number of epochs.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        batch_size: The number of graphs per step.
        seed: The seed of the split, the order of the graphs and dropout. The global random state does not change.
        show_progress: Whether to show a progress bar.

    Examples:
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier, train_model
        >>> graphs = ba_2motifs(num_graphs=20)
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2)
        >>> result = train_model(model, graphs, epochs=1, show_progress=False)
        >>> len(result.test_set), model.training
        (2, False)
    """
    with torch.random.fork_rng(devices=[]), progress_bar(epochs, "epoch", show_progress, "training") as advance:
        torch.default_generator.manual_seed(seed)
        (train, validation, test), best_epoch = _split(data), 0
        order: Any = train.tolist()
        batches = DataLoader(order, batch_size, shuffle=True, collate_fn=partial(part_of, data))
        steps: Any = [part_of(data, train)] if isinstance(data, Data) else batches
        held_out = part_of(data, validation)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
        best, weights = accuracy_and_loss(model, held_out), deepcopy(model.state_dict())
        for epoch in range(1, epochs + 1):
            model.train()
            for step in steps:
                optimizer.zero_grad()
                cross_entropy(*_logits_and_labels(model, step)).backward()
                optimizer.step()
            score = accuracy_and_loss(model, held_out)
            if score > best:
                best, weights, best_epoch = score, deepcopy(model.state_dict()), epoch
            advance(1)
    model.load_state_dict(weights)
    return TrainingResult(accuracy_and_loss(model, part_of(data, test))[0], train, validation, test, best_epoch)


def _split(data: Data | Sequence[Data]) -> list[Tensor]:
    if isinstance(data, Data):
        missing = [name for name in MASKS if name not in data]
        if missing:
            raise ValueError(f"Expected a graph with {', '.join(MASKS)} (got one without {missing[0]}).")
        return [data[name].nonzero().view(-1) for name in MASKS]
    if len(data) < 10:
        raise ValueError(f"Expected at least 10 graphs, to split them 80/10/10 (got {len(data)}).")
    shuffled, tenth = torch.randperm(len(data)), len(data) // 10
    return [shuffled[2 * tenth :], shuffled[tenth : 2 * tenth], shuffled[:tenth]]


def part_of(data: Data | Sequence[Data], indices: Tensor | list[int]) -> tuple[Data, Tensor]:
    """Return a graph and the rows of the model's output that count: chosen nodes, or all rows of chosen graphs."""
    if isinstance(data, Data):
        return data, torch.as_tensor(indices)
    return Batch.from_data_list([data[int(index)] for index in indices]), torch.arange(len(indices))


def _logits_and_labels(model: Module, part: tuple[Data, Tensor]) -> tuple[Tensor, Tensor]:
    graph, rows = part
    logits: Tensor = model(graph.x, graph.edge_index, *(() if graph.batch is None else (graph.batch,)))
    return logits[rows], graph.y[rows]


@torch.no_grad()
def accuracy_and_loss(model: Module, part: tuple[Data, Tensor]) -> tuple[float, float]:
    """Return the accuracy and, to break ties, the negative loss; leave the model in evaluation mode."""
    logits, labels = _logits_and_labels(model.eval(), part)
    return float((logits.argmax(dim=1) == labels).float().mean()), -float(cross_entropy(logits, labels))
