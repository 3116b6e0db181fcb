"""The package against the oracle, which enumerates the scalar products; and the oracle against PyG and by hand."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from conftest import combinations, slow_unless
from oracle import POOLS, RELUS, Network, Stage, attributions, masked_output, receptive_field, run, value
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GINConv, MessagePassing, SAGEConv, global_add_pool, global_mean_pool
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from captum_goat import GOAtAttribution

CLASSES = 2
FIELDS = ("distinct", "repeated")
READOUTS = {"node": None, "mean": global_mean_pool, "sum": global_add_pool}
SEEDS = range(8)


class Net(nn.Module):
    """Real layers in a row, the ReLUs called in all the usual ways."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages = list(stages)
        self.layers = nn.ModuleList(stage for stage in stages if isinstance(stage, nn.Module))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for stage in self.stages:
            if isinstance(stage, MessagePassing):
                x = stage(x, edge_index)
            else:
                x = stage(x, batch) if stage in POOLS else stage(x)
        return x


def gin(in_channels: int, out_channels: int, **options: float) -> GINConv:
    return GINConv(nn.Sequential(nn.Linear(in_channels, 2), nn.ReLU(), nn.Linear(2, out_channels)), **options)


CONVS = {
    "gcn": [GCNConv],
    "gcn_unnormalised": [functools.partial(GCNConv, normalize=False)],
    "sage_sum": [functools.partial(SAGEConv, aggr="sum")],
    "sage_mean": [functools.partial(SAGEConv, aggr="mean")],
    "gin": [gin],
    "gin_eps": [functools.partial(gin, eps=0.3), functools.partial(gin, train_eps=True)],
    "mixed": [functools.partial(SAGEConv, aggr="mean"), GCNConv, gin],
}
ARCHITECTURES = [*CONVS, "linear_between"]


def build_model(architecture: str, readout: str, depth: int, generator: torch.Generator) -> Net:
    """Build layers with normal parameters and biases, so that about half of the gates are on.

    In "linear_between", Linear-ReLU before the first convolution (gates that no edge can reach) and between
    convolutions (gates as deep as the convolution before); its output is Linear.
    """
    relus = itertools.cycle([*RELUS, nn.ReLU()])
    channels = [2, *[2 + (depth == 2)] * (depth - 1), 2]
    stages: list[Stage] = []
    for layer in range(depth):
        if architecture == "linear_between":
            stages += [nn.Linear(channels[layer], channels[layer]), next(relus)]
        convs = CONVS["gcn" if architecture == "linear_between" else architecture]
        stages += [convs[layer % len(convs)](channels[layer], channels[layer + 1]), next(relus)]
    if readout != "node":
        stages += [READOUTS[readout], nn.Linear(2, 3), next(relus), nn.Linear(3, CLASSES)]
    elif architecture == "linear_between":
        stages.append(nn.Linear(2, CLASSES))
    else:
        del stages[-1]  # the last convolution is the output
    model = Net(stages).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


def random_graph(seed: int, nodes: int, generator: torch.Generator) -> Tensor:
    """Draw directed edges; by seed with a loop, a duplicate, a node without edges or one without incoming edges."""
    isolated, source_only = seed % 4 in (1, 2), seed % 8 in (0, 5)
    allowed = range(nodes - isolated)
    pairs = [(i, j) for i in allowed for j in allowed if i != j and not (source_only and j == 0)]
    chosen = torch.randperm(len(pairs), generator=generator)[: 4 + seed % 3].tolist()
    edges = [pairs[k] for k in chosen]
    if seed % 8 not in (3, 4):
        edges.append(edges[0])  # a duplicate: a variable of its own
    if seed % 8 not in (2, 7):
        loop = int(torch.randint(int(source_only), len(allowed), (1,), generator=generator))
        edges.insert(1, (loop, loop))  # not last, where PyG would put one
    return torch.tensor(edges).t()


@dataclass
class Case:
    """A model, a graph, masks and a target, with what the oracle says of them."""

    model: Net
    x: Tensor
    edge_index: Tensor
    masks: list[Tensor]
    target: tuple[int, int]
    with_edges: list[Network]
    without_edges: Network

    def expected(self, index: int, field: str) -> Tensor:
        return attributions(self.with_edges[index], self.without_edges, self.target, field)["edge"]

    @property
    def package_target(self) -> tuple[int, int] | int:
        """Graph-level outputs have one row per graph: the target is the class alone."""
        return self.target[1] if self.with_edges[0].pooled else self.target

    def output(self, network: Network) -> float:
        return value(network.table[self.target[0]][self.target[1]], network.values)


