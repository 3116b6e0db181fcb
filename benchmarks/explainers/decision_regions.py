"""Decision regions: graph embeddings bounded by a classifier's linear decision boundaries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Module
from torch_geometric.nn import Linear as PyGLinear
from torch_geometric.nn import MessagePassing

from captum_goat.compare.explainers import ExplainerSkippedError
from captum_goat.compare.graphs import Graphs

BISECTIONS = 40  # halve the way between two embeddings that often


class Head:
    """The part of a model after its message passing: from the embedding of a graph to the logits.

    It begins with the first linear layer that is called after the last message passing layer. The embedding is what
    that layer is given: one row per graph, or one per node, of which that of a graph's first node counts.

    Args:
        model: A graph classifier.
        graphs: Some graphs, to find out what is called when.

    Raises:
        ExplainerSkippedError: If the logits do not come from such a layer alone.
    """

    def __init__(self, model: Module, graphs: Graphs) -> None:
        self.model = model
        self.num_features = graphs.x.size(1)
        self.layer = _first_linear_after_messages(model, graphs)
        with torch.no_grad():
            logits = model(*graphs.inputs)
            again = self.logits(self.embeddings(graphs, model))
        if logits.shape != again.shape or not torch.allclose(logits, again, rtol=1e-3, atol=1e-4):
            raise ExplainerSkippedError(
                "Expected logits that depend on nothing but the input of the first linear layer after message passing "
                "(got others). RCExplainer has no decision boundaries for such a model."
            )

    def embeddings(self, graphs: Graphs, call: Any, *args: Any) -> Tensor:
        """Return the embeddings ``[G, D]`` that ``call(*args, x, edge_index, batch)`` leads to."""
        given: list[Tensor] = []
        hook = self.layer.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
        try:
            call(*args, *graphs.inputs)
        finally:
            hook.remove()
        rows = given[-1]
        if len(rows) == len(graphs.target):
            return rows
        first = torch.ones_like(graphs.batch, dtype=torch.bool)
        first[1:] = graphs.batch[1:] != graphs.batch[:-1]
        return rows[first]

    def logits(self, embeddings: Tensor) -> Tensor:
        """Return the logits ``[K, C]`` of embeddings ``[K, D]``."""
        count = len(embeddings)
        x = embeddings.new_zeros(count, self.num_features)
        no_edges = torch.empty(2, 0, dtype=torch.long, device=x.device)
        hook = self.layer.register_forward_pre_hook(lambda _, inputs: (embeddings, *inputs[1:]))
        try:
            logits: Tensor = self.model(x, no_edges, torch.arange(count, device=x.device))
        finally:
            hook.remove()
        return logits


def _first_linear_after_messages(model: Module, graphs: Graphs) -> Module:
    inside = {part for layer in model.modules() if isinstance(layer, MessagePassing) for part in layer.modules()}
    called: list[Module] = []
    watched = [
        module
        for module in model.modules()
        if isinstance(module, MessagePassing) or (isinstance(module, nn.Linear | PyGLinear) and module not in inside)
    ]
    hooks = [module.register_forward_hook(lambda module, _, out: called.append(module)) for module in watched]
    try:
        with torch.no_grad():
            model(*graphs.inputs)
    finally:
        for hook in hooks:
            hook.remove()
    last = max((k for k, module in enumerate(called) if isinstance(module, MessagePassing)), default=len(called))
    if last + 1 >= len(called):
        raise ExplainerSkippedError("Expected a linear layer after message passing (got none).")
    return called[last + 1]


def decision_regions(head: Head, embeddings: Tensor, candidates: int = 50) -> list[Tensor]:
    r"""Return, for every embedding, boundaries of a region in which the model predicts the same class.

    A boundary is a row :math:`(w, b)`; it is positive, :math:`w \cdot \alpha + b > 0`, on the embedding's side.
    Candidates are found between an embedding and random ones of other classes: by bisection, the point where the class
    changes, and there the linear function that is the difference of the two logits. Of these boundaries those are
    chosen, greedily, that shut out most embeddings of other classes for each of the own class that they shut out,

    .. math:: \min_p \frac{g(P) - g(P \cup p) + \varepsilon}{h(P) - h(P \cup p)},

    with :math:`g` and :math:`h` the numbers of embeddings of the own class and of others that are inside, until there
    are no others, or none can be shut out. Embeddings that are inside have the same boundaries; the next that is in no
    region yet is where the next region starts.

    Source: Bajaj, Chu, Xue, Pei, Wang, Lam, Zhang: *Robust Counterfactual Explanations on Graph Neural Networks*,
    NeurIPS 2021.

    Args:
        head: The part of the model that decides.
        embeddings: The embeddings ``[G, D]``.
        candidates: How many boundaries to choose from.

    Returns:
        For each embedding the boundaries ``[K, D + 1]`` of its region; none if all have the same class.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Batch, Data
        >>> from benchmarks.explainers.decision_regions import Head, decision_regions
        >>> from captum_goat.compare.graphs import Graphs
        >>> from captum_goat.models import GraphClassifier
        >>> _ = torch.manual_seed(0)
        >>> model = GraphClassifier("sage", in_channels=2, hidden_channels=8, num_classes=2)
        >>> _ = model.eval().requires_grad_(False)
        >>> data = [Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]])) for _ in range(20)]
        >>> graphs = Graphs.of(Batch.from_data_list(data), torch.zeros(20, dtype=torch.long))
        >>> head = Head(model, graphs)
        >>> embeddings = head.embeddings(graphs, model)
        >>> boundaries = decision_regions(head, embeddings)[0]
        >>> bool((embeddings[0] @ boundaries[:, :-1].t() + boundaries[:, -1] > 0).all())
        True
    """
    with torch.no_grad():
        classes = head.logits(embeddings).argmax(-1)
    extended = torch.cat([embeddings, embeddings.new_ones(len(embeddings), 1)], dim=1)
    regions: list[Tensor | None] = [None] * len(embeddings)
    for start in range(len(embeddings)):
        if regions[start] is not None:
            continue
        own = classes == classes[start]
        others = (~own).nonzero().view(-1)
        others = others[torch.randperm(len(others))[:candidates].to(others.device)]
        boundaries = _boundaries(head, embeddings[start], embeddings[others])
        boundaries = boundaries * torch.where(boundaries @ extended[start] < 0, -1.0, 1.0).view(-1, 1)
        free = torch.tensor([region is None for region in regions], device=own.device)
        chosen = _choose(extended @ boundaries.t() > 0, own & free, ~own)
        region = boundaries[chosen]
        inside = (extended @ region.t() > 0).all(dim=1) & own & free
        inside[start] = True
        for index in inside.nonzero().view(-1).tolist():
            regions[index] = region
    return [region for region in regions if region is not None]


def _boundaries(head: Head, start: Tensor, ends: Tensor) -> Tensor:
    """Return the boundaries ``[K, D + 1]`` where the start's class ends on the way to each of K embeddings."""
    low, high = ends.new_zeros(len(ends), 1), ends.new_ones(len(ends), 1)
    with torch.no_grad():
        own = head.logits(start.unsqueeze(0)).argmax(-1)
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            same = (head.logits(start + middle * (ends - start)).argmax(-1) == own).view(-1, 1)
            low, high = torch.where(same, middle, low), torch.where(same, high, middle)
        other = head.logits(start + high * (ends - start)).argmax(-1)
    points = (start + low * (ends - start)).requires_grad_()
    with torch.enable_grad():
        logits = head.logits(points)
        difference = logits[:, own].view(-1) - logits.gather(1, other.view(-1, 1)).view(-1)
        (slope,) = torch.autograd.grad(difference.sum(), points)
    offset = (difference - (slope * points).sum(dim=1)).detach()
    return torch.cat([slope, offset.view(-1, 1)], dim=1)


def _choose(inside: Tensor, own: Tensor, others: Tensor) -> list[int]:
    """Choose boundaries greedily, given which embeddings are on the right side of which, bool ``[G, K]``."""
    chosen: list[int] = []
    while bool(others.any()):
        shut_out_own = (own.view(-1, 1) & ~inside).sum(0)
        shut_out_others = (others.view(-1, 1) & ~inside).sum(0)
        if not bool(shut_out_others.any()):
            break
        best = int(torch.where(shut_out_others > 0, (shut_out_own + 1e-3) / shut_out_others, torch.inf).argmin())
        chosen.append(best)
        own, others = own & inside[:, best], others & inside[:, best]
    return chosen
