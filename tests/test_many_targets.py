"""Several targets at once, and the predicted class: the same numbers as one call of ``attribute`` for each."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCN, GraphSAGE, global_add_pool

from captum_goat import GOAtAttribution


class Classifier(nn.Module):
    def __init__(self, calls: list[int] | None = None) -> None:
        super().__init__()
        self.gnn = GCN(3, 8, 2, 8)
        self.head = nn.Linear(8, 4)
        self.calls = [] if calls is None else calls

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        self.calls.append(1)
        return self.head(torch.tanh(global_add_pool(self.gnn(x, edge_index).relu(), batch)))


@pytest.fixture
def graphs() -> Batch:
    torch.manual_seed(0)
    sizes = [5, 3, 6]
    return Batch.from_data_list(
        [
            Data(x=torch.randn(n, 3, dtype=torch.double), edge_index=torch.randint(n, (2, 2 * n)), num_nodes=n)
            for n in sizes
        ]
    )


def arguments(graphs: Batch) -> tuple[Tensor, ...]:
    return graphs.x, graphs.edge_index, graphs.batch


def test_all_classes_equal_one_class_after_the_other(graphs: Batch) -> None:
    goat = GOAtAttribution(Classifier().double().eval())
    mask = torch.rand(graphs.num_edges, dtype=torch.double)
    attributions, deltas = goat.attribute_all(
        mask, additional_forward_args=arguments(graphs), return_convergence_delta=True
    )
    assert attributions.shape == (graphs.num_edges, 4)
    assert deltas.shape == (3, 4)
    for number in range(4):
        expected, delta = goat.attribute(mask, number, arguments(graphs), return_convergence_delta=True)
        torch.testing.assert_close(attributions[:, number], expected)
        torch.testing.assert_close(deltas[:, number], delta, atol=1e-12, rtol=0)


def test_the_model_runs_as_often_as_for_one_target(graphs: Batch) -> None:
    calls: list[int] = []
    model = Classifier(calls).double().eval()
    goat, mask = GOAtAttribution(model), torch.ones(graphs.num_edges, dtype=torch.double)
    goat.attribute(mask, 0, arguments(graphs))
    once = len(calls)
    goat.attribute_all(mask, additional_forward_args=arguments(graphs))
    assert len(calls) == 2 * once


def test_several_masks_of_one_graph(graphs: Batch) -> None:
    graph = graphs[0]
    goat = GOAtAttribution(Classifier().double().eval())
    masks, own = torch.rand(3, graph.num_edges, dtype=torch.double), (graph.x, graph.edge_index)
    attributions = goat.attribute_all(masks, additional_forward_args=own)
    assert attributions.shape == (3, graph.num_edges, 4)
    for number in range(4):
        torch.testing.assert_close(attributions[..., number], goat.attribute(masks, number, own))
    chosen = goat.attribute_all(masks, [2, [0, 1, 3]], own)
    torch.testing.assert_close(chosen[..., 0], attributions[..., 2])
    torch.testing.assert_close(chosen[..., 1], goat.attribute(masks, [0, 1, 3], own))
    with pytest.raises(ValueError, match="2 targets for 3 masks"):
        goat.attribute_all(masks, [[0, 1]], own)


def test_nodes_of_one_graph(graphs: Batch) -> None:
    graph, model = graphs[2], GraphSAGE(3, 4, 2, 2).double().eval()
    goat, mask = GOAtAttribution(model), torch.ones(graphs[2].num_edges, dtype=torch.double)
    targets = [(node, label) for node in range(graph.num_nodes) for label in range(2)]
    attributions = goat.attribute_all(mask, targets, (graph.x, graph.edge_index))
    for number, target in enumerate(targets):
        torch.testing.assert_close(attributions[:, number], goat.attribute(mask, target, (graph.x, graph.edge_index)))
    with pytest.raises(ValueError, match="share edges"):
        goat.attribute_all(mask, additional_forward_args=(graph.x, graph.edge_index))


def test_features_and_edges_at_once(graphs: Batch) -> None:
    goat = GOAtAttribution(Classifier().double().eval(), mask_type="node_and_edge")
    inputs = graphs.x, torch.ones(graphs.num_edges, dtype=torch.double)
    features, edges = goat.attribute_all(inputs, additional_forward_args=(graphs.edge_index, graphs.batch))
    assert features.shape == (*graphs.x.shape, 4)
    for number in range(4):
        expected = goat.attribute(inputs, number, (graphs.edge_index, graphs.batch))
        torch.testing.assert_close((features[..., number], edges[..., number]), expected)


def test_models_that_return_one_number(graphs: Batch) -> None:
    class Regression(Classifier):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            return super().forward(x, edge_index, batch)[:, 0]

    goat, mask = GOAtAttribution(Regression().double().eval()), torch.ones(graphs.num_edges, dtype=torch.double)
    expected = goat.attribute(mask, None, arguments(graphs))
    torch.testing.assert_close(goat.attribute_all(mask, None, arguments(graphs)), expected.unsqueeze(-1))


def test_outputs_without_classes_need_targets(graphs: Batch) -> None:
    class Table(Classifier):
        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            return super().forward(x, edge_index, batch).view(-1, 2, 2)

    goat, mask = GOAtAttribution(Table().double().eval()), torch.ones(graphs.num_edges, dtype=torch.double)
    with pytest.raises(ValueError, match="Name the targets"):
        goat.attribute_all(mask, None, arguments(graphs))
    assert goat.attribute_all(mask, [(0, 1), (1, 1)], arguments(graphs)).shape == (graphs.num_edges, 2)
