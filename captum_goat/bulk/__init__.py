"""Whole datasets: explained in batches, to a file, by several processes; and a check of the model before."""

from captum_goat.bulk.dataset import DatasetExplanations, explain_dataset
from captum_goat.bulk.files import GraphAttributions, SavedAttributions, load_attributions
from captum_goat.bulk.model_check import ModelCheck, check
from captum_goat.bulk.tables import edge_table

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
