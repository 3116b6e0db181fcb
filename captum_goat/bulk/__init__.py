"""Whole datasets: explained in batches, to a file, by several processes."""

from captum_goat.bulk.dataset import explain_dataset
from captum_goat.bulk.files import GraphAttributions, SavedAttributions, load_attributions

__all__ = ["GraphAttributions", "SavedAttributions", "explain_dataset", "load_attributions"]
