"""Captum's infidelity and sensitivity for batches of graphs."""

from __future__ import annotations

import captum.metrics
import metrics_oracle as slow
import pytest
import torch
from conftest import make_gnn
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data
from torch_geometric.nn import SimpleConv, global_add_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution, undirected_feature_mask
from captum_goat.metrics import drop_edges, gaussian_noise, graph_infidelity, graph_sensitivity


class Sums(Module):
    """Every edge adds the features of its source to the logits: a model that is linear in the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = SimpleConv()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.conv(x, edge_index), batch)


SUMS = Sums().eval()


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def goat(model: Module, data: Data | Batch, target: Tensor) -> Tensor:
    mask = torch.ones(data.edge_index.size(1), dtype=data.x.dtype)
    return GOAtAttribution(model).attribute(mask, target, (data.x, data.edge_index, data.batch))


def test_infidelity_by_hand() -> None:
    """All edges dropped: the scores' sum against what all edges together do."""
    graphs = slow.random_graphs(0)
    batch = slow.batched(graphs)
    scores = slow.random_scores(batch, 0)
    infidelity = graph_infidelity(SUMS, batch, scores, batch.y, drop_edges(1.0), samples=2)
    for index, part in enumerate(slow.per_graph(graphs, scores)):
        graph = graphs[index]
        drop = float(graph.x[graph.edge_index[0], graph.y].sum())
        assert float(infidelity[index]) == pytest.approx((float(part.sum()) - drop) ** 2)


@pytest.mark.parametrize("perturb_func", [None, gaussian_noise(0.5)])
def test_infidelity_of_exact_scores_is_zero(perturb_func: object) -> None:
    batch = slow.batched(slow.random_graphs(1))
    exact = batch.x[batch.edge_index[0], batch.y[batch.batch[batch.edge_index[0]]]]
    infidelity = graph_infidelity(SUMS, batch, exact, batch.y, perturb_func)  # type: ignore[arg-type]
    torch.testing.assert_close(infidelity, torch.zeros(8, dtype=torch.float64), rtol=0, atol=1e-12)
    assert graph_infidelity(SUMS, batch, exact + 1.0, batch.y, perturb_func, generator=seeded()).sum() > 1e-3  # type: ignore[arg-type]


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("form", ["undirected", "directed", "self-loops", "mixed"])
def test_one_graph_has_what_captum_has(form: str, normalize: bool) -> None:
    model, graph = make_gnn("gcn"), slow.random_graph(form, 3)
    scores, target = slow.random_scores(graph, 3), 1
    infidelity = graph_infidelity(model, graph, scores, target, samples=7, normalize=normalize, generator=seeded())
    both = undirected_feature_mask(graph.edge_index) if form in ("undirected", "self-loops") else None
    if both is None:
        both = torch.unique(graph.edge_index, dim=1, return_inverse=True)[1]
    # The same features in the order of their first columns, so that the same draws drop the same edges.
    order = list(dict.fromkeys(both.tolist()))
    features = torch.tensor([order.index(feature) for feature in both.tolist()])
    expected = captum.metrics.infidelity(
        EdgeMaskedModel(model),
        drop_edges(0.1, feature_mask=features, generator=seeded()),
        torch.ones(1, graph.num_edges, dtype=torch.float64),
        scores.unsqueeze(0),
        additional_forward_args=graph,
        target=target,
        n_perturb_samples=7,
        normalize=normalize,
    )
    torch.testing.assert_close(infidelity, expected)


def test_infidelity_of_a_batch_is_that_of_its_graphs() -> None:
    """With all edges dropped nothing is random."""
    model, graphs = make_gnn("gin"), slow.random_graphs(2)
    batch = slow.batched(graphs)
    scores = slow.random_scores(batch, 2)
    infidelity = graph_infidelity(model, batch, scores, perturb_func=drop_edges(1.0), samples=3)
    alone = [
        graph_infidelity(model, graph, part, perturb_func=drop_edges(1.0), samples=1)
        for graph, part in zip(graphs, slow.per_graph(graphs, scores), strict=True)
        if graph.num_edges
    ]
    torch.testing.assert_close(infidelity[[form != "no edges" for form in slow.FORMS]], torch.cat(alone))
    assert infidelity[slow.FORMS.index("no edges")] == 0


def test_infidelity_of_random_drops_by_a_loop() -> None:
    """The same draws for the whole batch, one graph and sample at a time."""
    model, graphs = make_gnn("sage_sum"), slow.random_graphs(5)
    batch = slow.batched(graphs)
    scores = slow.random_scores(batch, 5)
    infidelity = graph_infidelity(model, batch, scores, batch.y, drop_edges(0.3, generator=seeded()), samples=4)
    (dropped,), (masks,) = drop_edges(0.3, generator=seeded())(torch.ones(4, batch.num_edges, dtype=torch.float64))
    whole = model(batch.x, batch.edge_index, batch.batch)
    errors = torch.zeros(8, dtype=torch.float64)
    for drop, mask in zip(dropped, masks, strict=True):
        left = EdgeMaskedModel(model)(mask, batch.x, batch.edge_index, batch.batch)
        for index, part in enumerate(slow.per_graph(graphs, drop * scores)):
            change = whole[index, batch.y[index]] - left[index, batch.y[index]]
            errors[index] += (part.sum() - change) ** 2 / 4
    torch.testing.assert_close(infidelity, errors.detach())


