"""The package against the oracle of smooth gates and frozen factors; and the oracle against PyG and by hand."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from oracle_rules import (
    ACTIVATIONS,
    NOWHERE,
    Factor,
    Field,
    Message,
    Oracle,
    Product,
    Row,
    Stage,
    Table,
    attributions,
    masked_output,
    run,
    value,
)
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GraphConv,
    MessagePassing,
    SAGEConv,
    global_max_pool,
    global_mean_pool,
)

from captum_goat import EdgeMaskedModel, GOAtAttribution

CLASSES = 2
POOLS: tuple[Stage, ...] = (global_mean_pool, global_max_pool)
TOLERANCE = 1e-10

LAYERS: dict[str, Callable[[int, int], nn.Module]] = {
    "graph": GraphConv,
    "graph_max": functools.partial(GraphConv, aggr="max"),
    "sage": SAGEConv,
    "sage_unit": functools.partial(SAGEConv, normalize=True),
    "sage_max": functools.partial(SAGEConv, aggr="max"),
    "gcn": GCNConv,
    "gcn_max": functools.partial(GCNConv, aggr="max"),
    "gat": GATConv,
    "gat_max": functools.partial(GATConv, aggr="max"),
    "linear": nn.Linear,
}
OTHERS: dict[str, Stage] = {"unit": F.normalize, "pool": global_mean_pool, "max_pool": global_max_pool}

# A model is a row of names. Smooth gates: two layers of each kind, with one row per node or pooled; then with gates
# that no edge reaches, and with gates after pooling.
GATES, MORE_GATES = (
    [
        recipe.format(conv=conv, act=activation)
        for activation, conv, recipe in itertools.product(ACTIVATIONS, ("graph", "sage", "gcn"), recipes)
    ]
    for recipes in (
        ["{conv} {act} {conv}", "{conv} {act} {conv} {act} pool linear"],
        ["linear {act} {conv} {act} {conv} {act} linear", "{conv} {act} {conv} pool linear {act} linear"],
    )
)
ATTENTION = [
    "gat",
    "gat gat",
    "gat gat gat",
    "gat relu gat",
    "gat gat pool linear",
    "gat relu gat relu pool linear",
    "gat softplus gat sigmoid pool linear",
    "linear elu gat elu gat",
    "gcn gat pool linear",
    "graph sigmoid gat",
    "gat_heads gat pool linear",
    "gat_heads relu gat_heads linear",
    "gat_max gat_max pool linear",
    "gat norm relu gat norm pool linear",
    "gat unit gat unit pool linear",
]
MAXIMA = [
    "sage_max",
    "sage_max relu linear",
    "sage_max pool linear",
    "sage_max relu pool linear",
    "sage_max sage_max",
    "sage_max relu sage_max",
    "sage_max sage_max pool linear",
    "sage_max relu sage_max relu pool linear",
    "sage_max sigmoid sage_max softplus pool linear",
    "sage_max norm sage_max pool linear",
    "sage_max unit relu sage_max unit pool linear",
    "graph_max elu graph_max tanh linear",
    "gcn_max gcn_max",
    "gcn_max relu gcn_max",
    "gcn_max gcn_max pool linear",
    "gcn_max gelu gcn_max silu pool linear",
    "sage_max gat pool linear",
    "gat sage_max pool linear",
    "graph max_pool linear",
    "graph relu graph max_pool linear relu linear",
    "gcn norm gcn max_pool linear",
]
NORMS = [
    recipe.format(conv=conv, norm=norm)
    for norm, conv, recipe in itertools.product(
        ("norm", "unit"),
        ("graph", "sage", "gcn"),
        (
            "{conv} {norm} relu {conv}",  # before the activation
            "{conv} {norm} elu {conv} {norm} softplus pool linear",
            "{conv} relu {norm} {conv}",  # after it
            "{conv} tanh {norm} {conv} sigmoid {norm} pool linear",
            "{conv} {norm}",  # no activation: products of frozen factors and constants
            "{conv} {norm} {conv} {norm} linear",
            "{conv} {norm} {conv} {norm} pool linear",
            "{conv} relu {conv} {norm} pool linear",
            "{conv} {conv} {norm} pool linear",
            "{norm} {conv} relu pool {norm} linear",  # that no edge reaches; and after pooling
        ),
    )
] + ["sage_unit relu sage_unit", "sage_unit sage_unit pool linear", "graph norm unit norm pool linear relu linear"]
RECIPES = [*GATES, *MORE_GATES, *NORMS] + 3 * [*ATTENTION, *MAXIMA]
CASES = [(recipe, number % 7) for number, recipe in enumerate(RECIPES)]  # a recipe's draws have different seeds


class Net(nn.Module):
    """Real layers in a row."""

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


def build_model(recipe: str, generator: torch.Generator, way: int = 0) -> Net:
    """Build the layers with normal parameters; activations called as functions or as modules, by turns."""
    names = recipe.split()
    # Two channels are enough, except for norms, which would leave them only one direction.
    hidden = 3 if {"norm", "unit"} & set(names) else 2
    stages: list[Stage] = []
    width = 2
    for number, name in enumerate(names):
        if name in LAYERS:
            before, width = width, CLASSES if number == len(names) - 1 else hidden
            stages.append(LAYERS[name](before, width))
        elif name == "gat_heads":
            stages.append(GATConv(width, 1, heads=2))
            width = 2
        elif name == "norm":
            stages.append(nn.LayerNorm(width))
        elif name in OTHERS:
            stages.append(OTHERS[name])
        else:
            stages.append(ACTIVATIONS[name][1][way % 2])
            way += 1
    model = Net(stages).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, generator=generator)
    return model


def random_graph(seed: int, generator: torch.Generator) -> tuple[int, Tensor]:
    """Draw 3 to 7 directed edges; by seed with a loop, a duplicate, a node without edges or only with outgoing ones."""
    nodes = (4, 5, 4, 3, 5, 4)[seed % 6]
    isolated, source_only = seed % 3 == 1, seed % 3 == 2
    pairs = [(i, j) for i, j in itertools.permutations(range(nodes - isolated), 2) if not (source_only and j == 0)]
    chosen = torch.randperm(len(pairs), generator=generator)[: (4, 4, 5, 3, 4, 3)[seed % 6]].tolist()
    edges = [pairs[k] for k in chosen]
    if seed % 2 == 0:
        edges.append(edges[0])  # a duplicate: a variable of its own
    if seed % 4 != 3:
        loop = int(torch.randint(int(source_only), nodes - isolated, (1,), generator=generator))
        edges.insert(1, (loop, loop))  # not last, where PyG would put one
    return nodes, torch.tensor(edges).t()


@dataclass
class Case:
    """A model, a graph, masks (ones, fractions) and a target, with what the oracle says of them."""

    model: Net
    x: Tensor
    edge_index: Tensor
    masks: list[Tensor]
    target: tuple[int, int]

    def passes(self, kind: type[Oracle]) -> list[Oracle]:
        """Run an oracle with each mask, and without edges."""
        masks = [*self.masks, 0 * self.masks[0]]
        return [run(self.model.stages, self.x, self.edge_index, mask, kind) for mask in masks]

    @functools.cached_property
    def oracles(self) -> list[Oracle]:
        return self.passes(Oracle)

    @functools.cached_property
    def expected(self) -> list[Tensor]:
        """Return the oracle's attributions for each mask."""
        *explained, empty = self.oracles
        return [attributions(oracle, empty, self.target) for oracle in explained]

    @property
    def pooled(self) -> bool:
        return any(stage in POOLS for stage in self.model.stages)

    def actual(self, index: int) -> Tensor:
        """Return what the package says; graph-level outputs have one row per graph: the target is the class alone."""
        target = self.target[1] if self.pooled else self.target
        result: Tensor = GOAtAttribution(self.model).attribute(
            self.masks[index], target=target, additional_forward_args=(self.x, self.edge_index)
        )
        return result


