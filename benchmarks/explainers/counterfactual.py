"""CF-GNNExplainer: the smallest set of edges whose removal changes the class."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from benchmarks.explainers.edge_weights import WeightedTargets, takes_weights
from captum_goat.compare.explainers import Explainer
from captum_goat.compare.graphs import Graphs, MaskedTargets
from captum_goat.metrics.counted_edges import sums


class CFGNNExplainer(Explainer):
    r"""CF-GNNExplainer: learns which edges to remove so that the model predicts another class.

    Every (undirected) edge has a number :math:`\hat p_e`, 1 at first. In the relaxed graph the edge is multiplied by
    :math:`\sigma(\hat p_e)`; in the actual one it is removed if :math:`\sigma(\hat p_e) < 1/2`. The loss of a graph is

    .. math:: \mathbb 1[\text{the actual graph still has the class}] \cdot \log P_{\text{relaxed}}(\text{class})
              + \beta \sum_e (1 - \sigma(\hat p_e)).

    The score of an edge is :math:`1 - \sigma(\hat p_e)` at the moment when the fewest edges were removed of all moments
    at which the class had changed: removed edges score above 1/2. If the class never changes, the last numbers count;
    if it is not predicted in the first place, the first, which are all the same. The directions of an undirected edge
    share its score equally.

    Different from the authors' code: the first term's gradient is scaled to length 1 for each graph (they clip it), for
    it vanishes where the model is sure of the class; the second term counts relaxed edges, so that it has a gradient
    (theirs counts removed ones); and edges are multiplied before degree normalisation where the layers take edge
    weights, as theirs are, else their messages are. All graphs of a batch are searched at once.

    Args:
        steps: The number of gradient steps.
        lr: Their length.
        beta: The weight of the number of removed edges.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.nn import SimpleConv
        >>> from benchmarks.explainers import EXPLAINERS
        >>> class MoreThanOne(torch.nn.Module):  # class 1 if the first node is sent more than 1
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.conv = SimpleConv()
        ...     def forward(self, x, edge_index, batch):
        ...         return torch.stack([torch.tensor(1.0), self.conv(x, edge_index)[0, 0]]).view(1, 2)
        >>> data = Data(x=torch.tensor([[0.0], [0.2], [0.9], [0.2]]), edge_index=torch.tensor([[1, 2, 3], [0, 0, 0]]))
        >>> EXPLAINERS["cf_gnn_explainer"]()(MoreThanOne().eval(), data, target=torch.tensor([1])) > 0.5
        tensor([False,  True, False])
    """

    name = "cf_gnn_explainer"
    citation = "Lucic, ter Hoeve, Tolomei, de Rijke, Silvestri: CF-GNNExplainer, AISTATS 2022"
    batched = True

    def __init__(self, steps: int = 200, lr: float = 0.1, beta: float = 0.5) -> None:
        self.steps = steps
        self.lr = lr
        self.beta = beta

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores of all graphs' edges."""
        relaxed, edges = _relaxed(model, graphs), graphs.edges
        numbers = torch.ones(len(edges.graph), dtype=graphs.x.dtype, device=graphs.x.device)
        fewest = torch.full_like(graphs.target, graphs.num_edges + 1)
        best = numbers
        for _ in range(self.steps):
            changed = _actual_class(model, graphs, numbers) != graphs.target
            removed = edges.per_graph((numbers < 0).long())
            better = changed & (removed < fewest)
            fewest = torch.where(better, removed, fewest)
            best = torch.where((better | (fewest > graphs.num_edges))[edges.graph], numbers, best)
            if bool((fewest <= 1).all()):
                break
            numbers = numbers - self.lr * self._gradient(relaxed, numbers, changed)
        return graphs.shared(1 - best.sigmoid())

    def _gradient(self, relaxed: MaskedTargets, numbers: Tensor, changed: Tensor) -> Tensor:
        graphs = relaxed.graphs
        variable = numbers.clone().requires_grad_()
        kept = variable.sigmoid()
        logits = relaxed.logits(kept[graphs.edges.number].unsqueeze(0))[0]
        (slope,) = torch.autograd.grad(graphs.of_target(logits.log_softmax(-1)).sum(), variable)
        length = sums(slope.square(), graphs.edges.graph, len(changed)).sqrt()
        factor = torch.where(changed | (length == 0), 0.0, 1 / length)
        return slope * factor[graphs.edges.graph] - self.beta * (kept * (1 - kept)).detach()


def _relaxed(model: Module, graphs: Graphs) -> MaskedTargets:
    layers = [module for module in model.modules() if isinstance(module, MessagePassing)]
    return (WeightedTargets if all(map(takes_weights, layers)) else MaskedTargets)(model, graphs)


@torch.no_grad()
def _actual_class(model: Module, graphs: Graphs, numbers: Tensor) -> Tensor:
    """Return the predicted classes ``[G]`` without the edges whose numbers are negative."""
    kept = (numbers >= 0)[graphs.edges.number]
    classes: Tensor = model(graphs.x, graphs.edge_index[:, kept], graphs.batch).argmax(-1)
    return classes