def test_sensitivity_by_hand() -> None:
    """Scores that are the sources' features move as far as these do; the largest of two samples counts."""
    batch = slow.batched(slow.random_graphs(0))

    def features(model: Module, data: Data | Batch, target: Tensor) -> Tensor:
        assert model is SUMS
        assert torch.is_grad_enabled()
        assert target.tolist() == SUMS(batch.x, batch.edge_index, batch.batch).argmax(dim=1).tolist()
        return data.x[data.edge_index[0], 0]

    sensitivity = graph_sensitivity(SUMS, batch, features, radius=0.5, samples=2, generator=seeded())
    noise = torch.rand((2, batch.num_nodes, 4), generator=seeded(), dtype=torch.float64) - 0.5
    for index, graph in enumerate(batch.to_data_list()):
        source = graph.edge_index[0]
        size = float(graph.x[source, 0].norm()) or 1.0
        moved = [float(sample[batch.ptr[index] + source, 0].norm()) / size for sample in noise]
        assert float(sensitivity[index]) == pytest.approx(max(moved))


def test_sensitivity_of_one_graph_is_that_of_captum() -> None:
    model, graph = make_gnn("gin"), slow.random_graph("directed", 4)
    sensitivity = graph_sensitivity(model, graph, goat, 1, radius=0.3, samples=5, generator=seeded())

    def explain(inputs: Tensor | tuple[Tensor]) -> tuple[Tensor]:
        features = inputs[0] if isinstance(inputs, tuple) else inputs
        graphs = [Data(x=x, edge_index=graph.edge_index) for x in features]
        with torch.enable_grad():
            return (torch.stack([goat(model, changed, torch.tensor([1])) for changed in graphs]),)

    def moved(inputs: Tensor) -> Tensor:
        return inputs + 0.3 * (2.0 * torch.rand(inputs.shape, generator=seeded(), dtype=inputs.dtype) - 1.0)

    expected = captum.metrics.sensitivity_max(explain, (graph.x[None],), moved, n_perturb_samples=5)
    torch.testing.assert_close(sensitivity, expected)
    assert sensitivity > 0.01


def test_sensitivity_of_goat_is_small_and_that_of_noise_is_not() -> None:
    model, batch = make_gnn("gcn"), slow.batched(slow.random_graphs(1))
    before = batch.x.clone()
    stable = graph_sensitivity(model, batch, goat, batch.y, radius=1e-6, samples=2)
    assert stable.max() < 1e-2
    unstable = graph_sensitivity(model, batch, lambda _model, data, _target: torch.randn(data.num_edges), samples=2)
    assert unstable[[form != "no edges" for form in slow.FORMS]].min() > 0.1
    assert torch.equal(batch.x, before)


def test_explainers_may_write_on_the_graph_they_get() -> None:
    graph = slow.random_graph("undirected", 0)
    before = graph.x.clone()

    def careless(_model: Module, data: Data | Batch, _target: Tensor) -> Tensor:
        data.x.zero_()
        data.edge_index.zero_()
        return torch.ones(data.edge_index.size(1))

    assert graph_sensitivity(SUMS, graph, careless, samples=2).tolist() == [0.0]
    assert torch.equal(graph.x, before)
    assert graph.edge_index.any()


def test_wrong_arguments() -> None:
    graph = slow.random_graph("undirected", 0)
    for wrong in ({"radius": 0.0}, {"samples": 0}):
        with pytest.raises(ValueError, match="Expected a radius above 0 and one sample or more"):
            graph_sensitivity(SUMS, graph, goat, **wrong)
    with pytest.raises(ValueError, match="Expected one sample or more"):
        graph_infidelity(SUMS, graph, torch.zeros(graph.num_edges), samples=0)
    with pytest.raises(ValueError, match=r"Expected scores of shape \[\d+\]"):
        graph_sensitivity(SUMS, graph, lambda *_: torch.ones(1))
    with pytest.raises(ValueError, match="Expected a model in evaluation mode"):
        graph_infidelity(make_gnn("gcn").train(), graph, torch.zeros(graph.num_edges))
    whole = Data(x=graph.x.long(), edge_index=graph.edge_index)
    with pytest.raises(ValueError, match=r"floating-point node features, .* \(got torch.int64\)"):
        graph_sensitivity(SUMS, whole, goat)
