"""Models with several sets of edges: SignedGCN, pairs of graphs; and which arguments are taken for edges."""

from __future__ import annotations

from typing import Any

import captum.attr as ca
import pytest
import torch
from captum.metrics import infidelity
from conftest import combinations, make_gnn, random_edges, randomize
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, SignedGCN, global_add_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError
from captum_goat.inputs.arguments import EdgeSet, find_edge_sets
from captum_goat.metrics import drop_edges, gaussian_noise

X = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
POSITIVE, NEGATIVE = random_edges(6, 9, seed=1), random_edges(6, 5, seed=2)  # node 6 is isolated
GRAPH = (X, POSITIVE, NEGATIVE)
SIGNED = randomize(SignedGCN(4, 8, 2).double(), seed=3)
ONES = (torch.ones(9, dtype=torch.float64), torch.ones(5, dtype=torch.float64))


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-10) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def random_masks(*rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(*rows, size, generator=generator, dtype=torch.float64) for size in (9, 5))
    return first, second


@pytest.mark.parametrize(("field", "node"), combinations(["distinct", "repeated"], [2, 6]))
@pytest.mark.slow
def test_signed_edges_add_up(field: Any, node: int) -> None:
    nothing = SIGNED(X, POSITIVE[:, :0], NEGATIVE[:, :0])[node]
    for channel in range(8):
        for masks in (ONES, random_masks()):
            attributions, delta = GOAtAttribution(SIGNED, field).attribute(masks, (node, channel), GRAPH, True)
            output = EdgeMaskedModel(SIGNED)(*masks, *GRAPH)[node]
            assert_same(attributions[0].sum() + attributions[1].sum(), (output - nothing)[channel], 1e-9)
            assert delta.abs() < 1e-9


@pytest.mark.slow
def test_masks_by_name_and_in_rows() -> None:
    goat, masks, targets = GOAtAttribution(SIGNED), random_masks(3), [(2, 1), (0, 3), (6, 0)]
    attributions, delta = goat.attribute(masks, targets, GRAPH, return_convergence_delta=True)
    alone = [
        goat.attribute(tuple(mask[number] for mask in masks), target, GRAPH) for number, target in enumerate(targets)
    ]
    assert_same(attributions, tuple(torch.stack(rows) for rows in zip(*alone, strict=True)))
    assert delta.shape == (3,)
    named = goat.attribute({"neg_edge_index": masks[1], "pos_edge_index": masks[0]}, targets, GRAPH)
    assert_same((named["pos_edge_index"], named["neg_edge_index"]), attributions)
    data = Data(x=X, pos_edge_index=POSITIVE, neg_edge_index=NEGATIVE)
    assert_same(goat.attribute(masks, targets, data), attributions)
    assert_same(goat.compute_convergence_delta(attributions, None, masks, targets, data), delta)


def test_features_and_several_masks() -> None:
    goat = GOAtAttribution(SIGNED, mask_type="node_and_edge")
    attributions, delta = goat.attribute((X, *random_masks()), (2, 1), GRAPH[1:], return_convergence_delta=True)
    nothing = SIGNED(0 * X, POSITIVE[:, :0], NEGATIVE[:, :0])[2, 1]
    output = EdgeMaskedModel(SIGNED)(*random_masks(), *GRAPH)[2, 1]
    assert_same(torch.stack([attribution.sum() for attribution in attributions]).sum(), output - nothing, 1e-9)
    assert delta.abs() < 1e-9
    assert [attribution.shape for attribution in attributions] == [(7, 4), (9,), (5,)]
    assert all(attribution.any() for attribution in attributions)


