"""DEGREE against its rules written out with pairs of parts, GNN-LRP against a list of all walks."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from conftest import KINDS, make_gnn, random_edges, randomize
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, GINEConv, SAGEConv, global_max_pool, global_mean_pool

from benchmarks.explainers import EXPLAINERS, ExplainerSkippedError
from benchmarks.explainers.decomposition import decompose
from captum_goat import UnsupportedModelError
from captum_goat.compare.graphs import Graphs

X = torch.rand(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EDGES = random_edges(6, 12, seed=5)  # node 6 is isolated
DATA = Data(x=X, edge_index=EDGES)
GROUPS = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.5


class AuthorsGCN(nn.Module):
    """Unit-length features before every layer, a batch norm after it."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(GCNConv(a, b, normalize=False) for a, b in pairwise((4, 8, 8)))
        self.norm, self.out = nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = self.norm(conv(F.normalize(x, dim=-1), edge_index)).relu_()
        return self.out(global_mean_pool(x, batch))


class Root(nn.Module):
    """The row of the first node."""

    def __init__(self) -> None:
        super().__init__()
        self.gnn = make_gnn("sage_sum", pool=None)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        first = torch.ones_like(batch, dtype=torch.bool)
        first[1:] = batch[1:] != batch[:-1]
        return self.gnn(x, edge_index)[first]


def model_of(kind: str) -> nn.Module:
    if kind == "authors":
        return randomize(AuthorsGCN().double(), seed=2).requires_grad_(False)
    model = Root() if kind == "root" else make_gnn(kind)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("kind", [*KINDS, "authors", "root"])
def test_parts_add_up(kind: str) -> None:
    """To the logits for any group; all nodes have all of it and no nodes nothing."""
    model, graphs = model_of(kind), Graphs.of(DATA, torch.tensor([1]))
    logits = model(*graphs.inputs)
    groups = torch.cat([GROUPS, torch.ones(1, 7, dtype=torch.bool), torch.zeros(1, 7, dtype=torch.bool)])
    part, rest = decompose(model, graphs, groups)
    assert part.shape == (7, 1, 3)
    torch.testing.assert_close(part + rest, logits.expand(7, 1, 3))
    torch.testing.assert_close(part[-2], logits)
    torch.testing.assert_close(part[-1], torch.zeros_like(logits))
    assert part[:5].abs().min() > 0


@pytest.mark.parametrize("kind", ["gcn", "gin", "authors", "root"])
def test_batch_of_graphs(kind: str) -> None:
    """Every graph has a group of its own."""
    model = model_of(kind)
    other = Data(x=X[:5].flip(1), edge_index=random_edges(5, 8, seed=2))
    both = Graphs.of(Batch.from_data_list([DATA, other]), torch.tensor([1, 2]))
    part = decompose(model, both, torch.cat([GROUPS, GROUPS[:, :5]], dim=1)).part
    for k, (data, groups) in enumerate([(DATA, GROUPS), (other, GROUPS[:, :5])]):
        alone = decompose(model, Graphs.of(data, torch.tensor([0])), groups).part
        torch.testing.assert_close(part[:, k], alone[:, 0])


class Pair:
    """A value in two parts, and the rules of the paper, literally."""

    def __init__(self, group: Tensor, rest: Tensor) -> None:
        self.group, self.rest = group, rest

    def linear(self, matrix: Tensor) -> Pair:
        return Pair(matrix @ self.group, matrix @ self.rest)

    def times(self, weight: Tensor) -> Pair:
        return Pair(self.group @ weight, self.rest @ weight)

    def plus(self, bias: Tensor) -> Pair:
        share = self.group.abs() / (self.group.abs() + self.rest.abs())
        return Pair(self.group + bias * share, self.rest + bias * (1 - share))

    def relu(self) -> Pair:
        return Pair(self.group.relu(), (self.group + self.rest).relu() - self.group.relu())


def test_against_the_rules_written_out() -> None:
    model, graphs = model_of("gcn"), Graphs.of(DATA, torch.tensor([1]))
    adjacency = torch.zeros(7, 7, dtype=torch.float64)
    adjacency.index_put_((EDGES[1], EDGES[0]), torch.ones(12, dtype=torch.float64), accumulate=True)
    loops = adjacency.diag() == 0
    adjacency += torch.diag(loops.double())
    norm = adjacency.sum(1).rsqrt()
    matrix = norm[:, None] * adjacency * norm
    decomposition = decompose(model, graphs, GROUPS)
    for k, group in enumerate(GROUPS):
        value = Pair(X * group[:, None], X * ~group[:, None])
        for conv in model.convs:
            value = value.times(conv.lin.weight.t()).linear(matrix).plus(conv.bias).relu()
        value = value.linear(torch.full((1, 7), 1 / 7, dtype=torch.float64))
        value = value.times(model.hidden.weight.t()).plus(model.hidden.bias).relu()
        value = value.times(model.out.weight.t()).plus(model.out.bias)
        torch.testing.assert_close(decomposition.part[k], value.group)
        torch.testing.assert_close(decomposition.rest[k], value.rest)


