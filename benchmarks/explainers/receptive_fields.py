"""GraphSHAP-IQ: exact Shapley values of nodes, from the coalitions inside of receptive fields only."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from benchmarks.explainers.flows import of_root
from benchmarks.explainers.graph_copies import repeat_graphs
from captum_goat.compare.explainers import Explainer, ExplainerSkippedError
from captum_goat.compare.graphs import LARGEST_CALL, Graphs

LARGEST_FIELD = 14  # nodes
MOST_COALITIONS = 100_000
TOLERANCE = 1e-3  # relative to the largest value: a larger rest is no rounding


class GraphSHAPIQ(Explainer):
    r"""Exact Shapley values of nodes as players, for models whose readout is linear.

    A node outside of a coalition has the mean features of the graph (zeros, if all nodes have the same features). With
    a linear readout the logit is a sum over nodes, and each summand depends on the node's receptive field only. So the
    Moebius coefficients

    .. math:: m(T) = \sum_{L \subseteq T} (-1)^{|T| - |L|} v(L)

    of sets T that are in no receptive field are 0, and the Shapley value of node j is :math:`\varphi_j = \sum_{T \ni j}
    m(T) / |T|` over subsets of receptive fields: far fewer coalitions than :math:`2^N`. Whether the readout is linear
    is measured: the coefficients must add up to :math:`v(V) - v(\emptyset)`. Models of which they do not, and graphs
    with larger receptive fields, are skipped. The score of an edge is the mean of its two nodes' values.
    """

    name = "graph_shap_iq"
    citation = (
        "Muschalik, Fumagalli, Frazzetto, Strotherm, Hermes, Sperduti, Huellermeier, Hammer: Exact Computation of "
        "Any-Order Shapley Interactions for Graph Neural Networks, ICLR 2025; here values of nodes"
    )

    def scores(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the scores of one graph's edges."""
        return self.node_values(model, graphs)[graphs.edge_index].mean(dim=0).to(graphs.x.dtype)

    def node_values(self, model: Module, graphs: Graphs) -> Tensor:
        """Return the Shapley values of one graph's nodes, ``[N]`` in double precision."""
        nodes, device = graphs.x.size(0), graphs.x.device
        fields = receptive_fields(model, graphs)
        _check_linear(model, graphs, fields)
        largest = int(fields.sum(dim=1).max())
        if largest > LARGEST_FIELD:
            raise ExplainerSkippedError(f"Expected receptive fields of at most {LARGEST_FIELD} nodes (got {largest}).")
        members = _subsets_of(fields)
        coefficients = moebius(members, node_game(model, graphs, members))
        sizes = members.sum(dim=1)
        ends = torch.stack([torch.zeros(nodes, dtype=torch.bool), torch.ones(nodes, dtype=torch.bool)]).to(device)
        nothing, everything = node_game(model, graphs, ends)
        rest = (coefficients[sizes > 0].sum() - (everything - nothing)).abs()
        if rest > TOLERANCE * max(1.0, float(everything.abs()), float(nothing.abs())):
            raise ExplainerSkippedError(
                f"Expected a linear readout (got coefficients with a rest of {float(rest):.2g})."
            )
        return (members.double() * (coefficients / sizes.clamp(min=1)).view(-1, 1)).sum(dim=0)


def receptive_fields(model: Module, graphs: Graphs) -> Tensor:
    """Return which nodes each output node depends on, bool ``[outputs, N]``; of a root classifier, one output."""
    layers = sum(isinstance(layer, MessagePassing) for layer in model.modules())
    field = torch.eye(graphs.x.size(0), dtype=torch.bool, device=graphs.x.device)
    source, target = graphs.edge_index
    for _ in range(layers):
        field = field.float().index_add_(0, target, field[source].float()) > 0
    return field[:1] if of_root(model) else field


def node_game(model: Module, graphs: Graphs, members: Tensor) -> Tensor:
    """Return the target's logit with the other nodes' features masked, double ``[K]`` from bool ``[K, N]``."""
    baseline = graphs.x.mean(dim=0)
    if torch.allclose(baseline.expand_as(graphs.x), graphs.x):
        baseline = torch.zeros_like(baseline)
    values = []
    for part in members.split(max(1, LARGEST_CALL // graphs.num_edges)):
        copies = repeat_graphs(graphs, len(part))
        with torch.no_grad():
            values.append(copies.changed(x=torch.where(part.view(-1, 1), copies.x, baseline)).values(model).double())
    return torch.cat(values)


def moebius(members: Tensor, values: Tensor) -> Tensor:
    """Return the Moebius coefficients of coalitions that hold all their subsets, ``[K]`` from bool ``[K, N]``.

    Examples::

        >>> import torch
        >>> from benchmarks.explainers.receptive_fields import moebius
        >>> members = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]]).bool()
        >>> moebius(members, torch.tensor([1.0, 3.0, 1.0, 6.0]))
        tensor([1., 2., 0., 3.])
    """
    codes = _codes(members.size(1)).to(members.device)
    keys, order = (members * codes).sum(dim=1).sort()
    coefficients = values[order]
    for node, code in enumerate(codes):  # subtract the coalition without the node, one node after the other
        inside = members[order, node]
        coefficients[inside] -= coefficients[torch.searchsorted(keys, keys[inside] - code)]
    return coefficients[order.argsort()]


def _codes(nodes: int) -> Tensor:
    """Return random numbers whose sums tell coalitions apart, ``[N]``."""
    return torch.randint(2**62, (nodes,), generator=torch.Generator().manual_seed(0)) // max(1, nodes)


def _subsets_of(fields: Tensor) -> Tensor:
    """Return the distinct subsets of receptive fields, the empty one among them, bool ``[K, N]``."""
    codes = _codes(fields.size(1)).to(fields.device)
    members, keys = fields.new_zeros(1, fields.size(1)), codes.new_zeros(1)
    for field in fields.unique(dim=0):
        inside = field.nonzero().view(-1)
        numbers = torch.arange(2 ** len(inside), device=fields.device).view(-1, 1)
        subsets = fields.new_zeros(len(numbers), fields.size(1))
        subsets[:, inside] = (numbers >> torch.arange(len(inside), device=fields.device)) % 2 == 1
        own = (subsets * codes).sum(dim=1)
        new = ~torch.isin(own, keys)
        members, keys = torch.cat([members, subsets[new]]), torch.cat([keys, own[new]])
        if len(keys) > MOST_COALITIONS:
            raise ExplainerSkippedError(f"Expected at most {MOST_COALITIONS:,} subsets of receptive fields (got more).")
    return members


def _check_linear(model: Module, graphs: Graphs, fields: Tensor) -> None:
    """Skip a model if two nodes that no receptive field has in common interact: its readout is not linear."""
    together = fields.T.float() @ fields.float() > 0
    apart = (~together).triu().nonzero()[:64]
    if not len(apart):
        return
    members = torch.zeros(len(apart), 4, graphs.x.size(0), dtype=torch.bool, device=graphs.x.device)
    pairs = torch.arange(len(apart), device=graphs.x.device)
    for column, coalitions in ((0, (1, 3)), (1, (2, 3))):
        for coalition in coalitions:
            members[pairs, coalition, apart[:, column]] = True
    nothing, first, second, both = node_game(model, graphs, members.flatten(0, 1)).view(-1, 4).T
    if bool(((both - first - second + nothing).abs() > TOLERANCE * nothing.abs().clamp(min=1.0)).any()):
        raise ExplainerSkippedError("Expected a linear readout (got nodes that act together far from each other).")
