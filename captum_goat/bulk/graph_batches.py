"""The graphs of a dataset by number, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import DataLoader, SequentialSampler
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data

BATCH_SIZE = 128  # where neither the caller nor a DataLoader says otherwise


class GraphBatch(NamedTuple):
    """Graphs that follow each other in the dataset."""

    number: int  # of the batch
    graphs: list[Data]
    batch: Data  # the graphs, collated

    @property
    def sizes(self) -> list[int]:
        """The number of edges of every graph."""
        return [graph.edge_index.size(1) for graph in self.graphs]

    def own_edges(self) -> Tensor:
        """Return the edges ``[2, E]`` on the CPU, every graph's nodes counted from 0 on."""
        first: Tensor = self.batch.ptr[:-1].cpu().repeat_interleave(torch.tensor(self.sizes))
        edges = self.batch.edge_index
        plain: Tensor = edges.as_tensor() if isinstance(edges, EdgeIndex) else edges
        return plain.cpu().long() - first  # without edges, an edge_index may come as floats


@dataclass(frozen=True)
class GraphSource:
    """A dataset that is read in batches."""

    dataset: Any
    batch_size: int
    collate: Callable[[list[Data]], Data]
    num_workers: int = 0  # processes that read graphs ahead

    @classmethod
    def of(cls, dataset: Any, batch_size: int | None) -> GraphSource:
        """Read the option ``dataset``: a dataset, a list of graphs, or a ``DataLoader``."""
        collate, num_workers = Batch.from_data_list, 0
        if isinstance(dataset, DataLoader):
            loader = dataset
            if loader.batch_size is None or not isinstance(loader.sampler, SequentialSampler):
                raise ValueError(
                    "Expected a DataLoader that takes the graphs in order, with a batch_size (got one with "
                    f"{type(loader.sampler).__name__} and batch_size {loader.batch_size}). Attributions go by the "
                    "numbers of the graphs: use shuffle=False, or pass the dataset."
                )
            dataset, collate, num_workers = loader.dataset, loader.collate_fn, loader.num_workers
            batch_size = batch_size or loader.batch_size
        if isinstance(dataset, Data) or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise TypeError(
                f"Expected a dataset, a list of graphs or a DataLoader, with a length (got {type(dataset).__name__})."
            )
        batch_size = BATCH_SIZE if batch_size is None else batch_size
        if batch_size < 1 or not len(dataset):
            raise ValueError(
                f"Expected at least one graph, and one per batch (got {len(dataset)} graphs and batch_size "
                f"{batch_size})."
            )
        return cls(dataset, batch_size, collate, num_workers)

    @property
    def num_graphs(self) -> int:
        """The number of graphs."""
        return len(self.dataset)

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return -(-self.num_graphs // self.batch_size)

    def members(self, number: int) -> range:
        """Return the numbers of the graphs in a batch."""
        return range(number * self.batch_size, min((number + 1) * self.batch_size, self.num_graphs))

    def read(self, numbers: Sequence[int]) -> Iterator[GraphBatch]:
        """Yield batches, in the given order."""
        loader: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_sampler=[self.members(number) for number in numbers],  # type: ignore[misc]
            collate_fn=_Together(self.collate),
            num_workers=self.num_workers,
            # From which the seeds of workers are drawn; without it, from the caller's random numbers.
            generator=torch.Generator().manual_seed(torch.initial_seed()),
        )
        for number, (graphs, batch) in zip(numbers, loader, strict=True):
            yield GraphBatch(number, graphs, batch)


class _Together:
    """A function that returns graphs beside their batch; a class, so that it can be pickled for workers."""

    def __init__(self, collate: Callable[[list[Data]], Data]) -> None:
        self.collate = collate

    def __call__(self, graphs: list[Data]) -> tuple[list[Data], Data]:
        for graph in graphs:
            if not isinstance(graph, Data):
                raise TypeError(
                    f"Expected graphs that are torch_geometric.data.Data (got {type(graph).__name__}). Explain other "
                    "graphs, such as heterogeneous ones, with GOAtAttribution."
                )
            if graph.edge_index is None:
                raise ValueError(f"Expected graphs with an edge_index (got {graph}).")
        return graphs, self.collate(graphs)
