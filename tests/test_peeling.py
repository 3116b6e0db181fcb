"""Peeling: rounds of attributions of what is left."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import Attribution, IntegratedGradients
from conftest import combinations, make_gnn, random_edges
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SimpleConv
from torch_geometric.utils import to_undirected

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.datasets import ba_2motifs
from captum_goat.metrics import precision_at_k, select_edges
from captum_goat.metrics.counted_edges import CountedEdges
from captum_goat.peeling import Peeling
from captum_goat.peeling.order import ORDERS, Order
from captum_goat.peeling.peeling import REMOVALS, Removal

TARGET = torch.tensor([2, 0, 1, 0])


class Seen(Attribution):
    """A method that writes down what it is asked for."""

    def __init__(self, method: Attribution) -> None:
        super().__init__(method.forward_func)
        self.attribution_method, self.masks = method, list[Tensor]()

    def attribute(self, inputs: Tensor, **kwargs: Any) -> Any:
        self.masks.append(inputs.detach().clone())
        return self.attribution_method.attribute(inputs, **kwargs)


class Draws(Attribution):
    """Random attributions."""

    def attribute(self, inputs: Tensor, **_: Any) -> Tensor:
        return torch.rand_like(inputs)


def graph(nodes: int, edges: Tensor, seed: int) -> Data:
    x = torch.rand(nodes, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Data(x=x, edge_index=edges)


@pytest.fixture
def graphs() -> Batch:
    """An undirected graph with a self-loop, one without edges, a directed one with double edges, one with one edge."""
    undirected = torch.cat([to_undirected(random_edges(7, 8, seed=1)), torch.tensor([[3], [3]])], dim=1).unique(dim=1)
    return Batch.from_data_list(
        [
            graph(8, undirected, seed=1),
            graph(3, torch.empty(2, 0, dtype=torch.long), seed=2),
            graph(6, random_edges(6, 9, seed=3), seed=3),
            graph(3, torch.tensor([[0, 1], [1, 0]]), seed=4),
        ]
    )


def ones(data: Data) -> Tensor:
    return torch.ones(data.num_edges, dtype=torch.float64)


def arguments_of(data: Data) -> tuple[Tensor, Tensor, Tensor | None]:
    return data.x, data.edge_index, data.batch


def places_in(data: Data, scores: Tensor) -> list[list[int]]:
    """Return the edges of every graph, by number, the most important one first."""
    edges = CountedEdges.of(data)
    value = torch.zeros(len(edges.graph), dtype=scores.dtype).scatter_(0, edges.number, scores)
    return [
        sorted((edges.graph == each).nonzero().view(-1).tolist(), key=lambda edge: -float(value[edge]))
        for each in range(edges.num_graphs)
    ]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("rounds", [1, 2, 5, 8])
def test_rounds(order: Order, rounds: int, graphs: Batch) -> None:
    """One attribution per round, each of fewer edges; scores are places, the same for all columns of an edge."""
    seen = Seen(GOAtAttribution(make_gnn("gin")))
    scores = Peeling(seen, rounds, order).attribute(ones(graphs), TARGET, arguments_of(graphs))
    assert len(seen.masks) == rounds
    assert seen.masks[0].all()
    edges = CountedEdges.of(graphs)
    for mask in seen.masks:
        assert set(mask.tolist()) <= {0.0, 1.0}
        assert torch.equal(edges.any(mask > 0)[edges.number], mask > 0)  # columns of an edge go together
    for each in range(4):
        own = edges.graph == each
        per_edge = torch.zeros(len(edges.graph), dtype=torch.float64).scatter_(0, edges.number, scores)
        assert torch.equal(per_edge[edges.number], scores)
        count = int(own.sum())
        expected = torch.arange(1, count + 1, dtype=torch.float64) / max(count, 1)
        torch.testing.assert_close(per_edge[own].sort().values, expected)


@pytest.mark.parametrize(("kind", "order", "removal"), combinations(["gin", "gcn"], ORDERS, REMOVALS))
def test_batch_equals_graph_by_graph(kind: str, order: Order, removal: Removal, graphs: Batch) -> None:
    peeling = Peeling(GOAtAttribution(make_gnn(kind)), rounds=3, order=order, removal=removal)
    scores, drops = peeling.attribute(ones(graphs), TARGET, arguments_of(graphs), return_drops=True)
    alone = [
        peeling.attribute(ones(each), TARGET[k : k + 1], arguments_of(each), return_drops=True)
        for k, each in enumerate(graphs.to_data_list())
    ]
    torch.testing.assert_close(torch.cat([each for each, _ in alone]), scores, rtol=0, atol=0)
    torch.testing.assert_close(torch.cat([each for _, each in alone]), drops)
    again = peeling.attribute(ones(graphs), TARGET, graphs)  # a Batch in place of its tensors
    assert torch.equal(again, scores)


@pytest.mark.parametrize(("order", "rounds"), combinations(ORDERS, [1, 4, 7]))
def test_drops_sum_to_what_all_edges_do(order: Order, rounds: int, graphs: Batch) -> None:
    for kind in ("gin", "gcn"):
        model = make_gnn(kind)
        masked, chosen = EdgeMaskedModel(model), (torch.arange(4), TARGET)
        peeling = Peeling(GOAtAttribution(model), rounds, order)
        scores, drops = peeling.attribute(ones(graphs), TARGET, arguments_of(graphs), return_drops=True)
        assert drops.shape == (4, rounds)
        assert not drops.requires_grad
        whole, nothing = (masked(mask, *arguments_of(graphs))[chosen] for mask in (ones(graphs), 0 * ones(graphs)))
        torch.testing.assert_close(drops.sum(dim=1), (whole - nothing).detach(), rtol=0, atol=1e-9)
        # The same share by share: first goes what has the highest scores.
        edges = CountedEdges.of(graphs)
        counts = edges.counts[edges.graph][edges.number]
        spare = 0 if order == "least_important_first" else rounds - 1  # those that leave first are rounded up
        gone = [(number * counts + spare) // rounds for number in range(rounds + 1)]
        masks = [((1.0 - scores) * counts > each - 0.5).double() for each in gone]
        values = torch.stack([masked(mask, *arguments_of(graphs))[chosen] for mask in masks], dim=1).detach()
        torch.testing.assert_close(drops, values[:, :-1] - values[:, 1:], rtol=0, atol=1e-9)


def test_drops_of_cut_graphs(graphs: Batch) -> None:
    """Edges that are really removed do not count in degrees."""
    model, (x, edge_index, batch) = make_gnn("gcn"), arguments_of(graphs)
    for order in ORDERS:
        peeling = Peeling(GOAtAttribution(model), 4, order, removal="cut")  # type: ignore[arg-type]
        _, drops = peeling.attribute(ones(graphs), TARGET, (x, edge_index, batch), return_drops=True)
        difference = model(x, edge_index, batch) - model(x, edge_index[:, :0], batch)
        expected = difference[torch.arange(4), TARGET].detach()
        torch.testing.assert_close(drops.sum(dim=1), expected, rtol=0, atol=1e-9)


def test_cut_removes_what_belongs_to_edges(graphs: Batch) -> None:
    """An order found by cutting is that of the method on graphs without the edges."""
    model = make_gnn("gcn_plain")
    _, _, data, _ = graphs.to_data_list()
    goat, mask = GOAtAttribution(model), ones(data)
    scores = Peeling(goat, 2, removal="cut").attribute(mask, 1, data)
    edges = CountedEdges.of(data)
    first = edges.totals(goat.attribute(mask, 1, (data.x, data.edge_index)))
    kept = torch.ones(len(first), dtype=torch.bool)
    kept[first.argsort(descending=True)[: -(-len(first) // 2)]] = False
    columns = kept[edges.number]
    second = torch.zeros_like(mask)
    second[columns] = goat.attribute(mask[columns], 1, (data.x, data.edge_index[:, columns]))
    expected = torch.where(kept, edges.totals(second), 1e9 + first)
    (found,) = places_in(data, scores)
    assert found == expected.argsort(descending=True).tolist()


def test_one_round_gives_the_order_of_the_method(graphs: Batch) -> None:
    goat = GOAtAttribution(make_gnn("sage_sum"))
    plain = goat.attribute(ones(graphs), TARGET, arguments_of(graphs))
    expected = places_in(graphs, CountedEdges.of(graphs).totals(plain)[CountedEdges.of(graphs).number])
    for order in ORDERS:
        scores = Peeling(goat, 1, order).attribute(ones(graphs), TARGET, arguments_of(graphs))  # type: ignore[arg-type]
        assert places_in(graphs, scores) == expected


def test_scores_serve_as_scores(graphs: Batch) -> None:
    _, _, directed, _ = graphs.to_data_list()
    scores = Peeling(GOAtAttribution(make_gnn())).attribute(ones(directed), 1, directed)
    assert torch.equal(select_edges(directed, scores, sparsity=0.0), torch.ones(9, dtype=torch.bool))
    assert scores.shape == (9,)
    assert scores.dtype == torch.float64


class Told(nn.Module):
    """Node 0 is told the larger of two numbers, and beside them a third one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(aggr="max")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index).sum(dim=1)


