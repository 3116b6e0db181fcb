"""Attributions for many nodes of one graph."""

from captum_goat.nodes.explainer import NodeExplainer, explain_nodes
from captum_goat.nodes.results import NodeAttributions, NodeExplanations

__all__ = ["NodeAttributions", "NodeExplainer", "NodeExplanations", "explain_nodes"]
