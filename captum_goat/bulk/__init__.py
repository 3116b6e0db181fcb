"""Whole datasets: explained in batches, to a file, by several processes; and a check of the model before."""

from captum_goat.bulk.dataset import DatasetExplanations, explain_dataset
from captum_goat.bulk.files import GraphAttributions, SavedAttributions, edge_table, load_attributions
from captum_goat.bulk.model_check import ModelCheck, check

__all__ = [
    "DatasetExplanations",
    "GraphAttributions",
    "ModelCheck",
    "SavedAttributions",
    "check",
    "edge_table",
    "explain_dataset",
    "load_attributions",
]
