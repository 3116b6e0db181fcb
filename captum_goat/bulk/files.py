"""Attributions graph by graph: one ``.pt`` file of plain tensors, or one Parquet file; and pandas tables of edges."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, NamedTuple, overload

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.bulk.part_folder import UNFINISHED, PartFolder
from captum_goat.inputs.feature_masks import undirected_feature_mask

TAKEN = ("graph", "node", "edge", "source", "target", "target_node", "target_class", "attribution", "output", "delta")
# The tensors of a .pt file: whether they have one entry per edge or per graph, and along which dimension.
LAYOUT = {
    "attributions": ("edges", 0),
    "edge_index": ("edges", 1),
    "targets": ("graphs", 0),
    "outputs": ("graphs", 0),
    "deltas": ("graphs", 0),
    "edges": ("edges", 0),
}
OPTIONAL = ("targets", "edges")  # may be None


def edge_table(
    attributions: Any,
    data: Any,
    *,
    node_names: Sequence[Any] | None = None,
    top_k: int | None = None,
    undirected: bool = False,
) -> Any:
    """Return the attributions of a graph's edges, ``[E]`` or ``[E, C]``, as a :class:`pandas.DataFrame`.

    The columns are ``edge``, ``source``, ``target``, with ``node_names`` also ``source_name`` and ``target_name``, then
    ``attribution``, or ``attribution_0``, ... for several classes. If ``data`` is a part of a larger graph, with
    ``n_id`` and ``e_id``, nodes and edges have the numbers of the larger graph, in ``node_names`` as well. ``top_k``
    keeps only so many edges, those of largest magnitude first. ``undirected`` makes one row of the directions of an
    edge (and of parallel edges), with the sum of their attributions and the number of the first of them.

    Examples:
        >>> from torch_geometric.data import Data
        >>> from captum_goat.bulk import edge_table
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> scores = torch.tensor([0.25, 0.5, 1.0, -2.0])
        >>> print(edge_table(scores, data, node_names=["C", "N", "O"], undirected=True, top_k=1).to_csv(index=False))
        edge,source,target,source_name,target_name,attribution
        2,1,2,N,O,-1.0
        <BLANKLINE>
    """
    return as_table(_columns(attributions, data, node_names, top_k, undirected))


def _columns(
    attributions: Any, data: Any, node_names: Sequence[Any] | None, top_k: int | None = None, undirected: bool = False
) -> dict[str, list[Any]]:
    if not hasattr(data, "edge_index"):
        raise ValueError(f"Expected the graph that was explained, with edge_index (got {type(data).__name__}).")
    scores: Tensor = torch.as_tensor(attributions).detach().cpu()
    ends: Tensor = torch.as_tensor(data.edge_index).cpu()
    if scores.dim() not in (1, 2) or len(scores) != ends.size(1):
        expected = f"[{ends.size(1)}] or [{ends.size(1)}, classes]"
        raise ValueError(f"Expected one attribution per edge, {expected} (got {list(scores.shape)}).")
    edges = torch.arange(len(scores))
    if undirected and len(edges):
        feature = undirected_feature_mask(ends)
        count = int(feature.max()) + 1
        scores = scores.new_zeros(count, *scores.shape[1:]).index_add_(0, feature, scores)
        edges = torch.full((count,), len(edges)).scatter_reduce_(0, feature, edges, "amin")
        ends = ends[:, edges].sort(dim=0).values
    if top_k is not None:
        size = scores.abs() if scores.dim() == 1 else scores.abs().sum(dim=1)
        order = size.sort(descending=True, stable=True).indices[:top_k]
        scores, edges, ends = scores[order], edges[order], ends[:, order]
    nodes, numbers = getattr(data, "n_id", None), getattr(data, "e_id", None)
    source, target = (ends if nodes is None else nodes.cpu()[ends]).tolist()
    edges = edges if numbers is None else numbers.cpu()[edges]
    columns: dict[str, list[Any]] = {"edge": edges.tolist(), "source": source, "target": target}
    if node_names is not None:
        if (last := max(source + target, default=-1)) >= len(node_names):
            raise ValueError(f"Expected node_names for all nodes, up to node {last} (got {len(node_names)} names).")
        for name, end in (("source_name", source), ("target_name", target)):
            columns[name] = [node_names[node] for node in end]
    return columns | {name: values.tolist() for name, values in named_columns("attribution", scores).items()}


def named_columns(name: str, values: Tensor) -> dict[str, Tensor]:
    """Return a column as it is, and several as ``<name>_0``, ``<name>_1``, ..."""
    return {name: values} if values.dim() == 1 else {f"{name}_{k}": column for k, column in enumerate(values.unbind(1))}


def plain_attributes(graph: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return attributes of a graph as numbers, strings or lists of numbers."""
    plain = {}
    for name in names:
        value = graph.get(name)
        value = value.squeeze().tolist() if isinstance(value, Tensor) else value
        if name in TAKEN or not isinstance(value, bool | int | float | str | list):
            raise ValueError(
                f"Expected columns that are attributes of every graph, numbers or strings, with other names than "
                f"{', '.join(TAKEN)} (got {name!r}, {'missing' if value is None else type(value).__name__})."
            )
        plain[name] = value
    return plain


