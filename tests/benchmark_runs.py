"""What makes tests of whole benchmark runs quick: a dataset is generated once, and pictures are not drawn."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image
from torch_geometric.data import Data

from captum_goat.datasets import ba_2motifs

_generated = cache(ba_2motifs)


def _save_a_pixel(figure: Figure, file: BytesIO, **options: Any) -> None:
    Image.new("RGB", (1, 1)).save(file, "png")


@contextmanager
def quick_runs(*, num_graphs: int = 1000, pictures: bool = False) -> Iterator[None]:
    """Take BA-2Motifs from memory, and save a pixel instead of each picture unless ``pictures`` are wanted."""

    def dataset(seed: int) -> list[Data]:
        return [copy.copy(graph) for graph in _generated(num_graphs, seed=seed)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.datasets.registry.ba_2motifs", dataset)
        if not pictures:
            patch.setattr(Figure, "savefig", _save_a_pixel)
        yield