def test_redundant_motifs_are_found() -> None:
    """Two motifs of which one would do: attributions see one of them, the output needs that both are gone."""
    # Channel 0: max over node 1 (3.0) and node 2 (2.9). Channel 1: node 3 (1.0), which nothing stands in for.
    x = torch.tensor([[0.0, 0.0], [3.0, 0.0], [2.9, 0.0], [0.0, 1.0]], dtype=torch.float64)
    edge_index, mask = torch.tensor([[1, 2, 3], [0, 0, 0]]), torch.ones(3, dtype=torch.float64)
    model = Told().eval()
    for method, shape in ((GOAtAttribution(model), (3,)), (IntegratedGradients(EdgeMaskedModel(model)), (1, 3))):
        target = 0 if len(shape) == 1 else (0,)
        plain = method.attribute(
            mask.view(shape).requires_grad_(), target=target, additional_forward_args=(x, edge_index)
        )
        assert plain.detach().view(-1).argsort(descending=True).tolist() == [0, 2, 1]
        found = {}
        for order in ORDERS:
            peeling = Peeling(method, 3, order)  # type: ignore[arg-type]
            scores, drops = peeling.attribute(mask.view(shape), target, (x, edge_index), return_drops=True)
            found[order] = scores.detach().view(-1).argsort(descending=True).tolist()
            if order == "most_important_first":
                torch.testing.assert_close(drops.view(-1), torch.tensor([0.1, 2.9, 1.0], dtype=torch.float64))
        assert found["most_important_first"] == [0, 1, 2]  # what the output needs
        assert found["least_important_first"] == [0, 2, 1]  # what suffices for it
        assert found["both"][0] == 0


