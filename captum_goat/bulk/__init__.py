"""Whole datasets: explained in batches, to a file, by several processes; and a check of the model before."""

from captum_goat.bulk.dataset import explain_dataset
from captum_goat.bulk.files import GraphAttributions, SavedAttributions, load_attributions
from captum_goat.bulk.model_check import ModelCheck, check

__all__ = [
    "GraphAttributions",
    "ModelCheck",
    "SavedAttributions",
    "check",
    "explain_dataset",
    "load_attributions",
]