@functools.cache
def draw_case(recipe: str, seed: int) -> Case:
    """Draw until the attributions are not all zero, for such cases test nothing, and rounding errors decide nothing."""
    generator = torch.Generator().manual_seed(1000 * seed + sum(map(ord, recipe)))
    while True:
        model = build_model(recipe, generator, seed)
        nodes, edge_index = random_graph(seed, generator)
        x = torch.randn(nodes, 2, generator=generator, dtype=torch.float64)
        ones = torch.ones(edge_index.shape[1], dtype=torch.float64)
        fractions = torch.rand(ones.shape, generator=generator, dtype=torch.float64)
        if seed % 2:
            fractions = 1.5 * torch.randn(ones.shape, generator=generator, dtype=torch.float64)
            fractions[seed % len(fractions)] = 0.0
        pooled = "pool" in recipe
        row = 0 if pooled else int(torch.randint(nodes, (1,), generator=generator))
        case = Case(model, x, edge_index, [ones, fractions], (row, seed % CLASSES))
        telling = all(expected.abs().max() > 1e-3 for expected in case.expected)
        if telling and all(oracle.margin > 1e-6 for oracle in case.oracles):
            return case


@pytest.mark.parametrize(("recipe", "seed"), CASES)
def test_package_agrees_with_oracle(recipe: str, seed: int) -> None:
    case = draw_case(recipe, seed)
    for index, expected in enumerate(case.expected):
        torch.testing.assert_close(case.actual(index), expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("recipe", "seed"), CASES)
