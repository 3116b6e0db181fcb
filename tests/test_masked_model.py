"""EdgeMaskedModel: the model as a function of an edge mask."""

from __future__ import annotations

from typing import Any

import captum.attr as ca
import pytest
import torch
from captum.metrics import infidelity
from conftest import KINDS, combinations, make_gnn, random_edges, randomize
from hetero import full_masks, hetero_gnn, hetero_graph, random_masks
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GCN, RGCNConv, TransformerConv
from torch_geometric.utils import to_undirected

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError
from captum_goat.metrics import drop_edges, gaussian_noise

NODES = 6
EDGES = random_edges(NODES, 13, seed=11)
X = torch.randn(NODES, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def ones(*rows: int) -> Tensor:
    return torch.ones(*rows, EDGES.size(1), dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", ["mean", None])
def test_a_mask_of_ones_changes_nothing(kind: str, pool: str | None) -> None:
    model = make_gnn(kind, pool=pool)
    torch.testing.assert_close(EdgeMaskedModel(model)(ones(), X, EDGES), model(X, EDGES))


@pytest.mark.parametrize("kind", ["gcn_plain", "gin", "sage_sum"])
def test_a_mask_of_zeros_deletes_edges(kind: str) -> None:
    """Where no degree enters, masking an edge and deleting it are the same."""
    model = make_gnn(kind)
    kept = torch.arange(EDGES.size(1)) % 3 != 0
    masked = EdgeMaskedModel(model)(kept.double(), X, EDGES)
    torch.testing.assert_close(masked, model(X, EDGES[:, kept]))


def test_degrees_do_not_depend_on_the_mask() -> None:
    """One GCN layer by hand: D^-1/2 (mask * A) D^-1/2 with D of the unmasked graph; the user's loop is an edge."""
    edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 2]])
    mask = torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)
    model = make_gnn("gcn", layers=1, pool=None)
    conv = model.convs[0]
    # Nodes 0 and 1 get a constant loop; node 2 has the user's. Every node has in-degree 2.
    weights = torch.tensor([[0.5, 0, 1.0], [0.25, 0.5, 0], [0, -0.5, 0.125]], dtype=torch.float64)
    expected = weights @ X[:3] @ conv.lin.weight.t() + conv.bias
    torch.testing.assert_close(EdgeMaskedModel(conv)(mask, X[:3], edge_index), expected)


@pytest.mark.parametrize("extra", [0, 3, 6], ids=["no loops", "some loops", "a loop everywhere"])
def test_masks_meet_their_own_messages_whatever_the_loops(extra: int) -> None:
    """PyG's own masks are misaligned when every node has a loop: compare with weights on the edges themselves."""
    edges = random_edges(6, 9, seed=1)
    edges = edges[:, edges[0] != edges[1]]
    edge_index = torch.cat([torch.arange(extra).repeat(2, 1), edges], dim=1)
    mask = torch.rand(edge_index.size(1), dtype=torch.float64)
    conv = make_gnn("gcn", layers=1).convs[0]
    dense = torch.zeros(6, 6, dtype=torch.float64)
    presence = torch.zeros(6, 6, dtype=torch.float64)
    for weight, (source, target) in zip(mask, edge_index.t(), strict=True):
        dense[target, source] += weight
        presence[target, source] += 1
    own = torch.tensor([0.0] * extra + [1.0] * (6 - extra), dtype=torch.float64).diag()
    degree = (presence + own).sum(dim=1)
    norm = degree.pow(-0.5)
    expected = (norm[:, None] * (dense + own) * norm) @ X @ conv.lin.weight.t() + conv.bias
    torch.testing.assert_close(EdgeMaskedModel(conv)(mask, X, edge_index), expected)


