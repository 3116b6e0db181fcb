"""Mutagenicity and NCI1: molecules from the TU collection, read by PyG from raw text files on disk.

Reference: Morris, Kriege, Bause, Kersting, Mutzel, Neumann: *TUDataset: A Collection of Benchmark Datasets for Learning
with Graphs*, 2020. The ground truth of Mutagenicity is that of Luo et al.: *Parameterized Explainer for Graph Neural
Network*, NeurIPS 2020.
"""

from __future__ import annotations

import tarfile
from os import PathLike
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset
from torch_geometric.utils import coalesce, remove_self_loops

# A folder has to have the first two; PyG reads the others if they are there, and we the last.
RAW_FILES = ("A", "graph_indicator", "graph_labels", "node_labels", "edge_labels", "edge_gt")


def load_mutagenicity(
    root: str | PathLike[str], *, unpack_to: str | PathLike[str] | None = None, download: bool = False
) -> list[Data]:
    r"""Load Mutagenicity: 4337 molecules, class 0 the mutagens and class 1 the others.

    Where ``Mutagenicity_edge_gt.txt`` is among the raw files, which is not in the TU collection itself, the graphs get
    its ground truth: ``edge_label`` is True for the N-O bonds of NO2 groups and the N-H bonds of NH2 groups, which are
    known to make molecules mutagenic. It marks them in molecules of both classes; 1015 mutagens have at least one.

    Args:
        root: The folder with ``Mutagenicity/raw/Mutagenicity_A.txt`` and the other raw files, or with the archive
            ``Mutagenicity.tar.xz`` of ``Mutagenicity/raw``.
        unpack_to: Where the raw files are unpacked or copied to and PyG writes what it has processed; ``root`` if
            ``None``. Needed if ``root`` cannot be written to.
        download: Whether PyG may download the raw files if they are not there.

    Returns:
        The molecules, with ``x`` ``[N, 14]`` (which element an atom is of, one-hot: C, O, Cl, H, N, F, Br, S, P, I, Na,
        K, Li, Ca), ``edge_index`` (both directions), ``edge_attr`` (which bond), ``y`` ``[1]`` and, where known,
        ``edge_label`` ``[E]``.

    Examples::

        >>> import tempfile
        >>> from pathlib import Path
        >>> from benchmarks.datasets import load_mutagenicity
        >>> bonds = ["1, 2", "2, 1", "3, 4", "4, 3"]
        >>> files = {"A": bonds, "graph_indicator": "1122", "graph_labels": "01", "node_labels": "0111"}
        >>> with tempfile.TemporaryDirectory() as folder:  # here with two molecules of two atoms
        ...     raw = Path(folder, "Mutagenicity", "raw")
        ...     raw.mkdir(parents=True)
        ...     for file, lines in files.items():
        ...         _ = (raw / f"Mutagenicity_{file}.txt").write_text("\n".join([*lines, ""]))
        ...     load_mutagenicity(folder)[0]
        Data(edge_index=[2, 2], x=[2, 2], y=[1])
    """
    return _load("Mutagenicity", root, unpack_to, download)


def load_nci1(
    root: str | PathLike[str], *, unpack_to: str | PathLike[str] | None = None, download: bool = False
) -> list[Data]:
    r"""Load NCI1: 4110 molecules, by whether they act against lung cancer cells. There is no ground truth.

    Args:
        root: The folder with ``NCI1/raw/NCI1_A.txt`` and the other raw files, or with the archive ``NCI1.tar.xz`` of
            ``NCI1/raw``.
        unpack_to: Where the raw files are unpacked or copied to and PyG writes what it has processed; ``root`` if
            ``None``. Needed if ``root`` cannot be written to.
        download: Whether PyG may download the raw files if they are not there.

    Returns:
        The molecules, with ``x`` ``[N, 37]`` (one-hot elements), ``edge_index`` (both directions) and ``y`` ``[1]``.

    Examples::

        >>> import tempfile
        >>> from pathlib import Path
        >>> from benchmarks.datasets import load_nci1
        >>> bonds = ["1, 2", "2, 1", "3, 4", "4, 3"]
        >>> files = {"A": bonds, "graph_indicator": "1122", "graph_labels": "01", "node_labels": "0111"}
        >>> with tempfile.TemporaryDirectory() as folder:  # here with two molecules of two atoms
        ...     raw = Path(folder, "NCI1", "raw")
        ...     raw.mkdir(parents=True)
        ...     for file, lines in files.items():
        ...         _ = (raw / f"NCI1_{file}.txt").write_text("\n".join([*lines, ""]))
        ...     load_nci1(folder)[0]
        Data(edge_index=[2, 2], x=[2, 2], y=[1])
    """
    return _load("NCI1", root, unpack_to, download)


