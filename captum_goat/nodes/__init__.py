"""Attributions for many nodes of one graph."""

from captum_goat.nodes.explainer import NodeExplainer, explain_nodes
from captum_goat.nodes.results import FeatureAttributions, NodeAttributions, NodeExplanations

__all__ = ["FeatureAttributions", "NodeAttributions", "NodeExplainer", "NodeExplanations", "explain_nodes"]