def test_oracle_is_complete_and_agrees_with_pyg(recipe: str, seed: int) -> None:
    case = draw_case(recipe, seed)
    row, channel = case.target
    outputs = [value(oracle.table[row][channel]) for oracle in case.oracles]
    for mask, output in zip([*case.masks, 0 * case.masks[0]], outputs, strict=True):
        real = masked_output(case.model, case.x, case.edge_index, mask)[row, channel]
        assert output == pytest.approx(float(real), rel=1e-11, abs=1e-11)
    for expected, output in zip(case.expected, outputs, strict=False):
        assert float(expected.sum()) == pytest.approx(output - outputs[-1], rel=1e-10, abs=1e-10)


def test_masked_model_of_the_package_agrees_with_pyg() -> None:
    """The user's loops among the masked edges, too; layers that replace loops by their own among the models."""
    for recipe in [*ATTENTION, *MAXIMA]:
        case = draw_case(recipe, 0)
        mask = case.masks[1]
        actual = EdgeMaskedModel(case.model)(mask, case.x, case.edge_index)
        expected = masked_output(case.model, case.x, case.edge_index, mask)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_several_masks_at_once() -> None:
    for recipe, seed in CASES[::15]:
        case = draw_case(recipe, seed)
        target = case.target[1] if case.pooled else case.target
        actual = GOAtAttribution(case.model).attribute(
            torch.stack(case.masks), target=[target] * 2, additional_forward_args=(case.x, case.edge_index)
        )
        torch.testing.assert_close(actual, torch.stack(case.expected), rtol=0, atol=TOLERANCE)


BATCHED = [
    "gat gat pool linear",
    "sage_max relu sage_max pool linear",
    "gcn norm gcn unit pool linear",
    "gcn softplus gat norm max_pool linear sigmoid linear",
]


