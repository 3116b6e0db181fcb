"""Whole datasets, explained in batches, to a file, by several processes."""

from captum_goat.bulk.dataset import explain_dataset
from captum_goat.bulk.files import load_attributions
from captum_goat.bulk.saved import GraphAttributions, SavedAttributions

__all__ = ["GraphAttributions", "SavedAttributions", "explain_dataset", "load_attributions"]
