"""Receptive fields against the derivative test: an edge is in a field if perturbing it moves the gate's input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from conftest import fields_of_edges, make_gnn, random_edges, randomize, record_edges
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GraphConv,
    GraphNorm,
    PairNorm,
    ResGatedGraphConv,
    SAGEConv,
    TAGConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
)
from torch_geometric.utils import softmax, to_dense_batch

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.fields.receptive_field import ReceptiveFields
from captum_goat.fields.small_fields import SmallFields, find_owners
from captum_goat.method.replay import ActivationPattern
from captum_goat.rules.registry import Factors
from captum_goat.tracking import Block, RowGraph

BATCH = torch.tensor([0, 0, 0, 0, 1, 1, 1])
EDGES = torch.cat([random_edges(4, 5, seed=1), torch.tensor([[5, 6, 6], [4, 5, 6]])], dim=1)
X = torch.rand(7, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1


class Positive(nn.Module):
    """Layers with positive weights, so that no dependence cancels and every gate is on."""

    def __init__(self, body: Callable[[Positive, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body
        self.a, self.b, self.c = GraphConv(3, 3), GraphConv(3, 3), GraphConv(3, 3)
        self.gcn, self.sage, self.tag = GCNConv(3, 3), SAGEConv(3, 3), TAGConv(3, 3, K=2)
        self.wide = nn.Linear(6, 3)
        self.gat, self.res, self.max = GATConv(3, 3), ResGatedGraphConv(3, 3), SAGEConv(3, 3, aggr="max")
        self.graph_norm, self.pair_norm = GraphNorm(3), PairNorm()
        self.heads, self.need_weights = nn.MultiheadAttention(3, 1, batch_first=True), False
        self.inputs: list[Tensor] = []
        for parameter in self.parameters():
            parameter.data.uniform_(0.1, 1.0)

    def gate(self, x: Tensor) -> Tensor:
        self.inputs.append(x)
        return torch.relu(x)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.inputs.clear()
        return self.body(self, x, edge_index)


def reused(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    for _ in range(3):
        x = m.gate(m.a(x, e))
    return x


def jumping_knowledge(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    first = m.gate(m.gcn(x, e))
    return m.gate(m.wide(torch.cat([first, m.gate(m.sage(first, e))], dim=-1)))


def parallel(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.a(x, e) + m.b(m.gate(m.c(x, e)), e))


def stacked(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(torch.stack([m.a(x, e), m.gcn(m.gate(m.b(x, e)), e)], dim=-1)).sum(dim=-1)


def many_steps(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.tag(m.gate(m.a(x, e)), e))


def pooled(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(global_mean_pool(m.gate(m.gcn(x, e)), BATCH))


def virtual_node(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    x = m.gate(m.a(x, e))
    return m.gate(x + m.gate(global_add_pool(x, BATCH))[BATCH])


def virtual_node_then_message(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    x = m.gate(m.a(x, e))
    return m.gate(m.b(x + global_add_pool(x, BATCH)[BATCH], e))


def dense_batch(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    dense, kept = to_dense_batch(m.a(x, e), BATCH)
    dense = m.gate(dense)
    return m.gate(dense.transpose(1, 2).sum(dim=-1)) + dense.sum(dim=1) + m.gate(dense[kept]).sum()


def transposed(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    x = m.gate(m.a(x, e).t()).t().contiguous()
    return m.gate(m.b(x, e).t().reshape(3, 7, 1).permute(1, 2, 0).squeeze(1))


def dense_mixing(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    mixing = torch.arange(1.0, 15.0, dtype=x.dtype).view(2, 7)
    return m.gate(mixing @ m.gate(m.a(x, e)))


def link_head(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    z = m.gate(m.a(x, e))
    return m.gate(z[torch.tensor([0, 5])] + z[torch.tensor([3, 4])])


def heads(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.a(x, e).view(7, 3, 1).expand(7, 3, 2).reshape(7, 6))


def slices(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    x = m.a(x, e)
    first, second = x.split([3, 4])
    again = torch.cat([second, first])
    one, two, three = again.unbind(dim=1)
    return m.gate(torch.stack([one, two, three], dim=1)) + m.gate(torch.cat([x[1:], x[:1]]).flip(0))


def attention(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.gat(m.gate(m.gat(x, e)), e))


def layer_norm(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.b(m.gate(F.layer_norm(m.a(x, e), [3])), e))


def norm_of_graphs(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.graph_norm(m.a(x, e), BATCH)) + m.gate(m.pair_norm(m.b(x, e), BATCH))


def normalised(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.b(F.normalize(m.a(x, e)), e))


def global_attention(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    dense, kept = to_dense_batch(m.gate(m.a(x, e)), BATCH)
    dense, _ = m.heads(dense, dense, dense, key_padding_mask=~kept, need_weights=m.need_weights)
    return m.gate(dense[kept])


def global_attention_with_weights(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    m.need_weights = True
    return global_attention(m, x, e)


def attention_pool(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    x = m.gate(m.a(x, e))
    return m.gate((x * softmax(x.sum(-1, keepdim=True), BATCH))[[0, 5]])


def smooth(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.b(torch.sigmoid(m.a(x, e)), e)) * m.gate(F.gelu(m.c(x, e)))


def edge_gates(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.res(m.gate(m.res(x, e)), e))


BODIES = [
    reused, jumping_knowledge, parallel, stacked, many_steps, pooled, virtual_node, virtual_node_then_message,
    dense_batch, transposed, dense_mixing, link_head, heads, slices, attention, layer_norm, norm_of_graphs,
    normalised, global_attention, global_attention_with_weights, attention_pool, smooth, edge_gates,
]  # fmt: skip


def max_aggregation(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(m.max(m.gate(m.max(x, e)), e))


def jumping_knowledge_max(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    first = m.a(x, e)
    return m.gate(torch.stack([first, m.gcn(m.gate(first), e)], dim=-1).max(dim=-1)[0])


def max_pool(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(global_max_pool(m.gate(m.a(x, e)), BATCH))


def between_two(m: Positive, x: Tensor, e: Tensor) -> Tensor:
    return m.gate(torch.minimum(m.a(x, e), m.gcn(m.gate(m.b(x, e)), e)))


WINNERS = [max_aggregation, jumping_knowledge_max, max_pool, between_two]


@pytest.mark.parametrize(
    ("body", "large"),
    [*((body, False) for body in BODIES), *((body, True) for body in WINNERS)],
    ids=[body.__name__ for body in (*BODIES, *WINNERS)],
)
def test_fields_equal_the_derivative_test(body: Callable[[Positive, Tensor, Tensor], Tensor], large: bool) -> None:
    """With winners, an edge that is behind none moves nothing by itself, until it is changed enough to win."""
    torch.manual_seed(0)
    model = Positive(body).double().eval()
    mask = torch.ones(EDGES.size(1), dtype=torch.float64)
    pattern = record_edges(model, X, EDGES, mask)
    fields = fields_of_edges(pattern)
    of_relus = _of_relus(model, pattern)
    moves_of_relus = (_moves_by_large_changes if large else _derivatives)(model)
    for number, (gates, moves) in enumerate(zip(of_relus, moves_of_relus, strict=True)):
        found = torch.stack([_field(fields, gates, row, pattern.graph.num_rows) for row in gates.rows.ids.reshape(-1)])
        assert torch.equal(found.view(*gates.rows.ids.shape, -1).expand_as(moves), moves), f"gate {number}"


def _of_relus(model: Positive, pattern: ActivationPattern) -> list[Factors]:
    """Return the gates of the model's ReLUs, in order."""
    known = iter([each for each in pattern.factors if each.gates])
    return [next(each for each in known if torch.equal(each.values, (x > 0).to(x.dtype))) for x in model.inputs]