@functools.cache
def draw_case(architecture: str, readout: str, seed: int) -> Case:
    """Draw until the attributions are not all zero (as they are if the last gates are off): such cases test nothing."""
    names = list(itertools.product(ARCHITECTURES, READOUTS))
    generator = torch.Generator().manual_seed(1000 * seed + names.index((architecture, readout)))
    depth, nodes = 2 + seed % 2, (5, 4, 4, 3, 4, 4, 5, 4)[seed]
    while True:
        model = build_model(architecture, readout, depth, generator)
        edge_index = random_graph(seed, nodes, generator)
        x = torch.randn(nodes, 2, generator=generator, dtype=torch.float64)
        ones = torch.ones(edge_index.shape[1], dtype=torch.float64)
        real = 1.5 * torch.randn(ones.shape, generator=generator, dtype=torch.float64)
        real[seed % len(real)] = 0.0
        row = int(torch.randint(nodes, (1,), generator=generator)) if readout == "node" else 0
        target = (row, seed % CLASSES)
        runs = [run(model.stages, x, edge_index, mask) for mask in (ones, real, 0 * ones)]
        case = Case(model, x, edge_index, [ones, real], target, runs[:2], runs[2])
        if all(case.expected(index, "distinct").abs().max() > 1e-3 for index in range(2)):
            return case


# Four of the eight seeds for each pair, of all remainders by 4; in all pairs together all seeds.
NAMES = [
    (*pair, (first + step) % len(SEEDS))
    for first, pair in enumerate(itertools.product(ARCHITECTURES, READOUTS))
    for step in (0, 1, 3, 6)
]
# Every pair once; all of the layer without a path from a node to itself, whose nodes sometimes see nothing but biases.
FAST_NAMES = [name for number, name in enumerate(NAMES) if number % 4 == 2 or name[0] == "gcn_unnormalised"]
every_case = pytest.mark.parametrize(("architecture", "readout", "seed"), slow_unless(FAST_NAMES.__contains__, NAMES))
every_name = pytest.mark.parametrize("names", [FAST_NAMES, pytest.param(NAMES, marks=pytest.mark.slow)], ids=len)


@every_case
@pytest.mark.parametrize("field", FIELDS)
def test_package_agrees_with_oracle(architecture: str, readout: str, seed: int, field: str) -> None:
    case = draw_case(architecture, readout, seed)
    arguments: tuple[Tensor, ...] = (case.x, case.edge_index)
    if readout != "node" and seed % 2:
        arguments += (torch.zeros(len(case.x), dtype=torch.long),)
    for index, mask in enumerate(case.masks):
        actual = GOAtAttribution(case.model, field=field).attribute(
            mask, target=case.package_target, additional_forward_args=arguments
        )
        torch.testing.assert_close(actual, case.expected(index, field), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("readout", "seed"), combinations(list(READOUTS), SEEDS))
def test_loops_that_the_model_adds_are_those_that_its_layers_would_add(readout: str, seed: int) -> None:
    case = draw_case("gcn", readout, seed)

    class LoopsFirst(nn.Module):
        def __init__(self, net: Net, prepare: Callable[[Tensor, int], Tensor]) -> None:
            super().__init__()
            self.net, self.prepare = copy.deepcopy(net), prepare
            for layer in self.net.layers:
                layer.add_self_loops = False

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.net(x, self.prepare(edge_index, len(x)))

    for prepare in (
        lambda edges, nodes: add_remaining_self_loops(edges, num_nodes=nodes)[0],
        lambda edges, nodes: add_self_loops(remove_self_loops(edges)[0], num_nodes=nodes)[0],
    ):
        model = LoopsFirst(case.model, prepare).eval()
        for index, (mask, field) in enumerate(zip(case.masks, FIELDS, strict=True)):
            actual = GOAtAttribution(model, field=field).attribute(
                mask, target=case.package_target, additional_forward_args=(case.x, case.edge_index)
            )
            torch.testing.assert_close(actual, case.expected(index, field), rtol=0, atol=1e-10)


