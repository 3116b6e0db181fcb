"""Files of attributions, graph by graph: one ``.pt`` file of plain tensors, or one Parquet file."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor

from captum_goat.bulk.part_folder import PartFolder, Record, full_disk_explained

SUFFIXES = (".pt", ".parquet")
# The tensors of a .pt file: whether they have one entry per edge or per graph, and along which dimension.
LAYOUT = {
    "attributions": ("edges", 0),
    "edge_index": ("edges", 1),
    "targets": ("graphs", 0),
    "outputs": ("graphs", 0),
    "deltas": ("graphs", 0),
}


class GraphAttributions(NamedTuple):
    """The attributions of one graph.

    Attributes:
        attributions: ``[E]``, or ``[E, C]`` for all classes.
        edge_index: The edges, ``[2, E]``.
        target: The explained class; ``None`` where all are explained or there are none.
        output: The model's output, ``[C]`` or one number, without a last softmax or sigmoid.
        delta: The convergence delta, one number, or ``[C]`` for all classes.

    Examples::

        >>> import torch
        >>> from captum_goat.bulk import GraphAttributions
        >>> target, edges = torch.tensor(1), torch.tensor([[0, 1, 2], [1, 2, 0]])
        >>> graph = GraphAttributions(torch.tensor([0.1, 0.7, 0.2]), edges, target, torch.zeros(2), torch.tensor(0.0))
        >>> graph.edge_index[:, graph.attributions.argmax()]  # the edge that speaks for class 1 most
        tensor([1, 2])
    """

    attributions: Tensor
    edge_index: Tensor
    target: Tensor | None
    output: Tensor
    delta: Tensor


class SavedAttributions(Sequence[GraphAttributions]):
    """The attributions of a dataset, read from a file on demand.

    Attributes:
        meta: The options of the run, the numbers of graphs and edges, and ``largest_error``, the largest convergence
            delta.

    Examples::

        >>> import tempfile
        >>> from captum_goat.bulk import explain_dataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = explain_dataset(model, graphs, out=f"{folder}/attributions.pt", show_progress=False)
        ...     len(saved), saved.meta["target"], [graph.edge_index.shape[0] for graph in saved[:2]]
        (4, 'predicted', [2, 2])
    """

    meta: dict[str, Any]

    def __len__(self) -> int:
        return int(self.meta["graphs"])

    @overload
    def __getitem__(self, index: int) -> GraphAttributions: ...

    @overload
    def __getitem__(self, index: slice) -> list[GraphAttributions]: ...

    def __getitem__(self, index: int | slice) -> GraphAttributions | list[GraphAttributions]:
        if isinstance(index, slice):
            return [self._graph(number) for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"Expected the number of one of {len(self)} graphs (got {index}).")
        return self._graph(index % len(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} graphs, {self.meta['edges']} edges)"

    @abstractmethod
    def _graph(self, number: int) -> GraphAttributions:
        """Return the attributions of a graph."""


class FileFormat(NamedTuple):
    """How a kind of file is written and read."""

    write: Callable[[PartFolder, int, dict[str, Any], Path], None]
    read: Callable[[Path], SavedAttributions]


def file_format(path: Path) -> FileFormat:
    """Return the format that a file's name ends in; raise ValueError or ImportError if it cannot be written."""
    if path.is_dir():
        raise ValueError(f"Expected a file (got {path}, which is a folder).")
    if path.suffix == ".pt":
        return FileFormat(_write_tensors, TensorFile)
    if path.suffix == ".parquet":
        if find_spec("pyarrow") is None:
            raise ImportError("Parquet files need pyarrow: pip install captum-goat[parquet]")
        from captum_goat.bulk import parquet_file

        return FileFormat(parquet_file.write, parquet_file.ParquetAttributions)
    raise ValueError(f"Expected a file that ends in {' or '.join(SUFFIXES)} (got {path.name}).")