def joined_table(
    unit: str, rows: Iterable[tuple[int, Any, Mapping[str, Any], Any, Any]], node_names: Any = None, **options: Any
) -> Any:
    """Return the tables of several graphs or nodes, one below the other.

    ``unit`` is ``"graph"`` or ``"node"``. Each row has the number of one, the explained class or ``None``, more
    columns, the attributions, and the graph. ``node_names`` are those of one graph if nodes are explained.
    """
    columns: dict[str, list[Any]] = {}
    for number, target, extra, attributions, data in rows:
        names = node_names
        if names is not None and unit == "graph":
            names = node_names[number] if number < len(node_names) else None
            if names is None or isinstance(names, str):
                got = f"{'none' if names is None else repr(names)} for graph {number}"
                raise ValueError(f"Expected node_names to be one list of names per graph (got {got}).")
        part = _columns(attributions, data, names, **options)
        labels = {unit: number} | ({} if target is None else {"target_class": int(target)}) | dict(extra)
        part = {name: [value] * len(part["edge"]) for name, value in labels.items()} | part
        for name, values in part.items():
            columns.setdefault(name, []).extend(values)
    return as_table(columns)


def as_table(rows: Any) -> Any:
    """Return rows, or columns, as a DataFrame."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise ImportError("Tables need pandas: pip install captum-goat[tables]") from error
    return DataFrame(rows)


class GraphAttributions(NamedTuple):
    """The attributions of one graph, ``[E]``, or ``[E, C]`` for all classes.

    ``target`` is ``None`` where all classes are explained or there are none; ``output`` is the model's output without a
    last softmax or sigmoid; ``delta`` is the convergence delta, one per explained class. ``edges`` has the numbers of
    the edges in the whole graph, where a node is explained; ``columns`` the attributes that were carried along.
    """

    attributions: Tensor
    edge_index: Tensor
    target: Tensor | None
    output: Tensor
    delta: Tensor
    edges: Tensor | None = None
    columns: Mapping[str, Any] = {}


class SavedAttributions(Sequence[GraphAttributions]):
    """The attributions of a dataset in a file: one :class:`~captum_goat.bulk.GraphAttributions` per graph.

    ``meta`` has the options of the run, the numbers of graphs and edges, and the largest convergence delta.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.meta: dict[str, Any] = self._content["meta"] if path.suffix == ".pt" else _parquet().read_meta(path)

    @cached_property
    def _content(self) -> dict[str, Any]:
        is_pt, path = self._path.suffix == ".pt", self._path
        content = torch.load(str(path), weights_only=True, mmap=True) if is_pt else _parquet().read_table(path)
        return _checked(content)

    def __len__(self) -> int:
        return int(self.meta["graphs"])

    @overload
    def __getitem__(self, index: int) -> GraphAttributions: ...

    @overload
    def __getitem__(self, index: slice) -> list[GraphAttributions]: ...

    def __getitem__(self, index: int | slice) -> GraphAttributions | list[GraphAttributions]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"Expected the number of one of {len(self)} graphs (got {index}).")
        content, number = self._content, index % len(self)
        own = slice(*content["ptr"][number : number + 2].tolist())
        return GraphAttributions(
            content["attributions"][own],
            content["edge_index"][:, own].long(),
            None if content["targets"] is None else content["targets"][number],
            content["outputs"][number],
            content["deltas"][number],
            None if content["edges"] is None else content["edges"][own],
            content["columns"][number],
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} graphs, {self.meta['edges']} edges)"

    def to_table(self, *, node_names: Sequence[Any] | None = None, **options: Any) -> Any:
        """Return the attributions of all graphs as a table; see :func:`~captum_goat.bulk.edge_table`.

        ``node_names`` has the names of the nodes, graph by graph; in a file of nodes, those of the whole graph. The
        columns ``graph`` (or ``node``), ``target_class`` (if one was explained) and those of the dataset come first.
        """
        nodes = self.meta.get("nodes")
        numbers = range(len(self)) if nodes is None else nodes
        rows = (
            (number, own.target, own.columns, own.attributions, Data(edge_index=own.edge_index, e_id=own.edges))
            for number, own in zip(numbers, self, strict=True)
        )
        return joined_table("graph" if nodes is None else "node", rows, node_names, **options)


