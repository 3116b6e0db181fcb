"""Models with recurrent cells."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GatedGraphConv,
    GCNConv,
    GINConv,
    GraphConv,
    GRUAggregation,
    JumpingKnowledge,
    NNConv,
    SAGEConv,
    Set2Set,
    global_add_pool,
)
from torch_geometric.nn.models import AttentiveFP

from tests.wild.cases import CHANNELS as C
from tests.wild.cases import CLASSES, EDGE_CHANNELS, Wild, mlp


class ChemistryMPNN(nn.Module):
    """The message passing network of quantum chemistry: edge networks, a GRU, set2set."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = NNConv(C, C, mlp(EDGE_CHANNELS, C, C * C), aggr="add")
        self.gru, self.readout, self.head = nn.GRU(C, C), Set2Set(C, processing_steps=2), mlp(2 * C, C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        state = x.unsqueeze(0)
        for _ in range(2):
            message = self.conv(x, edge_index, edge_attr).relu()
            out, state = self.gru(message.unsqueeze(0), state)
            x = out.squeeze(0)
        return self.head(self.readout(x, batch))


class GatedGraph(nn.Module):
    """Gated graph convolutions with a soft attention readout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate, self.head = GatedGraphConv(C, 2), nn.Linear(2 * C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = self.conv(x, edge_index)
        gate = torch.sigmoid(self.gate(torch.cat([hidden, x], dim=1)))
        return self.head(global_add_pool(gate * hidden.tanh(), batch))


class Fingerprint(nn.Module):
    """AttentiveFP, as PyG has it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = AttentiveFP(C, C, CLASSES, EDGE_CHANNELS, num_layers=2, num_timesteps=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:
        return self.net(x, edge_index, edge_attr, batch)


class SetReadout(nn.Module):
    """GIN with set2set."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.readout, self.head = GINConv(mlp(C, C, C)), Set2Set(C, 2), nn.Linear(2 * C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(self.readout(self.conv(x, edge_index).relu(), batch))


class SequenceOfNeighbors(nn.Module):
    """GraphSAGE with an LSTM over neighbors."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GraphConv(C, C), SAGEConv(C, C, aggr="lstm")
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        edge_index = edge_index[:, edge_index[1].argsort()]
        x = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.head(global_add_pool(x, batch))


class SequenceOfNodes(nn.Module):
    """A GRU over the nodes of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.readout, self.head = GraphConv(C, C), GRUAggregation(C, C), nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.head(self.readout(self.conv(x, edge_index).relu(), batch))


class JumpingLSTM(nn.Module):
    """Jumping knowledge by a bidirectional LSTM over layers."""

    def __init__(self) -> None:
        super().__init__()
        self.convs, self.jump = nn.ModuleList(GCNConv(C, C) for _ in range(2)), JumpingKnowledge("lstm", C, 2)
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        layers = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            layers.append(x)
        return self.head(global_add_pool(self.jump(layers), batch))


class GraphGRU(nn.Module):
    """A GRU whose linear layers are graph convolutions, over a sequence of features."""

    def __init__(self) -> None:
        super().__init__()
        names = ("to_update", "to_reset", "to_new")
        self.of_input = nn.ModuleDict({name: GraphConv(C // 2, C) for name in names})
        self.of_state = nn.ModuleDict({name: GraphConv(C, C) for name in names})
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        state = x.new_zeros(len(x), C)
        for now in x.split(C // 2, dim=1):
            parts = {
                name: (self.of_input[name](now, edge_index), self.of_state[name](state, edge_index))
                for name in ("to_update", "to_reset")
            }
            update, reset = (torch.sigmoid(a + b) for a, b in parts.values())
            new = self.of_input["to_new"](now, edge_index) + self.of_state["to_new"](state * reset, edge_index)
            state = update * state + (1 - update) * new.tanh()
        return self.head(state.relu())


class EvolvingWeights(nn.Module):
    """EvolveGCN: a GRU changes the weights of a convolution; no edge reaches the GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.weight, self.head = nn.GRUCell(C, C), nn.Parameter(torch.empty(C, C)), nn.Linear(C, CLASSES)
        self.conv = GCNConv(C, C, normalize=False)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        weight = self.cell(self.weight, self.weight)
        return self.head(global_add_pool(self.conv(x @ weight, edge_index).relu(), batch))


class Cells(nn.Module):
    """An LSTM cell and a plain recurrent cell after convolutions that are shared."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.lstm, self.rnn = GraphConv(C, C), nn.LSTMCell(C, C), nn.RNNCell(C, C, nonlinearity="relu")
        self.head = nn.Linear(C, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = cell = torch.zeros_like(x)
        for _ in range(2):
            hidden, cell = self.lstm(self.conv(x, edge_index), (hidden, cell))
            x = self.rnn(x, hidden)
        return self.head(global_add_pool(x, batch))


CASES = [
    Wild(ChemistryMPNN, lambda g: (g.x, g.edge_index, g.edge_attr, g.batch), deletes=True),
    Wild(GatedGraph, deletes=True),
    Wild(Fingerprint, lambda g: (g.x, g.edge_index, g.edge_attr, g.batch)),
    Wild(SetReadout, deletes=True),
    Wild(SequenceOfNeighbors),
    Wild(SequenceOfNodes, deletes=True),
    Wild(JumpingLSTM),
    Wild(GraphGRU, lambda g: (g.x, g.edge_index), target=(2, 1), deletes=True),
    Wild(EvolvingWeights, deletes=True),
    Wild(Cells, deletes=True),
]
