"""Attributions for many nodes of one graph."""

from captum_goat.nodes.explainer import NodeExplainer, NodeExplanations, explain_nodes

__all__ = ["NodeExplainer", "NodeExplanations", "explain_nodes"]