def test_negative_attributions_come_last() -> None:
    class Sums(SimpleConv):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, edge_index).sum(dim=1)

    model = Sums()
    x = torch.tensor([[0.0], [-2.0], [1.0], [-1.0], [3.0]])
    edge_index = torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]])
    for order in ORDERS:
        peeling = Peeling(GOAtAttribution(model.eval()), 2, order)  # type: ignore[arg-type]
        assert peeling.attribute(torch.ones(4), 0, (x, edge_index)).tolist() == [0.25, 0.75, 0.5, 1.0]


@pytest.mark.parametrize("undirected", [None, True, False])
def test_directions_of_an_edge(undirected: bool | None, graphs: Batch) -> None:
    """They are one edge where every edge has its reverse; or always; or never."""
    peeling = Peeling(GOAtAttribution(make_gnn()), rounds=3)
    scores = peeling.attribute(ones(graphs), TARGET, arguments_of(graphs), undirected=undirected)
    for number, together in ((0, undirected is not False), (2, undirected is True)):
        own = graphs.batch[graphs.edge_index[0]] == number
        pairs = [tuple(pair) for pair in graphs.edge_index[:, own].t().tolist()]
        edges = {frozenset(pair) if together else pair for pair in pairs}
        assert len(scores[own].unique()) == len(edges)
        found = dict(zip(pairs, scores[own].tolist(), strict=True))
        reverses = [found[pair] == found[pair[::-1]] for pair in pairs if pair[0] != pair[1] and pair[::-1] in found]
        assert reverses
        assert all(each is together for each in reverses)


def test_random_stays_random() -> None:
    batch = Batch.from_data_list(ba_2motifs(200))
    model = EdgeMaskedModel(make_gnn())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = {
            order: Peeling(Draws(model), 5, order).attribute(torch.ones(batch.num_edges), graphs=batch)  # type: ignore[arg-type]
            for order in ORDERS
        }
    expected = torch.tensor([float(each.edge_label.float().mean()) for each in batch.to_data_list()])
    for scores in found.values():
        precision = precision_at_k(batch, scores)
        error = precision.std() / len(precision) ** 0.5
        assert abs(float(precision.mean() - expected.mean())) < 3 * float(error)
