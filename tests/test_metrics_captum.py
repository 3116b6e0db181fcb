"""Captum's infidelity for batches of graphs."""

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
from captum_goat.metrics import drop_edges, gaussian_noise, graph_infidelity


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


def test_wrong_arguments() -> None:
    graph = slow.random_graph("undirected", 0)
    with pytest.raises(ValueError, match="Expected one sample or more"):
        graph_infidelity(SUMS, graph, torch.zeros(graph.num_edges), samples=0)
    with pytest.raises(ValueError, match="Expected a model in evaluation mode"):
        graph_infidelity(make_gnn("gcn").train(), graph, torch.zeros(graph.num_edges))
    with pytest.raises(ValueError, match=r"\(got ndarray\). Convert them by torch.as_tensor\(scores\)"):
        graph_infidelity(SUMS, graph, torch.zeros(graph.num_edges).numpy())  # type: ignore[arg-type]
