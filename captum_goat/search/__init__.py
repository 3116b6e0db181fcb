"""The set of edges that a prediction needs, by a search that measures what it claims."""

from captum_goat.search.edge_sets import EdgeSets, EdgeSetSearch

__all__ = ["EdgeSetSearch", "EdgeSets"]
