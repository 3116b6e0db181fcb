"""Metrics that serve the paper's experiments only: the search for prefixes, discriminability and stability."""

from benchmarks.paper_metrics.embeddings import discriminability, explanation_embeddings
from benchmarks.paper_metrics.prefix import Prefix, search_prefix
from benchmarks.paper_metrics.stability import (
    TopExplanations,
    distinct_embeddings,
    distinct_explanations,
    stability,
    top_explanations,
)

__all__ = [
    "Prefix",
    "TopExplanations",
    "discriminability",
    "distinct_embeddings",
    "distinct_explanations",
    "explanation_embeddings",
    "search_prefix",
    "stability",
    "top_explanations",
]
