"""Completeness in float32 on trained models, for every graph of a generated data set."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Batch

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, train_classifier


@pytest.mark.parametrize("conv", ["gcn", "sage", "gin"])
def test_completeness_of_trained_models_in_single_precision(conv: str) -> None:
    graphs = ba_2motifs(num_graphs=1000, seed=1)
    torch.manual_seed(0)
    model = GraphClassifier(conv, 10, 32, 2, normalize=False)
    result = train_classifier(model, graphs, epochs=60, progress=False)
    assert result.test_accuracy > 0.9, "an untrained model would prove little"
    data = Batch.from_data_list(graphs)
    arguments = (data.x, data.edge_index, data.batch)
    mask = torch.ones(data.edge_index.size(1))
    with torch.no_grad():
        output = model(*arguments)
        without = EdgeMaskedModel(model)(torch.zeros_like(mask), *arguments)
    for target in (output.argmax(dim=1), 1 - output.argmax(dim=1)):
        found, delta = GOAtAttribution(model).attribute(mask, target, arguments, return_convergence_delta=True)
        value, value_without = (each.gather(1, target.view(-1, 1)).view(-1) for each in (output, without))
        assert bool((delta.abs() <= 1e-5 * value.abs().clamp(min=1.0)).all()), float(delta.abs().max())
        sums = torch.zeros(len(graphs)).index_add(0, data.batch[data.edge_index[0]], found)
        torch.testing.assert_close(sums, value - value_without, rtol=1e-5, atol=1e-5)
