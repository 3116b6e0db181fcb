"""The pictures of the report; each is a PNG file of a few tens of kilobytes."""

from captum_goat.benchmark.paper.figures.curves import draw_coverage, draw_discriminability, draw_fidelity
from captum_goat.benchmark.paper.figures.motifs import draw_motifs
from captum_goat.benchmark.paper.figures.scatter import draw_embeddings
from captum_goat.benchmark.paper.figures.times import draw_times

__all__ = [
    "draw_coverage",
    "draw_discriminability",
    "draw_embeddings",
    "draw_fidelity",
    "draw_motifs",
    "draw_times",
]
