"""Random numbers that depend on a seed and on nothing else."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch_geometric.data import Data

from captum_goat.compare.explainers.graphs import Graphs


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Start the random numbers of Python, NumPy and torch at a seed, and leave them as they were.

    Examples::

        >>> import torch
        >>> from captum_goat.compare.explainers.randomness import seeded
        >>> with seeded(3):
        ...     first = torch.rand(2)
        >>> with seeded(3):
        ...     bool((torch.rand(2) == first).all())
        True
    """
    python, numpy = random.getstate(), np.random.get_state()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=devices):
        try:
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def drawn(graphs: Sequence[Data], number: int) -> list[Data]:
    """Draw graphs to learn from, of those that have edges.

    Args:
        graphs: The graphs.
        number: How many to draw at most.

    Returns:
        The graphs, in random order.

    Raises:
        ValueError: If no graph has edges.
    """
    usable = [graph for graph in graphs if graph.num_edges]
    if not usable:
        raise ValueError(f"Expected graphs with edges to train with (got none among {len(graphs)}).")
    return [usable[index] for index in torch.randperm(len(usable))[:number].tolist()]


def seed_of(graphs: Graphs, seed: int) -> int:
    """Return a seed that differs between graphs, so that an explainer's luck is drawn anew for each of them.

    It is the same for a graph alone and in a batch.
    """
    content = (each.detach().cpu().contiguous().numpy().tobytes() for each in (graphs.edge_index, graphs.x))
    checksum = 0
    for part in content:
        checksum = zlib.crc32(part, checksum)
    return (checksum + 7919 * seed) % 2**32
