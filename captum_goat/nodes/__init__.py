"""Attributions for many nodes of one graph."""

from captum_goat.nodes.explainer import NodeExplainer, explain_nodes
from captum_goat.nodes.results import NodeExplanations

__all__ = ["NodeExplainer", "NodeExplanations", "explain_nodes"]
