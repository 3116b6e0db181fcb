"""Explaining in one pass of replicas, and a graph that is known already: the same numbers as step by step."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import combinations
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, TopKPooling, global_add_pool, global_max_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError
from captum_goat.method import share


class Net(nn.Module):
    """Two layers and a head; ``inside`` is done between them."""

    def __init__(self, conv: Callable[[int, int], nn.Module], inside: Callable[..., Tensor] = F.relu) -> None:
        super().__init__()
        self.one, self.two, self.head = conv(3, 6), conv(6, 6), nn.Linear(6, 2)
        self.inside = inside
        self.calls = 0

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        Net.runs += 1
        x = self.inside(self.one(x, edge_index))
        return self.head(global_add_pool(F.relu(self.two(x, edge_index)), batch))

    runs = 0


def gin(inputs: int, outputs: int) -> nn.Module:
    return GINConv(nn.Sequential(nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Linear(outputs, 6)))


def squared(x: Tensor) -> Tensor:
    return x.relu() * x


def in_place(x: Tensor) -> Tensor:
    return x.relu_()


BODIES: dict[str, tuple[Any, Any]] = {
    "gcn": (GCNConv, F.relu),
    "sage": (SAGEConv, F.relu),
    "gin": (gin, F.relu),
    "gat": (lambda i, o: GATConv(i, o), F.relu),
    "max": (lambda i, o: SAGEConv(i, o, aggr="max"), F.relu),
    "tanh": (GCNConv, torch.tanh),
    "softplus": (GCNConv, F.softplus),
    "squared": (GCNConv, squared),
    "in place": (GCNConv, in_place),
    "layer norm": (SAGEConv, lambda x: F.layer_norm(x, (6,))),
    "normalised": (SAGEConv, lambda x: F.normalize(x).relu()),
}


@pytest.fixture
def graph() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    return torch.randn(7, 3, dtype=torch.double), torch.randint(7, (2, 16))


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def explain(goat: GOAtAttribution, *args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(share, "fits_replicas", lambda pattern: False)
            return goat.attribute(*args, return_convergence_delta=True)

    return explain


@pytest.mark.parametrize(("body", "mask_type"), combinations(list(BODIES), ["edge", "node", "node_and_edge"]))
def test_replicas_give_the_same_numbers(body: str, mask_type: Any, graph: Any, one_by_one: Any) -> None:
    x, edge_index = graph
    model = Net(*BODIES[body]).double().eval()
    mask = torch.rand(edge_index.size(1), dtype=torch.double)
    inputs = {"edge": mask, "node": x, "node_and_edge": (x, mask)}[mask_type]
    arguments = (x, edge_index) if mask_type == "edge" else (edge_index,)
    goat = GOAtAttribution(model, mask_type=mask_type)
    expected = one_by_one(GOAtAttribution(model, mask_type=mask_type), inputs, 1, arguments)
    for _ in range(2):  # the second time the program is known, if it can be
        Net.runs = 0
        attributions = goat.attribute(inputs, 1, arguments, return_convergence_delta=True)
        torch.testing.assert_close(attributions, expected, rtol=1e-9, atol=1e-11)
        assert Net.runs == 1


def test_a_known_graph_is_run_once(graph: Any) -> None:
    x, edge_index = graph
    goat, mask = GOAtAttribution(Net(GCNConv).double().eval()), torch.ones(16, dtype=torch.double)
    Net.runs = 0
    goat.attribute(mask, 1, (x, edge_index))
    assert Net.runs == 1
    goat.attribute(0.5 * mask, 0, (x + 1, edge_index.clone()))
    assert Net.runs == 2


def test_a_known_graph_with_other_values(graph: Any) -> None:
    x, edge_index = graph
    model = Net(GCNConv).double().eval()
    goat = GOAtAttribution(model)
    for number in range(3):
        mask, values = torch.rand(16, dtype=torch.double), torch.randn_like(x)
        expected = GOAtAttribution(model).attribute(mask, number % 2, (values, edge_index))
        torch.testing.assert_close(goat.attribute(mask, number % 2, (values, edge_index)), expected)


def test_another_graph_is_not_mistaken_for_the_known_one(graph: Any) -> None:
    x, edge_index = graph
    model, mask = Net(GCNConv).double().eval(), torch.ones(16, dtype=torch.double)
    goat = GOAtAttribution(model)
    goat.attribute(mask, 1, (x, edge_index))
    batch = torch.tensor([0, 0, 0, 1, 1, 1, 1])
    halves = torch.cat([edge_index[:, :8] % 3, 3 + edge_index[:, 8:] % 4], dim=1)
    for other, of_nodes in ((edge_index.flip(0), None), (halves, batch), (halves, 1 - batch), (edge_index, None)):
        expected = GOAtAttribution(model).attribute(mask, 1, (x, other, of_nodes))
        torch.testing.assert_close(goat.attribute(mask, 1, (x, other, of_nodes)), expected)


class Reading(nn.Module):
    """A model that reads out some nodes, given by an argument and by a buffer."""

    buffer: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = SAGEConv(3, 6), nn.Linear(6, 2)
        self.register_buffer("buffer", torch.tensor([0, 1]))

    def forward(self, x: Tensor, edge_index: Tensor, nodes: Tensor) -> Tensor:
        x = F.relu(self.conv(x, edge_index))
        return self.head(x[nodes].sum(dim=0, keepdim=True) + x[self.buffer].sum(dim=0, keepdim=True))


@pytest.mark.parametrize("how", ["in place", "through numpy", "edges through numpy", "buffer"])
def test_indices_that_are_written_to_between_calls(how: str, graph: Any) -> None:
    x, edge_index = graph
    model, mask, nodes = Reading().double().eval(), torch.ones(16, dtype=torch.double), torch.tensor([1, 2])
    goat = GOAtAttribution(model)
    for _ in range(4):  # until the rows of the graph are known
        before = goat.attribute(mask, 1, (x, edge_index, nodes))
    if how == "in place":
        nodes[1] = 4
    elif how == "through numpy":
        nodes.numpy()[1] = 4  # of which torch knows nothing
    elif how == "buffer":
        model.buffer[0] = 5
    else:
        edge_index.numpy()[1] = edge_index.numpy()[1, ::-1].copy()
    after = goat.attribute(mask, 1, (x, edge_index, nodes))
    torch.testing.assert_close(after, GOAtAttribution(model).attribute(mask, 1, (x, edge_index, nodes)))
    assert not torch.allclose(after, before)


class Choosing(nn.Module):
    """A model whose steps, or indices, depend on the values of its inputs."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.one, self.two, self.head = SAGEConv(3, 6), SAGEConv(6, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.one(x, edge_index).relu()
        if self.how == "index":
            hidden = hidden + hidden[x[:, 0].argsort()]
        elif self.how == "mask":
            hidden = hidden * (x[:, :1] > 0) + torch.where(x[:, :1] > 0, hidden.flip(0), 0.0)
        elif self.how == "branch" and x.sum() > 0:
            hidden = hidden + self.two(hidden, edge_index).relu()
        elif self.how == "number":
            hidden = hidden.roll(int(x[0, 0] > 0), 0) + hidden
        elif self.how == "matrix":
            hidden = (x[:, :1] @ x[:, 1:2].t()).relu() @ hidden
        return self.head(self.two(hidden, edge_index).relu().sum(dim=0, keepdim=True))


