"""Captum's infidelity and sensitivity of edge scores, for batches of graphs.

Captum's metrics have one number per example, where examples are rows of tensors. Here graphs are the examples: what
belongs to the edges or nodes of a graph is one row, filled up with zeros to the length of the longest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import captum.metrics
import torch
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.metrics.counted_edges import CountedEdges, check_scores, graph_of_nodes, number_of_graphs, places
from captum_goat.metrics.perturbations import PerturbFunc, drop_edges
from captum_goat.metrics.reduced_graphs import class_per_graph, logits_of, model_arguments, output_of


def infidelity(
    model: Module,
    data: Data | Batch,
    scores: Tensor,
    target: Tensor | int | None = None,
    perturb_func: PerturbFunc | None = None,
    *,
    samples: int = 10,
    normalize: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    r"""Return how badly scores foretell what happens to the output when edges are dropped, for every graph.

    .. math:: \mathrm{INFD} = \mathbb{E}_I\left[\left(I^\top \phi - (f(m) - f(m - I))_c\right)^2\right]

    :math:`f` are the model's logits, which are what methods such as GOAt explain, as a function of the edge mask
    :math:`m = 1`, :class:`~captum_goat.EdgeMaskedModel`. Computed by :func:`captum.metrics.infidelity`. Source: Yeh,
    Hsieh, Suggala, Inouye, Ravikumar: *On the (In)fidelity and Sensitivity of Explanations*, NeurIPS 2019.

    Args:
        model: As for :func:`~captum_goat.metrics.fidelity_plus`, but without log-probabilities.
        data: The graph, or the batch of G graphs.
        scores: One number per edge, ``[E]``.
        target: The explained class of all graphs or one per graph ``[G]``; ``None`` for the predicted one. The only
            logit of a model is class 0, as for Captum.
        perturb_func: The perturbation of masks ``[B, E]``. By default :func:`~captum_goat.metrics.drop_edges` drops
            each edge with probability 0.1, both directions of an undirected one together.
        samples: How many perturbations of each graph.
        normalize: Whether to scale the scores of each graph by the factor that fits best.
        generator: Where the random numbers of the default perturbation come from.

    Returns:
        One number per graph, ``[G]``.

    Raises:
        ValueError: If the model returns probabilities or their logarithms, or the arguments do not fit together.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv, global_add_pool
        >>> from captum_goat.metrics import infidelity
        >>> class Sums(torch.nn.Module):  # every edge adds the features of its source
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = SimpleConv()
        ...
        ...     def forward(self, x, edge_index, batch):
        ...         return global_add_pool(self.conv(x, edge_index), batch)
        >>> model = Sums().eval()
        >>> data = Data(x=torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
        >>> infidelity(model, data, torch.tensor([0.0, 2.0]), target=1)  # just what each edge does
        tensor([0.])
    """
    edges, scores = CountedEdges.of(data), check_scores(scores, data)
    perturb = perturb_func or drop_edges(0.1, feature_mask=edges.number, generator=generator)
    output = logits_of(model, data)
    classes = output.argmax(dim=1) if target is None else class_per_graph(target, output)
    rows = Rows.of(edges.columns_graph, edges.num_graphs)
    masked, (args, kwargs) = EdgeMaskedModel(model), model_arguments(model, data)

    def forward(masks: Tensor) -> Tensor:
        columns = rows.unpacked(masks)
        return rows.by_graph(masked(columns, *args, **kwargs).view(len(columns), edges.num_graphs, -1))

    def perturbed(masks: Tensor) -> tuple[Tensor, Tensor]:
        (perturbation,), (changed,) = perturb(rows.unpacked(masks))
        return rows.packed(perturbation), rows.packed(changed)

    mask = rows.packed(torch.ones_like(scores).unsqueeze(0))
    attributions = rows.packed(scores.unsqueeze(0))
    found: Tensor = captum.metrics.infidelity(
        forward, perturbed, mask, attributions, target=classes, n_perturb_samples=samples, normalize=normalize
    )
    return found


def sensitivity_max(
    explainer: Callable[[Module, Data | Batch, Tensor], Tensor],
    model: Module,
    data: Data | Batch,
    target: Tensor | int | None = None,
    *,
    radius: float = 0.02,
    samples: int = 10,
    generator: Generator | None = None,
) -> Tensor:
    r"""Return how far scores move, at most, when the node features are moved a little, for every graph.

    .. math:: \mathrm{SENS} = \max_{\|\epsilon\|_\infty \le r} \frac{\|\phi(x + \epsilon) - \phi(x)\|_2}{\|\phi(x)\|_2}

    The maximum is that of random :math:`\epsilon`. Computed by :func:`captum.metrics.sensitivity_max`. Source: Yeh et
    al., *On the (In)fidelity and Sensitivity of Explanations*, NeurIPS 2019. To move the mask in place of the features,
    which only some methods take, call Captum's function itself: ``sensitivity_max(goat.attribute, mask, ...)``.

    Args:
        explainer: Called as ``explainer(model, data, target)``, it returns one score per edge, ``[E]``.
        model: As for :func:`~captum_goat.metrics.fidelity_plus`.
        data: The graph, or the batch of G graphs.
        target: The explained class of all graphs or one per graph ``[G]``; ``None`` for the predicted one.
        radius: How far each feature moves at most.
        samples: How many :math:`\epsilon`. The explainer is called once more than that.
        generator: Where the random numbers come from; PyTorch's default generator if ``None``. An explainer that draws
            random numbers itself moves for that reason, too.

    Returns:
        One number per graph, ``[G]``.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv, global_add_pool
        >>> from captum_goat.metrics import sensitivity_max
        >>> class Sums(torch.nn.Module):  # every edge adds the features of its source
        ...     def forward(self, x, edge_index, batch):
        ...         return global_add_pool(SimpleConv()(x, edge_index), batch)
        >>> model = Sums().eval()
        >>> data = Data(x=torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), edge_index=torch.tensor([[0, 1], [2, 2]]))
        >>> sensitivity_max(lambda model, data, target: torch.tensor([0.5, -0.5]), model, data)
        tensor([0.])
    """
    if not data.x.is_floating_point():
        raise ValueError(f"Expected node features that are floating point numbers, to move them (got {data.x.dtype}).")
    if radius <= 0.0:
        raise ValueError(f"Expected a radius above 0 (got {radius}).")
    output, graphs = output_of(model, data), number_of_graphs(data)
    classes = output.argmax(dim=1) if target is None else class_per_graph(target, output)
    nodes = Rows.of(graph_of_nodes(data), graphs)
    edges = Rows.of(CountedEdges.of(data).columns_graph, graphs)

    def explain(inputs: Any) -> tuple[Tensor]:
        features = nodes.unpacked(inputs[0] if isinstance(inputs, tuple) else inputs)
        scores = [check_scores(_explained(explainer, model, data, each, classes), data) for each in features]
        return (edges.packed(torch.stack(scores)),)

    def moved(inputs: Tensor) -> Tensor:
        device = inputs.device if generator is None else generator.device
        noise = torch.rand(inputs.shape, generator=generator, dtype=inputs.dtype, device=device)
        return inputs + radius * (2.0 * noise.to(inputs.device) - 1.0)

    inputs = nodes.packed(data.x.detach().unsqueeze(0))
    found: Tensor = captum.metrics.sensitivity_max(explain, inputs, moved, n_perturb_samples=samples)
    return found


def _explained(explainer: Any, model: Module, data: Data | Batch, x: Tensor, target: Tensor) -> Tensor:
    """Return scores for other node features; Captum calls without gradients, which explainers may need."""
    changed = data.clone()  # an explainer may write on it
    changed.x = x.clone()
    with torch.enable_grad():
        scores: Tensor = explainer(model, changed, target)
    return scores


@dataclass(frozen=True)
class Rows:
    """Elements of graphs (edges or nodes), and the rows into which Captum wants them: one per graph and sample.

    Attributes:
        graph: The graph of each element, ``[K]``.
        slot: The place of each element in its graph, ``[K]``.
        num_graphs: G, the number of graphs.
        length: L, the length of a row.
    """

    graph: Tensor
    slot: Tensor
    num_graphs: int
    length: int

    @classmethod
    def of(cls, graph: Tensor, num_graphs: int) -> Rows:
        """Give the elements of each graph their places in its row."""
        ascending, order = torch.sort(graph, stable=True)
        place = places(ascending, num_graphs)
        slot = torch.empty_like(place).scatter_(0, order, place)
        return cls(graph, slot, num_graphs, int(place.max()) + 1 if len(place) else 0)

    def packed(self, values: Tensor) -> Tensor:
        """Turn S samples of all elements, ``[S, K, ...]``, into rows ``[G * S, L, ...]``."""
        filled = values.new_zeros(len(values), self.num_graphs, self.length, *values.shape[2:])
        filled[:, self.graph, self.slot] = values
        return self.by_graph(filled)

    def unpacked(self, rows: Tensor) -> Tensor:
        """Turn rows ``[G * S, L, ...]`` into S samples of all elements, ``[S, K, ...]``."""
        return rows.view(self.num_graphs, -1, *rows.shape[1:]).transpose(0, 1)[:, self.graph, self.slot]

    @staticmethod
    def by_graph(values: Tensor) -> Tensor:
        """Turn ``[S, G, ...]`` into ``[G * S, ...]``: Captum has all samples of a graph, then those of the next."""
        return values.transpose(0, 1).flatten(0, 1)