@every_case
def test_oracle_is_complete_and_agrees_with_pyg(architecture: str, readout: str, seed: int) -> None:
    case = draw_case(architecture, readout, seed)
    row, channel = case.target
    with torch.no_grad():
        unmasked = case.model(case.x, case.edge_index)[row, channel]
    assert case.output(case.with_edges[0]) == pytest.approx(float(unmasked), rel=1e-12, abs=1e-12)
    masks = [*case.masks, 0 * case.masks[0]]
    for network, mask in zip([*case.with_edges, case.without_edges], masks, strict=True):
        real = masked_output(case.model, case.x, case.edge_index, mask)
        assert case.output(network) == pytest.approx(float(real[row, channel]), rel=1e-11, abs=1e-11)
    for index, field in itertools.product(range(2), FIELDS):
        difference = case.output(case.with_edges[index]) - case.output(case.without_edges)
        assert float(case.expected(index, field).sum()) == pytest.approx(difference, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("readout", ["mean", "sum"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("architecture", ["gcn", "sage_mean", "gin_eps"])
def test_graphs_of_a_batch_are_explained_one_by_one(architecture: str, readout: str, field: str) -> None:
    """Three graphs, one of them without edges; the edges of the others in a mixed order."""
    generator = torch.Generator().manual_seed(8)
    model = draw_case(architecture, readout, 1).model
    sizes, targets = [4, 3, 5], [1, 0, 1]
    graphs = [random_graph(3, 4, generator), torch.empty(2, 0, dtype=torch.long), random_graph(4, 5, generator)]
    xs = [torch.randn(size, 2, generator=generator, dtype=torch.float64) for size in sizes]
    masks = [torch.randn(graph.shape[1], generator=generator, dtype=torch.float64) for graph in graphs]
    expected = []
    for x, graph, mask, target in zip(xs, graphs, masks, targets, strict=True):
        networks = [run(model.stages, x, graph, m) for m in (mask, 0 * mask)]
        expected.append(attributions(*networks, (0, target), field)["edge"])
    edge_index = torch.cat([graph + offset for graph, offset in zip(graphs, [0, 4, 7], strict=True)], dim=1)
    order = torch.randperm(edge_index.shape[1], generator=generator)
    batch = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    actual = GOAtAttribution(model, field=field).attribute(
        torch.cat(masks)[order], target=targets, additional_forward_args=(torch.cat(xs), edge_index[:, order], batch)
    )
    torch.testing.assert_close(actual, torch.cat(expected)[order], rtol=0, atol=1e-10)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("field", FIELDS)
def test_several_masks_at_once(readout: str, field: str) -> None:
    case = draw_case("mixed", readout, 1)
    actual = GOAtAttribution(case.model, field=field).attribute(
        torch.stack(case.masks), target=[case.package_target] * 2, additional_forward_args=(case.x, case.edge_index)
    )
    expected = torch.stack([case.expected(index, field) for index in range(2)])
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("readout", READOUTS)
def test_no_edges_no_attributions(readout: str) -> None:
    case = draw_case("gcn", readout, 0)
    mask, edge_index = case.x.new_ones(0), case.edge_index[:, :0]
    actual = GOAtAttribution(case.model).attribute(
        mask, target=case.package_target, additional_forward_args=(case.x, edge_index)
    )
    assert actual.shape == (0,)
    network = run(case.model.stages, case.x, edge_index, mask)
    assert not network.gates
    row, channel = case.target
    expected = float(case.model(case.x, edge_index)[row, channel].detach())
    assert case.output(network) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@every_name
def test_cases_tell_the_fields_apart_and_have_gates_on_and_off(names: list[tuple[str, str, int]]) -> None:
    """Guard against a comparison that could not fail."""
    cases = [draw_case(*name) for name in names]
    differing = sum(bool((c.expected(0, "distinct") - c.expected(0, "repeated")).abs().max() > 1e-3) for c in cases)
    calibrated = sum(c.with_edges[0].gates.keys() != c.without_edges.gates.keys() for c in cases)
    assert differing > len(cases) / 3
    assert calibrated > len(cases) / 2


def explain_by_both(model: Net, x: Tensor, edge_index: Tensor, target: tuple[int, int], field: str) -> list[Tensor]:
    """Return what the package and the oracle say for a mask of ones."""
    mask = torch.ones(edge_index.shape[1], dtype=torch.float64)
    package = GOAtAttribution(model, field=field).attribute(
        mask, target=target, additional_forward_args=(x, edge_index)
    )
    oracle = attributions(*(run(model.stages, x, edge_index, m) for m in (mask, 0 * mask)), target, field)
    return [package, oracle["edge"]]


def set_parameters(model: Net, *numbers: float) -> Net:
    for parameter, number in zip(model.parameters(), numbers, strict=True):
        nn.init.constant_(parameter, number)
    return model.double().eval()


def test_by_hand_one_layer() -> None:
    """Edges a: 0 -> 1 and b: 2 -> 1, x = (5, 0, -1); one GCN without normalisation, W = 2 and bias 3; Linear 0.5, 7.

    in = 2*5 a + 2*(-1) b + 3 = 10 a - 2 b + 3 = 11 > 0, so P = 1, and
    f = 0.5 P (10 a - 2 b + 3) + 7 = 5 aP - 1 bP + 1.5 P + 7 = 12.5.
    I_a = 5/2 = 2.5; I_b = -1/2 = -0.5; I_P = 2.5 - 0.5 + 1.5 = 3.5; the 7 has no variables.
    Without edges in = 3 > 0, so P' = 1 and f(0) = 1.5 P' + 7 = 8.5: I_P' = 1.5.
    The gate's field is {a, b}: each gets (3.5 - 1.5) / 2 = 1.
    a: 2.5 + 1 = 3.5; b: -0.5 + 1 = 0.5; together 4 = 12.5 - 8.5.
    """
    conv = GCNConv(1, 1, normalize=False)
    model = Net([conv, torch.relu, nn.Linear(1, 1)])
    assert [name for name, _ in conv.named_parameters()] == ["bias", "lin.weight"]
    set_parameters(model, 3.0, 2.0, 0.5, 7.0)
    x, edge_index = torch.tensor([[5.0], [0.0], [-1.0]]).double(), torch.tensor([[0, 2], [1, 1]])
    for result in explain_by_both(model, x, edge_index, (1, 0), "distinct"):
        torch.testing.assert_close(result, torch.tensor([3.5, 0.5]).double(), rtol=0, atol=1e-12)


def test_by_hand_an_edge_twice_and_a_constant_gate() -> None:
    """Edges a: 0 -> 0 and b: 1 -> 0, x = (1, 2); two GCNs without normalisation, W = 2, bias 1, ReLU; W = 3, bias -1.

    h_0 = P (2*1 a + 2*2 b + 1) = P (2 a + 4 b + 1), P = 1; no edge reaches node 1: its gate is a constant and h_1 = 1.
    f = 3 a h_0 + 3 b h_1 - 1 = 6 aaP + 12 abP + 3 aP + 3 b - 1 = 23.
    I_a = 6*2/3 + 12/3 + 3/2 = 9.5; I_b = 12/3 + 3 = 7; I_P = 6/3 + 12/3 + 3/2 = 7.5.
    Without edges f(0) = -1, a product without variables: nothing to subtract.
    The gate's field is {a, b}: each gets 3.75. a: 13.25; b: 10.75; together 24 = 23 - (-1).
    """
    model = Net([GCNConv(1, 1, normalize=False), torch.relu, GCNConv(1, 1, normalize=False)])
    set_parameters(model, 1.0, 2.0, -1.0, 3.0)
    x, edge_index = torch.tensor([[1.0], [2.0]]).double(), torch.tensor([[0, 1], [0, 0]])
    for field in FIELDS:
        for result in explain_by_both(model, x, edge_index, (0, 0), field):
            torch.testing.assert_close(result, torch.tensor([13.25, 10.75]).double(), rtol=0, atol=1e-12)


def test_fields_by_hand() -> None:
    """Edges 0: 1 -> 0, 1: 2 -> 1, 2: 1 -> 1. From node 0: hop 1 is {0}; hops 2 and 3 are {1, 2}, into node 1."""
    edges = [(1, 0), (2, 1), (1, 1)]
    assert receptive_field(edges, 0, 1, "repeated") == receptive_field(edges, 0, 1, "distinct") == [0]
    assert receptive_field(edges, 0, 3, "distinct") == [0, 1, 2]
    assert receptive_field(edges, 0, 3, "repeated") == [0, 1, 2, 1, 2]
    assert receptive_field(edges, 2, 3, "repeated") == receptive_field(edges, 0, 0, "distinct") == []
