"""A generated dataset whose explanations are known."""

from captum_goat.datasets.graph_motifs import ba_2motifs
from captum_goat.datasets.subgraphs import computation_graphs

__all__ = ["ba_2motifs", "computation_graphs"]
