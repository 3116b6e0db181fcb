"""Training of the benchmark's models: early stopping on a validation set, weight decay, accuracies of every part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.models import accuracy_and_loss, part_of, train_model

__all__ = ["Split", "TrainingResult", "train_classifier"]


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
    result = train_model(
        model,
        data,
        epochs=epochs,
        lr=lr,
        weight_decay=weight_decay,
        batch_size=batch_size,
        seed=seed,
        show_progress=show_progress,
    )
    split = Split(result.train_set, result.validation_set, result.test_set)
    train, validation, test = (accuracy_and_loss(model, part_of(data, indices))[0] for indices in split)
    return TrainingResult(train, validation, test, split, result.best_epoch)
