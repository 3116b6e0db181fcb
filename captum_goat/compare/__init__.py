"""Explainers side by side on one's own model and graphs; also ``captum-goat compare`` in the shell."""

from captum_goat.compare.comparison import Comparison, ComparisonRow
from captum_goat.compare.graphs import computation_graphs
from captum_goat.compare.run import compare

__all__ = ["Comparison", "ComparisonRow", "compare", "computation_graphs"]