@pytest.mark.parametrize("how", ["index", "mask", "branch", "number", "matrix"])
def test_steps_that_depend_on_values(how: str, graph: Any) -> None:
    x, edge_index = graph
    model, mask = Choosing(how).double().eval(), torch.ones(16, dtype=torch.double)
    goat = GOAtAttribution(model)
    for values in (x, x, x, x, -x, x.flip(0), x.abs(), x):
        expected = GOAtAttribution(model).attribute(mask, 1, (values, edge_index))
        torch.testing.assert_close(goat.attribute(mask, 1, (values, edge_index)), expected)


class Reader(Net):
    """A model that looks at numbers which depend on the edges, or writes to parts of tensors, as ``how`` says."""

    def __init__(self, how: str) -> None:
        super().__init__(GCNConv)
        self.how = how

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        Net.runs += 1
        hidden = F.relu(self.one(x, edge_index))
        if self.how == "bool" and hidden.sum() > 1e-3:
            hidden = hidden + 1.0
        elif self.how == "item":
            hidden = hidden + float(hidden.sum().item() > 1e-3)
        elif self.how == "slice":
            hidden = hidden[: (hidden.sum() > 1e-3).long() + 6].sum(dim=0, keepdim=True) + hidden
        elif self.how == "numpy":
            hidden = hidden + float(hidden.detach().numpy().sum() > 1e-3)
        elif self.how == "list":
            hidden = hidden + float(sum(hidden.flatten().tolist()) > 1e-3)
        elif self.how == "written":
            total = torch.zeros(7, 6, dtype=x.dtype)
            total[:] = hidden
            hidden = total
        elif self.how == "written through a view":
            hidden.view(-1).mul_(2.0)
        elif self.how == "constant written later":
            weight = torch.ones(1, dtype=x.dtype)
            hidden = hidden + weight
            weight.mul_(2.0)
        elif self.how == "hidden write":
            hidden.data.add_(1.0)
        return self.head(global_add_pool(F.relu(self.two(hidden, edge_index)), batch))