def load_attributions(path: str | PathLike[str]) -> SavedAttributions:
    """Open a file of attributions.

    Args:
        path: A ``.pt`` or ``.parquet`` file that :func:`~captum_goat.bulk.explain_dataset` has written.

    Returns:
        A sequence with one :class:`~captum_goat.bulk.GraphAttributions` per graph, read on demand; ``meta`` has the
        options of the run.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file contains something else.

    Examples::

        >>> import tempfile
        >>> from captum_goat.bulk import explain_dataset, load_attributions
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = explain_dataset(model, graphs, out=f"{folder}/attributions.pt", show_progress=False)
        ...     saved = load_attributions(f"{folder}/attributions.pt")
        ...     saved[3].attributions.shape == (graphs[3].num_edges,)
        True
    """
    read = file_format(Path(path)).read
    if not Path(path).is_file():
        raise FileNotFoundError(f"Expected attributions in {path} (got no such file).")
    return read(Path(path))


def merge(folder: PartFolder, count: int, record: Record, path: Path) -> None:
    """Merge ``count`` parts into a file, which appears when it is complete, and delete them."""
    edges, largest = 0, 0.0
    for part in folder.read_all(count):
        edges += part["attributions"].size(0)
        largest = max(largest, float(part["deltas"].abs().max()))
    merged = folder.path / f"whole{path.suffix}"
    try:
        with full_disk_explained(folder.path):
            file_format(path).write(folder, count, {**record, "edges": edges, "largest_error": largest}, merged)
            with merged.open("rb") as file:
                os.fsync(file.fileno())  # before the parts are deleted
        merged.replace(path)
    finally:
        folder.delete_unfinished()
    folder.remove()


def is_meta(value: Any) -> bool:
    """Return whether a value can be the ``meta`` of a file: a dictionary with the numbers of graphs and edges."""
    counts = [value.get(name) for name in ("graphs", "edges")] if isinstance(value, dict) else [None]
    return all(type(count) is int and count >= 0 for count in counts)


class TensorFile(SavedAttributions):
    """A ``.pt`` file, whose tensors stay on disk until they are used.

    Args:
        path: The file.

    Attributes:
        meta: As for :class:`SavedAttributions`.
        attributions: Those of all graphs, ``[E]``, or ``[E, C]`` for all classes.
        edge_index: The edges of all graphs ``[2, E]``, with the nodes of every graph counted from 0.
        ptr: Where the edges of each graph begin, and where the last ones end, ``[G + 1]``.
        targets: The explained classes, ``[G]``; or ``None``.
        outputs: The model's outputs, ``[G, C]`` or ``[G]``.
        deltas: The convergence deltas, ``[G]``, or ``[G, C]`` for all classes.
    """

    attributions: Tensor
    edge_index: Tensor
    ptr: Tensor
    targets: Tensor | None
    outputs: Tensor
    deltas: Tensor

    def __init__(self, path: Path) -> None:
        try:
            content = torch.load(str(path), weights_only=True, mmap=True)
        except (EOFError, RuntimeError, UnpicklingError) as error:
            raise ValueError(f"Expected attributions in {path} (got something else).") from error
        if not _is_complete(content):
            raise ValueError(f"Expected attributions in {path} (got something else).")
        vars(self).update(content)

    def _graph(self, number: int) -> GraphAttributions:
        start, end = self.ptr[number : number + 2].tolist()
        return GraphAttributions(
            self.attributions[start:end],
            self.edge_index[:, start:end].long(),
            None if self.targets is None else self.targets[number],
            self.outputs[number],
            self.deltas[number],
        )


def _is_complete(content: Any) -> bool:
    """Return whether a file has all tensors, with the expected types and shapes."""
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


def _write_tensors(folder: PartFolder, count: int, meta: dict[str, Any], path: Path) -> None:
    """Merge parts into a ``.pt`` file.

    Every tensor is merged in a file of its own, from which the last file is then written: the disk must have room for
    three times the attributions, but the memory only for one part.
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
    """A tensor that is written to a file piece by piece along ``dim``, where its final size is ``size``.

    Writing to memory that is mapped to a file would be shorter, but kills the process on a full disk.
    """

    def __init__(self, path: Path, like: Tensor, size: int, dim: int) -> None:
        self._path, self._dtype, self._size, self._dim, self._done = path, like.dtype, size, dim, 0
        self._shape = torch.Size([*like.shape[:dim], size, *like.shape[dim + 1 :]])
        self._file = path.open("wb")

    def append(self, values: Tensor) -> None:
        """Write the next values along the dimension."""
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
