"""Rules for maxima and minima: the winner of the recorded pass is passed on, and equals share its place."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from conftest import randomize
from rule_models import BATCH, EDGES, MASK, Model, X, check_complete
from torch import Tensor, nn
from torch_geometric.nn import EdgeConv, GraphConv, SAGEConv, SortAggregation

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

WINNERS: dict[str, Callable[[Tensor], Tensor]] = {
    "max over channels": lambda x: x - x.max(dim=-1, keepdim=True)[0],
    "values of min": lambda x: x + x.min(dim=-1, keepdim=True).values,
    "amax": lambda x: x + torch.amax(x, 1, keepdim=True),
    "amin over two": lambda x: x + x.view(9, 2, 3).amin(dim=(1, 2)).view(9, 1),
    "maximum": lambda x: torch.maximum(x, x.flip(-1)),
    "maximum of a constant": lambda x: torch.maximum(x, torch.full_like(x, 0.2)),
    "ReLU by maximum": lambda x: torch.maximum(x, torch.zeros_like(x)),
    "fmin": lambda x: torch.fmin(x, x.roll(1, -1)),
    "max of two": lambda x: torch.max(x, 0.5 * x),
    "max of equals": lambda x: torch.stack([x, x]).max(dim=0)[0],
}


@pytest.mark.parametrize("name", WINNERS)
def test_winners(name: str) -> None:
    check_complete(randomize(Model(WINNERS[name]).double(), seed=1))


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("fill", [0.0, 0.3])
def test_scattered_winners(reduce: str, include_self: bool, fill: float) -> None:
    index = torch.tensor([0, 0, 2, 2, 2, 3, 3, 5, 5]).view(-1, 1).expand(-1, 6)

    def scattered(x: Tensor) -> Tensor:
        base = torch.full_like(x, fill)
        return base.scatter_reduce(0, index, x, reduce, include_self=include_self)

    def in_place(x: Tensor) -> Tensor:
        return torch.full_like(x, fill).scatter_reduce_(0, index, x, reduce=reduce, include_self=include_self)

    for body in (scattered, in_place):
        model = randomize(Model(torch.relu, body).double(), seed=1)
        attributions = GOAtAttribution(model).attribute(MASK, 1, (X, EDGES, torch.zeros_like(BATCH)))
        masked = EdgeMaskedModel(model)
        ends = [masked(mask, X, EDGES, torch.zeros_like(BATCH))[0, 1] for mask in (MASK, torch.zeros_like(MASK))]
        torch.testing.assert_close(attributions.sum(), (ends[0] - ends[1]).detach(), rtol=1e-9, atol=1e-9)


def test_equals_share_the_place_of_the_winner() -> None:
    """The maximum of a value and itself is the value: nothing may be counted twice or lost."""
    twice = randomize(Model(lambda x: torch.maximum(x, x.clone()).relu()).double(), seed=1)
    once = copy.deepcopy(twice).eval()  # PyG 2.6 forgets the mode of its Linear
    once.between = once.after = torch.relu
    torch.testing.assert_close(check_complete(twice), check_complete(once))


def test_edge_conv_with_several_aggregations() -> None:
    mlp = nn.Sequential(nn.Linear(12, 6), nn.GELU(), nn.Linear(6, 6))

    class Convs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = EdgeConv(mlp, aggr="max")

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x, EDGES)

    check_complete(randomize(Model(torch.relu, Convs()).double(), seed=1))


@pytest.mark.parametrize("largest", [True, False])
def test_values_that_are_equal_up_to_rounding_share_the_place(largest: bool) -> None:
    """Two edges that do the same have the same attribution, in whatever order the numbers behind them were added up."""
    near = torch.tensor([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1], dtype=torch.float64)  # differ by one unit in the last place
    assert near[0] != near[1]
    x = torch.cat([near, torch.zeros(1, dtype=torch.float64)]).view(3, 1) * (1 if largest else -1)
    edge_index = torch.tensor([[0, 1], [2, 2]])
    by_aggregation = SAGEConv(1, 1, aggr="max" if largest else "min", bias=False, root_weight=False)

    class Between(nn.Module):
        """The same by a maximum of two tensors, and by one over a dimension."""

        def __init__(self, together: Callable[[Tensor, Tensor], Tensor]) -> None:
            super().__init__()
            self.conv, self.together = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False), together

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.together(*(self.conv(x, edge) for edge in edge_index.split(1, dim=1)))

    pairwise = Between(torch.maximum if largest else torch.minimum)
    reduced = Between(lambda *both: (torch.amax if largest else torch.amin)(torch.stack(both), 0))
    for model in (by_aggregation, pairwise, reduced):
        attributions = GOAtAttribution(model.double().eval()).attribute(torch.ones(2).double(), (2, 0), (x, edge_index))
        torch.testing.assert_close(attributions[0], attributions[1])
        assert attributions[0] != 0


@pytest.mark.slow
def test_edges_that_reach_no_chosen_node() -> None:
    """They share in nothing, whether their graph is explained alone, in a batch or with several masks."""

    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.sort, self.out = (
                GraphConv(3, 6),
                GraphConv(6, 6),
                SortAggregation(3),
                nn.Linear(18, 2),
            )

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            batch = torch.zeros(len(x), dtype=torch.long) if batch is None else batch
            return self.out(self.sort(self.two(self.one(x, edge_index).relu(), edge_index).tanh(), batch))

    torch.manual_seed(0)
    goat, unreached = GOAtAttribution(Sorted().double().eval()), 0
    for _ in range(6):
        x, edge_index, mask = torch.randn(14, 3).double(), torch.randint(7, (2, 14)), torch.ones(14).double()
        alone = goat.attribute(mask, 1, (x[:7], edge_index))
        both = torch.cat([edge_index, 7 + edge_index.flip(0)], dim=1), torch.arange(14) // 7
        torch.testing.assert_close(goat.attribute(mask.repeat(2), 1, (x, *both))[:14], alone)
        torch.testing.assert_close(goat.attribute(torch.stack([mask, 2 * mask]), 1, (x[:7], edge_index))[0], alone)
        unreached += int((alone == 0).sum())
    assert unreached > 0


def test_medians_of_messages_are_refused() -> None:
    """Without edges all messages are equal, and which one is the median depends on their order."""
    model = SAGEConv(3, 2, aggr="median").eval()
    with pytest.raises(UnsupportedModelError, match=r"'sort' in .* selects among messages"):
        GOAtAttribution(model).attribute(torch.ones(2), (1, 0), (torch.randn(2, 3), torch.tensor([[0, 1], [1, 1]])))
