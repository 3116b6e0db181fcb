"""Fidelities, by hand, by PyG and by a slow implementation."""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any

import metrics_oracle as slow
import pytest
import torch
from conftest import KINDS, combinations, make_gnn, randomize
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, Explanation
from torch_geometric.explain.algorithm import DummyExplainer
from torch_geometric.explain.metric import fidelity as pyg_fidelity
from torch_geometric.nn import GATConv, GraphConv, SimpleConv, global_add_pool, global_mean_pool

from benchmarks.paper_metrics import robust_fidelity, search_prefix
from captum_goat.metrics import (
    fidelity_curve,
    fidelity_minus,
    fidelity_plus,
    graph_infidelity,
    select_edges,
)
from captum_goat.models import RootClassifier

POLICIES = ["stay", "leave"]


class MeanOfSums(nn.Module):
    """The mean over nodes of a node's features and its neighbours'; no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv(combine_root="sum")

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_mean_pool(self.conv(x, edge_index), batch)


class GraphConvNet(nn.Module):
    """Sums over neighbours: a masked message is a removed edge."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GraphConv(4, 8), GraphConv(8, 8)])
        self.out = nn.Linear(8, 3)
        randomize(self.double(), seed)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.out(global_add_pool(x, batch))


def sigmoid(logit: float) -> float:
    return 1 / (1 + exp(-logit))


# 0 - 1 - 2 and 3, which has no edges; nodes 0 and 3 speak for class 1 (by 1 and 6), node 2 for class 0 (by 2).
SMALL = Data(
    x=torch.tensor([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0], [0.0, 6.0]]),
    edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
)
FIRST = torch.tensor([True, True, False, False])


def test_by_hand_if_nodes_stay() -> None:
    """Sums over nodes, without edges: (2, 7); 0 - 1 adds (0, 1) and 1 - 2 adds (2, 0); the mean is over 4 nodes."""
    model = MeanOfSums().eval()
    whole = sigmoid((8 - 4) / 4)
    torch.testing.assert_close(fidelity_plus(model, SMALL, FIRST), torch.tensor([whole - sigmoid((7 - 4) / 4)]))
    torch.testing.assert_close(fidelity_minus(model, SMALL, FIRST), torch.tensor([whole - sigmoid((8 - 2) / 4)]))
    assert torch.equal(fidelity_plus(model, SMALL, FIRST, 0), -fidelity_plus(model, SMALL, FIRST, 1)), "two classes"


def test_by_hand_if_nodes_leave() -> None:
    """Without 0 - 1, nodes 1 and 2 are left: (4, 0) / 2. With it alone 0 and 1: (0, 2) / 2. The whole has 4 nodes."""
    model = MeanOfSums().eval()
    whole = sigmoid((8 - 4) / 4)
    torch.testing.assert_close(fidelity_plus(model, SMALL, FIRST, 1, "leave"), torch.tensor([whole - sigmoid(-4 / 2)]))
    torch.testing.assert_close(fidelity_minus(model, SMALL, FIRST, 1, "leave"), torch.tensor([whole - sigmoid(2 / 2)]))
    torch.testing.assert_close(fidelity_minus(model, SMALL, FIRST & False, 1, "leave"), torch.tensor([whole - 0.5]))