def _moves_by_large_changes(model: Positive) -> list[Tensor]:
    """Return, for every entry of each gate's input, which edges move it when they are changed a lot."""
    masked = EdgeMaskedModel(model)

    def inputs(mask: Tensor) -> list[Tensor]:
        masked(mask, X, EDGES)
        return list(model.inputs)

    generator, moves = torch.Generator().manual_seed(1), []
    for _ in range(25):
        mask = 10 ** (torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64) * 6 - 3)
        mask *= torch.randint(-1, 2, mask.shape, generator=generator)
        changed = zip(
            *(inputs(mask.index_fill(0, torch.tensor(edge), 5.0)) for edge in range(EDGES.size(1))), strict=True
        )
        pairs = zip(inputs(mask), changed, strict=True)
        moves.append([torch.stack([one != before for one in by_edge], dim=-1) for before, by_edge in pairs])
    return [torch.stack(of_gate).any(dim=0) for of_gate in zip(*moves, strict=True)]


def _field(fields: ReceptiveFields, gates: Factors, row: Tensor, num_rows: int) -> Tensor:
    """Return which edges share what lands on a row."""
    share = torch.zeros(num_rows, dtype=torch.float64)
    share[row] = float(row >= 0)
    return fields.spread(share, gates.rows.sources) > 0