@pytest.mark.parametrize("recipe", BATCHED)
def test_graphs_of_a_batch_are_explained_one_by_one(recipe: str) -> None:
    """Three graphs, one of them without edges; the edges of the others in a mixed order."""
    generator = torch.Generator().manual_seed(3)
    model = build_model(recipe, generator)
    targets = [1, 0, 1]
    graphs = [random_graph(0, generator), (3, torch.empty(2, 0, dtype=torch.long)), random_graph(1, generator)]
    xs = [torch.randn(nodes, 2, generator=generator, dtype=torch.float64) for nodes, _ in graphs]
    masks = [torch.randn(edges.shape[1], generator=generator, dtype=torch.float64) for _, edges in graphs]
    expected = [
        attributions(*(run(model.stages, x, edges, m) for m in (mask, 0 * mask)), (0, target))
        for x, (_, edges), mask, target in zip(xs, graphs, masks, targets, strict=True)
    ]
    sizes = torch.tensor([nodes for nodes, _ in graphs])
    offsets = (sizes.cumsum(0) - sizes).tolist()
    edge_index = torch.cat([edges + offset for (_, edges), offset in zip(graphs, offsets, strict=True)], dim=1)
    order = torch.randperm(edge_index.shape[1], generator=generator)
    actual = GOAtAttribution(model).attribute(
        torch.cat(masks)[order],
        target=targets,
        additional_forward_args=(torch.cat(xs), edge_index[:, order], torch.arange(3).repeat_interleave(sizes)),
    )
    torch.testing.assert_close(actual, torch.cat(expected)[order], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "recipe", ["gat gat", "sage_max relu sage_max", "gcn norm sigmoid gcn unit", "graph softplus graph"]
)
def test_a_node_that_no_edge_reaches(recipe: str) -> None:
    case = draw_case(recipe, 2)
    unreached = sorted(set(range(len(case.x))) - set(case.edge_index[1].tolist()))
    for node in unreached:
        case = Case(case.model, case.x, case.edge_index, case.masks, (node, 0))
        for index in range(2):
            assert not case.expected[index].any()
            torch.testing.assert_close(case.actual(index), case.expected[index], rtol=0, atol=1e-12)
    assert unreached


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
        each = (1 / (1 + math.exp(-3)) - 1 / (1 + math.exp(-1))) / 2
        torch.testing.assert_close(result, torch.tensor([each, each], dtype=torch.float64), rtol=0, atol=1e-12)


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


# Wrong readings of the definitions, which the comparison must be able to tell from the right one.


class FrozenFactorsAreVariables(Oracle):
    """They are counted in every product."""

    def sharers(self, product: Product) -> Product:
        return product


class FrozenOnlyProductsAreLost(Oracle):
    """Products without variables are shared with nobody."""

    def sharers(self, product: Product) -> Product:
        return tuple(factor for factor in product if factor[0] != "frozen")


class FrozenFactorsCountOnce(Oracle):
    """Products without variables go to one of their frozen factors, the first."""

    def sharers(self, product: Product) -> Product:
        return super().sharers(product)[: 1 if all(factor[0] == "frozen" for factor in product) else None]


class UnreachedGatesAreVariables(Oracle):
    """They are counted, though there is nobody to whom their shares could go."""

    def factor(self, kind: str, place: tuple[int, ...], field: Field) -> Product:
        name: Factor = (kind, self.operations, *place)
        self.field_of[name] = field
        return (name,) if field or kind == "gate" else ()


class UnreachedFrozenFactorsShare(Oracle):
    """They take part in products without variables, though there is nobody to whom their shares could go."""

    def factor(self, kind: str, place: tuple[int, ...], field: Field) -> Product:
        name: Factor = (kind, self.operations, *place)
        self.field_of[name] = field
        return (name,) if field or kind == "frozen" else ()


class GatesTakeTheConstant(Oracle):
    """P = f(in) / in, also where f(0) is not 0."""

    def gate(self, function: Callable[[float], float], number: float) -> tuple[float, float]:
        return 0.0, function(number) / number


class WinnersAreTheField(Oracle):
    """Only the edges of the messages that win can change a maximum."""

    def collect(self, messages: Sequence[Message], rows: Table, channels: int, aggregation: str) -> Table:
        self.winning: set[Message] | None = None
        if aggregation == "max":
            self.winning = set()
            for node in range(len(self.table)):
                own = self.arrivals(messages, node)
                for column in zip(*(rows[number] for number in own), strict=True):
                    shares = self.winners([value(entry) for entry in column])
                    self.winning |= {messages[number] for number, share in zip(own, shares, strict=True) if share}
        return super().collect(messages, rows, channels, aggregation)

    def deepen(self, messages: Sequence[Message], *, own: bool) -> None:
        super().deepen([m for m in messages if self.winning is None or m in self.winning], own=own)


class FirstWinnerTakesAll(Oracle):
    """Of messages that are equal, one wins."""

    def winners(self, values: Sequence[float]) -> list[float]:
        return [float(number == values.index(max(values))) for number in range(len(values))]


