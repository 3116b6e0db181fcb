"""Node features: the package against the oracle, with x as variables; and the oracle against PyG and by hand."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import pytest
import torch
from oracle import Network, Place, Stage, Variable, attributions, masked_output, run, value
from test_oracle import (
    ARCHITECTURES,
    CLASSES,
    FIELDS,
    READOUTS,
    Net,
    build_model,
    every_case,
    every_name,
    random_graph,
    set_parameters,
)
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool

from captum_goat import GOAtAttribution


@dataclass
class Case:
    """A model, a graph with a mask, and a target; ``networks`` are the explained one and its baseline."""

    model: Net
    x: Tensor
    edge_index: Tensor
    mask: Tensor
    target: tuple[int, int]
    attributed: str
    networks: tuple[Network, Network]

    def expected(self, field: str = "distinct") -> tuple[Tensor, ...]:
        """Return what the oracle says, in the form of the package's inputs."""
        result = attributions(*self.networks, self.target, field)
        x = result["feature"].view_as(self.x)
        return (x, result["edge"]) if self.attributed == "node_and_edge" else (x,)

    def actual(self, field: str, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return what the package says."""
        goat = GOAtAttribution(self.model, field=field, mask_type=self.attributed)
        inputs = (self.x, self.mask) if self.attributed == "node_and_edge" else (self.x,)
        target = self.target[1] if self.networks[0].pooled else self.target
        return goat.attribute(inputs, target, additional_forward_args=(self.edge_index, *arguments))

    def outputs(self) -> list[float]:
        row, channel = self.target
        return [value(network.table[row][channel], network.values) for network in self.networks]


def draw_features(seed: int, nodes: int, generator: torch.Generator) -> Tensor:
    """Draw x: by seed with a row of zeros, or a zero in a row; always at least one zero."""
    x = torch.randn(nodes, 2, generator=generator, dtype=torch.float64)
    if seed % 3 != 1:
        x[seed % nodes] = 0.0
    if seed % 3 != 2:
        x[(seed + 1) % nodes, seed % 2] = 0.0
    return x


def both_networks(
    stages: list[Stage], x: Tensor, edge_index: Tensor, mask: Tensor, attributed: str
) -> tuple[Network, Network]:
    """Run the explained network and its baseline: x = 0, and without edges where these are variables."""
    baseline_mask = mask if attributed == "node" else 0 * mask
    explained = run(stages, x, edge_index, mask, attributed)
    return explained, run(stages, x, edge_index, baseline_mask, attributed, factor=0.0)


@functools.cache
def draw_case(architecture: str, readout: str, seed: int, attributed: str) -> Case:
    """Draw until the attributions are not all zero; even seeds have masks of ones, as mask_type="node" has always."""
    names = list(itertools.product(ARCHITECTURES, READOUTS, ("node", "node_and_edge")))
    generator = torch.Generator().manual_seed(1000 * seed + names.index((architecture, readout, attributed)))
    depth, nodes = 3 if seed == 7 else 2, 3 + (seed % 4 != 3)
    while True:
        model = build_model(architecture, readout, depth, generator)
        edge_index = random_graph(seed, nodes, generator)
        x = draw_features(seed, nodes, generator)
        mask = torch.ones(edge_index.shape[1], dtype=torch.float64)
        if seed % 2 and attributed == "node_and_edge":
            mask = 1.5 * torch.randn(mask.shape, generator=generator, dtype=torch.float64)
            mask[seed % len(mask)] = 0.0
        row = int(torch.randint(nodes, (1,), generator=generator)) if readout == "node" else 0
        networks = both_networks(model.stages, x, edge_index, mask, attributed)
        case = Case(model, x, edge_index, mask, (row, seed % CLASSES), attributed, networks)
        if case.expected()[0].abs().max() > 1e-3:
            return case


def assert_equal(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@every_case
@pytest.mark.parametrize("field", FIELDS)
def test_nodes_and_edges_agree_with_oracle(architecture: str, readout: str, seed: int, field: str) -> None:
    case = draw_case(architecture, readout, seed, "node_and_edge")
    batch = [] if readout == "node" or seed % 4 < 2 else [torch.zeros(len(case.x), dtype=torch.long)]
    assert_equal(case.actual(field, *batch), case.expected(field))


@every_case
def test_nodes_agree_with_oracle(architecture: str, readout: str, seed: int) -> None:
    case = draw_case(architecture, readout, seed, "node")
    batch = [] if readout == "node" or seed % 4 < 2 else [torch.zeros(len(case.x), dtype=torch.long)]
    assert_equal(case.actual(FIELDS[seed % 2], *batch), case.expected())  # the setting is one of edges


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_mlps_agree_with_oracle(depth: int, seed: int) -> None:
    """Rows are examples; to the oracle they are the nodes of a graph without edges."""
    generator = torch.Generator().manual_seed(seed)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(3, 3), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(3, CLASSES)).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    x, targets = torch.randn(5, 3, generator=generator, dtype=torch.float64), [1, 0, 1, 1, 0]
    x[0], x[1, 2], x[2, :2] = 0.0, 0.0, 0.0
    explained, baseline = both_networks(list(model), x, torch.empty(2, 0, dtype=torch.long), x.new_empty(0), "node")
    actual = GOAtAttribution(model).attribute(x, targets)
    assert float(actual.abs().max()) > 1e-3
    for row, target in enumerate(targets):
        expected = attributions(explained, baseline, (row, target), "distinct")["feature"].view_as(x)
        torch.testing.assert_close(actual[row], expected[row], rtol=0, atol=1e-10)
        assert not expected.index_fill(0, torch.tensor([row]), 0).any()


@every_case
@pytest.mark.parametrize("attributed", ["node", "node_and_edge"])
def test_oracle_is_complete_and_agrees_with_pyg(architecture: str, readout: str, seed: int, attributed: str) -> None:
    case = draw_case(architecture, readout, seed, attributed)
    row, channel = case.target
    masks = case.mask, case.mask if attributed == "node" else 0 * case.mask
    for x, mask, output in zip((case.x, 0 * case.x), masks, case.outputs(), strict=True):
        real = masked_output(case.model, x, case.edge_index, mask)
        assert output == pytest.approx(float(real[row, channel]), rel=1e-11, abs=1e-11)
    explained, baseline = case.outputs()
    for field in FIELDS:
        total = float(sum(part.sum() for part in case.expected(field)))
        assert total == pytest.approx(explained - baseline, rel=1e-10, abs=1e-10)


@every_name
def test_cases_could_fail(names: list[tuple[str, str, int]]) -> None:
    """Guard: calibration and fields matter, features are zero, and some nodes see nothing but biases."""
    for attributed in ("node", "node_and_edge"):
        cases = [draw_case(*name, attributed) for name in names]
        assert all(bool((case.x == 0).any()) for case in cases)
        assert sum(case.networks[0].gates.keys() != case.networks[1].gates.keys() for case in cases) > len(cases) / 2
        assert sum(not rows for case in cases for rows in case.networks[0].rows) > 1
    differing = [float((case.expected("distinct")[1] - case.expected("repeated")[1]).abs().max()) for case in cases]
    assert sum(difference > 1e-3 for difference in differing) > len(cases) / 3


def explain_by_both(
    model: Net, x: Tensor, edge_index: Tensor, target: tuple[int, int], attributed: str
) -> list[tuple[Tensor, ...]]:
    """Return what the package and the oracle say for a mask of ones and distinct fields."""
    mask = torch.ones(edge_index.shape[1], dtype=torch.float64)
    networks = both_networks(model.stages, x, edge_index, mask, attributed)
    case = Case(model, x, edge_index, mask, target, attributed, networks)
    return [case.actual("distinct"), case.expected()]


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_by_hand_nodes() -> None:
    """SAGE (sum) with W_l = 2, bias 3, W_r = 1; ReLU; Linear 0.5, 7. Edges 0 -> 1 and 2 -> 1; x = (5, 0, -1).

    Node 1: in = 2 x0 + 2 x2 + 1 x1 + 3 = 10 - 2 + 0 + 3 = 11 > 0, so P = 1, and
    f = 0.5 P in + 7 = x0 P + x2 P + 0.5 x1 P + 1.5 P + 7 = 5 - 1 + 0 + 1.5 + 7 = 12.5.
    I_x0 = 2.5; I_x2 = -0.5; I_x1 = 0; I_P = 2.5 - 0.5 + 0 + 1.5 = 3.5.
    With x = 0: in = 3 > 0, so P' = 1, f(0) = 1.5 P' + 7 = 8.5 and I_P' = 1.5.
    All three rows reach the gate, but x1 = 0 does not share: x0 and x2 get (3.5 - 1.5) / 2 = 1 each.
    x0: 3.5; x1: 0; x2: 0.5; together 4 = 12.5 - 8.5.
    """
    conv = SAGEConv(1, 1, aggr="sum")
    assert [name for name, _ in conv.named_parameters()] == ["lin_l.weight", "lin_l.bias", "lin_r.weight"]
    model = set_parameters(Net([conv, torch.relu, nn.Linear(1, 1)]), 2.0, 3.0, 1.0, 0.5, 7.0)
    x, edge_index = vector(5, 0, -1)[:, None], torch.tensor([[0, 2], [1, 1]])
    for result in explain_by_both(model, x, edge_index, (1, 0), "node"):
        torch.testing.assert_close(result, (vector(3.5, 0, 0.5)[:, None],), rtol=0, atol=1e-12)


def test_by_hand_nodes_and_edges() -> None:
    """The same with x = (5, 4, 0) and a: 0 -> 1, b: 2 -> 1 as variables, too.

    Node 1: in = 2 a x0 + 2 b x2 + 1 x1 + 3 = 10 + 0 + 4 + 3 = 17 > 0, so P = 1, and
    f = 0.5 P in + 7 = a x0 P + b x2 P + 0.5 x1 P + 1.5 P + 7 = 5 + 0 + 2 + 1.5 + 7 = 15.5.
    I_a = I_x0 = 5/3; I_b = I_x2 = 0; I_x1 = 2/2 = 1; I_P = 5/3 + 1 + 1.5 = 25/6.
    With x = 0 and no edges: in = 3 > 0, so P' = 1, f(0, 0) = 8.5 and I_P' = 1.5.
    The gate's field: a, b and x1, the feature of its own node; each gets (25/6 - 3/2) / 3 = 8/9.
    a: 5/3 + 8/9 = 23/9; b: 8/9; x0: 15/9; x1: 17/9; x2: 0; together 63/9 = 7 = 15.5 - 8.5.
    """
    model = Net([SAGEConv(1, 1, aggr="sum"), torch.relu, nn.Linear(1, 1)])
    set_parameters(model, 2.0, 3.0, 1.0, 0.5, 7.0)
    x, edge_index = vector(5, 4, 0)[:, None], torch.tensor([[0, 2], [1, 1]])
    for result in explain_by_both(model, x, edge_index, (1, 0), "node_and_edge"):
        expected = vector(15, 17, 0)[:, None] / 9, vector(23, 8) / 9
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


def test_by_hand_a_gate_that_sees_only_biases() -> None:
    """Two GCNs without normalisation, W = 2, bias 1, ReLU; W = 3, bias -1. Edge a: 1 -> 0; x = (4, 2).

    Nothing flows into node 1, not even its own row: h_1 = 1 is a constant. f = 3 a h_1 - 1 = 2, node 0.
    f(x = 0, no edges) = -1: all of the 3 is a's. With "node", no feature reaches anything: nothing to attribute.
    """
    model = Net([GCNConv(1, 1, normalize=False), torch.relu, GCNConv(1, 1, normalize=False)])
    set_parameters(model, 1.0, 2.0, -1.0, 3.0)
    x, edge_index = vector(4, 2)[:, None], torch.tensor([[1], [0]])
    for result in explain_by_both(model, x, edge_index, (0, 0), "node_and_edge"):
        torch.testing.assert_close(result, (0 * x, vector(3)), rtol=0, atol=1e-12)
    for result in explain_by_both(model, x, edge_index, (0, 0), "node"):
        torch.testing.assert_close(result, (0 * x,), rtol=0, atol=1e-12)


def test_by_hand_a_gate_that_edges_but_no_features_reach() -> None:
    """The same two layers, the second with bias 1 and followed by ReLU and Linear 1, 0.

    h_1 = 1 is a constant; f = P (3 a h_1 + 1) = 3 a P + P = 4: I_a = 1.5 and I_P = 2.5; P' = 1: I_P' = 1.
    An edge reaches the gate of node 0, so it is a variable, and its field is a and the node's own feature:
    (2.5 - 1) / 2 = 0.75 for each. a: 2.25; x0: 0.75; together 3 = 4 - 1.
    """
    convs = [GCNConv(1, 1, normalize=False) for _ in range(2)]
    model = Net([convs[0], torch.relu, convs[1], torch.relu, nn.Linear(1, 1)])
    set_parameters(model, 1.0, 2.0, 1.0, 3.0, 1.0, 0.0)
    x, edge_index = vector(4, 2)[:, None], torch.tensor([[1], [0]])
    for result in explain_by_both(model, x, edge_index, (0, 0), "node_and_edge"):
        torch.testing.assert_close(result, (vector(0.75, 0)[:, None], vector(2.25)), rtol=0, atol=1e-12)
    for result in explain_by_both(model, x, edge_index, (0, 0), "node"):
        torch.testing.assert_close(result, (0 * x,), rtol=0, atol=1e-12)


def test_by_hand_a_gate_after_pooling() -> None:
    """GCN without normalisation, W = 1, bias 1; sum; ReLU; Linear 1, 1. Edge a: 0 -> 1; x = (1, 2, 4).

    in = a x0 + 3 = 4, so P = 1 and f = a x0 P + 3 P + 1 = 5: I_a = I_x0 = 1/3 and I_P = 1/3 + 3.
    With x = 0 and no edges f = 3 P' + 1 = 4: I_P' = 3. The field is a and the feature of node 1, the only one that
    brings more than its bias into the pool: 1/6 for each.
    With "node", in = x0 + 3 and f = x0 P + 3 P + 1: I_x0 = 1/2, I_P = 1/2 + 3, and x0 alone can reach the gate.
    """
    model = Net([GCNConv(1, 1, normalize=False), global_add_pool, torch.relu, nn.Linear(1, 1)])
    set_parameters(model, 1.0, 1.0, 1.0, 1.0)
    x, edge_index = vector(1, 2, 4)[:, None], torch.tensor([[0], [1]])
    for result in explain_by_both(model, x, edge_index, (0, 0), "node_and_edge"):
        torch.testing.assert_close(result, (vector(2, 1, 0)[:, None] / 6, vector(3) / 6), rtol=0, atol=1e-12)
    for result in explain_by_both(model, x, edge_index, (0, 0), "node"):
        torch.testing.assert_close(result, (vector(1, 0, 0)[:, None],), rtol=0, atol=1e-12)


def test_fields_by_hand() -> None:
    """Edges a: 1 -> 0, b: 2 -> 1 and c: 2 -> 2; x = ((1, 0), (0, 0), (2, 3)); two layers, with and without self path.

    Without, node 0 is reached by node 2 alone, along b and a; with, by all nodes.
    """
    x, edge_index = torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 3.0]]), torch.tensor([[1, 2, 2], [0, 1, 2]])
    a, b, c = (("edge", e) for e in range(3))
    x00, x20, x21 = ("feature", 0, 0), ("feature", 2, 0), ("feature", 2, 1)

    def fields(attributed: str, normalize: bool) -> list[list[Variable]]:
        stages = [GCNConv(2, 2, normalize=normalize) for _ in range(2)]
        network = run(stages, x, edge_index, torch.ones(3), attributed)
        return [network.field_of(Place(node, 2, network.rows[node]), "distinct") for node in range(3)]

    assert fields("node", normalize=False) == [[x20, x21]] * 3
    assert fields("node", normalize=True) == [[x00, x20, x21], [x20, x21], [x20, x21]]
    for normalize in (False, True):
        assert fields("node_and_edge", normalize) == [[a, b, x00], [b, c], [c, x20, x21]]