def _derivatives(model: Positive) -> list[Tensor]:
    """Return, for every entry of each gate's input, which edges move it."""
    mask = torch.ones(EDGES.size(1), dtype=torch.float64, requires_grad=True)
    EdgeMaskedModel(model)(mask, X, EDGES)
    gradients = (
        [torch.autograd.grad(entry, mask, retain_graph=True)[0] for entry in value.reshape(-1)]
        for value in model.inputs
    )
    pairs = zip(model.inputs, gradients, strict=True)
    return [torch.stack(rows).view(*value.shape, -1) != 0 for value, rows in pairs]


def test_repeated_lists_an_edge_once_per_hop() -> None:
    """On the cycle 0 <-> 1 the edge 0 -> 1 is in hops 1 and 3 of node 1, and 1 -> 0 in hop 2."""
    model = Positive(reused).double().eval()
    edge_index = torch.tensor([[0, 1], [1, 0]])
    x = torch.rand(2, 3, dtype=torch.float64)
    pattern = record_edges(model, x, edge_index, torch.ones(2, dtype=torch.float64))
    last = pattern.factors[-1]
    share = torch.zeros(pattern.graph.num_rows, dtype=torch.float64)
    share[last.rows.ids[1]] = 1.0
    distinct = fields_of_edges(pattern).spread(share, last.rows.sources)
    repeated = fields_of_edges(pattern, repeated=True).spread(share, last.rows.sources)
    torch.testing.assert_close(distinct, torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(repeated, torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))


class TwoLayers(nn.Module):
    """Messages along the edges, then against them."""

    def __init__(self, aggregation: str) -> None:
        super().__init__()
        self.first = GraphConv(1, 2)
        self.second = GraphConv(2, 2, aggr=aggregation, flow="target_to_source")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index), edge_index).relu()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 0, 2]])
def test_repeated_counts_the_hops_of_a_maximum_as_those_of_a_sum(order: list[int]) -> None:
    """With one message per node both are the same, in whatever order the edges come."""
    edge_index = torch.tensor([[1, 0, 2], [0, 1, 1]])
    x, ones = torch.tensor([[1.0], [2.0], [-1.0]], dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    results = []
    for aggregation, edges in (("sum", edge_index), ("max", edge_index[:, order])):
        model = randomize(TwoLayers(aggregation).double(), seed=3)
        goat = GOAtAttribution(model, field="repeated")
        results.append(torch.stack([goat.attribute(ones, (node, c), (x, edges)) for node in range(3) for c in (0, 1)]))
    torch.testing.assert_close(results[1], results[0][:, order], rtol=1e-11, atol=1e-12)
    assert results[0].any()


def test_a_pooled_row_has_every_edge_once_whatever_the_hops() -> None:
    model = Positive(lambda m, x, e: m.gate(reused(m, x, e).sum(dim=0, keepdim=True))).double().eval()
    edge_index = torch.tensor([[0, 1, 1], [1, 0, 2]])
    x = torch.rand(3, 3, dtype=torch.float64)
    pattern = record_edges(model, x, edge_index, torch.ones(3, dtype=torch.float64))
    last = pattern.factors[-1]
    share = torch.zeros(pattern.graph.num_rows, dtype=torch.float64)
    share[last.rows.ids.view(-1)] = 1.0
    found = fields_of_edges(pattern, repeated=True).spread(share, last.rows.sources)
    torch.testing.assert_close(found, torch.full((3,), 1 / 3, dtype=torch.float64))


def test_owners_of_rows_that_share_edges_are_refused() -> None:
    graph = RowGraph()
    none = torch.empty(0, dtype=torch.long)
    graph.blocks.append(Block(0, 2, none, none, frozenset(), torch.tensor([0, 1]), crosses=True))
    graph.blocks.append(Block(2, 2, torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), frozenset({0})))
    graph.num_rows = 4
    for rows, expected in (([0, 1], [0, 1]), ([2, 3], None), ([-1, 3], [-1, 1]), ([3, 3], None)):
        owners = find_owners(graph, torch.tensor(rows), 2)
        assert (owners.elements.tolist() if owners else None) == expected


