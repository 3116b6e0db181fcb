"""Trained models: completeness in float32 for every graph of a generated dataset, and motifs found."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import EdgeConv, GATConv, global_max_pool, global_mean_pool
from torch_geometric.utils import degree

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, train_model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("conv", ["gcn", "sage", "gin"])
def test_completeness_of_trained_models_in_single_precision(conv: str) -> None:
    graphs = ba_2motifs(num_graphs=400, seed=1)
    torch.manual_seed(0)
    model = GraphClassifier(conv, 10, 32, 2, normalize=False)
    result = train_model(model, graphs, epochs=60, lr=0.01, show_progress=False)
    assert result.test_accuracy > 0.9, "an untrained model would prove little"
    data = Batch.from_data_list(graphs)
    arguments = (data.x, data.edge_index, data.batch)
    mask = torch.ones(data.edge_index.size(1))
    with torch.no_grad():
        output = model(*arguments)
        without = EdgeMaskedModel(model)(torch.zeros_like(mask), *arguments)
    for target in (output.argmax(dim=1), 1 - output.argmax(dim=1)):
        attributions, delta = GOAtAttribution(model).attribute(mask, target, arguments, return_convergence_delta=True)
        value, value_without = (logits.gather(1, target.view(-1, 1)).view(-1) for logits in (output, without))
        assert bool((delta.abs() <= 1e-5 * value.abs().clamp(min=1.0)).all()), float(delta.abs().max())
        sums = torch.zeros(len(graphs)).index_add(0, data.batch[data.edge_index[0]], attributions)
        torch.testing.assert_close(sums, value - value_without, rtol=1e-5, atol=1e-5)


class Attentive(nn.Module):
    """Three layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GATConv(10, 16, heads=2), GATConv(32, 16, heads=2), GATConv(32, 16, heads=2)])
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
        return self.head(global_mean_pool(x, batch))


class MaxPooled(nn.Module):
    """Two layers whose messages compete, and nodes that compete in the end."""

    def __init__(self) -> None:
        super().__init__()
        mlps = [nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 32)) for width in (10, 32)]
        self.convs = nn.ModuleList([EdgeConv(mlp, aggr="max") for mlp in mlps])
        self.head = nn.Linear(32, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv in self.convs:
            x = F.relu(conv(x, edge_index))
        return self.head(global_max_pool(x, batch))


@pytest.mark.parametrize(("kind", "least"), [(Attentive, 0.85), (MaxPooled, 0.8)])
def test_attention_and_maxima_find_the_motif(kind: type[nn.Module], least: float) -> None:
    """By the area under the ROC curve, on graphs that were not trained on; 0.5 would be chance.

    What a model looks for depends on its training: some tell one class by the motif of the other, and its absence is no
    edge. This seed is one that looks for both.
    """
    graphs = ba_2motifs(num_graphs=400, seed=1)
    for graph in graphs:  # attention averages, and so tells nothing from features that are all the same
        graph.x = F.one_hot(degree(graph.edge_index[0], 25).long().clamp(max=9), 10).float()
    torch.manual_seed(1)
    model = kind()
    result = train_model(model, graphs, epochs=60, show_progress=False)
    assert result.test_accuracy > 0.9
    data = Batch.from_data_list([graphs[index] for index in result.test_set.tolist()])
    arguments = (data.x, data.edge_index, data.batch)
    mask = torch.ones(data.edge_index.size(1))
    with torch.no_grad():
        output = model(*arguments)
        without = EdgeMaskedModel(model)(torch.zeros_like(mask), *arguments)
    target = output.argmax(dim=1)
    attributions = GOAtAttribution(model).attribute(mask, target, arguments)
    of_edge = data.batch[data.edge_index[0]]
    sums = torch.zeros(len(output)).index_add(0, of_edge, attributions)
    value, value_without = (logits.gather(1, target.view(-1, 1)).view(-1) for logits in (output, without))
    torch.testing.assert_close(sums, value - value_without, rtol=1e-5, atol=1e-5)
    areas = [
        roc_auc_score(data.edge_label[of_edge == graph].numpy(), attributions[of_edge == graph].numpy())
        for graph in range(len(output))
    ]
    assert sum(areas) / len(areas) > least
