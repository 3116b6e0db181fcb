"""Whole data sets, or many nodes of a graph, explained: in batches, to a file, by several processes."""

from captum_goat.bulk.cut_results import NodeAttributions, NodeExplanations
from captum_goat.bulk.dataset import explain_dataset
from captum_goat.bulk.files import load_attributions
from captum_goat.bulk.nodes import NodeExplainer, explain_nodes
from captum_goat.bulk.saved import GraphAttributions, SavedAttributions

__all__ = [
    "GraphAttributions",
    "NodeAttributions",
    "NodeExplainer",
    "NodeExplanations",
    "SavedAttributions",
    "explain_dataset",
    "explain_nodes",
    "load_attributions",
]
