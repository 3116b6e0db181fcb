"""Tasks: a trained model, and the held-out graphs whose predictions are explained."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from benchmarks.datasets import DATASETS, GraphDataset, load
from benchmarks.paper.options import Options
from benchmarks.paper_models import PAPER_SETTINGS, train_paper_model
from benchmarks.training import TrainingResult
from captum_goat.compare import computation_graphs
from captum_goat.compare.graphs import Subject
from captum_goat.metrics import NodePolicy
from captum_goat.models import RootClassifier

NUM_HOPS = 3  # of the paper's models
FIT_GRAPHS = 100  # that explainers learn from which have to learn first


@dataclass(frozen=True)
class Task:
    """A model and the graphs whose predictions are explained.

    Attributes:
        dataset: The name of the dataset.
        gnn: The name of the model.
        origin: Whether the data were generated or published.
        model: The trained model; one of nodes is a :class:`~captum_goat.models.RootClassifier`.
        graphs: Held-out graphs in an order in which any number of the first have all classes equally often.
        training_graphs: Some graphs from the training set, for explainers that have to learn.
        labels: The true class of each graph, ``[G]``.
        predicted: The predicted class of each graph, ``[G]``.
        training: The accuracies.
        held_out: Whether the graphs are from the test set; else they are all graphs of the dataset.
        device: The device of the model and the graphs; labels and predicted classes are on the CPU.
    """

    dataset: str
    gnn: str
    origin: str
    model: Module
    graphs: list[Data]
    training_graphs: list[Data]
    labels: Tensor
    predicted: Tensor
    training: TrainingResult
    held_out: bool = True
    device: str = "cpu"

    def subject(self, count: int) -> Subject:
        """Return the first graphs as explainers are given them, with the predicted classes as targets."""
        return Subject(self.model, self.graphs[:count], self.predicted[:count].to(self.device))

    @property
    def correct(self) -> Tensor:
        """Which graphs are predicted correctly, bool ``[G]``."""
        return self.labels == self.predicted

    @property
    def of_nodes(self) -> bool:
        """Whether nodes are classified."""
        return DATASETS[self.dataset].task_level == "node"

    @property
    def policies(self) -> tuple[NodePolicy, ...]:
        """The node policies that apply; a node classifier has no pooling that nodes without edges could leave."""
        return ("stay",) if self.of_nodes else ("stay", "leave")

    @property
    def layer(self) -> str:
        """The layer whose outputs are the embeddings: the one before the last linear layer, as in the paper."""
        return "model.classifier.1" if self.of_nodes else "classifier.1"


def load_task(options: Options, dataset: str, gnn: str, *, held_out: bool = True) -> Task:
    """Load a dataset, train a model or take it from the cache, and choose the graphs to explain.

    Args:
        options: Where data and trained models are, and how many graphs are explained.
        dataset: The name of a dataset.
        gnn: The name of a model.
        held_out: Whether to explain graphs of the test set only; else all graphs of the dataset, without a limit.

    Returns:
        The task. Of nodes those are explained that are in the test set and on an edge of a motif.
    """
    loaded = load(dataset, options.data, unpack_to=options.cache / "data", seed=options.seed)
    model, training = _trained(loaded, gnn, options)
    if loaded.info.task_level == "node":
        (data,) = loaded.graphs
        explained = computation_graphs(data, _on_motifs(data, training.split.test), NUM_HOPS)
        others = computation_graphs(data, _on_motifs(data, training.split.train), NUM_HOPS)
        model = RootClassifier(model).eval()
    else:
        explained, others = (
            [loaded.graphs[index] for index in part.tolist()] for part in (training.split.test, training.split.train)
        )
    if not held_out:
        explained = loaded.graphs
    graphs = in_turn(explained, options.seed)[: options.limit if held_out else None]
    labels = torch.cat([graph.y.view(-1) for graph in graphs])
    graphs, others = (
        [graph.to(options.device) for graph in part] for part in (graphs, in_turn(others, options.seed)[:FIT_GRAPHS])
    )
    batch = Batch.from_data_list(graphs)
    with torch.no_grad():
        predicted = model(batch.x, batch.edge_index, batch.batch).argmax(dim=1)
    return Task(
        dataset=dataset,
        gnn=gnn,
        origin=loaded.origin,
        model=model,
        graphs=graphs,
        training_graphs=others,
        labels=labels,
        predicted=predicted.cpu(),
        training=training,
        held_out=held_out,
        device=options.device,
    )


def in_turn(graphs: list[Data], seed: int) -> list[Data]:
    """Shuffle graphs with edges so that classes take turns: any number of the first is a sample of all classes.

    Args:
        graphs: The graphs, with labels ``y``; those without edges are left out, as there is nothing to explain.
        seed: Where the random numbers start.

    Returns:
        The graphs in another order.

    Examples::

        >>> from benchmarks.paper.tasks import in_turn
        >>> from captum_goat.datasets import ba_2motifs
        >>> [int(graph.y) for graph in in_turn(ba_2motifs(6), seed=0)]
        [0, 1, 0, 1, 0, 1]
    """
    order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(seed)).tolist()
    by_class: dict[int, list[Data]] = {}
    for index in order:
        if graphs[index].num_edges:
            by_class.setdefault(int(graphs[index].y), []).append(graphs[index])
    places = ((place, label, graph) for label, some in by_class.items() for place, graph in enumerate(some))
    return [graph for _, _, graph in sorted(places, key=lambda place: place[:2])]


def _trained(loaded: GraphDataset, gnn: str, options: Options) -> tuple[Module, TrainingResult]:
    settings = PAPER_SETTINGS[loaded.info.name, gnn]
    if options.epochs is not None:
        settings = replace(settings, epochs=options.epochs)
    cache = options.cache / "models"
    return train_paper_model(
        loaded,
        gnn,
        settings=settings,
        seed=options.seed,
        cache=cache,
        show_progress=options.progress,
        device=options.device,
    )


def _on_motifs(data: Data, nodes: Tensor) -> Tensor:
    """Return the nodes that are on an edge of a motif."""
    on_motif = torch.zeros(data.num_nodes, dtype=torch.bool)
    on_motif[data.edge_index[:, data.edge_label].reshape(-1)] = True
    return nodes[on_motif[nodes]]
