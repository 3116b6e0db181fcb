"""One function that trains classifiers of graphs and of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from os import PathLike
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data

from captum_goat.models.checkpoints import Checkpoint, checkpoint_path, fingerprint, read_checkpoint, write_checkpoint
from captum_goat.runs.progress import progress_bar

MASKS = ("train_mask", "val_mask", "test_mask")


class Split(NamedTuple):
    """Which graphs, or which nodes of a graph, are for what: their numbers.

    Attributes:
        train: Those that the weights are fitted to.
        validation: Those that decide which epoch was best.
        test: Those that are held out.

    Examples::

        >>> import torch
        >>> from captum_goat.models import Split
        >>> train, validation, test = Split(*torch.arange(10).split([8, 1, 1]))
        >>> test
        tensor([9])
    """

    train: Tensor
    validation: Tensor
    test: Tensor


class TrainingResult(NamedTuple):
    """How well a model does after training, and on what it was tested.

    Attributes:
        train_accuracy: The share of the training set that is classified correctly.
        validation_accuracy: The same for the validation set.
        test_accuracy: The same for the test set.
        split: Which graphs or nodes these sets are.
        best_epoch: The epoch from which the weights are; 0 if no epoch was better than the weights from before.
        from_cache: Whether the weights were read and not trained.

    Examples::

        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier, train_model
        >>> model = GraphClassifier("gcn", 10, 8, 2)
        >>> result = train_model(model, ba_2motifs(10), epochs=0, show_progress=False)
        >>> result.best_epoch, result.from_cache, len(result.split.test)
        (0, False, 1)
    """

    train_accuracy: float
    validation_accuracy: float
    test_accuracy: float
    split: Split
    best_epoch: int
    from_cache: bool


class _Part(NamedTuple):
    """A batch of graphs or a graph, and which rows of the model's output count."""

    data: Data
    rows: Tensor


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
    cache: str | PathLike[str] | None = None,
) -> TrainingResult:
    """Train a classifier on 80 % of the data, choose its weights on 10 % and test them on 10 %.

    The weights of the epoch with the best validation accuracy stay (the lowest validation loss if several have it; the
    weights from before count, too), and the model is left in evaluation mode.

    Args:
        model: A function of ``(x, edge_index, batch)`` that returns logits ``[G, C]``; for nodes, one of ``(x,
            edge_index)`` that returns logits ``[N, C]``.
        data: At least 10 graphs with labels ``y``, which are split at random; or one graph whose nodes have labels
            ``y``, split by its ``train_mask``, ``val_mask`` and ``test_mask``. It makes one step per epoch.
        epochs: How often to go through the training set.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        batch_size: How many graphs make a step.
        seed: Decides the split, the order of the graphs and dropout. The global random state stays as it was.
        show_progress: Whether to show a progress bar (if tqdm is installed).
        cache: A folder for trained weights; ``None`` for none. If the same model, with the same weights to start from,
            has been trained there on the same data with the same settings, its weights are read.

    Returns:
        The accuracies, and what they were measured on.

    Examples::

        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier, train_model
        >>> graphs, model = ba_2motifs(20), GraphClassifier("gin", 10, 8, 2)
        >>> result = train_model(model, graphs, epochs=1, show_progress=False)
        >>> [len(part) for part in result.split]
        [16, 2, 2]
    """
    settings = {"epochs": epochs, "lr": lr, "weight_decay": weight_decay, "batch_size": batch_size, "seed": seed}
    path = None if cache is None else checkpoint_path(cache, fingerprint(model, data, settings))
    checkpoint = None if path is None else read_checkpoint(path)
    from_cache = checkpoint is not None
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        split = _split(data)
        if checkpoint is None:
            steps, held_out = _steps(data, split.train, batch_size), _part(data, split.validation)
            optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
            with progress_bar(epochs, "epoch", show_progress, "training") as advance:
                weights, best_epoch = _best_weights(model, optimizer, steps, held_out, epochs, advance)
            checkpoint = Checkpoint(weights, best_epoch, settings)
    if path is not None and not from_cache:
        write_checkpoint(path, checkpoint)
    model.load_state_dict(checkpoint.state_dict)
    train, validation, test = (_score(model, _part(data, index))[0] for index in split)
    return TrainingResult(train, validation, test, split, checkpoint.best_epoch, from_cache)


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


def _part(data: Data | Sequence[Data], index: Tensor) -> _Part:
    if isinstance(data, Data):
        return _Part(data, index)
    return _batch([data[each] for each in index.tolist()])


def _batch(graphs: list[Data]) -> _Part:
    return _Part(Batch.from_data_list(graphs), torch.arange(len(graphs)))


def _steps(data: Data | Sequence[Data], train: Tensor, batch_size: int) -> Iterable[_Part]:
    """Return what the steps of an epoch are made with: batches of graphs, in another order every time; or all nodes."""
    if isinstance(data, Data):
        return [_Part(data, train)]
    graphs = [data[each] for each in train.tolist()]
    steps: Iterable[_Part] = DataLoader(graphs, batch_size, shuffle=True, collate_fn=_batch)  # type: ignore[arg-type]
    return steps


def _best_weights(
    model: Module,
    optimizer: Optimizer,
    steps: Iterable[_Part],
    validation: _Part,
    epochs: int,
    advance: Callable[[int], object],
) -> tuple[dict[str, Tensor], int]:
    best_score, best_weights, best_epoch = _score(model, validation), deepcopy(model.state_dict()), 0
    for epoch in range(1, epochs + 1):
        model.train()
        for part in steps:
            optimizer.zero_grad()
            _loss(_logits(model, part), part).backward()
            optimizer.step()
        score = _score(model, validation)
        if score > best_score:
            best_score, best_weights, best_epoch = score, deepcopy(model.state_dict()), epoch
        advance(1)
    return best_weights, best_epoch


def _logits(model: Module, part: _Part) -> Tensor:
    graph = part.data
    output: Tensor = model(graph.x, graph.edge_index, *(() if graph.batch is None else (graph.batch,)))
    return output[part.rows]


def _loss(logits: Tensor, part: _Part) -> Tensor:
    return cross_entropy(logits, part.data.y[part.rows])


@torch.no_grad()
def _score(model: Module, part: _Part) -> tuple[float, float]:
    """Return the accuracy and, to decide between equal ones, the negative loss; leave the model in eval mode."""
    model.eval()
    logits = _logits(model, part)
    accuracy = (logits.argmax(dim=1) == part.data.y[part.rows]).float().mean()
    return float(accuracy), -float(_loss(logits, part))
