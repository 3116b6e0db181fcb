"""Metrics of the paper's experiments only: searched prefixes, robust fidelity, discriminability and stability."""

from benchmarks.paper_metrics.embeddings import discriminability, explanation_embeddings
from benchmarks.paper_metrics.prefix import Prefix, search_prefix
from benchmarks.paper_metrics.robust import RobustFidelity, robust_fidelity
from benchmarks.paper_metrics.stability import (
    TopExplanations,
    distinct_embeddings,
    distinct_explanations,
    stability,
    top_explanations,
)

__all__ = [
    "Prefix",
    "RobustFidelity",
    "TopExplanations",
    "discriminability",
    "distinct_embeddings",
    "distinct_explanations",
    "explanation_embeddings",
    "robust_fidelity",
    "search_prefix",
    "stability",
    "top_explanations",
]
