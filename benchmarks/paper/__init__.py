"""The experiments of the GOAt paper with all explainers: ``python -m benchmarks paper``."""