def _load(name: str, root: str | PathLike[str], unpack_to: str | PathLike[str] | None, download: bool) -> list[Data]:
    folder = Path(root if unpack_to is None else unpack_to)
    if not (_raw_file(folder, name, "A").is_file() or _provide(Path(root), folder, name) or download):
        raise FileNotFoundError(
            f"Expected {_raw_file(Path(root), name, 'A')} or {Path(root) / name}.tar.xz (got neither). Put the raw "
            "files of the dataset there, or pass download=True."
        )
    graphs = list(TUDataset(str(folder), name))
    truth = _ground_truth(folder, name)
    if truth is not None:
        for graph, edge_label in zip(graphs, truth.split([graph.num_edges for graph in graphs]), strict=True):
            graph.edge_label = edge_label
    return graphs


def _raw_file(folder: Path, name: str, which: str) -> Path:
    return folder / name / "raw" / f"{name}_{which}.txt"


def _provide(root: Path, folder: Path, name: str) -> bool:
    """Copy or unpack the raw files from root to a folder, and nothing else; return whether they were there."""
    archive = root / f"{name}.tar.xz"
    if _raw_file(root, name, "A").is_file():
        paths = {which: _raw_file(root, name, which) for which in RAW_FILES}
        contents = {which: path.read_bytes() for which, path in paths.items() if path.is_file()}
    elif archive.is_file():
        with tarfile.open(archive) as tar:
            files = {PurePosixPath(member.name).name: member for member in tar.getmembers() if member.isfile()}
            members = {which: files.get(_raw_file(root, name, which).name) for which in RAW_FILES}
            opened = {which: tar.extractfile(member) for which, member in members.items() if member is not None}
            contents = {which: file.read() for which, file in opened.items() if file is not None}
    else:
        return False
    if "A" not in contents:
        raise ValueError(f"Expected {name}_A.txt in {archive} (got other files). Check the archive.")
    _raw_file(folder, name, "A").parent.mkdir(parents=True, exist_ok=True)
    for which in reversed(RAW_FILES):  # A, which is looked for, comes last: when it is there, all are
        if which in contents:
            _raw_file(folder, name, which).write_bytes(contents[which])
    return True


def _ground_truth(folder: Path, name: str) -> Tensor | None:
    """Return the labels of all graphs' edges in the order in which TUDataset has them, if there are any.

    TUDataset leaves out self-loops, sorts edges by their nodes and merges duplicates; so do we.
    """
    if not _raw_file(folder, name, "edge_gt").is_file():
        return None
    edges = np.loadtxt(_raw_file(folder, name, "A"), delimiter=",", dtype=np.int64)
    truth = np.loadtxt(_raw_file(folder, name, "edge_gt"), dtype=np.int64)
    if len(truth) != len(edges):
        raise ValueError(f"Expected one line in {name}_edge_gt.txt per edge (got {len(truth)} for {len(edges)} edges).")
    edge_index, edge_label = remove_self_loops(torch.from_numpy(edges).t(), torch.from_numpy(truth))
    _, merged = coalesce(edge_index, edge_label, reduce="max")
    labels: Tensor = merged.bool()
    return labels
