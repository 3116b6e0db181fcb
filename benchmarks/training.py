"""Training of the benchmark's models: early stopping on a validation set, weight decay, accuracies of every part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data

MASKS = ("train_mask", "val_mask", "test_mask")


class Split(NamedTuple):
    """The indices of the graphs, or of the nodes of one graph, in each part of a dataset."""

    train: Tensor  # the weights are fitted to these
    validation: Tensor  # these decide which epoch is the best one
    test: Tensor  # these are held out


class TrainingResult(NamedTuple):
    """The accuracies of a trained model, and the split on which they were measured.

    Attributes:
        train_accuracy: The accuracy on the training set.
        validation_accuracy: The accuracy on the validation set.
        test_accuracy: The accuracy on the test set.
        split: The indices of these sets.
        best_epoch: The epoch of the weights; 0 if no epoch was better than the initial weights.

    Examples::

        >>> from benchmarks.training import train_classifier
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gcn", 10, 8, 2)
        >>> result = train_classifier(model, ba_2motifs(10), epochs=0, show_progress=False)
        >>> result.best_epoch, len(result.split.test)
        (0, 1)
    """

    train_accuracy: float
    validation_accuracy: float
    test_accuracy: float
    split: Split
    best_epoch: int


class _Part(NamedTuple):
    """A graph or a batch of graphs, and the rows of the model's output that count."""

    data: Data
    rows: Tensor


def train_classifier(
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
        model: A model called as ``model(x, edge_index, batch)`` that returns logits ``[G, C]``; for nodes, one called
            as ``model(x, edge_index)`` that returns logits ``[N, C]``.
        data: At least 10 graphs with labels ``y``, which are split at random; or one graph whose nodes have labels
            ``y``, split by its ``train_mask``, ``val_mask`` and ``test_mask``, with one step per epoch.
        epochs: The number of epochs.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        batch_size: The number of graphs per step.
        seed: The seed of the split, the order of the graphs and dropout. The global random state does not change.
        show_progress: Whether to show a progress bar (if tqdm is installed).

    Returns:
        The accuracies and the split.

    Raises:
        ValueError: If there are fewer than 10 graphs, or if a mask is missing.

    Examples::

        >>> from benchmarks.training import train_classifier
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> graphs = ba_2motifs(num_graphs=20)
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2)
        >>> result = train_classifier(model, graphs, epochs=1, show_progress=False)
        >>> [len(part) for part in result.split]
        [16, 2, 2]
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        split = _split(data)
        steps, held_out = _steps(data, split.train, batch_size), _part(data, split.validation)
        optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
        weights, best_epoch = _best_weights(model, optimizer, steps, held_out, _epochs(epochs, show_progress))
    model.load_state_dict(weights)
    train, validation, test = (_score(model, _part(data, indices))[0] for indices in split)
    return TrainingResult(train, validation, test, split, best_epoch)


def _split(data: Data | Sequence[Data]) -> Split:
    if isinstance(data, Data):
        missing = [name for name in MASKS if name not in data]
        if missing:
            raise ValueError(f"Expected a graph with {', '.join(MASKS)} (got one without {missing[0]}).")
        return Split(*(data[name].nonzero().view(-1) for name in MASKS))
    if len(data) < 10:
        raise ValueError(f"Expected at least 10 graphs, to split them 80/10/10 (got {len(data)}).")
    shuffled, tenth = torch.randperm(len(data)), len(data) // 10
    return Split(shuffled[2 * tenth :], shuffled[tenth : 2 * tenth], shuffled[:tenth])


def _part(data: Data | Sequence[Data], indices: Tensor) -> _Part:
    if isinstance(data, Data):
        return _Part(data, indices)
    return _batch([data[index] for index in indices.tolist()])


def _batch(graphs: list[Data]) -> _Part:
    return _Part(Batch.from_data_list(graphs), torch.arange(len(graphs)))


def _steps(data: Data | Sequence[Data], train: Tensor, batch_size: int) -> Iterable[_Part]:
    """Return the steps of an epoch: batches of graphs, shuffled whenever they are iterated; or all training nodes."""
    if isinstance(data, Data):
        return [_Part(data, train)]
    graphs = [data[index] for index in train.tolist()]
    steps: Iterable[_Part] = DataLoader(graphs, batch_size, shuffle=True, collate_fn=_batch)  # type: ignore[arg-type]
    return steps


def _best_weights(
    model: Module, optimizer: Optimizer, steps: Iterable[_Part], validation: _Part, epochs: Iterable[int]
) -> tuple[dict[str, Tensor], int]:
    best_score, best_weights, best_epoch = _score(model, validation), deepcopy(model.state_dict()), 0
    for epoch in epochs:
        model.train()
        for part in steps:
            optimizer.zero_grad()
            _loss(_logits(model, part), part).backward()
            optimizer.step()
        score = _score(model, validation)
        if score > best_score:
            best_score, best_weights, best_epoch = score, deepcopy(model.state_dict()), epoch
    return best_weights, best_epoch


def _logits(model: Module, part: _Part) -> Tensor:
    graph = part.data
    output: Tensor = model(graph.x, graph.edge_index, *(() if graph.batch is None else (graph.batch,)))
    return output[part.rows]


def _loss(logits: Tensor, part: _Part) -> Tensor:
    return cross_entropy(logits, part.data.y[part.rows])


@torch.no_grad()
def _score(model: Module, part: _Part) -> tuple[float, float]:
    """Return the accuracy and, to break ties, the negative loss; leave the model in evaluation mode."""
    model.eval()
    logits = _logits(model, part)
    accuracy = (logits.argmax(dim=1) == part.data.y[part.rows]).float().mean()
    return float(accuracy), -float(_loss(logits, part))


def _epochs(count: int, show_progress: bool) -> Iterable[int]:
    epochs: Iterable[int] = range(1, count + 1)
    if show_progress:
        try:
            from tqdm import tqdm
        except ImportError:
            return epochs
        epochs = tqdm(epochs, desc="training", unit="epoch")
    return epochs
