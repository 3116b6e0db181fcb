"""Explainers side by side on a model and graphs of one's own: ``python -m captum_goat.benchmark compare``."""

from captum_goat.benchmark.comparison.result import Comparison
from captum_goat.benchmark.comparison.rows import ComparisonRow
from captum_goat.benchmark.comparison.run import compare

__all__ = ["Comparison", "ComparisonRow", "compare"]
