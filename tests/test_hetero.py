"""GOAt on heterogeneous graphs: completeness across edge types, agreement with homogeneous graphs, forms of masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import combinations, random_edges, randomize
from hetero import (
    CHANNELS,
    CITES,
    KNOWS,
    NODES,
    WRITES,
    WRITTEN,
    HeteroGNN,
    Types,
    full_masks,
    hetero_gnn,
    hetero_graph,
    random_masks,
    total,
    without_edges,
)
from torch import Tensor, nn
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn import (
    GCNConv,
    HANConv,
    HeteroConv,
    HeteroDictLinear,
    HGTConv,
    SAGEConv,
    global_mean_pool,
    to_hetero_with_bases,
)

from captum_goat import EdgeMaskedModel, GOAtAttribution

DATA = hetero_graph()
ARGUMENTS = (DATA.x_dict, DATA.edge_index_dict)
LINKS = torch.tensor([[0, 3, 4], [1, 1, 5]])
KINDS = ("sage", "graph", "to_hetero")


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("level", "target"), [("node", (2, 1)), ("node", (5, 0)), ("graph", 2), ("edge", (0, 2))])
@pytest.mark.parametrize(("kind", "field"), combinations(KINDS, ["distinct", "repeated"]))
def test_masks_of_all_types_add_up(kind: str, level: str, target: Any, field: Any) -> None:
    """Up to the output minus the output of the plain model on a graph without edges."""
    model, extra = hetero_gnn(kind, level), (None, LINKS) if level == "edge" else ()
    row = target if isinstance(target, tuple) else (0, target)
    nothing = model(DATA.x_dict, without_edges(DATA), *extra)[row]
    for masks in (full_masks(DATA), random_masks(DATA)):
        attributions, delta = GOAtAttribution(model, field).attribute(masks, target, (*ARGUMENTS, *extra), True)
        output = EdgeMaskedModel(model)(*masks.values(), *ARGUMENTS, *extra)[row]
        assert_same(total(attributions), output - nothing, 1e-9)
        assert delta.abs() < 1e-9
        assert {key: attribution.shape for key, attribution in attributions.items()} == {
            key: mask.shape for key, mask in masks.items()
        }
    if row != (5, 0):  # the isolated paper
        assert all(attributions[key].any() for key in (CITES, WRITES))


def test_edges_that_cannot_reach_the_target_have_no_part() -> None:
    attributions = GOAtAttribution(hetero_gnn()).attribute(full_masks(DATA), (2, 1), ARGUMENTS)
    into = {key: edges[1] == 2 for key, edges in DATA.edge_index_dict.items() if key[-1] == "paper"}
    papers = {2, *DATA[CITES].edge_index[0, into[CITES]].tolist()}
    authors = set(DATA[WRITES].edge_index[0, into[WRITES]].tolist())
    reached = {"paper": papers, "author": authors}
    for key, edges in DATA.edge_index_dict.items():
        outside = torch.tensor([target not in reached[key[-1]] for target in edges[1].tolist()], dtype=torch.bool)
        assert not attributions[key][outside].any()
    isolated = GOAtAttribution(hetero_gnn()).attribute(full_masks(DATA), (5, 1), ARGUMENTS)
    assert not any(attribution.any() for attribution in isolated.values())


class Relations(nn.Module):
    """The same weights for all relations of one node type: sums over all edges, whatever their type."""

    def __init__(self, pool: bool) -> None:
        super().__init__()
        self.roots = nn.ModuleList([nn.Linear(4, 6), nn.Linear(6, 6)])
        self.convs = nn.ModuleList(GCNConv(size, 6, normalize=False, bias=False) for size in (4, 6))
        self.out, self.pool = nn.Linear(6, 3), pool

    def forward(self, x: Any, edges: Any) -> Tensor:
        for root, conv in zip(self.roots, self.convs, strict=True):
            if isinstance(edges, dict):
                summed = HeteroConv(dict.fromkeys(edges, conv))(x, edges)
                x = {key: (root(x[key]) + summed[key]).relu() for key in x}
            else:
                x = (root(x) + conv(x, edges)).relu()
        x = x["node"] if isinstance(x, dict) else x
        return self.out(global_mean_pool(x, None) if self.pool else x)


@pytest.mark.parametrize(
    ("mask_type", "field"), combinations(["edge", "node", "node_and_edge"], ["distinct", "repeated"])
)
@pytest.mark.parametrize(("pool", "target"), [(True, 1), (False, (2, 0)), (False, (7, 0))])
def test_types_that_share_weights_are_like_one_type(pool: bool, target: Any, mask_type: Any, field: Any) -> None:
    """Nodes 6 and 7 are isolated, and the third type has no edges."""
    model = randomize(Relations(pool).double(), seed=4)
    edges = {("node", name, "node"): random_edges(6, size, seed=size) for name, size in (("a", 8), ("b", 5), ("c", 0))}
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.randn(13, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    masks = dict(zip(edges, mask.split([8, 5, 0]), strict=True))
    one, several, others = {
        "edge": ((mask,), (masks,), ((x,), ({"node": x},))),
        "node": ((x,), ({"node": x},), ((), ())),
        "node_and_edge": ((x, mask), ({"node": x}, masks), ((), ())),
    }[mask_type]
    goat = GOAtAttribution(model, field, mask_type=mask_type)
    expected = goat.attribute(one, target, (*others[0], torch.cat(list(edges.values()), dim=1)))
    attributions, delta = goat.attribute(several, target, (*others[1], edges), return_convergence_delta=True)
    for per_edge, typed in zip(expected, attributions, strict=True):
        assert_same(torch.cat(list(typed.values())), per_edge, 1e-10)
    assert delta.abs() < 1e-10


class AllTypes(nn.Module):
    """A layer that takes the edges of all types at once, and puts them together itself."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first = HeteroDictLinear(CHANNELS, 8)
        if kind == "bases":
            options: Any = {"num_bases": 3, "in_channels": {"x": 8}}
            self.conv = to_hetero_with_bases(Single(), DATA.metadata(), **options)
        else:
            self.conv = {"HGT": HGTConv, "HAN": HANConv}[kind](8, 8, DATA.metadata(), heads=2)
        self.out = nn.Linear(8, 3)

    def forward(self, x_dict: Types, edge_index_dict: Types) -> Tensor:
        hidden = {key: rows.relu() for key, rows in self.first(x_dict).items()}
        return self.out(self.conv(hidden, edge_index_dict)["paper"].relu())


