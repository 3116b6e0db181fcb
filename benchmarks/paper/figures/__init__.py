"""The pictures of the report; each is a PNG file of a few tens of kilobytes."""

from benchmarks.paper.figures.curves import draw_coverage, draw_discriminability, draw_fidelity
from benchmarks.paper.figures.motifs import draw_motifs
from benchmarks.paper.figures.scatter import draw_embeddings
from benchmarks.paper.figures.times import draw_times

__all__ = [
    "draw_coverage",
    "draw_discriminability",
    "draw_embeddings",
    "draw_fidelity",
    "draw_motifs",
    "draw_times",
]
