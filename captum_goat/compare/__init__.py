"""Explainers side by side on a model and graphs of one's own: ``captum-goat compare``."""

from captum_goat.compare.comparison import Comparison
from captum_goat.compare.rows import ComparisonRow
from captum_goat.compare.run import compare

__all__ = ["Comparison", "ComparisonRow", "compare"]
