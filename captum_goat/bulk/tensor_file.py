"""Attributions of a data set as one ``.pt`` file of plain tensors."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from captum_goat.bulk.part_folder import PartFolder
from captum_goat.bulk.saved import GraphAttributions, SavedAttributions

# The tensors of a part: whether they go by edges or by graphs, and along which dimension.
LAYOUT = {
    "attributions": ("edges", 0),
    "edge_index": ("edges", 1),
    "targets": ("graphs", 0),
    "outputs": ("graphs", 0),
    "deltas": ("graphs", 0),
}


class TensorFile(SavedAttributions):
    """A ``.pt`` file; its tensors stay on disk until they are used.

    Args:
        path: The file.

    Attributes:
        meta: As for :class:`~captum_goat.bulk.saved.SavedAttributions`.
        attributions: Those of all graphs, ``[E]``, or ``[E, C]`` for all classes.
        edge_index: The edges of all graphs ``[2, E]``, every graph's nodes counted from 0 on.
        ptr: Where the edges of each graph begin, and where the last ones end, ``[G + 1]``.
        targets: The explained classes, ``[G]``; or ``None``.
        outputs: The model's outputs, ``[G, C]`` or ``[G]``.
        deltas: The completeness errors, ``[G]``, or ``[G, C]`` for all classes.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = torch.load(str(path), weights_only=True, mmap=True)
        except (EOFError, RuntimeError, UnpicklingError) as error:
            raise ValueError(f"Expected attributions in {path} (got something else).") from error
        if not isinstance(content, dict) or content.keys() != {*LAYOUT, "ptr", "meta"}:
            raise ValueError(f"Expected attributions in {path} (got something else).")
        self.meta = content["meta"]
        self.attributions: Tensor = content["attributions"]
        self.edge_index: Tensor = content["edge_index"]
        self.ptr: Tensor = content["ptr"]
        self.targets: Tensor | None = content["targets"]
        self.outputs: Tensor = content["outputs"]
        self.deltas: Tensor = content["deltas"]

    def _graph(self, number: int) -> GraphAttributions:
        start, end = self.ptr[number : number + 2].tolist()
        return GraphAttributions(
            self.attributions[start:end],
            self.edge_index[:, start:end].long(),
            None if self.targets is None else self.targets[number],
            self.outputs[number],
            self.deltas[number],
        )


def write(folder: PartFolder, count: int, meta: dict[str, Any], path: Path) -> None:
    """Put parts together.

    The tensors are put together in files that are mapped to memory, from which the last file is then written: the disk
    must have room for the attributions three times, but the memory only for a part.

    Args:
        folder: Where the parts are.
        count: How many there are.
        meta: What the file is to say about itself.
        path: The file.
    """
    first, sizes = folder.read(0), {"edges": meta["edges"], "graphs": meta["graphs"]}
    content: dict[str, Any] = {
        name: None if first[name] is None else _mapped(folder.path / f"{name}.whole", first[name], sizes[unit], dim)
        for name, (unit, dim) in LAYOUT.items()
    }
    ptr = _mapped(folder.path / "ptr.whole", first["sizes"], sizes["graphs"] + 1, dim=0)
    ptr[0], done = 0, {"edges": 0, "graphs": 0}
    for part in folder.read_all(count):
        more = {"edges": part["attributions"].size(0), "graphs": part["sizes"].size(0)}
        for name, (unit, dim) in LAYOUT.items():
            if content[name] is not None:
                content[name].narrow(dim, done[unit], more[unit]).copy_(part[name])
        ptr[1:].narrow(0, done["graphs"], more["graphs"]).copy_(done["edges"] + part["sizes"].cumsum(0))
        done = {unit: done[unit] + more[unit] for unit in done}
    torch.save({**content, "ptr": ptr, "meta": meta}, path)


def _mapped(path: Path, like: Tensor, size: int, dim: int) -> Tensor:
    """Return a tensor of zeros in a file, of the shape of a part but for one dimension."""
    shape = [*like.shape[:dim], size, *like.shape[dim + 1 :]]
    numbers = torch.Size(shape).numel()
    if not numbers:
        return torch.empty(shape, dtype=like.dtype)  # no file can be mapped that is empty
    mapped: Tensor = torch.from_file(str(path), shared=True, size=numbers, dtype=like.dtype)
    return mapped.view(shape)