@pytest.mark.parametrize(("kind", "nodes"), combinations(KINDS, POLICIES))
def test_against_the_slow_implementation(kind: str, nodes: Any) -> None:
    for seed in range(3):
        model, graphs = make_gnn(kind, seed=seed), slow.random_graphs(seed)
        batch = slow.batched(graphs)
        scores = slow.random_scores(batch, seed)
        classes = [slow.predicted(model, graph) for graph in graphs]
        for k, target, wanted in ((0, None, classes), (2, None, classes), (2, batch.y, batch.y), (99, 1, [1] * 8)):
            selected = select_edges(batch, scores, k=k)
            parts = [part.tolist() for part in slow.per_graph(graphs, selected)]
            expected = torch.tensor(
                [
                    slow.fidelities(model, graph, part, int(wanted_class), nodes)
                    for graph, part, wanted_class in zip(graphs, parts, wanted, strict=True)
                ],
                dtype=torch.float64,
            )
            fidelities = (
                function(model, batch, selected, target, nodes) for function in (fidelity_plus, fidelity_minus)
            )
            torch.testing.assert_close(torch.stack(list(fidelities), dim=1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nodes", POLICIES)
def test_batches_give_what_graphs_give_alone(nodes: Any) -> None:
    model, graphs = make_gnn("gin"), slow.random_graphs(4)
    batch = slow.batched(graphs)
    selected = select_edges(batch, slow.random_scores(batch, 4), 0.6)
    alone = [
        fidelity_plus(model, graph, part, node_policy=nodes)
        for graph, part in zip(graphs, slow.per_graph(graphs, selected), strict=True)
    ]
    torch.testing.assert_close(fidelity_plus(model, batch, selected, node_policy=nodes), torch.cat(alone))


def test_nothing_removed_changes_nothing_if_nodes_stay() -> None:
    model, batch = make_gnn("sage_mean"), slow.batched(slow.random_graphs(1))
    nothing = torch.zeros(batch.num_edges, dtype=torch.bool)
    zeros = torch.zeros(len(slow.FORMS), dtype=torch.float64)
    torch.testing.assert_close(fidelity_plus(model, batch, nothing), zeros)
    torch.testing.assert_close(fidelity_minus(model, batch, ~nothing), zeros)
    torch.testing.assert_close(fidelity_plus(model, batch, ~nothing), fidelity_minus(model, batch, nothing))


def explained_by_pyg(model: nn.Module, batch: Batch, mask: Tensor, kind: str) -> tuple[Explainer, Explanation]:
    """Put a hard mask into an explanation of PyG's."""
    explainer = Explainer(
        model,
        algorithm=DummyExplainer(),
        explanation_type=kind,
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
    )
    predicted = model(batch.x, batch.edge_index, batch.batch).argmax(dim=1)
    explanation = Explanation(
        x=batch.x,
        edge_index=batch.edge_index,
        edge_mask=mask.to(batch.x.dtype),
        target=predicted if kind == "model" else batch.y,
        batch=batch.batch,
    )
    explanation._model_args = ["batch"]
    return explainer, explanation


def test_agreement_with_pyg_on_hard_masks() -> None:
    """PyG masks messages, which is to remove edges where messages are summed, and looks at predicted classes."""
    forms = ["undirected", "directed", "isolated", "undirected duplicates", "no edges", "duplicates"] * 3
    changed: list[float] = []
    for seed in range(6):
        model = GraphConvNet(seed)
        batch = slow.batched([slow.random_graph(form, 100 * seed + index) for index, form in enumerate(forms)])
        selected = select_edges(batch, slow.random_scores(batch, seed), 0.5)
        changed += agreement_with_pyg(model, batch, selected)
    assert sum(change > 0.0 for change in changed) > len(changed) / 4, "predictions do change"


def agreement_with_pyg(model: nn.Module, batch: Batch, selected: Tensor) -> list[float]:
    """Compare probabilities with those by PyG's own masks; return its fidelities, shares of changed predictions."""
    both = fidelity_plus, fidelity_minus
    explainer, explanation = explained_by_pyg(model, batch, selected, "model")
    by_pyg = pyg_fidelity(explainer, explanation)
    for function, mask in zip(both, (~selected, selected), strict=True):
        whole = explainer.get_prediction(batch.x, batch.edge_index, batch=batch.batch)
        masked = explainer.get_masked_prediction(batch.x, batch.edge_index, None, mask.double(), batch=batch.batch)
        drop = (whole.softmax(dim=1) - masked.softmax(dim=1)).gather(1, batch.y.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(function(model, batch, selected, batch.y), drop)
    return list(by_pyg)


def test_no_agreement_with_pyg_where_degrees_count() -> None:
    """A masked message still counts in the degrees of GCN; a removed edge does not."""
    model, graphs = make_gnn("gcn"), [slow.random_graph("undirected", seed) for seed in range(8)]
    batch = slow.batched(graphs)
    selected = select_edges(batch, slow.random_scores(batch, 0), 0.5)
    explainer, _ = explained_by_pyg(model, batch, selected, "model")
    masked = explainer.get_masked_prediction(batch.x, batch.edge_index, None, selected.double(), batch=batch.batch)
    whole = model(batch.x, batch.edge_index, batch.batch)
    drop = (whole.softmax(dim=1) - masked.softmax(dim=1))[:, 0]
    assert (fidelity_minus(model, batch, selected, 0) - drop).abs().max() > 1e-3


def test_attributes_of_edges_go_with_their_edges() -> None:
    class Weighted(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, batch: Tensor | None = None) -> Tensor:
            messages = x[edge_index[0]] * edge_weight.unsqueeze(1)
            return global_add_pool(torch.zeros_like(x).index_add(0, edge_index[1], messages), batch)

    data = SMALL.clone()
    data.edge_weight = torch.tensor([1.0, 2.0, 3.0, 4.0])
    fidelity = fidelity_minus(Weighted().eval(), data, FIRST, 1)  # logits (8, 1), and (0, 1) with the first edge only
    torch.testing.assert_close(fidelity, torch.tensor([sigmoid(1 - 8) - sigmoid(1)]))
    assert torch.equal(fidelity, fidelity_minus(Weighted().eval(), data, FIRST, 1, "leave"))
    with pytest.raises(ValueError, match=r"Weighted.forward\(.*\(got edge_weight missing\). Put them into the graph"):
        fidelity_minus(Weighted().eval(), SMALL, FIRST, 1)


def test_models_of_other_forms() -> None:
    class Positional(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return MeanOfSums()(*args).log_softmax(dim=1)

    expected = fidelity_plus(MeanOfSums().eval(), SMALL, FIRST)
    torch.testing.assert_close(fidelity_plus(Positional().eval(), SMALL, FIRST), expected)

    class OfGraph(nn.Module):
        def forward(self, data: Data, scale: float = 1.0) -> Tensor:
            return scale * MeanOfSums()(data.x, data.edge_index, data.batch)

    class KeywordOnly(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, *, batch: Tensor) -> Tensor:
            raise AssertionError

    torch.testing.assert_close(fidelity_plus(OfGraph().eval(), SMALL, FIRST), expected)
    with pytest.raises(ValueError, match=r"KeywordOnly.forward\(x, edge_index, batch\).*\(got batch by keyword only\)"):
        fidelity_plus(KeywordOnly().eval(), SMALL, FIRST)
    attention = GATConv(2, 2)
    attention.eval()
    with pytest.raises(ValueError, match=r"one row of output for each of 1 graphs \(got \[4, 2\]\)"):
        fidelity_plus(attention, SMALL, FIRST)


class Ending(nn.Module):
    """A model with something after its last step."""

    def __init__(self, model: nn.Module, end: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.end = model, end

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return self.end(self.model(x, edge_index, batch))


# Called with a model, graphs, and a score for each of their edges.
METRICS: dict[str, Callable[[nn.Module, Batch, Tensor], Any]] = {
    "fidelity_plus": lambda model, batch, scores: fidelity_plus(model, batch, select_edges(batch, scores, 0.5)),
    "fidelity_minus": lambda model, batch, scores: fidelity_minus(model, batch, select_edges(batch, scores, 0.5)),
    "fidelity_curve": lambda model, batch, scores: fidelity_curve(model, batch, scores).plus,
    "search_prefix": lambda model, batch, scores: search_prefix(model, batch, scores, 0.5).gain,
    "infidelity": lambda model, batch, scores: graph_infidelity(model, batch, scores, generator=seeded()),
    "robust_fidelity": lambda model, batch, scores: (
        robust_fidelity(model, batch, select_edges(batch, scores, 0.5), samples=3, generator=seeded()).plus
    ),
}


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def by_hand(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum(dim=1, keepdim=True)


@pytest.mark.parametrize("metric", METRICS)
def test_probabilities_are_refused(metric: str) -> None:
    model, batch = make_gnn("gin"), slow.batched(slow.random_graphs(1))
    measure, scores = METRICS[metric], slow.random_scores(batch, 1)
    for end in (by_hand, lambda out: out.softmax(dim=1), lambda out: out.float().softmax(dim=1).half()):
        with pytest.raises(ValueError, match=r"Expected logits \(got probabilities: .* Return what goes into softmax"):
            measure(Ending(model, end).eval(), batch, scores)
    one: list[Callable[[Tensor], Tensor]] = [
        lambda out: out[:, 0].sigmoid(),
        lambda out: nn.Sigmoid()(out)[:, 1:2],
        lambda out: nn.functional.logsigmoid(out[:, :1]),
    ]
    for end in one:
        with pytest.raises(ValueError, match=r"Expected one logit per graph \(got what a sigmoid or softmax returns"):
            measure(Ending(model, end).eval(), batch, scores)
    log = Ending(model, lambda out: out.log_softmax(dim=1)).eval()
    if metric == "infidelity":
        with pytest.raises(ValueError, match="got logarithms of probabilities"):
            measure(log, batch, scores)
    else:  # softmax leaves them as they are
        torch.testing.assert_close(measure(log, batch, scores), measure(model, batch, scores))


def test_a_sigmoid_of_nodes_is_refused() -> None:
    inner = Ending(GraphConvNet(), lambda out: out)
    inner.model, inner.end = GATConv(2, 1), torch.sigmoid
    with pytest.raises(ValueError, match="Expected one logit per graph"):
        fidelity_plus(RootClassifier(inner).eval(), SMALL, FIRST)


def test_logits_that_look_like_probabilities_by_chance() -> None:
    """Logits that add up to 1, but not without edges; and one logit beside a sigmoid within the model."""
    model = Ending(MeanOfSums(), lambda out: out - out.new_tensor([[0.25, 1.75]])).eval()
    assert model(SMALL.x, SMALL.edge_index).tolist() == [[0.75, 0.25]]
    expected = sigmoid(0.75 - 0.25) - sigmoid(0.75 - 0.0)
    torch.testing.assert_close(fidelity_plus(model, SMALL, FIRST), torch.tensor([expected]))
    gated = Ending(MeanOfSums(), lambda out: (out.sigmoid() * out)[:, :1]).eval()
    assert fidelity_plus(gated, SMALL, FIRST).shape == (1,)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("flat", [False, True])
def test_one_logit_is_that_of_two_classes(metric: str, flat: bool) -> None:
    model, batch = make_gnn("gin"), slow.batched(slow.random_graphs(2))
    measure, scores = METRICS[metric], slow.random_scores(batch, 2)
    logit = Ending(model, lambda out: out[:, 1] if flat else out[:, 1:2]).eval()
    beside_zero = Ending(model, lambda out: torch.stack([torch.zeros_like(out[:, 1]), out[:, 1]], dim=1)).eval()
    values = measure(logit, batch, scores)
    if metric == "infidelity":  # that of the logit for class 1, of its negative for class 0
        signed = Ending(model, lambda out: torch.stack([-out[:, 1], out[:, 1]], dim=1)).eval()
        expected = graph_infidelity(signed, batch, scores, generator=seeded())
    else:
        expected = measure(beside_zero, batch, scores)
    torch.testing.assert_close(values, expected)
    selected = select_edges(batch, scores, 0.5)
    for target in (0, 1):
        both = [fidelity_plus(classifier, batch, selected, target) for classifier in (logit, beside_zero)]
        torch.testing.assert_close(*both)
    with pytest.raises(ValueError, match="Expected target to be a class below 2"):
        fidelity_plus(logit, batch, selected, 2)


@pytest.mark.parametrize("nodes", POLICIES)
def test_explained_nodes_never_leave(nodes: Any) -> None:
    """A root without edges still has its own row; the two policies are the same."""
    inner = SimpleConv(combine_root="sum").eval()
    batch = Batch.from_data_list([SMALL, SMALL])
    selected = torch.cat([FIRST, ~FIRST])
    model = RootClassifier(inner).eval()
    whole, without = sigmoid(0.0 + 1), sigmoid(1.0)  # node 0 gets nothing from node 1, whose features are 0
    assert fidelity_plus(model, batch, selected, 1, nodes).tolist() == pytest.approx([whole - without] * 2)
    batch.x[[1, 5]] = torch.tensor([3.0, 0.0])
    whole, without = sigmoid(1 - 3), sigmoid(1)
    torch.testing.assert_close(fidelity_plus(model, batch, selected, 1, nodes), torch.tensor([whole - without, 0.0]))
    torch.testing.assert_close(fidelity_minus(model, batch, selected, 1, nodes), torch.tensor([0.0, whole - without]))


def test_the_model_is_called_as_often_for_one_graph_as_for_many() -> None:
    model = make_gnn("gin")
    calls: list[int] = []
    model.register_forward_hook(lambda *_: calls.append(1))
    for graphs in ([slow.random_graph("undirected", 0)], slow.random_graphs(0) * 20):
        batch = slow.batched(graphs)
        scores = slow.random_scores(batch, 0)
        fidelity_plus(model, batch, select_edges(batch, scores, 0.5))
        fidelity_curve(model, batch, scores, [0.5, 0.7])
        robust_fidelity(model, batch, select_edges(batch, scores, 0.5), samples=3)
        assert len(calls) == 2 + (1 + 2 * 2) + (1 + 2 * 3)
        calls.clear()


def test_wrong_arguments() -> None:
    model = MeanOfSums().eval()
    with pytest.raises(ValueError, match="Expected node_policy to be 'stay' or 'leave' \\(got 'go'\\)"):
        fidelity_plus(model, SMALL, FIRST, node_policy="go")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"or a Batch \(got list\). Batch.from_data_list\(graphs\) makes"):
        fidelity_plus(model, [SMALL], FIRST)  # type: ignore[arg-type]
    for target in (2, -1, 0.0, torch.tensor([0, 1]), True):
        with pytest.raises(ValueError, match="Expected target to be a class below 2, or one for each of 1 graphs"):
            fidelity_plus(model, SMALL, FIRST, target)
    with pytest.raises(ValueError, match=r"as bool of shape \[4\].*Use select_edges"):
        fidelity_minus(model, SMALL, FIRST.float())
    with pytest.raises(ValueError, match=r"Call model\.eval\(\) first"):
        fidelity_plus(MeanOfSums(), SMALL, FIRST)
    with pytest.raises(ValueError, match=r"logits \[G, C\] of classes, or one of two \(got an output \[1, 0\]"):
        fidelity_plus(MeanOfSums().eval(), Data(x=SMALL.x[:, :0], edge_index=SMALL.edge_index), FIRST)


def test_model_and_graph_are_left_as_they_were() -> None:
    model, batch = make_gnn("gin"), slow.batched(slow.random_graphs(3))
    before = {key: value.clone() for key, value in batch.to_dict().items()}
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    fidelity_minus(model, batch, torch.ones(batch.num_edges, dtype=torch.bool), node_policy="leave")
    assert set(before) == set(batch.to_dict())
    assert all(torch.equal(value, batch[key]) for key, value in before.items())
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in weights.items())
