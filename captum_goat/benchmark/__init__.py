"""Side-by-side comparisons of explainers: on models and graphs of one's own, and on those of the GOAt paper."""

from captum_goat.benchmark.comparison import Comparison, ComparisonRow, compare

__all__ = ["Comparison", "ComparisonRow", "compare"]
