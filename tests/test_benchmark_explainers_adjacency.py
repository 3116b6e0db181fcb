"""Explainers whose mask is the presence of edges, against the library called directly, and where they are skipped."""

from __future__ import annotations

import pytest
import torch
from conftest import make_gnn, randomize
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SAGEConv, global_mean_pool
from torch_geometric.utils import to_undirected

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.peeling import UpperHalfGradients
from captum_goat import GOAtAttribution

EDGES = to_undirected(torch.tensor([[0, 0, 1, 2, 3, 1], [1, 2, 2, 3, 4, 4]]))
DATA = Data(x=torch.rand(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), edge_index=EDGES)
PAIRS = (
    ("goat_adjacency", "goat"),
    ("goat_adjacency_peeled", "goat_peeled"),
    ("ig_half_adjacency_peeled_both", "ig_half_peeled_both"),
    ("ig_half_adjacency_peeled_2_1", "ig_half_peeled_2_1"),
    ("occlusion_adjacency", "occlusion"),
)
NAMES = ("goat_adjacency_proportional", *(name for name, _ in PAIRS))


def explained(name: str, model: nn.Module) -> Tensor:
    return EXPLAINERS[name]()(model, DATA, torch.tensor([2]))


def direct(method: GOAtAttribution, model: nn.Module) -> Tensor:
    graphs = Batch.from_data_list([DATA])
    mask = torch.ones(EDGES.size(1), dtype=torch.float64)
    attributions: Tensor = method.attribute(mask, 2, (graphs.x, graphs.edge_index, graphs.batch))
    return attributions


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gcn", "sage_mean"])
def test_what_the_library_says(kind: str) -> None:
    model = make_gnn(kind)
    goat = GOAtAttribution(model, at="adjacency")
    proportional = GOAtAttribution(model, at="adjacency", gates="proportional")
    torch.testing.assert_close(explained("goat_adjacency", model), direct(goat, model))
    torch.testing.assert_close(explained("goat_adjacency_proportional", model), direct(proportional, model))


@pytest.mark.parametrize("kind", ["gcn", "sage_mean"])
def test_occlusion_deletes_one_edge_after_the_other(kind: str) -> None:
    model = make_gnn(kind)
    whole = model(DATA.x, EDGES)[0, 2]
    scores = explained("occlusion_adjacency", model)
    for column, edge in enumerate(EDGES.t()):
        gone = (EDGES.t() == edge).all(dim=1) | (EDGES.t() == edge.flip(0)).all(dim=1)
        torch.testing.assert_close(2 * scores[column], (whole - model(DATA.x, EDGES[:, ~gone])[0, 2]).detach())


@pytest.mark.parametrize(("name", "other"), PAIRS)
@pytest.mark.slow
def test_same_as_masked_messages_where_a_model_only_sums(name: str, other: str) -> None:
    for kind in ("gin", "sage_sum"):
        model = make_gnn(kind)
        torch.testing.assert_close(explained(name, model), explained(other, model))


@pytest.mark.parametrize("name", ["goat_adjacency", "goat_adjacency_proportional"])
@pytest.mark.slow
def test_another_matter_where_a_model_normalises(name: str) -> None:
    model = make_gnn("gcn")
    assert not torch.allclose(explained(name, model), explained("goat", model), rtol=0.01)
    assert not torch.allclose(explained("goat_adjacency", model), explained("goat_adjacency_proportional", model))


@pytest.mark.parametrize("name", NAMES)
def test_skips_models_of_which_it_is_not_known_what_they_do_without_an_edge(name: str) -> None:
    class Maximum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.out = SAGEConv(4, 8, aggr="max"), nn.Linear(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            return self.out(global_mean_pool(self.conv(x, edge_index).relu(), batch))

    with pytest.raises(ExplainerSkippedError, match=r"not known what it would do without an edge"):
        explained(name, randomize(Maximum().double(), seed=1))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "occlusion_adjacency"])
@pytest.mark.slow
def test_at_most_eight_attributions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    for method in (GOAtAttribution, UpperHalfGradients):
        attribute = method.attribute

        def counting(self, *args, attribute=attribute, **kwargs):  # type: ignore[no-untyped-def]
            counted.append(self)
            return attribute(self, *args, **kwargs)

        monkeypatch.setattr(method, "attribute", counting)
    explained(name, make_gnn("gcn"))
    assert 1 <= len(counted) <= 8
    assert len(counted) == getattr(EXPLAINERS[name](), "rounds", 1)