READERS = ["bool", "item", "slice", "numpy", "list", "written", "written through a view", "constant written later"]


@pytest.mark.parametrize("how", [*READERS, "hidden write"])
@pytest.mark.parametrize("biased", [True, False])
def test_a_model_that_looks_at_numbers_runs_for_every_point(how: str, biased: bool, graph: Any) -> None:
    """Without biases the model takes another branch without edges."""
    x, edge_index = graph
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    model, mask = Reader(how).double().eval(), torch.ones(edge_index.size(1), dtype=torch.double)
    model.one = SAGEConv(3, 6, root_weight=False, bias=biased).double().eval()
    goat = GOAtAttribution(model)
    with torch.no_grad():
        masked = EdgeMaskedModel(model)
        change = masked(mask, x, edge_index)[:, 1] - masked(0 * mask, x, edge_index)[:, 1]
    for _ in range(2):
        Net.runs = 0
        try:
            attributions = goat.attribute(mask, 1, (x, edge_index))
        except UnsupportedModelError:
            continue
        assert Net.runs > 1
        torch.testing.assert_close(attributions.sum(dim=0, keepdim=True), change)


def test_large_graphs_are_not_replicated(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x, edge_index, mask = torch.randn(3000, 3).double(), torch.randint(3000, (2, 9000)), torch.rand(9000).double()
    model, found = Net(GCNConv).double().eval(), []
    monkeypatch.setattr(share, "Replicas", lambda *_: pytest.fail("too large"))
    found.append(GOAtAttribution(model).attribute(mask, 1, (x, edge_index)))
    monkeypatch.undo()
    monkeypatch.setattr(share, "MOST_NUMBERS", 2**30)
    found.append(GOAtAttribution(model).attribute(mask, 1, (x, edge_index)))
    torch.testing.assert_close(*found)


def test_pooling_that_chooses_nodes_is_not_replicated(graph: Any) -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.pool = SAGEConv(3, 6), TopKPooling(6, 0.5)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            x, _, _, batch, *_ = self.pool(self.one(x, edge_index).relu(), edge_index)
            return global_max_pool(x, batch)

    x, edge_index = graph
    goat = GOAtAttribution(Pooled().double().eval())
    for _ in range(2):
        mask = torch.ones(16, dtype=torch.double)
        assert goat.attribute(mask, 1, (x, edge_index), return_convergence_delta=True)[1].abs() < 1e-12
