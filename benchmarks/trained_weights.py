"""Cache of trained weights, in files named by a hash of model, data and settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from benchmarks.training import TrainingResult, train_classifier
from captum_goat.bulk.part_folder import replaced

FORMAT = 1  # raise it when training changes, so that older weights are not used


class Checkpoint(NamedTuple):
    """The best weights of a training, their epoch, and the settings."""

    state_dict: dict[str, Tensor]
    best_epoch: int
    settings: dict[str, float]


def train_once(
    model: Module,
    data: Data | Sequence[Data],
    folder: str | PathLike[str] | None,
    *,
    epochs: int,
    lr: float = 0.005,
    weight_decay: float = 0.0,
    batch_size: int = 64,
    seed: int = 0,
    show_progress: bool = True,
) -> TrainingResult:
    """Train as :func:`~benchmarks.training.train_classifier` does, or read the weights if that was done before.

    Args:
        model: The model; its weights are those to start from.
        data: The graphs, or the graph.
        folder: The folder of the trained weights; ``None`` to train in any case and to write nothing.
        epochs: The number of epochs.
        lr: Adam's learning rate.
        weight_decay: Adam's L2 penalty.
        batch_size: The number of graphs per step.
        seed: The seed of the split, the order of the graphs and dropout.
        show_progress: Whether to show a progress bar.

    Returns:
        The accuracies and the split.
    """
    settings = {"epochs": epochs, "lr": lr, "weight_decay": weight_decay, "batch_size": batch_size, "seed": seed}
    path = None if folder is None else Path(folder) / f"{fingerprint(model, data, settings)[:32]}.pt"
    checkpoint = None if path is None else read_checkpoint(path)
    if checkpoint is not None:
        model.load_state_dict(checkpoint.state_dict)
        tested = train_classifier(model, data, epochs=0, seed=seed, show_progress=False)
        return tested._replace(best_epoch=checkpoint.best_epoch)
    result = train_classifier(
        model,
        data,
        epochs=epochs,
        lr=lr,
        weight_decay=weight_decay,
        batch_size=batch_size,
        seed=seed,
        show_progress=show_progress,
    )
    if path is not None:
        write_checkpoint(path, Checkpoint(model.state_dict(), result.best_epoch, settings))
    return result


def fingerprint(model: Module, data: Data | Sequence[Data], settings: Mapping[str, float]) -> str:
    """Return a hash of the model, data and settings of a training.

    That is the model (the types of its modules, their options, its weights), the data (all tensors) and the settings.
    Code is not part of it: a model whose ``forward`` was edited keeps its fingerprint.

    Args:
        model: The model before training.
        data: The graph or the graphs that it is trained on.
        settings: The training's numbers by name.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            if isinstance(part, Tensor):
                plain = part.detach().cpu().contiguous()
                array = (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
                digest.update(f"{array.dtype}{array.shape}".encode())
                digest.update(array.tobytes())
            else:
                digest.update(f"{part!r};".encode())

    add(FORMAT, json.dumps(settings, sort_keys=True))
    for name, module in model.named_modules():
        add(name, type(module).__qualname__, _options(module))
    for name, weight in model.state_dict().items():
        add(name, weight)
    for graph in [data] if isinstance(data, Data) else data:
        for name, value in sorted(graph.to_dict().items()):
            add(name, value)
    return digest.hexdigest()


def _options(module: Module) -> list[tuple[str, object]]:
    """Return the plain attributes of a module, which are not in its weights: rates, flags, kinds of aggregation."""
    plain = (bool, int, float, str, type(None))
    values = {name: value for name, value in vars(module).items() if isinstance(value, plain) and name != "training"}
    return sorted(values.items())


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the weights in a file; ``None`` if there is no such file."""
    if not path.is_file():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)  # so that a file can hold no code
        return Checkpoint(content["state_dict"], content["best_epoch"], content["settings"])
    except (EOFError, KeyError, RuntimeError, UnpicklingError) as error:
        raise ValueError(f"Expected trained weights in {path} (got something else). Delete the file.") from error


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write weights to a file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as file:
        torch.save(checkpoint._asdict(), file)
