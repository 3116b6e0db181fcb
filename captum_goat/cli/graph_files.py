"""Data sets from files and folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.io import read_tu_data

from captum_goat.cli.safe_files import safe_load

# What a file of graphs may contain beside tensors and plain values.
SAFE_CLASSES = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


def load_graphs(path: Path, *, trust_pickle: bool = False) -> Sequence[Data]:
    """Load graphs, without changing or downloading anything.

    Args:
        path: A ``.pt`` file with a graph, a list of graphs, or what PyG's ``InMemoryDataset`` saves; or a folder with
            such a file as ``processed/data.pt``, or with the text files ``<name>_A.txt``, ... of the TU collection,
            there or in ``raw``.
        trust_pickle: Whether to unpickle other objects, too, which executes whatever the file says.

    Returns:
        The graphs. Node and edge attributes of the TU collection are left out and labels are taken, as ``TUDataset``
        does by default.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If there is something else.
    """
    if path.is_file():
        return _graphs(_content(path, trust_pickle), path)
    if (path / "processed" / "data.pt").is_file():
        return load_graphs(path / "processed" / "data.pt", trust_pickle=trust_pickle)
    found = [file for folder in (path / "raw", path) for file in sorted(folder.glob("*_A.txt"))]
    if not found:
        raise FileNotFoundError(
            f"Expected {path} to be a file, or a folder with processed/data.pt or raw/<name>_A.txt (got neither)."
        )
    return _in_memory(*read_tu_data(str(found[0].parent), found[0].name.removesuffix("_A.txt")))


def _content(path: Path, trust_pickle: bool) -> Any:
    if trust_pickle:
        return torch.load(path, map_location="cpu", weights_only=False)
    advice = (
        "Save a list of them (of a Batch, batch.to_data_list()); or pass --trust-pickle if the file comes from whom "
        "you trust."
    )
    return safe_load(path, "graphs, torch_geometric.data.Data,", advice, SAFE_CLASSES)


def _graphs(content: Any, path: Path) -> Sequence[Data]:
    """Return what was in a file as a sequence of graphs."""
    if isinstance(content, Batch):
        graphs: list[Data] = content.to_data_list()
        return graphs
    if isinstance(content, Data):
        return [content]
    if isinstance(content, tuple) and len(content) > 1 and isinstance(content[0], dict | Data):
        first, slices, *others = content
        sizes = next((each for each in others if isinstance(each, dict)), {})
        data = Data.from_dict(first) if isinstance(first, dict) else first
        return [data] if slices is None else _in_memory(data, slices, sizes)
    if isinstance(content, Sequence) and content and all(isinstance(each, Data) for each in content):
        return content
    raise ValueError(f"Expected graphs, torch_geometric.data.Data, in {path} (got {type(content).__name__}).")


def _in_memory(data: Data, slices: dict[str, Any], sizes: dict[str, int]) -> Sequence[Data]:
    """Return graphs that are stored one after the other as a data set.

    Args:
        data: All graphs.
        slices: Where each one begins.
        sizes: How many first columns are attributes, which are left out; empty for what is not of the TU collection.
    """
    for name, columns in (("x", sizes.get("num_node_attributes")), ("edge_attr", sizes.get("num_edge_attributes"))):
        if columns and data[name] is not None:
            data[name] = data[name][:, columns:]
    dataset = InMemoryDataset()
    dataset.data, dataset.slices = data, slices
    graphs: Sequence[Data] = dataset
    return graphs
