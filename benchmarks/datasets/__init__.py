"""The paper's six datasets: four that are generated here or read from the published files, and two of molecules.

:func:`load` returns any of them by name.
"""

from benchmarks.datasets.molecules import load_mutagenicity, load_nci1
from benchmarks.datasets.node_motifs import ba_community, ba_shapes, tree_grid
from benchmarks.datasets.published_files import load_ba_2motifs, load_node_graph
from benchmarks.datasets.registry import DATASETS, DatasetInfo, GraphDataset, load

__all__ = [
    "DATASETS",
    "DatasetInfo",
    "GraphDataset",
    "ba_community",
    "ba_shapes",
    "load",
    "load_ba_2motifs",
    "load_mutagenicity",
    "load_nci1",
    "load_node_graph",
    "tree_grid",
]
