"""Attributions of many nodes in a file of the kind that data sets have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from captum_goat.bulk.files import load_attributions, merge
from captum_goat.bulk.part_folder import PartFolder
from captum_goat.bulk.ranks import Ranks
from captum_goat.bulk.saved import SavedAttributions
from captum_goat.nodes.results import NodeExplanations


def save_nodes(found: NodeExplanations, path: Path, options: dict[str, Any]) -> SavedAttributions:
    """Write the attributions of nodes to a file, which stand there like those of graphs.

    The edges of a node are those of its computation graph, between nodes as the whole graph numbers them. ``meta`` has
    the explained ``nodes``.

    Args:
        found: The explanations.
        path: The file, ``.pt`` or ``.parquet``.
        options: What the file is to say about itself beside that.

    Returns:
        The opened file.
    """
    folder = PartFolder.beside(path)
    record = {**options, "graphs": len(found), "nodes": found.nodes.tolist()}
    part = {name: getattr(found, name) for name in ("attributions", "targets", "outputs", "deltas")}
    tensors = {name: None if each is None else each.cpu() for name, each in part.items()}
    edges = found.data.edge_index.cpu()[:, found.edges.cpu()].int()
    with folder.claimed(Ranks()):
        folder.prepare(record, 1, resume=False)
        folder.write(0, {**tensors, "edge_index": edges, "sizes": found.ptr.cpu().diff()}, record)
        merge(folder, 1, record, path)
    return load_attributions(path)
