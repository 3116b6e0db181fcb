"""The experiments of the GOAt paper with all explainers: ``python -m captum_goat.benchmark paper``."""

from captum_goat.benchmark.paper.options import Options, parse
from captum_goat.benchmark.paper.run import main, run

__all__ = ["Options", "main", "parse", "run"]