class Single(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SAGEConv(8, 8)

    def forward(self, x, edge_index):  # type: ignore[no-untyped-def]  # torch 2.4 takes no annotations as strings
        return self.conv(x, edge_index).relu()


@pytest.mark.parametrize("kind", ["HGT", "HAN", "bases"])
def test_layers_that_take_all_types_at_once(kind: str) -> None:
    model, masks = AllTypes(kind).double(), random_masks(DATA)
    model(*ARGUMENTS)  # lazy layers find their sizes
    randomize(model, seed=1)
    attributions = GOAtAttribution(model).attribute(masks, (2, 1), DATA)
    nothing = {key: torch.zeros_like(mask) for key, mask in masks.items()}
    whole, without = (EdgeMaskedModel(model)(given, DATA)[2, 1] for given in (masks, nothing))
    assert_same(total(attributions), whole - without, 1e-9)
    assert all(attributions[key].any() for key in (CITES, WRITES))
    assert not attributions[WRITTEN].any()


@pytest.mark.parametrize("kind", KINDS)
def test_edges_of_a_batch_are_explained_for_their_own_graph(kind: str) -> None:
    graphs, targets = [hetero_graph(seed) for seed in range(3)], [2, 0, 1]
    batch, goat = Batch.from_data_list(graphs), GOAtAttribution(hetero_gnn(kind, "graph"))
    alone = [
        goat.attribute(full_masks(graph), target, graph, True) for graph, target in zip(graphs, targets, strict=True)
    ]
    arguments = (batch.x_dict, batch.edge_index_dict, batch.batch_dict)
    for given in (arguments, batch):
        attributions, delta = goat.attribute(full_masks(batch), targets, given, True)
        for key, attribution in attributions.items():
            assert_same(attribution, torch.cat([one[key] for one, _ in alone]))
        assert_same(delta, torch.cat([one for _, one in alone]))
        assert delta.shape == (3,)


def test_tuples_dictionaries_and_graphs_say_the_same() -> None:
    model, masks = hetero_gnn(), random_masks(DATA)
    goat = GOAtAttribution(model)
    expected = goat.attribute(masks, (2, 1), ARGUMENTS)
    assert list(expected) == list(masks)
    in_other_order = dict(reversed(masks.items()))
    attributions = goat.attribute(in_other_order, (2, 1), ARGUMENTS)
    assert list(attributions) == list(in_other_order)
    assert_same(attributions, expected)
    for given in (ARGUMENTS, DATA, (DATA,)):
        as_tuple = goat.attribute(tuple(masks.values()), (2, 1), given)
        assert isinstance(as_tuple, tuple)
        assert_same(dict(zip(masks, as_tuple, strict=True)), expected)
    assert_same(GOAtAttribution(EdgeMaskedModel(model)).attribute(masks, (2, 1), DATA), expected)
    assert_same(goat.attribute(masks, (2, 1), (DATA.x_dict, {k: e.int() for k, e in ARGUMENTS[1].items()})), expected)


def test_a_model_of_to_hetero_itself_takes_a_graph() -> None:
    class Papers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = hetero_gnn("to_hetero").gnn

        def forward(self, x: Types, edge_index: Types) -> Tensor:
            return self.gnn(x, edge_index)["paper"]

    expected = GOAtAttribution(hetero_gnn("to_hetero")).attribute(full_masks(DATA), (2, 1), DATA)
    assert_same(GOAtAttribution(Papers().eval()).attribute(full_masks(DATA), (2, 1), DATA), expected)


def test_models_that_take_the_graph_itself() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = hetero_gnn(level="graph")

        def forward(self, data: HeteroData) -> Tensor:
            data["paper"].x = 2 * data["paper"].x  # into a copy: the next call has the same graph
            return self.gnn(data.x_dict, data.edge_index_dict)

    double = {"paper": 2 * DATA["paper"].x, "author": DATA["author"].x}
    masks, before = random_masks(DATA, 2), DATA["paper"].x
    expected = GOAtAttribution(hetero_gnn(level="graph")).attribute(masks, [0, 2], (double, DATA.edge_index_dict))
    assert_same(GOAtAttribution(Whole().eval()).attribute(masks, [0, 2], DATA), expected)
    assert DATA["paper"].x is before


def test_one_edge_type_has_one_mask() -> None:
    mask, arguments = full_masks(DATA)[CITES], ({"paper": DATA["paper"].x}, {CITES: DATA[CITES].edge_index})
    model = HeteroGNN("graph", metadata=(["paper"], [CITES])).double()
    model(*arguments)  # lazy layers find their sizes
    goat = GOAtAttribution(randomize(model, seed=1))
    alone = goat.attribute(mask, (2, 1), arguments)
    assert alone.any()
    assert_same(goat.attribute((mask,), (2, 1), arguments), (alone,))
    assert_same(goat.attribute({CITES: mask}, (2, 1), arguments), {CITES: alone})


def test_types_that_share_one_tensor_have_masks_of_their_own() -> None:
    edges = DATA[CITES].edge_index
    likes = ("paper", "likes", "paper")
    arguments = [{CITES: edges, likes: edges}, {CITES: edges, likes: edges.clone()}]
    model = randomize(HeteroConv({CITES: SAGEConv(4, 3), likes: SAGEConv(4, 3)}).double(), seed=1)

    class Papers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = model

        def forward(self, x_dict: Types, edge_index_dict: Types) -> Tensor:
            return self.conv(x_dict, edge_index_dict)["paper"]

    masks = {CITES: torch.ones(9).double(), likes: 0.5 * torch.ones(9).double()}
    shared, separate = (
        GOAtAttribution(Papers().eval()).attribute(masks, (2, 1), ({"paper": DATA["paper"].x}, argument))
        for argument in arguments
    )
    assert_same(shared, separate)
    assert not torch.allclose(shared[CITES], 2 * shared[likes])


def test_many_masks_are_what_each_is_alone() -> None:
    masks, targets = random_masks(DATA, 3), [(2, 1), (1, 0), (0, 2)]
    goat = GOAtAttribution(hetero_gnn())
    attributions, delta = goat.attribute(masks, targets, ARGUMENTS, return_convergence_delta=True)
    for number, target in enumerate(targets):
        alone = goat.attribute({key: mask[number] for key, mask in masks.items()}, target, ARGUMENTS)
        assert_same({key: attribution[number] for key, attribution in attributions.items()}, alone)
    assert delta.shape == (3,)
    assert delta.abs().max() < 1e-10


@pytest.mark.parametrize("rows", [(), (2,)])
@pytest.mark.slow
def test_convergence_delta_of_several_masks(rows: tuple[int, ...]) -> None:
    model, masks = hetero_gnn(level="graph"), random_masks(DATA, *rows)
    goat, masked = GOAtAttribution(model), EdgeMaskedModel(model)
    scores = random_masks(DATA, *rows, seed=1)
    sums = torch.stack([score.sum(dim=-1) for score in scores.values()]).sum(dim=0).view(-1)
    for start in (None, 0.5, random_masks(DATA, *rows, seed=2)):
        begin = start if isinstance(start, dict) else {key: 0 * mask + (start or 0.0) for key, mask in masks.items()}
        change = masked(masks, *ARGUMENTS)[:, 1] - masked(begin, *ARGUMENTS)[:, 1]
        assert_same(goat.compute_convergence_delta(scores, start, masks, 1, ARGUMENTS), sums - change)
        as_tuples = [
            tuple(values.values()) if isinstance(values, dict) else values for values in (scores, start, masks)
        ]
        assert_same(goat.compute_convergence_delta(*as_tuples, 1, ARGUMENTS), sums - change)


@pytest.mark.parametrize("rows", [(), (2,)])
def test_feature_masks_may_span_types(rows: tuple[int, ...]) -> None:
    goat, masks = GOAtAttribution(hetero_gnn(level="graph")), random_masks(DATA, *rows)
    plain = goat.attribute(masks, 1, ARGUMENTS)
    features = {key: torch.arange(mask.size(-1)) % 2 for key, mask in masks.items()}
    sums = [sum(plain[key][..., features[key] == number].sum(dim=-1) for key in masks) for number in (0, 1)]
    for given in (dict(reversed(features.items())), tuple(features.values())):
        grouped = goat.attribute(masks, 1, ARGUMENTS, feature_mask=given)
        for key, attribution in grouped.items():
            assert_same(attribution, torch.stack(sums, dim=-1)[..., features[key]])
    with pytest.raises(ValueError, match=r"one feature mask per input \(got 1 for 4 inputs\)"):
        goat.attribute(masks, 1, ARGUMENTS, feature_mask=features[CITES])


class OneNumbering(nn.Module):
    """The layers of a heterogeneous model on the nodes of all types in one tensor: papers, then authors."""

    def __init__(self, model: HeteroGNN) -> None:
        super().__init__()
        self.gnn = model.gnn

    def forward(self, x: Tensor, cites: Tensor, writes: Tensor, knows: Tensor, by: Tensor) -> Tensor:
        rows = {"paper": slice(0, NODES["paper"]), "author": slice(NODES["paper"], None)}
        edges = dict(zip((CITES, WRITES, KNOWS, WRITTEN), (cites, writes, knows, by), strict=True))
        for number, layer in enumerate(self.gnn):
            out = 0.0
            for edge_type, edge_index in edges.items():
                conv = layer.convs[edge_type]
                full = conv(x, edge_index)
                only = torch.zeros(len(x), 1, dtype=x.dtype)
                only[rows[edge_type[-1]]] = 1.0
                out = out + full * only
            x = out.relu() if number == 0 else out
        return x


def test_nodes_and_edges_of_several_types_share_as_in_one_graph() -> None:
    data = hetero_graph(3)
    for kind in NODES:  # the same number of channels, as in one graph
        data[kind].x = torch.randn(NODES[kind], 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    model = HeteroGNN("graph").double()
    model(data.x_dict, data.edge_index_dict)
    model = randomize(model, seed=2)
    masks = full_masks(data)
    goat = GOAtAttribution(model, mask_type="node_and_edge")
    x_scores, edge_scores = goat.attribute((data.x_dict, masks), (2, 1), (data.edge_index_dict,))
    start = {"paper": 0, "author": NODES["paper"]}
    edges = [
        data[key].edge_index + torch.tensor([[start[key[0]]], [start[key[-1]]]])
        for key in (CITES, WRITES, KNOWS, WRITTEN)
    ]
    x = torch.cat([data["paper"].x, data["author"].x])
    one = GOAtAttribution(OneNumbering(model).eval(), mask_type="node_and_edge")
    x_wanted, *edges_wanted = one.attribute((x, *masks.values()), (2, 1), tuple(edges))
    torch.testing.assert_close(torch.cat([x_scores["paper"], x_scores["author"]]), x_wanted, rtol=1e-10, atol=1e-12)
    for found, wanted in zip(edge_scores.values(), edges_wanted, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
    assert x_wanted.abs().max() > 1e-3