@pytest.mark.parametrize("pool", ["mean", None])
def test_rows_of_masks(pool: str | None) -> None:
    masked = EdgeMaskedModel(make_gnn("gin", pool=pool))
    masks = torch.randn(3, EDGES.size(1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    singles = torch.stack([masked(mask, X, EDGES) for mask in masks])
    many = masked(masks, X, EDGES)
    assert many.shape == ((3, 3) if pool else (3, NODES, 3))
    torch.testing.assert_close(many, singles.view_as(many))
    torch.testing.assert_close(masked(masks[:1], X, EDGES), many[:1])


def test_a_batch_of_graphs(batch_of_graphs: tuple[Tensor, Tensor, Tensor]) -> None:
    x, edge_index, batch = batch_of_graphs
    model = make_gnn()
    masked = EdgeMaskedModel(model)
    mask = torch.rand(edge_index.size(1), dtype=torch.float64)
    assert masked(mask, x, edge_index, batch).shape == (4, 3)
    many = masked(torch.stack([mask, 2 * mask]), x, edge_index, batch)
    assert many.shape == (2, 4, 3)
    torch.testing.assert_close(many[1], masked(2 * mask, x, edge_index, batch=batch))


def test_gradients_reach_the_mask_and_match_finite_differences() -> None:
    masked = EdgeMaskedModel(make_gnn("sage_mean"))
    mask = (0.5 + torch.rand(EDGES.size(1), dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda mask: masked(mask, X, EDGES), mask)


def test_models_that_mix_graphs_are_run_one_by_one() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn(pool=None)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out = self.gnn(x, edge_index)
            return out - out.mean(dim=0)

    masked = EdgeMaskedModel(Centred())
    masks = torch.rand(3, EDGES.size(1), dtype=torch.float64)
    singles = torch.stack([masked(mask, X, EDGES) for mask in masks])
    torch.testing.assert_close(masked(masks, X, EDGES), singles)


class ReadsNodes(nn.Module):
    """A GNN of which the outputs of some nodes are read; the name of their numbers does not tell what they are."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = make_gnn("gin", pool=None)

    def forward(self, x: Tensor, edge_index: Tensor, root: Tensor) -> Tensor:
        out: Tensor = self.gnn(x, edge_index)
        return out[root]


@pytest.mark.parametrize(("at", "as_data"), combinations(["message", "adjacency"], [False, True]))
@pytest.mark.slow
def test_numbers_of_nodes_are_told_from_other_whole_numbers(at: Any, as_data: bool) -> None:
    """Neither the first nor the last mask tells that copies side by side would all read the first one's node."""
    model, root = ReadsNodes().eval(), EDGES[1].mode().values.view(1)
    graph = (Data(x=X, edge_index=EDGES, root=root),) if as_data else (X, EDGES, root)
    masked, masks = EdgeMaskedModel(model, at=at), ones(EDGES.size(1) + 2)
    masks[1:-1] -= torch.eye(EDGES.size(1), dtype=torch.float64)
    singles = torch.cat([masked(mask, *graph) for mask in masks])
    assert len(singles.unique(dim=0)) > 2
    torch.testing.assert_close(masked(masks, *graph), singles)
    goat = GOAtAttribution(model, at=at)
    attributions = goat.attribute(masks[:4], target=0, additional_forward_args=graph)
    alone = [goat.attribute(mask, target=(0, 0), additional_forward_args=graph) for mask in masks[:4]]
    torch.testing.assert_close(attributions, torch.stack(alone))


def test_feature_ablation_with_numbers_of_nodes() -> None:
    masked, given = (
        EdgeMaskedModel(ReadsNodes()),
        {"target": 0, "additional_forward_args": (X, EDGES, EDGES[1, :1])},
    )
    one, many = (
        ca.FeatureAblation(masked).attribute(ones(1), perturbations_per_eval=count, **given) for count in (1, 6)
    )
    assert one.abs().max() > 0
    torch.testing.assert_close(many, one)


class WholeNumbers(nn.Module):
    """A GNN with whole numbers of all kinds among its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.atoms, self.labels = nn.Embedding(20, 4), nn.Embedding(20, 3)
        self.relational, self.gnn = RGCNConv(4, 4, num_relations=3), make_gnn("gin")
        self.norm = nn.LayerNorm(4)

    def forward(
        self,
        z: Tensor,
        edge_index: Tensor,
        edge_type: Tensor,
        batch: Tensor,
        ptr: Tensor,
        label: Tensor,
        num_graphs: int,
    ) -> Tensor:
        hidden = self.norm(self.relational(self.atoms(z), edge_index, edge_type))
        sizes = (ptr[1:] - ptr[:-1]).view(num_graphs, 1)
        return self.gnn(hidden, edge_index, batch) + self.labels(label) * sizes


def test_other_whole_numbers_keep_their_values(batch_of_graphs: tuple[Tensor, Tensor, Tensor]) -> None:
    """Atoms, types of edges, labels, batches and counts: copies side by side take few passes."""
    x, edge_index, batch = batch_of_graphs
    model, num_graphs = randomize(WholeNumbers().double(), seed=0), int(batch.max()) + 1
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), batch.bincount().cumsum(0)])
    z, edge_type = torch.arange(len(x)) % 5, torch.arange(edge_index.size(1)) % 3
    graph = (z, edge_index, edge_type, batch, ptr, torch.arange(num_graphs) % 2, num_graphs)
    masked, masks = EdgeMaskedModel(model), torch.rand(5, edge_index.size(1), dtype=torch.float64)
    singles = torch.stack([masked(mask, *graph) for mask in masks])
    calls = list[int]()
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    torch.testing.assert_close(masked(masks, *graph), singles)
    assert len(calls) < len(masks)


def test_edges_are_followed_through_what_layers_do_to_them() -> None:
    """Reordered, turned round and filtered by relation, an edge keeps its own mask."""

    class Rewired(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.relational, self.plain = RGCNConv(4, 4, num_relations=3), make_gnn("sage_sum", layers=1).convs[0]

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            x = self.relational(x, edge_index, edge_type)
            order = edge_index[0].argsort(stable=True)
            row, col = edge_index[:, order]
            return self.plain(x, torch.stack([col, row]))

    model = randomize(Rewired().double(), seed=0)
    edge_type = torch.arange(EDGES.size(1)) % 3
    masked = EdgeMaskedModel(model)
    full = masked(ones(), X, EDGES, edge_type)
    torch.testing.assert_close(full, model(X, EDGES, edge_type))
    torch.testing.assert_close(masked(ones(2), X, EDGES, edge_type)[1], full)
    for edge in range(EDGES.size(1)):
        mask = ones()
        mask[edge] = 0.0
        kept = torch.arange(EDGES.size(1)) != edge
        # RGCN takes means per relation, so compare with a removed edge whose relation keeps its counts.
        alone = ((edge_type == edge_type[edge]) & (EDGES[1] == EDGES[1, edge])).sum() == 1
        if alone:
            expected = model(X, EDGES[:, kept], edge_type[kept])
            torch.testing.assert_close(masked(mask, X, EDGES, edge_type), expected)


@pytest.mark.parametrize(
    "model", [GAT(4, 6, 2, 3, heads=2), TransformerConv(4, 3, heads=2)], ids=["GAT", "Transformer"]
)
def test_attention_is_masked_after_the_softmax(model: nn.Module) -> None:
    model = model.double().eval()
    masked = EdgeMaskedModel(model)
    torch.testing.assert_close(masked(ones(), X, EDGES), model(X, EDGES))
    assert not torch.allclose(masked(0.5 * ones(), X, EDGES), model(X, EDGES))


def test_pygs_edge_index_class_and_undirected_inside() -> None:
    class Undirected(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn("sage_sum", pool=None)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.gnn(x, to_undirected(edge_index))

    edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    masked = EdgeMaskedModel(Undirected())
    mask = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    expected = Undirected()(X, edge_index[:, [0, 2]])
    torch.testing.assert_close(masked(mask, X, edge_index), expected)
    sorted_index = EdgeIndex(edge_index, sparse_size=(6, 6), sort_order="row")
    torch.testing.assert_close(masked(mask, X, sorted_index), expected)


def test_subclasses_of_layers_are_masked() -> None:
    class Own(GCN):
        pass

    GCN(4, 6, 2, 3)
    model = Own(4, 6, 2, 3).double().eval()
    zero = EdgeMaskedModel(model)(0 * ones(), X, EDGES)
    assert not torch.allclose(zero, model(X, EDGES))


def test_scripted_models_are_refused() -> None:
    class Scripted(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x

    with pytest.raises(UnsupportedModelError, match="TorchScript"):
        EdgeMaskedModel(torch.jit.script(Scripted()))(ones(), X, EDGES)


HETERO = hetero_graph()


@pytest.mark.parametrize("kind", ["sage", "graph", "to_hetero"])
def test_masks_of_several_edge_types(kind: str) -> None:
    """Zeros delete edges, where the mean over a node's edges is not concerned; the forms of the call agree."""
    model = hetero_gnn(kind)
    masked, arguments = EdgeMaskedModel(model), (HETERO.x_dict, HETERO.edge_index_dict)
    full = masked(*full_masks(HETERO).values(), *arguments)
    torch.testing.assert_close(full, model(*arguments))
    for key, edges in HETERO.edge_index_dict.items():
        masks = full_masks(HETERO) | {key: torch.zeros(edges.size(1), dtype=torch.float64)}
        output = masked(*masks.values(), *arguments)
        torch.testing.assert_close(output, model(HETERO.x_dict, HETERO.edge_index_dict | {key: edges[:, :0]}))
        torch.testing.assert_close(masked(dict(reversed(masks.items())), HETERO), output)
        torch.testing.assert_close(masked(*masks.values(), x_dict=arguments[0], edge_index_dict=arguments[1]), output)


@pytest.mark.parametrize(("level", "shape"), [("graph", (3, 3)), ("node", (3, 6, 3))])
def test_rows_of_masks_of_several_edge_types(level: str, shape: tuple[int, ...]) -> None:
    masked, masks = EdgeMaskedModel(hetero_gnn(level=level)), random_masks(HETERO, 3)
    singles = [masked({key: mask[row] for key, mask in masks.items()}, HETERO) for row in range(3)]
    many = masked(*masks.values(), HETERO)
    assert many.shape == shape
    torch.testing.assert_close(many, torch.stack(singles).view_as(many))
    torch.testing.assert_close(masked(*(mask[:1] for mask in masks.values()), HETERO), many[:1])
    links = torch.tensor([[0, 1], [2, 2]])
    arguments = (HETERO.x_dict, HETERO.edge_index_dict, None, links)
    masked = EdgeMaskedModel(hetero_gnn(level="edge"))
    one = masked(*(mask[1] for mask in masks.values()), *arguments)
    torch.testing.assert_close(masked(*masks.values(), *arguments)[1], one)


@pytest.mark.parametrize("arguments", [(HETERO,), (HETERO.x_dict, HETERO.edge_index_dict)], ids=["data", "dict"])
@pytest.mark.slow
def test_captums_methods_on_several_edge_types(arguments: tuple[Any, ...]) -> None:
    """Tuples of masks; a model of one layer without a ReLU is linear, and all methods agree on it."""

    class Papers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = hetero_gnn("graph").gnn[0]

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
            return self.conv(x_dict, edge_index_dict)["paper"]

    model = Papers().eval()
    masks = tuple(mask.requires_grad_() for mask in random_masks(HETERO, 2).values())
    given = {"target": (2, 1), "additional_forward_args": arguments}
    expected = GOAtAttribution(model).attribute(masks, **given)
    for method in (ca.IntegratedGradients, ca.InputXGradient, ca.FeatureAblation):
        attributions = method(EdgeMaskedModel(model)).attribute(masks, **given)
        torch.testing.assert_close(attributions, expected)
    for method in (GOAtAttribution(model), ca.InputXGradient(EdgeMaskedModel(model))):
        attributions = ca.NoiseTunnel(method).attribute(masks, nt_samples=2, stdevs=1e-9, **given)
        torch.testing.assert_close(attributions, expected)
    plain = tuple(mask.detach() for mask in masks)
    for perturbation in (drop_edges(0.5), gaussian_noise(0.1)):
        infidelities = infidelity(EdgeMaskedModel(model), perturbation, plain, expected, **given, n_perturb_samples=3)
        torch.testing.assert_close(infidelities, torch.zeros(2, dtype=torch.float64))


def test_wrong_masks_of_several_edge_types() -> None:
    masked, masks = EdgeMaskedModel(hetero_gnn()), tuple(full_masks(HETERO).values())
    with pytest.raises(ValueError, match=r"Expected 4 mask\(s\), .* \(got 3 masks\)"):
        masked(*masks[:3], HETERO)
    with pytest.raises(ValueError, match=r"Expected 4 mask\(s\), .* \(got 2 masks\)"):
        masked(*masks[:2], HETERO.x_dict, HETERO.edge_index_dict)
    with pytest.raises(ValueError, match=r"9 for \('paper', 'cites', 'paper'\) \(got 6\)"):
        masked(*masks[::-1], HETERO.x_dict, HETERO.edge_index_dict)
