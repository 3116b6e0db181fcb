"""The paper's six data sets: four that are generated here or read from the published files, and two of molecules.

:func:`load` gets any of them by name; the other functions make or read one, or cut a graph into computation graphs.
"""

from captum_goat.datasets.graph_motifs import ba_2motifs
from captum_goat.datasets.molecules import load_mutagenicity, load_nci1
from captum_goat.datasets.node_motifs import ba_community, ba_shapes, tree_grid
from captum_goat.datasets.published_files import load_ba_2motifs, load_node_graph
from captum_goat.datasets.registry import DATASETS, DatasetInfo, GraphDataset, load
from captum_goat.datasets.subgraphs import computation_graphs

__all__ = [
    "DATASETS",
    "DatasetInfo",
    "GraphDataset",
    "ba_2motifs",
    "ba_community",
    "ba_shapes",
    "computation_graphs",
    "load",
    "load_ba_2motifs",
    "load_mutagenicity",
    "load_nci1",
    "load_node_graph",
    "tree_grid",
]
