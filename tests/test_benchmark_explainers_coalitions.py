"""Shapley values by coalitions, and EiG-Search, against values computed by hand and by a literal definition."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from conftest import make_gnn
from test_benchmark_white_box import molecule, of_bonds
from torch import Tensor
from torch_geometric.data import Data

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.explainers.coalitions import GNNShap
from benchmarks.white_box import CASES
from benchmarks.white_box.cases import CARBON, NITROGEN, OXYGEN, SULPHUR

ONE = torch.tensor([1])


def by_orders(model: torch.nn.Module, graph: Data, target: int) -> Tensor:
    """Return the mean gain of each directed edge over all orders in which the edges come in."""
    count = graph.num_edges
    gains = torch.zeros(count, dtype=torch.double)
    orders = list(permutations(range(count)))
    for order in orders:
        present: list[int] = []
        before = model(graph.x, graph.edge_index[:, present])[0, target]
        for edge in order:
            present.append(edge)
            after = model(graph.x, graph.edge_index[:, sorted(present)])[0, target]
            gains[edge] += (after - before).detach()
            before = after
    return gains / len(orders)


@pytest.mark.parametrize("kind", ["gcn", "gin"])
@pytest.mark.slow
def test_exact_values_are_means_over_orders(kind: str) -> None:
    model = make_gnn(kind)
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    graph = Data(x=x, edge_index=torch.tensor([[0, 1, 2, 3, 1], [1, 2, 0, 1, 4]]))
    expected = by_orders(model, graph, 1)
    torch.testing.assert_close(EXPLAINERS["exact_shapley"]()(model, graph, ONE), expected)
    torch.testing.assert_close(EXPLAINERS["gnn_shap"]()(model, graph, ONE), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["exact_shapley", "gnn_shap"])
def test_shapley_values_by_hand(name: str) -> None:
    """Two oxygens that are needed both share 2; two bonds of which one is enough share 2; one that has it all has 2."""
    explain = EXPLAINERS[name]()
    nitro = molecule([NITROGEN, OXYGEN, OXYGEN, CARBON], [(0, 1), (0, 2), (0, 3)], set())
    assert of_bonds(explain(CASES["functional_group"].model("sage"), nitro, ONE)) == pytest.approx([1, 1, 0])
    either = molecule([NITROGEN, OXYGEN, CARBON, NITROGEN, OXYGEN], [(0, 1), (0, 2), (2, 3), (3, 4)], set())
    assert of_bonds(explain(CASES["bond_presence"].model("gin"), either, ONE)) == pytest.approx([1, 0, 0, 1])
    single = molecule([NITROGEN, OXYGEN], [(0, 1)], set())
    assert of_bonds(explain(CASES["bond_count"].model("sage"), single, ONE)) == pytest.approx([2])


def test_values_cancel_where_two_groups_do() -> None:
    """Each of two groups makes the class alone and both unmake it: by symmetry every edge has exactly 0."""
    bonds = [(0, 1), (0, 2), (0, 3), (3, 4), (3, 5)]
    graph = molecule([CARBON, OXYGEN, OXYGEN, CARBON, SULPHUR, SULPHUR], bonds, set())
    model = CASES["xor_both"].model("sage")
    assert of_bonds(EXPLAINERS["exact_shapley"]()(model, graph, torch.tensor([0]))) == pytest.approx(
        [0.0] * 5, abs=1e-12
    )
    assert of_bonds(EXPLAINERS["occlusion"]()(model, graph, torch.tensor([0]))) == pytest.approx([2, 2, 0, 2, 2])


def test_regression_finds_sums_and_adds_up() -> None:
    """A count is additive: as many coalitions as edges are enough. Fewer still add up."""
    case = CASES["bond_count"]
    graph, model = case.graph(0), case.model("sage")
    for samples in (64, 8):
        scores = GNNShap(samples)(model, graph, ONE)
        assert float(scores.sum()) == pytest.approx(2.0)
        if samples == 64:
            torch.testing.assert_close(scores, graph.edge_label.double())  # one bond, and each direction has half of 2


def test_coalitions_are_pairs_with_sizes_of_the_kernel() -> None:
    members, weights = GNNShap(20_000).coalitions(20, seed=0)
    assert torch.equal(members[:10_000], ~members[10_000:])
    assert bool((weights == 1).all())
    sizes = torch.arange(1, 20).double()
    kernel = 1 / (sizes * (20 - sizes))
    shares = members.sum(dim=1).bincount(minlength=20)[1:] / len(members)
    assert (shares - kernel / kernel.sum()).abs().max() < 0.01
    every, weights = GNNShap(30).coalitions(4, seed=0)
    assert len(every.unique(dim=0)) == 14
    # (M - 1) / (binomial * k * (M - k)) for one edge, two and three.
    assert sorted(set(weights.tolist())) == pytest.approx([3 / (6 * 4), 3 / (4 * 3)])


def test_large_graphs_are_skipped() -> None:
    case = CASES["walk"]
    with pytest.raises(ExplainerSkippedError, match=r"at most 14 edges \(got one of 21\)"):
        EXPLAINERS["exact_shapley"]()(case.model("gcn"), case.graph(0), ONE)


def test_eig_search_masks_each_direction() -> None:
    """S - C - first atom: the walk needs S -> C and C -> first; the other directions change nothing."""
    graph = molecule([CARBON, CARBON, SULPHUR], [(2, 1), (1, 0)], set())
    scores = EXPLAINERS["eig_search"]()(CASES["walk"].model("gcn_sum"), graph, ONE)
    torch.testing.assert_close(scores, torch.tensor([2.0, 0.0, 2.0, 0.0]).double())