def test_edges_are_groups_of_two_nodes() -> None:
    model, edges = model_of("gin"), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    data = Data(x=X[:4], edge_index=edges)
    groups = torch.tensor([[True, True, False, False], [False, True, True, False]])
    part = decompose(model, Graphs.of(data, torch.tensor([2])), groups).part[:, 0, 2]
    expected = torch.stack([part[0], part[0], part[1], part[1]]) / 2
    torch.testing.assert_close(EXPLAINERS["degree"]()(model, data, torch.tensor([2])), expected)


class MaxPooled(AuthorsGCN):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.out(global_max_pool(self.convs[0](x, edge_index), batch))


class Constant(AuthorsGCN):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.out(global_mean_pool(1 - self.convs[0](x, edge_index), batch))


class WithEdgeFeatures(AuthorsGCN):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GINEConv(nn.Linear(4, 8), edge_dim=1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        edge_attr = torch.ones(edge_index.size(1), 1, dtype=x.dtype)
        return self.out(global_mean_pool(self.conv(x, edge_index, edge_attr), batch))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (MaxPooled, "no rule for '"),
        (Constant, "no rule for 'rsub'|no rule for '__rsub__'"),
        (WithEdgeFeatures, "inside of messages"),
    ],
)
def test_refuses_what_cannot_be_decomposed(kind: type[nn.Module], message: str) -> None:
    model = randomize(kind().double(), seed=1).requires_grad_(False)
    with pytest.raises(UnsupportedModelError, match=message):
        decompose(model, Graphs.of(DATA, torch.tensor([0])), GROUPS)
    with pytest.raises(ExplainerSkippedError, match="DEGREE"):
        EXPLAINERS["degree"]()(model, DATA, torch.tensor([0]))


def _favouring(weight: Tensor, gamma: float) -> Tensor:
    return weight + gamma * weight.relu()


def _shared(out: Tensor, favoured: Tensor) -> Tensor:
    positive = (out > 0) & (favoured > 0)
    return torch.where(positive, favoured * (out / favoured).detach(), out)


@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_relevance_of_all_walks(gamma: float) -> None:
    """Walk by walk, as GNN-LRP is defined: the gradient along the walk only, times the input."""
    model, x = model_of("sage_sum"), X[:4]
    convs = [conv for conv in model.convs if isinstance(conv, SAGEConv)][:2]
    model.convs = nn.ModuleList(convs)
    edges = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 2, 3]])
    steps = [*edges.t().tolist(), *([node, node] for node in range(4))]  # the last four: a node's own features

    def output(inputs: Tensor, walk: list[int] | None) -> Tensor:
        h = inputs
        for k, conv in enumerate(convs):
            messages = torch.stack([h[a] for a, _ in steps])
            if walk is not None:  # only the walk's own message is followed
                followed = torch.zeros(len(steps), 1, dtype=torch.bool)
                followed[walk[k]] = True
                messages = torch.where(followed, messages, messages.detach())
            outs = []
            for g in (0.0, gamma):
                rows = [
                    messages[s] @ _favouring((conv.lin_l if s < 6 else conv.lin_r).weight, g).t() for s in range(10)
                ]
                ends = torch.tensor([b for _, b in steps])
                outs.append(torch.zeros(4, 8, dtype=x.dtype).index_add(0, ends, torch.stack(rows)) + conv.lin_l.bias)
            h = _shared(*outs).relu()
        for layer in (model.hidden, model.out):
            h = h.mean(0, keepdim=True) if layer is model.hidden else h.relu()
            outs = [h @ _favouring(layer.weight, g).t() + layer.bias for g in (0.0, gamma)]
            h = _shared(*outs)
        return h[0, 1]

    torch.testing.assert_close(output(x, None), model(x, edges)[0, 1])
    expected = torch.zeros(6, dtype=x.dtype)
    for first, (_, middle) in enumerate(steps):
        for second, (start, _) in enumerate(steps):
            if start != middle:
                continue
            inputs = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(output(inputs, [first, second]), inputs)
            relevance = (gradient * inputs).sum().detach()
            for step in (first, second):
                if step < 6:
                    expected[step] += relevance
    scores = EXPLAINERS["gnn_lrp"](gamma=gamma)(model, Data(x=x, edge_index=edges), torch.tensor([1]))
    torch.testing.assert_close(scores, expected)


@pytest.mark.parametrize("kind", ["gcn", "gcn_plain", "gin"])
def test_relevance_of_a_model_without_biases_is_the_gradient(kind: str) -> None:
    """Without favour for positive weights, and where no bias takes its part."""
    model, target = model_of(kind), torch.tensor([2])
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name.endswith(("bias", "running_mean")):
            tensor.zero_()
    expected = EXPLAINERS["input_x_gradient"]()(model, DATA, target)
    torch.testing.assert_close(EXPLAINERS["gnn_lrp"](gamma=0.0)(model, DATA, target), expected)
    assert not torch.allclose(EXPLAINERS["gnn_lrp"]()(model, DATA, target), expected)
