"""Models and graphs from files, read without executing what is in them unless the user trusts them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.io import read_tu_data

WEIGHTS_KEYS = ("state_dict", "model_state_dict", "model")  # of the weights in checkpoints of training scripts
# What a saved Data consists of, in addition to the classes that PyG declares safe itself.
torch.serialization.add_safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage])


def load_model(
    path: Path, class_name: str | None = None, arguments: str | None = None, *, trust_pickle: bool = False
) -> Module:
    """Load a model to the CPU, in evaluation mode: its class with its weights, or a whole model that is trusted.

    ``arguments`` of the class are JSON: an object for keyword arguments, or a list.
    """
    if not path.is_file():
        raise FileNotFoundError(f"Expected a model in {path} (got no such file).")
    if class_name is None:
        if not trust_pickle:
            raise ValueError(
                f"Expected the class of the model whose weights are in {path} (got none). Pass --class "
                "module:ClassName; or --trust-pickle if the file has the whole model and you trust its source."
            )
        model = torch.load(path, map_location="cpu", weights_only=False)
        if not isinstance(model, Module):
            raise ValueError(f"Expected a whole model in {path} (got {type(model).__name__}). Pass its --class, too.")
        return model.eval()
    model_class = find_class(class_name)
    if not issubclass(model_class, Module):
        raise ValueError(f"Expected {class_name} to be a torch.nn.Module (got another class). It was not called.")
    weights = _safe_load(path, "weights and nothing else", "Save model.state_dict().")
    for key in WEIGHTS_KEYS:
        if isinstance(weights, dict) and isinstance(weights.get(key), dict):
            weights = weights[key]
    if not isinstance(weights, dict):
        raise ValueError(f"Expected a state_dict() in {path} (got {type(weights).__name__}).")
    try:
        parsed = json.loads(arguments or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"Expected --arguments in JSON (got {arguments!r}: {error}).") from error
    try:
        made: Module = model_class(*parsed) if isinstance(parsed, list) else model_class(**parsed)
        made.load_state_dict(weights)
    except TypeError as error:
        raise ValueError(f"Expected --arguments that {class_name} takes (got {arguments}). {error}") from error
    except RuntimeError as error:
        raise ValueError(f"Expected the weights of {class_name} in {path} (got others). {error}") from error
    return made.eval()


def load_graphs(path: Path, *, trust_pickle: bool = False) -> Sequence[Data]:
    """Load graphs, without changing or downloading anything.

    ``path`` is a ``.pt`` file with a graph, a list of graphs, or what PyG's ``InMemoryDataset`` saves; or a folder with
    such a file as ``processed/data.pt``, or with text files ``<name>_A.txt``, ... of the TU collection, there or in
    ``raw``; or a folder whose only such folder this is. TU features are node and edge labels, as in ``TUDataset``.
    """
    if path.is_file():
        advice = "Save a list of them (of a Batch, batch.to_data_list()); or pass --trust-pickle if you trust the file."
        if trust_pickle:
            return _graphs(torch.load(path, map_location="cpu", weights_only=False), path)
        return _graphs(_safe_load(path, "graphs, torch_geometric.data.Data,", advice), path)
    # Perhaps it is the root that was passed to TUDataset, with one folder per dataset.
    files = _files_of_graphs(path) or [file for folder in sorted(path.glob("*")) for file in _files_of_graphs(folder)]
    if len(files) != 1:
        got = f"one with several of them; choose one of {', '.join(map(str, files))}" if files else "neither"
        raise FileNotFoundError(
            f"Expected {path} to be a file, or a folder with processed/data.pt or raw/<name>_A.txt (got {got})."
        )
    if files[0].suffix == ".pt":
        return load_graphs(files[0], trust_pickle=trust_pickle)
    return _in_memory(*read_tu_data(str(files[0].parent), files[0].name.removesuffix("_A.txt")))


def find_class(name: str) -> type[Any]:
    """Import a class ``module:ClassName``, without calling it."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ValueError(f"Expected a class as module:ClassName (got {name!r}).")
    try:
        imported = reduce(getattr, attribute.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"Expected {name} to be importable (got: {error}). The current folder and PYTHONPATH are searched."
        ) from error
    if not isinstance(imported, type):
        raise ValueError(f"Expected {name} to be a class (got a {type(imported).__name__}). It was not called.")
    return imported


def _files_of_graphs(folder: Path) -> list[Path]:
    """Return the file of saved graphs in a folder, or that of edges as the TU collection has it, or none."""
    patterns = ("processed/data.pt", "raw/*_A.txt", "*_A.txt")
    return [file for pattern in patterns for file in sorted(folder.glob(pattern)) if file.is_file()][:1]


def _graphs(content: Any, path: Path) -> Sequence[Data]:
    if isinstance(content, Data):
        return content.to_data_list() if isinstance(content, Batch) else [content]
    if isinstance(content, tuple) and len(content) > 1 and isinstance(content[0], dict | Data):
        first, slices, *others = content
        sizes = next((part for part in others if isinstance(part, dict)), {})
        data = Data.from_dict(first) if isinstance(first, dict) else first
        return [data] if slices is None else _in_memory(data, slices, sizes)
    if isinstance(content, Sequence) and content and all(isinstance(graph, Data) for graph in content):
        return content
    raise ValueError(f"Expected graphs, torch_geometric.data.Data, in {path} (got {type(content).__name__}).")


def _in_memory(data: Data, slices: dict[str, Any], sizes: dict[str, int]) -> Sequence[Data]:
    """Return graphs, stored one after the other, as a dataset; without the attributes of the TU collection."""
    for name, columns in (("x", sizes.get("num_node_attributes")), ("edge_attr", sizes.get("num_edge_attributes"))):
        if columns and data[name] is not None:
            data[name] = data[name][:, columns:]
    dataset: Any = InMemoryDataset()
    dataset.data, dataset.slices = data, slices
    graphs: Sequence[Data] = dataset
    return graphs


def _safe_load(path: Path, expected: str, advice: str) -> Any:
    """Read tensors, plain values and graphs, to the CPU; raise ValueError for anything else."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (EOFError, RuntimeError, UnpicklingError) as error:
        culprit = re.search(r"(?:GLOBAL|function|class) <?([\w.]*\.\w+)", str(error))
        got = culprit.group(1) if culprit else "something else"
        raise ValueError(f"Expected {expected} in {path} (got {got}). {advice}") from error
