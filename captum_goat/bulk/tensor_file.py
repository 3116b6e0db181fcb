"""Attributions of a data set as one ``.pt`` file of plain tensors."""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from captum_goat.bulk.part_folder import PartFolder
from captum_goat.bulk.saved import GraphAttributions, SavedAttributions, is_meta

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
        if not _is_whole(content):
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


def _is_whole(content: Any) -> bool:
    """Return whether the content of a file has all that it should, in the types and shapes that it should have."""
    if not isinstance(content, dict) or content.keys() != {*LAYOUT, "ptr", "meta"}:
        return False
    meta, ptr = content["meta"], content["ptr"]
    if not is_meta(meta):
        return False
    for name, (unit, dim) in LAYOUT.items():
        tensor = content[name]
        fits = isinstance(tensor, Tensor) and tensor.dim() > dim and tensor.size(dim) == meta[unit]
        if not fits and not (name == "targets" and tensor is None):
            return False
    starts = isinstance(ptr, Tensor) and ptr.dtype == torch.long and ptr.shape == (meta["graphs"] + 1,)
    edges = content["edge_index"].shape == (2, meta["edges"]) and not content["edge_index"].is_floating_point()
    return starts and edges and ptr[[0, -1]].tolist() == [0, meta["edges"]] and bool((ptr.diff() >= 0).all())


def write(folder: PartFolder, count: int, meta: dict[str, Any], path: Path) -> None:
    """Put parts together.

    The tensors are put together in files of their own, from which the last file is then written: the disk must have
    room for the attributions three times, but the memory only for a part.

    Args:
        folder: Where the parts are.
        count: How many there are.
        meta: What the file is to say about itself.
        path: The file.
    """
    first, sizes = folder.read(0), {"edges": meta["edges"], "graphs": meta["graphs"]}
    with ExitStack() as stack:

        def grown(name: str, like: Tensor, size: int, dim: int) -> _GrowingTensor:
            return stack.enter_context(closing(_GrowingTensor(folder.path / f"{name}.whole", like, size, dim)))

        tensors = {
            name: grown(name, first[name], sizes[unit], dim)
            for name, (unit, dim) in LAYOUT.items()
            if first[name] is not None
        }
        ptr = grown("ptr", first["sizes"], sizes["graphs"] + 1, dim=0)
        ptr.append(torch.zeros_like(first["sizes"][:1]))
        edges = 0
        for part in folder.read_all(count):
            for name, tensor in tensors.items():
                tensor.append(part[name])
            ptr.append(edges + part["sizes"].cumsum(0))
            edges += part["attributions"].size(0)
        content = {name: tensors[name].mapped() if name in tensors else None for name in LAYOUT}
        with path.open("wb") as file:
            torch.save({**content, "ptr": ptr.mapped(), "meta": meta}, file)


class _GrowingTensor:
    """A tensor that is written to a file bit by bit.

    Writing to memory that is mapped to a file would be shorter, but on a full disk it ends the process.

    Args:
        path: The file.
        like: A tensor of the same type and shape, but for one dimension.
        size: The size of that dimension in the end.
        dim: The dimension, 0 or 1.
    """

    def __init__(self, path: Path, like: Tensor, size: int, dim: int) -> None:
        self._path, self._dtype, self._size, self._dim, self._done = path, like.dtype, size, dim, 0
        self._shape = torch.Size([*like.shape[:dim], size, *like.shape[dim + 1 :]])
        self._file = path.open("wb")

    def append(self, values: Tensor) -> None:
        """Write what comes next along the dimension."""
        bytes_each = self._dtype.itemsize * self._shape[self._dim + 1 :].numel()
        for number, row in enumerate(values if self._dim else [values]):
            self._file.seek((number * self._size + self._done) * bytes_each)
            self._file.write(row.contiguous().view(-1).view(torch.uint8).numpy().data)
        self._done += values.size(self._dim)

    def mapped(self) -> Tensor:
        """Return the tensor, which stays on disk until it is used."""
        self.close()
        if not self._shape.numel():
            return torch.empty(self._shape, dtype=self._dtype)  # no file can be mapped that is empty
        mapped: Tensor = torch.from_file(str(self._path), shared=False, size=self._shape.numel(), dtype=self._dtype)
        return mapped.view(self._shape)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
