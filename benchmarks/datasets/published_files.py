"""The synthetic datasets as they were published, read from ``.npz`` files of plain arrays."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.datasets import BASE_NODES

GRAPH_ARRAYS = ("graph", "source", "target", "x", "y")
NODE_ARRAYS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "motif_edge")


def load_ba_2motifs(path: str | PathLike[str]) -> list[Data]:
    """Read the published BA-2Motifs.

    In 40 of its 1000 graphs a self-loop at node 20 stands where the motif should be joined to the base. They are left
    as they are; the self-loop does not count as an edge of the motif.

    Args:
        path: An ``.npz`` file with one entry per directed edge in ``graph``, ``source`` and ``target``, the features
            ``x`` ``[G, N, F]`` and the labels ``y`` ``[G]``. Nodes from 20 on are the motif.

    Returns:
        The graphs, in the form of :func:`~captum_goat.datasets.ba_2motifs`.

    Examples::

        >>> import tempfile
        >>> import numpy as np
        >>> from benchmarks.datasets import load_ba_2motifs
        >>> arrays = {"graph": [0, 0], "source": [20, 21], "target": [21, 20], "x": np.ones((1, 25, 10)), "y": [1]}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/ba_2motifs.npz", **arrays)
        ...     load_ba_2motifs(f"{folder}/ba_2motifs.npz")
        [Data(x=[25, 10], edge_index=[2, 2], y=[1], edge_label=[2])]
    """
    arrays = _read(path, GRAPH_ARRAYS)
    x, y = arrays["x"].float(), arrays["y"].long()
    graph_of_edge, order = arrays["graph"].long().sort(stable=True)
    edge_index = torch.stack([arrays["source"], arrays["target"]]).long()[:, order]
    per_graph = edge_index.split(graph_of_edge.bincount(minlength=len(y)).tolist(), dim=1)
    return [
        Data(x=x[index], edge_index=edges.contiguous(), y=y[index : index + 1], edge_label=_in_motif(edges))
        for index, edges in enumerate(per_graph)
    ]


def _in_motif(edge_index: Tensor) -> Tensor:
    return (edge_index >= BASE_NODES).all(dim=0) & (edge_index[0] != edge_index[1])


def load_node_graph(path: str | PathLike[str]) -> Data:
    """Read the published BA-Shapes, BA-Community or Tree-Grid.

    Args:
        path: An ``.npz`` file with ``x`` ``[N, F]``, ``edge_index`` ``[2, E]`` (both directions), ``y`` ``[N]``,
            ``train_mask``, ``val_mask`` and ``test_mask`` ``[N]``, and ``motif_edge`` ``[E]``.

    Returns:
        One graph, in the form of :func:`~benchmarks.datasets.ba_shapes`.

    Examples::

        >>> import tempfile
        >>> import numpy as np
        >>> from benchmarks.datasets import ba_shapes, load_node_graph
        >>> arrays = {name: value.numpy() for name, value in ba_shapes(seed=1)}
        >>> arrays["motif_edge"] = arrays.pop("edge_label")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/ba_shapes.npz", **arrays)
        ...     data = load_node_graph(f"{folder}/ba_shapes.npz")
        >>> data.num_nodes, int(data.edge_label.sum())
        (700, 960)
    """
    arrays = _read(path, NODE_ARRAYS)
    data = Data(
        x=arrays["x"].float(),
        edge_index=arrays["edge_index"].long(),
        y=arrays["y"].long(),
        edge_label=arrays["motif_edge"].bool(),
    )
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = arrays[name].bool()
    return data


def _read(path: str | PathLike[str], names: tuple[str, ...]) -> dict[str, Tensor]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"Expected an .npz file (got {path}, which is not there). Check the path.")
    # Without pickle a file can hold arrays only, and no code.
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in names if name not in file]
        if missing:
            raise ValueError(f"Expected the arrays {', '.join(names)} in {path} (got none called {missing[0]}).")
        arrays: dict[str, NDArray[np.generic]] = {name: file[name] for name in names}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}
