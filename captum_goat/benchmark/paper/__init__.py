"""The experiments of the GOAt paper with all explainers: ``python -m captum_goat.benchmark paper``."""