@pytest.mark.parametrize("kind", ["gcn", "mean", "gin"])
@pytest.mark.parametrize("pool", [None, "mean"])
def test_the_matrix_of_a_small_graph_has_the_fields_that_sets_have(kind: str, pool: str | None) -> None:
    model = make_gnn(kind, pool=pool)
    x, edge_index = torch.randn(9, 4, dtype=torch.float64), random_edges(6, 14, seed=3)  # and three isolated nodes
    pattern = record_edges(model, x, edge_index, torch.ones(14, dtype=torch.float64))
    sets, matrix = fields_of_edges(pattern), SmallFields(pattern.graph, torch.ones(14, dtype=torch.long))
    blocks, weights = pattern.gate_blocks | pattern.rows.sources, torch.rand(14, dtype=torch.float64)
    shares = torch.zeros(pattern.graph.num_rows, dtype=torch.float64)
    for block in (pattern.graph.blocks[number] for number in blocks):
        shares[block.offset : block.offset + block.size] = torch.rand(block.size, dtype=torch.float64)
    for given in (None, weights):
        torch.testing.assert_close(matrix.spread(shares, blocks, given), sets.spread(shares, blocks, given))
    here = shares > 0
    assert torch.equal(matrix.row_weights(blocks)[:-1].long()[here], sets.row_weights(blocks)[here])


@pytest.mark.parametrize("kind", ["gcn", "mean", "gin"])
def test_the_matrix_of_many_graphs_has_the_fields_that_sets_have(kind: str) -> None:
    """Of graphs of other sizes, one of them without edges, in any order, and with isolated nodes."""
    model, batch = make_gnn(kind, pool="mean"), torch.tensor([0] * 6 + [1] * 3 + [2] * 2 + [3] * 5)
    parts = [random_edges(5, 12, seed=1), random_edges(3, 4, seed=2) + 6, random_edges(5, 9, seed=3) + 11]
    edge_index = torch.cat(parts, dim=1)[:, torch.randperm(25, generator=torch.Generator().manual_seed(0))]
    x = torch.randn(16, 4, dtype=torch.float64)
    pattern = record_edges(model, x, edge_index, torch.ones(25, dtype=torch.float64), batch)
    owners = find_owners(pattern.graph, pattern.rows.ids.reshape(-1), 25)
    assert torch.equal(owners.elements, batch[edge_index[0]])
    sets, matrix = fields_of_edges(pattern), SmallFields(pattern.graph, torch.ones(25, dtype=torch.long), owners)
    shares = torch.zeros(pattern.graph.num_rows, dtype=torch.float64)
    for block in (pattern.graph.blocks[number] for number in pattern.gate_blocks):
        shares[block.offset : block.offset + block.size] = torch.randn(block.size, dtype=torch.float64)
    for given in (None, torch.rand(25, dtype=torch.float64)):
        found, expected = (fields.spread(shares, pattern.gate_blocks, given) for fields in (matrix, sets))
        torch.testing.assert_close(found, expected)
    here = shares != 0
    found, expected = (fields.row_weights(pattern.gate_blocks)[: len(here)][here] for fields in (matrix, sets))
    assert torch.equal(found.long(), expected)
