"""Small graph classifiers, the architectures of the paper's experiments, and a function that trains them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleList, ReLU, Sequential
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_mean_pool

ConvName = Literal["gcn", "sage", "gin"]


class GraphClassifier(Module):
    r"""A graph neural network as in textbooks: convolutions with ReLU, mean pooling, and two linear layers.

    Args:
        conv: ``"gcn"``; ``"sage"``, which sums over neighbours; or ``"gin"``, whose layers contain two linear layers
            and batch normalisation and learn epsilon.
        in_channels: The number of node features.
        hidden_channels: The width of every layer.
        num_classes: The number of classes.
        num_layers: The number of convolutions.
        normalize: Whether ``"gcn"`` divides by degrees; the others ignore this. Averages hardly tell nodes apart that
            all have the same features, as in :func:`~captum_goat.datasets.ba_2motifs`: there it has to be False.

    Examples::

        >>> import torch
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=32, num_classes=2).eval()
        >>> model(torch.ones(3, 10), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        conv: ConvName,
        in_channels: int,
        hidden_channels: int,
        num_classes: int,
        num_layers: int = 3,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        widths = [in_channels] + [hidden_channels] * num_layers
        self.convs = ModuleList(_convolution(conv, before, after, normalize) for before, after in pairwise(widths))
        self.classifier = Sequential(
            Linear(hidden_channels, hidden_channels), ReLU(), Linear(hidden_channels, num_classes)
        )

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return the logits of every graph.

        Args:
            x: The node features ``[N, in_channels]``.
            edge_index: The edges ``[2, E]``.
            batch: The graph of every node ``[N]``; ``None`` for one graph.

        Returns:
            The logits ``[G, num_classes]``.
        """
        for conv in self.convs:
            x = conv(x, edge_index)
            if not isinstance(conv, GINConv):  # which has its ReLUs inside
                x = x.relu()
        logits: Tensor = self.classifier(global_mean_pool(x, batch))
        return logits


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


class TrainingResult(NamedTuple):
    """How well a model does after training, and on which graphs it was tested."""

    train_accuracy: float
    validation_accuracy: float
    test_accuracy: float
    test_graphs: list[Data]


def train_classifier(
    model: Module,
    graphs: Sequence[Data],
    *,
    epochs: int,
    lr: float = 0.005,
    batch_size: int = 64,
    seed: int = 0,
    progress: bool = True,
) -> TrainingResult:
    """Train a graph classifier on 80 % of the graphs, choose its weights on 10 % and test them on 10 %.

    The weights of the epoch with the best validation accuracy stay (the lowest validation loss if several have it; the
    weights from before count, too), and the model is left in evaluation mode.

    Args:
        model: A function of ``(x, edge_index, batch)`` that returns logits ``[G, C]``.
        graphs: At least 10 graphs with labels ``y``.
        epochs: How often to go through the training graphs.
        lr: Adam's learning rate.
        batch_size: How many graphs make a step.
        seed: Decides the split, the order of the graphs and dropout. The global random state stays as it was.
        progress: Whether to show a progress bar (if tqdm is installed).

    Returns:
        The three accuracies, and the graphs of the test set.
    """
    if len(graphs) < 10:
        raise ValueError(f"Expected at least 10 graphs, to split them 80/10/10 (got {len(graphs)}).")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        train, validation, test = _split(graphs)
        loader = DataLoader(train, batch_size=batch_size, shuffle=True)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr)
        best_score, best_weights = _score(model, validation), deepcopy(model.state_dict())
        for _ in _with_progress(range(epochs), progress):
            _train_epoch(model, loader, optimizer)
            score = _score(model, validation)
            if score > best_score:
                best_score, best_weights = score, deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    train_accuracy, validation_accuracy, test_accuracy = (_score(model, part)[0] for part in (train, validation, test))
    return TrainingResult(train_accuracy, validation_accuracy, test_accuracy, test)


def _split(graphs: Sequence[Data]) -> tuple[list[Data], list[Data], list[Data]]:
    shuffled = [graphs[index] for index in torch.randperm(len(graphs)).tolist()]
    tenth = len(graphs) // 10
    return shuffled[2 * tenth :], shuffled[tenth : 2 * tenth], shuffled[:tenth]


def _train_epoch(model: Module, loader: Iterable[Batch], optimizer: torch.optim.Optimizer) -> None:
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
        optimizer.step()


@torch.no_grad()
def _score(model: Module, graphs: list[Data]) -> tuple[float, float]:
    """Return the accuracy and, to decide between equal ones, the negative loss; leave the model in eval mode."""
    model.eval()
    batch = Batch.from_data_list(graphs)
    logits = model(batch.x, batch.edge_index, batch.batch)
    accuracy = (logits.argmax(dim=1) == batch.y).float().mean()
    return float(accuracy), -float(cross_entropy(logits, batch.y))


def _with_progress(epochs: range, progress: bool) -> Iterable[int]:
    if not progress:
        return epochs
    try:
        from tqdm import tqdm
    except ImportError:  # a bar is a comfort, not a need
        return epochs
    bar: Iterable[int] = tqdm(epochs, desc="training", unit="epoch")
    return bar
