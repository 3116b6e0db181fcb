"""The six datasets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal, TypeAlias

from torch_geometric.data import Data

from benchmarks.datasets.molecules import load_mutagenicity, load_nci1
from benchmarks.datasets.node_motifs import ba_community, ba_shapes, tree_grid
from benchmarks.datasets.published_files import load_ba_2motifs, load_node_graph
from captum_goat.datasets import ba_2motifs

TaskLevel: TypeAlias = Literal["graph", "node"]


@dataclass(frozen=True)
class DatasetInfo:
    """The properties of a dataset that are known before it is loaded.

    Attributes:
        name: The name by which :func:`load` knows it.
        title: Its name in tables and pictures.
        task_level: What is classified: graphs, or the nodes of one graph.
        num_classes: The number of classes.
        num_features: The number of node features.
        has_ground_truth: Whether edges are labelled (of Mutagenicity, if the file is there).
        generate: Makes the graphs from a seed; ``None`` if they can only be read.

    Examples::

        >>> from benchmarks.datasets import DATASETS
        >>> info = DATASETS["ba_shapes"]
        >>> info.title, info.task_level, info.num_classes
        ('BA-Shapes', 'node', 4)
    """

    name: str
    title: str
    task_level: TaskLevel
    num_classes: int
    num_features: int
    has_ground_truth: bool
    generate: Callable[[int], list[Data]] | None = None


@dataclass(frozen=True)
class GraphDataset:
    """A loaded dataset.

    Attributes:
        info: What it is.
        graphs: Its graphs; only one if nodes are classified.
        origin: Whether it was generated or read from the published files.

    Examples::

        >>> from benchmarks.datasets import DATASETS, GraphDataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> dataset = GraphDataset(DATASETS["ba_2motifs"], ba_2motifs(num_graphs=4), "generated")
        >>> len(dataset.graphs), dataset.info.num_features
        (4, 10)
    """

    info: DatasetInfo
    graphs: list[Data]
    origin: Literal["generated", "published"]


DATASETS: dict[str, DatasetInfo] = {
    info.name: info
    for info in (
        DatasetInfo("ba_2motifs", "BA-2Motifs", "graph", 2, 10, True, lambda seed: ba_2motifs(seed=seed)),
        DatasetInfo("ba_shapes", "BA-Shapes", "node", 4, 10, True, lambda seed: [ba_shapes(seed=seed)]),
        DatasetInfo("ba_community", "BA-Community", "node", 8, 10, True, lambda seed: [ba_community(seed=seed)]),
        DatasetInfo("tree_grid", "Tree-Grid", "node", 2, 10, True, lambda seed: [tree_grid(seed=seed)]),
        DatasetInfo("mutagenicity", "Mutagenicity", "graph", 2, 14, True),
        DatasetInfo("nci1", "NCI1", "graph", 2, 37, False),
    )
}


def load(
    name: str,
    root: str | PathLike[str] | None = None,
    *,
    unpack_to: str | PathLike[str] | None = None,
    download: bool = False,
    seed: int = 0,
) -> GraphDataset:
    """Load a dataset by its name: from the published files if they are there, else generated.

    Args:
        name: A key of :data:`DATASETS`.
        root: The folder with the files: ``<name>.npz`` of the synthetic datasets, and what
            :func:`~benchmarks.datasets.load_mutagenicity` and :func:`~benchmarks.datasets.load_nci1` look for. With
            ``None``, or without that file, the synthetic ones are generated.
        unpack_to: Where archives of molecules are unpacked; ``root`` if ``None``.
        download: Whether molecules may be downloaded.
        seed: Where the random numbers of generated datasets start.

    Returns:
        The graphs, what they are, and where they are from.

    Examples::

        >>> from benchmarks.datasets import load
        >>> dataset = load("tree_grid")
        >>> dataset.info.title, dataset.info.task_level, dataset.origin, len(dataset.graphs)
        ('Tree-Grid', 'node', 'generated', 1)
    """
    if name not in DATASETS:
        raise ValueError(f"Expected one of {', '.join(DATASETS)} (got {name!r}).")
    info = DATASETS[name]
    if info.generate is None:
        if root is None:
            raise ValueError(f"Expected the folder with the files of {info.title} as root (got None).")
        read_molecules = load_mutagenicity if name == "mutagenicity" else load_nci1
        return GraphDataset(info, read_molecules(root, unpack_to=unpack_to, download=download), "published")
    path = None if root is None else Path(root) / f"{name}.npz"
    if path is None or not path.is_file():
        return GraphDataset(info, info.generate(seed), "generated")
    graphs = load_ba_2motifs(path) if info.task_level == "graph" else [load_node_graph(path)]
    return GraphDataset(info, graphs, "published")