class Pairs(nn.Module):
    """Two graphs at a time, with edges of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.out = GraphConv(3, 6), GraphConv(2, 6), nn.Linear(6, 2)
        randomize(self.double(), seed=1)

    def forward(
        self,
        x_s: Tensor,
        edge_index_s: Tensor,
        x_t: Tensor,
        edge_index_t: Tensor,
        x_s_batch: Tensor | None = None,
        x_t_batch: Tensor | None = None,
    ) -> Tensor:
        first = global_add_pool(self.first(x_s, edge_index_s).relu(), x_s_batch)
        second = global_add_pool(self.second(x_t, edge_index_t).relu(), x_t_batch)
        return self.out((first * second).relu() + first)


class PairData(Data):
    def __inc__(self, key: str, value: Any, *args: Any) -> Any:
        sizes = {"edge_index_s": self.x_s, "edge_index_t": self.x_t}
        return sizes[key].size(0) if key in sizes else super().__inc__(key, value, *args)


def _pair(seed: int) -> PairData:
    generator = torch.Generator().manual_seed(seed)
    x_s, x_t = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((4, 3), (6, 2)))
    return PairData(x_s=x_s, edge_index_s=random_edges(4, 5, seed), x_t=x_t, edge_index_t=random_edges(6, 8, seed + 1))


def test_pairs_of_graphs_in_a_batch() -> None:
    pairs, goat = [_pair(seed) for seed in (0, 5)], GOAtAttribution(Pairs())
    (batch,) = DataLoader(pairs, batch_size=2, follow_batch=["x_s", "x_t"])
    ones = [torch.ones(edges.size(1), dtype=torch.float64) for edges in (batch.edge_index_s, batch.edge_index_t)]
    attributions, delta = goat.attribute(tuple(ones), [1, 0], batch, return_convergence_delta=True)
    alone = [
        goat.attribute((ones[0][:5], ones[1][:8]), target, pair) for pair, target in zip(pairs, [1, 0], strict=True)
    ]
    assert_same(attributions, tuple(torch.cat(parts) for parts in zip(*alone, strict=True)))
    assert delta.abs().max() < 1e-10
    masks = tuple(torch.rand(3, own.numel(), dtype=torch.float64) for own in alone[0])
    arguments = (pairs[0].x_s, pairs[0].edge_index_s, pairs[0].x_t, pairs[0].edge_index_t)
    many = EdgeMaskedModel(Pairs())(*masks, *arguments)  # as many rows as masks, though the graphs differ in size
    assert_same(many, torch.cat([EdgeMaskedModel(Pairs())(*row, *arguments) for row in zip(*masks, strict=True)]))


def test_a_model_that_takes_a_pair_itself() -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Pairs()

        def forward(self, data: Data) -> Tensor:
            return self.model(data.x_s, data.edge_index_s, data.x_t, data.edge_index_t)

    pair, masks = _pair(0), (torch.rand(5).double(), torch.rand(8).double())
    expected = GOAtAttribution(Pairs()).attribute(masks, 1, pair)
    assert_same(GOAtAttribution(Whole().eval()).attribute(masks, 1, pair), expected)


def test_the_same_tensor_twice_is_one_set() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn("sage_sum")

        def forward(self, x: Tensor, first_edge_index: Tensor, second_edge_index: Tensor) -> Tensor:
            return self.gnn(x, first_edge_index) + self.gnn(x, second_edge_index)

    goat, mask = GOAtAttribution(Twice().eval()), random_masks()[0]
    twice = goat.attribute(mask, 1, (X, POSITIVE, POSITIVE))
    assert_same(twice, 2 * GOAtAttribution(make_gnn("sage_sum")).attribute(mask, 1, (X, POSITIVE)))
    edges = POSITIVE.int()
    assert_same(goat.attribute((mask,), 1, (X, edges, edges)), (twice,))
    apart = goat.attribute((mask, mask), 1, (X, POSITIVE, POSITIVE.clone()))
    assert_same(apart[0] + apart[1], twice)


@pytest.mark.filterwarnings("ignore:Input Tensor [01] did not already require gradients:UserWarning")
def test_captums_methods() -> None:
    """On tensors, which Captum repeats for several masks."""
    masked, given = EdgeMaskedModel(SIGNED), {"target": (2, 1), "additional_forward_args": GRAPH}
    masks = tuple(mask.unsqueeze(0).requires_grad_() for mask in ONES)
    change = (SIGNED(*GRAPH) - SIGNED(X, POSITIVE[:, :0], NEGATIVE[:, :0]))[2, 1]
    gradients, delta = ca.IntegratedGradients(masked).attribute(masks, return_convergence_delta=True, **given)
    assert_same(sum(gradient.sum() for gradient in gradients) - delta[0], change, 1e-6)
    torch.manual_seed(0)
    sampled = ca.ShapleyValueSampling(masked).attribute(masks, n_samples=2, **given)
    assert_same(sum(attribution.sum() for attribution in sampled).double(), change, 1e-6)
    output = masked(*masks, *GRAPH)[0, 2, 1]
    expected = torch.autograd.grad(output, masks)
    assert_same(ca.Saliency(masked).attribute(masks, abs=False, **given), expected)
    tunnel = ca.NoiseTunnel(GOAtAttribution(SIGNED)).attribute(masks, nt_samples=3, stdevs=1e-9, **given)
    goat = GOAtAttribution(SIGNED).attribute(tuple(mask.detach() for mask in masks), **given)
    assert_same(tunnel, goat, 1e-6)
    assert float(infidelity(masked, drop_edges(1.0), masks, goat, **given)) < 1e-12  # the sum is the whole change
    assert infidelity(masked, gaussian_noise(0.1), masks, goat, **given).shape == (1,)


def arguments_of(**arguments: Any) -> dict[str, Any]:
    return arguments


@pytest.mark.parametrize(
    ("arguments", "sizes", "expected"),
    [
        (arguments_of(x=X, a_edge_index=POSITIVE, b_edge_index=NEGATIVE), (9, 5), ("a_edge_index", "b_edge_index")),
        (arguments_of(x=X, a=POSITIVE, b=NEGATIVE), (9, 5), ("a", "b")),
        (arguments_of(a=POSITIVE, edge_label_index=POSITIVE[:, :2], b=NEGATIVE), (9, 5), ("a", "b")),
        (arguments_of(a_edge_index=POSITIVE, b_edge_index=NEGATIVE, links=POSITIVE[:, :2]), (9, 5), None),
        (arguments_of(edge_index=POSITIVE, other_edge_index=NEGATIVE), 9, ("edge_index",)),
        (arguments_of(a=POSITIVE, b=NEGATIVE), 5, ("b",)),
        (arguments_of(a=POSITIVE, b=POSITIVE, c=NEGATIVE), (9, 5), ("a", "c")),
        (arguments_of(a=POSITIVE, b=NEGATIVE), {"b": 5, "a": 9}, ("b", "a")),
        (arguments_of(x=X, a=POSITIVE), None, ("a",)),
        (arguments_of(x=X), None, ()),
    ],
)
def test_which_arguments_are_edges(arguments: dict[str, Any], sizes: Any, expected: tuple[str, ...] | None) -> None:
    names = ("a_edge_index", "b_edge_index") if expected is None else expected
    assert find_edge_sets(arguments, sizes) == tuple(EdgeSet(name) for name in names)


def test_edges_by_type_and_links_by_type() -> None:
    key, other = ("a", "to", "b"), ("b", "to", "a")
    edges, links = {key: POSITIVE, other: NEGATIVE}, {key: POSITIVE[:, :2]}
    arguments = {"x_dict": {"a": X}, "edge_label_index_dict": links, "edge_index_dict": edges}
    assert find_edge_sets(arguments, (9, 5)) == (EdgeSet("edge_index_dict", key), EdgeSet("edge_index_dict", other))
    by_name = {"x": X, "edges": {"up": POSITIVE, "down": NEGATIVE}}
    assert find_edge_sets(by_name, {"down": 5, "up": 9}) == (EdgeSet("edges", "down"), EdgeSet("edges", "up"))


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ((*ONES, ONES[0]), r"2 mask\(s\), one for each of 'pos_edge_index', 'neg_edge_index' in this order \(got 3"),
        (ONES[::-1], r"9 for 'pos_edge_index' \(got 5\)"),
        ({"edge_index": ONES[0]}, r"each of 'pos_edge_index', 'neg_edge_index' \(got masks for 'edge_index'\)"),
        ((ONES[0], ONES[1][None]), r"or all \[num_masks, num_edges\]"),
    ],
)
def test_masks_that_do_not_fit(masks: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GOAtAttribution(SIGNED).attribute(masks, (2, 1), GRAPH)


def test_one_mask_for_one_of_two_sets_is_not_enough() -> None:
    with pytest.raises(UnsupportedModelError, match="edges that do not come from the given edge_index"):
        GOAtAttribution(SIGNED).attribute(ONES[0], (2, 1), GRAPH)
