"""The package and the oracle of smooth gates and frozen factors against numbers found by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F
from oracle_rules_cases import Case, Net, build_model
from oracle_rules_rows import ACTIVATIONS, Stage
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GraphConv, SAGEConv


def explain_by_both(stages: Sequence[Stage], numbers: Sequence[float], x: Sequence[float]) -> list[Tensor]:
    """Return what the package and the oracle say of node 1, for x of one channel; all parameters are given in order."""
    model = Net(stages).double().eval()
    for parameter, number in zip(model.parameters(), numbers, strict=True):
        nn.init.constant_(parameter, number)
    case = Case(model, torch.tensor(x).double().view(-1, 1), EDGES_BY_HAND, [torch.ones(2).double()] * 2, (1, 0))
    return [case.actual(0), case.expected[0]]


EDGES_BY_HAND = torch.tensor([[0, 2], [1, 1]])  # a: 0 -> 1 and b: 2 -> 1


def test_by_hand_a_gate_with_a_constant() -> None:
    """h_1 = a + b + 1 = 3 and f = sigmoid(h_1) = 0.5 + P (a + b + 1) with P = (sigmoid(3) - 0.5) / 3, times 1 plus 0.

    I_a = I_b = P/2; I_P = P/2 + P/2 + P = 2 P. Without edges h_1 = 1, P' = sigmoid(1) - 0.5 and I_P' = P'.
    The gate's field is {a, b}: each gets P/2 + (2 P - P') / 2, together 3 P - P' = sigmoid(3) - sigmoid(1).
    """
    stages = [GraphConv(1, 1), torch.sigmoid, nn.Linear(1, 1)]
    for result in explain_by_both(stages, [1.0, 0.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0]):
        half = (1 / (1 + math.exp(-3)) - 1 / (1 + math.exp(-1))) / 2
        torch.testing.assert_close(result, torch.tensor([half, half], dtype=torch.float64), rtol=0, atol=1e-12)


def test_by_hand_a_product_without_variables() -> None:
    """h_1 = 3 a + 2 b + 4 = 9 and S = 1/9: f = 3 aS + 2 bS + 4 S.

    a has 3/9, b has 2/9; 4 S has no variables: the frozen S has 4/9, of which its field {a, b} gets 2/9 each.
    Without edges S' = 1/4: 4 S' = 1, half of it for each. a: 5/9 - 1/2 = 1/18; b: 4/9 - 1/2 = -1/18; together 0.
    """
    for result in explain_by_both([GraphConv(1, 1), F.normalize], [1.0, 0.0, 1.0], [3.0, 4.0, 2.0]):
        torch.testing.assert_close(result, torch.tensor([1 / 18, -1 / 18], dtype=torch.float64), rtol=0, atol=1e-12)


def test_by_hand_a_maximum() -> None:
    """Messages 5 a and 3 b, W = (1, 0): h_1 = W_a 5 a + W_b 3 b + 1 = 6 > 0 and f = 5 a W_a P + P, times 1 plus 0.

    The frozen W is not counted: I_a = 2.5, I_P = 3.5; without edges I_P' = 1. The gate's field is {a, b}, though only a
    wins: each gets 1.25. a: 3.75; b: 1.25; together 5 = 6 - 1.
    """
    stages = [SAGEConv(1, 1, aggr="max"), F.relu, nn.Linear(1, 1)]
    for result in explain_by_both(stages, [1.0, 0.0, 1.0, 1.0, 0.0], [5.0, 1.0, 3.0]):
        torch.testing.assert_close(result, torch.tensor([3.75, 1.25], dtype=torch.float64), rtol=0, atol=1e-12)


def test_by_hand_attention() -> None:
    """Edges a: 0 -> 1 and b: 2 -> 0, x = (4, 2, 6); two GATs with W = 1, without bias, the first with equal attention.

    h_0 = (6 b + 4) / 2 = 3 b + 2 = 5; h_1 = (4 a + 2) / 2 = 2 a + 1 = 3. Then logits log(3) / 2 * h give the message of
    a 3/4 and the layer's own loop 1/4: f = 3/4 a (3 b + 2) + 1/4 (2 a + 1) = 2.25 ab + 2 a + 0.25 = 4.5.
    I_a = 1.125 + 2; I_b = 1.125; the 0.25 has no variables and goes to the loop's coefficient, whose softmax reads h_0
    and h_1: its field is {a, b}, each gets 0.125. Without edges h_0 = 2, h_1 = 1 and the coefficient is
    s = 1 / (1 + sqrt(3)): f(0) = s. a: 3.25 - s/2; b: 1.25 - s/2; together 4.5 - s.
    """
    model = Net([GATConv(1, 1), GATConv(1, 1)]).double().eval()
    for layer, number in zip(model.stages, (0.0, math.log(3) / 2), strict=True):
        assert isinstance(layer, GATConv)
        for parameter, entry in ((layer.lin.weight, 1.0), (layer.att_src, number), (layer.att_dst, 0.0)):
            nn.init.constant_(parameter, entry)
        nn.init.zeros_(layer.bias)
    x, mask = torch.tensor([[4.0], [2.0], [6.0]]).double(), torch.ones(2).double()
    case = Case(model, x, torch.tensor([[0, 2], [1, 0]]), [mask, mask], (1, 0))
    s = 1 / (1 + math.sqrt(3))
    expected = torch.tensor([3.25 - s / 2, 1.25 - s / 2], dtype=torch.float64)
    for result in (case.actual(0), case.expected[0]):
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_by_hand_a_gate_whose_input_is_zero(activation: str) -> None:
    """h_1 = 3 a - 3 b = 0, and P is 0 where the input is 0: f = f(0) + P (3 a - 3 b), products that are all 0."""
    for stage in ACTIVATIONS[activation][1]:
        stages = [GraphConv(1, 1), stage, nn.Linear(1, 1)]
        package, oracle = explain_by_both(stages, [1.0, 0.0, 1.0, 1.0, 0.0], [3.0, 0.0, -3.0])
        assert not oracle.any()
        torch.testing.assert_close(package, oracle, rtol=0, atol=1e-12)


def test_an_output_that_is_zero_up_to_rounding() -> None:
    """The channels after a LayerNorm add up to 0, whatever the edges are."""
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        model = build_model("graph norm linear", generator)
        for parameter, number in zip(model.layers[1:].parameters(), (1.0, 0.0, 1.0, 0.0), strict=True):
            nn.init.constant_(parameter, number)
        x = torch.randn(3, 2, generator=generator, dtype=torch.float64)
        case = Case(model, x, EDGES_BY_HAND, [torch.ones(2).double()] * 2, (1, 0))
        assert case.expected[0].abs().max() < 1e-12
        torch.testing.assert_close(case.actual(0), case.expected[0], rtol=0, atol=1e-12)