class MaxPoolSeesOneRow(Oracle):
    """Which node wins in a pool depends on the edges that reach one of them only."""

    def max_pool(self) -> None:
        field = self.fields[0]
        self.table, self.fields = [self.maximum(0, self.table, field)], [NOWHERE.union(*self.fields)]


class AttentionSeesItsOwnEnds(Oracle):
    """A coefficient is changed through its source and its target only, not through the rivals in its softmax."""

    def attention_field(self, readers: Sequence[Message], message: Message) -> Field:
        return self.fields[message.source] | self.fields[message.target]


class AttentionSeesTheMasks(Oracle):
    """The masks of the edges change the coefficients, as if they were applied before the softmax."""

    def attention_field(self, readers: Sequence[Message], message: Message) -> Field:
        return super().attention_field(readers, message) | self.inputs_field(readers)


class MeansAreFrozen(Oracle):
    """The mean of a LayerNorm is a number of the recorded pass."""

    def centred(self, row: Row) -> Row:
        mean = math.fsum(value(entry) for entry in row) / len(row)
        return [{**entry, (): entry.get((), 0.0) - mean} for entry in row]


def without_edges(oracle: Oracle) -> Oracle:
    """Leave the products without edges of an oracle: the empty network, if patterns did not depend on the mask."""
    result = Oracle.__new__(Oracle)
    result.__dict__ |= oracle.__dict__
    result.table = [
        [{p: z for p, z in entry.items() if not any(factor[0] == "edge" for factor in p)} for entry in row]
        for row in oracle.table
    ]
    return result


MUTATIONS: dict[type[Oracle], list[str]] = {
    FrozenFactorsAreVariables: [*ATTENTION[3:8], *MAXIMA[4:9], *NORMS],
    FrozenOnlyProductsAreLost: ["gat gat", "gat gat pool linear", "gcn_max gcn_max", "graph max_pool linear", *NORMS],
    FrozenFactorsCountOnce: ["gat gat gat", "gat unit gat unit pool linear", "gcn norm gcn norm pool linear"],
    UnreachedGatesAreVariables: [recipe for recipe in MORE_GATES if recipe.startswith("linear")],
    UnreachedFrozenFactorsShare: ["norm gcn relu pool norm linear", "gat gat", "gat unit gat unit pool linear"],
    GatesTakeTheConstant: [recipe for recipe in GATES if "sig" in recipe or "soft" in recipe],
    WinnersAreTheField: [recipe for recipe in MAXIMA if set(recipe.split()) & set(ACTIVATIONS)],
    FirstWinnerTakesAll: MAXIMA[:6],
    MaxPoolSeesOneRow: ["graph max_pool linear", "gcn norm gcn max_pool linear"],
    AttentionSeesItsOwnEnds: ["gat gat", "gat gat pool linear", "gcn gat pool linear"],
    AttentionSeesTheMasks: ["gat gat", "gat gat pool linear", "gcn gat pool linear"],
    MeansAreFrozen: [recipe for recipe in NORMS if " norm" in recipe],
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_wrong_readings_would_be_noticed(mutation: type[Oracle]) -> None:
    cases = [draw_case(recipe, seed) for recipe, seed in CASES if recipe in MUTATIONS[mutation]]
    noticed = 0
    for case in cases:
        first, _, empty = case.passes(mutation)
        wrong = attributions(first, empty, case.target)
        noticed += bool((wrong - case.expected[0]).abs().max() > 1e-4)
    assert noticed > len(cases) / 6


def test_wrong_calibrations_would_be_noticed() -> None:
    """None at all; or with the patterns of the network with edges."""
    none = own_patterns = 0
    cases = [draw_case(recipe, seed) for recipe, seed in CASES]
    for case in cases:
        explained, expected = case.oracles[0], case.expected[0]
        shares = torch.tensor(explained.shares(case.target), dtype=torch.float64)
        none += bool((shares - expected).abs().max() > 1e-4)
        wrong = attributions(explained, without_edges(explained), case.target)
        own_patterns += bool((wrong - expected).abs().max() > 1e-4)
    assert none > len(cases) / 2
    assert own_patterns > len(cases) / 2