def check_format(path: Path) -> None:
    """Raise ValueError or ImportError if there are no files of attributions of this name."""
    if path.is_dir():
        raise ValueError(f"Expected a file (got {path}, which is a folder).")
    if path.suffix not in (".pt", ".parquet"):
        raise ValueError(f"Expected a file that ends in .pt or .parquet (got {path.name}).")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ImportError("Parquet files need pyarrow: pip install captum-goat[parquet]")


def load_attributions(path: str | PathLike[str]) -> SavedAttributions:
    """Open a ``.pt`` or ``.parquet`` file that :func:`~captum_goat.bulk.explain_dataset` has written.

    The tensors of a ``.pt`` file stay on disk until they are used; a Parquet file is read as a whole.

    Examples:
        >>> import tempfile
        >>> from captum_goat.bulk import explain_dataset, load_attributions
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model, graphs = GraphClassifier("gcn", 10, 8, 2).eval(), ba_2motifs(4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = explain_dataset(model, graphs, out=f"{folder}/attributions.pt", show_progress=False)
        ...     saved = load_attributions(f"{folder}/attributions.pt")
        ...     len(saved), saved.meta["target"], saved[3].attributions.shape == (graphs[3].num_edges,)
        (4, 'predicted', True)
    """
    check_format(Path(path))
    if not Path(path).is_file():
        raise FileNotFoundError(f"Expected attributions in {path} (got no such file).")
    try:
        saved = SavedAttributions(Path(path))
        len(saved._content)  # which checks it
    except (
        AttributeError,
        EOFError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        UnpicklingError,
        ValueError,
    ) as error:
        raise ValueError(f"Expected attributions in {path} (got something else).") from error
    return saved


def merge(folder: PartFolder) -> None:
    """Merge all parts into the file of the run, which appears when it is complete, and delete them."""
    edges, errors = 0, []
    for part in folder.read_all():
        edges += part["attributions"].size(0)
        errors.append(part["deltas"].abs().max())
    with folder.merging() as path:
        meta = {**folder.record, "edges": edges, "largest_error": float(torch.stack(errors).max())}  # nan if one is
        write = _write_tensors if folder.out.suffix == ".pt" else _parquet().write_table
        write(folder, meta, path)


def _parquet() -> Any:
    from captum_goat.bulk import parquet_file

    return parquet_file


def starts(sizes: Tensor) -> Tensor:
    """Return where each of some pieces begins, and where the last one ends."""
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])


def _checked(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file; raise some error or other for other content."""
    meta, ptr, edge_index = content["meta"], content["ptr"], content["edge_index"]
    fit = [ptr.dtype == torch.long, ptr.shape == (meta["graphs"] + 1,), len(content["columns"]) == meta["graphs"]]
    fit += [ptr[[0, -1]].tolist() == [0, meta["edges"]], bool((ptr.diff() >= 0).all())]
    fit += [edge_index.size(0) == 2, not edge_index.is_floating_point()]
    for name, (unit, dim) in LAYOUT.items():
        tensor = content[name]
        fit.append((name in OPTIONAL and tensor is None) or tensor.size(dim) == meta[unit])
    if not all(fit):
        raise ValueError("Expected tensors that fit together.")
    return content


def _write_tensors(folder: PartFolder, meta: dict[str, Any], path: Path) -> None:
    """Collect every tensor of the parts in a file of its own, and save what is mapped to these files.

    Writing to memory that is mapped to a file would be shorter, but kills the process on a full disk.
    """
    first = {name: value for name, value in next(folder.read_all()).items() if isinstance(value, Tensor)}
    columns: list[Any] = []
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder.path / f"{name}{UNFINISHED}").open("w+b")) for name in first}
        for part in folder.read_all():
            columns += part["columns"]
            for name, file in files.items():
                rows = part[name].clone(memory_format=torch.contiguous_format)  # one row may have a stride of 0
                file.write(rows.view(-1).view(torch.uint8).numpy().data)
        content: dict[str, Any] = {name: _mapped(file, first[name]) for name, file in files.items()}
        content |= {"ptr": starts(content.pop("sizes")), "edge_index": content["edge_index"].t()}
        try:
            torch.save(dict.fromkeys(LAYOUT) | content | {"columns": columns, "meta": meta}, path)
        except RuntimeError as error:
            raise OSError(f"Expected space for {folder.out} (got: {error})") from error


def _mapped(file: BinaryIO, like: Tensor) -> Tensor:
    """Return the rows in a file as a tensor that stays on disk until it is used."""
    count = file.seek(0, os.SEEK_END) // like.dtype.itemsize
    if not count:  # an empty file cannot be mapped
        return like[:0]
    mapped: Tensor = torch.from_file(file.name, shared=False, size=count, dtype=like.dtype)
    return mapped.view(-1, *like.shape[1:])
