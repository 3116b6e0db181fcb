"""What ``check`` says of models, in Python and from the shell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from bulk_models import numbered_graphs, watched_model
from conftest import make_gnn, run_command
from torch import Tensor, nn
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn import GCN, GraphConv, HeteroConv

from captum_goat import GOAtAttribution, check

GRAPHS = [graph for graph in numbered_graphs(6) if graph.num_edges]


class Layer(nn.Module):
    """One layer and a function after it."""

    def __init__(self, aggr: str = "sum", end: str = "relu") -> None:
        super().__init__()
        self.conv, self.end = GraphConv(4, 3, aggr=aggr), end

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = getattr(self.conv(x, edge_index), self.end)()
        return out


@pytest.mark.parametrize("kind", ["gcn", "gin"])
@pytest.mark.parametrize("count", [1, 3])
def test_exact_models(kind: str, count: int) -> None:
    model = make_gnn(kind, dtype=torch.float32)
    data = Batch.from_data_list(GRAPHS[:count]) if count > 1 else GRAPHS[0]
    result = check(model, data)
    assert result.is_exact
    assert result.supported_at == ("message", "adjacency")
    for mask in result.masks:
        predicted = model(data.x, data.edge_index, data.batch).argmax(dim=1)
        expected = GOAtAttribution(model, at=mask.at).attribute(torch.ones(data.num_edges), predicted, data)
        assert mask.total == pytest.approx(float(expected.sum()), rel=1e-4, abs=1e-5)
        assert mask.delta < 1e-4
        assert 0 < mask.backward_passes < mask.forward_passes
    assert not model._forward_pre_hooks
    assert f"prediction for {count} graph(s), {data.num_nodes} nodes" in str(result)
    assert str(result).splitlines()[3].startswith("message    exact")


def test_passes() -> None:
    """Two steps and a ReLU: two points for products of three factors, and one for the gate alone."""
    (message, adjacency) = check(GCN(4, 8, num_layers=2, out_channels=2).eval(), GRAPHS[0]).masks
    assert (message.forward_passes, message.backward_passes) == (5, 3)
    assert adjacency.forward_passes == adjacency.backward_passes + 2 >= 2 + 8 + 1


def test_one_row_per_node() -> None:
    result = check(Layer().eval(), GRAPHS[0])
    busiest = int(GRAPHS[0].edge_index[1].bincount().argmax())
    assert result.is_exact
    assert f"prediction of row {busiest} of the output" in result.explained


def test_unsupported_models() -> None:
    layer = check(Layer(aggr="max").eval(), GRAPHS[0])
    assert layer.is_exact
    assert layer.supported_at == ("message",)
    assert "'conv.aggr_module' (MaxAggregation)" in layer.masks[1].reason
    assert "Use at='message'" in str(layer)
    sine = check(Layer(end="sin").eval(), GRAPHS[0])
    assert not sine.is_exact
    assert sine.supported_at == ()
    assert sine.masks[0].reason.startswith("'sin' in the model (Layer)")
    assert "captum_goat.rules.gate" in str(sine)
    by_hand = check(watched_by_hand(), GRAPHS[0])
    assert all("by hand" in mask.reason for mask in by_hand.masks)


def watched_by_hand() -> nn.Module:
    class ByHand(Layer):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            sums = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]].flip(0))
            return super().forward(sums, edge_index)

    return ByHand().eval()


def test_heterogeneous_graphs() -> None:
    class Hetero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = HeteroConv({("a", "to", "b"): GraphConv((4, 4), 3), ("b", "to", "a"): GraphConv((4, 4), 3)})

        def forward(self, x_dict: dict[str, Tensor], edge_index_dict: dict[tuple[str, str, str], Tensor]) -> Tensor:
            out: Tensor = self.conv(x_dict, edge_index_dict)["b"].relu().sum(dim=0, keepdim=True)
            return out

    data = HeteroData()
    data["a"].x, data["b"].x = torch.rand(3, 4), torch.rand(2, 4)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    data["b", "to", "a"].edge_index = torch.tensor([[0, 1], [0, 2]])
    assert check(Hetero().eval(), data).is_exact


@pytest.mark.slow
def test_arguments_and_refusals() -> None:
    model = make_gnn("gcn", dtype=torch.float32)
    result = check(model, GRAPHS[0], arguments=lambda data: (2 * data.x, data.edge_index))
    assert result.masks[0].total != check(model, GRAPHS[0]).masks[0].total
    with pytest.raises(ValueError, match="evaluation mode"):
        check(model.train(), GRAPHS[0])
    with pytest.raises(ValueError, match="Expected a method that attributes the edges"):
        check(GOAtAttribution(model.eval(), mask_type="node"), GRAPHS[0])


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(watched_model().state_dict(), "weights.pt")
    torch.save(GRAPHS, "graphs.pt")
    Path("own_models_of_check.py").write_text("from bulk_models import Watched\n")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # as a console script has it
    words = ["check", "--model", "weights.pt", "--class", "own_models_of_check:Watched", "--data", "graphs.pt"]
    monkeypatch.setattr(sys, "argv", ["captum-goat", *words, "--graph", "1"])
    assert run_command() == 0
    assert "adjacency  exact" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["captum-goat", *words, "--graph", "9"])
    assert run_command() == 1
    assert "Expected --graph from 0 to" in capsys.readouterr().err
