"""Trained weights on disk, under a name that says what they were trained from."""

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

from captum_goat.runs.atomic_files import replaced

FORMAT = 1  # to be raised when training changes, so that older weights are not taken for those of today


class Checkpoint(NamedTuple):
    """The best weights of a training, the epoch they are from, and the settings."""

    state_dict: dict[str, Tensor]
    best_epoch: int
    settings: dict[str, float]


def fingerprint(model: Module, data: Data | Sequence[Data], settings: Mapping[str, float]) -> str:
    """Return a hash of all that decides what a training ends with.

    That is the model (the types of its modules, their options, its weights), the data (all tensors) and the settings.
    Code is not looked at: a model whose ``forward`` was edited keeps its fingerprint.

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
    """Return the plain values on a module, which say what its weights do not: rates, flags, kinds of aggregation."""
    plain = (bool, int, float, str, type(None))
    values = {name: value for name, value in vars(module).items() if isinstance(value, plain) and name != "training"}
    return sorted(values.items())


def checkpoint_path(folder: str | PathLike[str], digest: str) -> Path:
    """Return where the weights with that fingerprint are, or would be."""
    return Path(folder) / f"{digest[:32]}.pt"


def read_checkpoint(path: Path) -> Checkpoint | None:
    """Return the weights in a file; ``None`` if there is no such file."""
    if not path.is_file():
        return None
    try:
        content = torch.load(path, weights_only=True)  # so that a file can hold no code
        return Checkpoint(content["state_dict"], content["best_epoch"], content["settings"])
    except (EOFError, KeyError, RuntimeError, UnpicklingError) as error:
        raise ValueError(f"Expected trained weights in {path} (got something else). Delete the file.") from error


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write weights to a file, which appears when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replaced(path) as file:
        torch.save(checkpoint._asdict(), file)
