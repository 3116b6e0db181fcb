"""Building blocks for the cases of models: wrappers, and functions that call a model with a graph."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import torch_geometric.nn.models as pyg
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, SAGEConv
from torch_geometric.utils import scatter

from benchmarks.compat.check import NotHere
from benchmarks.compat.graphs import CHANNELS as C
from benchmarks.compat.graphs import EDGE_CHANNELS, NODES, Graph
from benchmarks.compat.networks import graph_of_nodes, mlp

_LINK = torch.tensor([[3], [4]])


class Variational(nn.Module):
    """Two GCN layers, one for the mean and one for the logarithm of the deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.mean, self.log = GCNConv(C, C), GCNConv(C, C), GCNConv(C, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and logarithm of the deviation of each node."""
        x = torch.relu(self.hidden(x, edge_index))
        return self.mean(x, edge_index), self.log(x, edge_index)


class EdgeModel(nn.Module):
    """The features of an edge from those of its ends."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp(2 * C + EDGE_CHANNELS, C)

    def forward(self, src: Tensor, dst: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor) -> Tensor:
        """Return a row per edge."""
        out: Tensor = self.mlp(torch.cat([src, dst, edge_attr], dim=1))
        return out


class NodeModel(nn.Module):
    """The features of a node from those of its edges, summed by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = mlp(2 * C, C)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, u: Tensor, batch: Tensor) -> Tensor:
        """Return a row per node."""
        sums = scatter(edge_attr, edge_index[1], dim=0, dim_size=len(x), reduce="sum")
        out: Tensor = self.mlp(torch.cat([x, sums], dim=1))
        return out


def nothing(why: str) -> Callable[[], nn.Module]:
    """Return a builder that raises NotHere with a reason."""

    def build() -> nn.Module:
        raise NotHere(why)

    return build


def infomax() -> Any:
    """Return DeepGraphInfomax with a corruption that is not random."""
    return pyg.DeepGraphInfomax(
        C,
        encoder=pyg.GCN(C, C, 2),
        summary=lambda z, *args, **kwargs: z.mean(dim=0).sigmoid(),
        corruption=lambda x, edge_index: (x.flip(0), edge_index),
    )


def gpse(**options: Any) -> Any:
    """Return a small GPSE that returns encodings, as pretrained ones do."""
    gpse_module = import_module("torch_geometric.nn.models.gpse")  # not in every version
    sizes = {"dim_in": C, "dim_inner": C, "dim_out": 5, "num_node_targets": 3, "num_graph_targets": 2}
    model = pyg.GPSE(**sizes, layers_mp=2, multi_head_dim_inner=C, **options)
    model.post_mp = gpse_module.IdentityHead()
    return model


def deep(block: str, **options: Any) -> Any:
    """Return a DeepGCNLayer."""
    return pyg.DeepGCNLayer(GCNConv(C, C), nn.BatchNorm1d(C), nn.ReLU(), block=block, **options)


def reversible(**options: Any) -> Any:
    """Return a GroupAddRev."""
    return pyg.GroupAddRev(SAGEConv(C // 2, C // 2), num_groups=2, **options)


# The steps of networks: n is the network, n.model the model, g the graph.


def nodes(n: Any, g: Graph) -> Any:
    """Take the mean over a model's rows of nodes."""
    return n.pooled(n.model(g.x, g.edge_index), g)


def nodes_of_batch(n: Any, g: Graph) -> Any:
    """Take the mean over the rows of nodes of a model that knows the graphs."""
    return n.pooled(n.model(g.x, g.edge_index, graph_of_nodes(g)), g)


def first_of_nodes(n: Any, g: Graph) -> Any:
    """Take the mean over nodes of a model's first output."""
    return n.pooled(n.model(g.x, g.edge_index)[0], g)


def attributed_nodes(n: Any, g: Graph) -> Any:
    """Take the mean over nodes of the first output of a model with edge features."""
    return n.pooled(n.model(g.x, g.edge_index, g.edge_attr)[0], g)


def data_nodes(n: Any, g: Graph) -> Any:
    """Take the mean over nodes of the first output of a model that takes a Data object."""
    return n.pooled(n.model(Data(x=g.x, edge_index=g.edge_index, y=g.x))[0], g)


def graphs(n: Any, g: Graph) -> Any:
    """Return the output of a model of graphs."""
    return n.model(g.x, g.edge_index, graph_of_nodes(g))


def attributed_graphs(n: Any, g: Graph) -> Any:
    """Return the output of a model of graphs with edge features."""
    return n.model(g.x, g.edge_index, g.edge_attr, graph_of_nodes(g))


def after_gcn(n: Any, g: Graph) -> Any:
    """Let a model follow a GCN layer."""
    return n.pooled(n.model(n.start(g)), g)


def layer_after_gcn(n: Any, g: Graph) -> Any:
    """Let a layer follow a GCN layer."""
    return n.pooled(n.model(n.start(g), g.edge_index), g)


def stack(*names: str) -> Callable[[Any, Graph], Any]:
    """Let several layers follow a GCN layer, called with these parts of the graph beside the hidden rows."""

    def steps(n: Any, g: Graph) -> Any:
        hidden = n.start(g)
        for layer in n.model:
            hidden = torch.relu(layer(hidden, *(getattr(g, name) for name in names)))
        return n.pooled(hidden, g)

    return steps


def jump(n: Any, g: Graph) -> Any:
    """Let jumping knowledge follow two GCN layers."""
    hidden = n.start(g)
    return n.pooled(n.model([hidden, torch.relu(n.conv(hidden, g.edge_index))]), g)


def hetero_jump(parts: nn.ModuleDict, x_dict: dict[str, Tensor], edge_index_dict: Any) -> Any:
    """Let jumping knowledge follow the first layer and another one."""
    return parts["jump"]({name: [x, torch.relu(parts["lin"](x))] for name, x in x_dict.items()})


def molecule(n: Any, g: Graph) -> Any:
    """Use the node types as atomic numbers; the model computes the edges itself."""
    out = n.model(g.node_type + 1, g.pos, graph_of_nodes(g))
    return out[0].view(-1, 1) if isinstance(out, tuple) else out


def forces(n: Any, g: Graph) -> Any:
    """Return the output from the mean over atoms of a model that has a row for each of them."""
    return n.pooled(molecule(n, g), g)


def given_molecule(n: Any, g: Graph) -> Any:
    """Use the node types as atomic numbers, and the graph's edges as bonds."""
    source, target = g.edge_index
    n.model.interaction_graph = lambda pos, batch: (g.edge_index, (pos[source] - pos[target]).norm(dim=-1))
    return molecule(n, g)


def encoded_link(n: Any, g: Graph) -> Any:
    """Predict a link with an autoencoder."""
    return n.model.decoder(n.model.encode(g.x, g.edge_index), _LINK, sigmoid=False).view(1, 1)


def decoded_link(n: Any, g: Graph) -> Any:
    """Predict a link from the rows of a GCN layer."""
    return n.model(n.start(g), _LINK, sigmoid=False).view(1, 1)


def attracted_link(n: Any, g: Graph) -> Any:
    """Predict a link from the rows of a GCN layer, by attraction and repulsion."""
    return n.model.decode(*n.model.encode(n.start(g)), _LINK).view(1, 1)


def recommended_link(n: Any, g: Graph) -> Any:
    """Predict a link with a model that has an embedding per node."""
    return n.model(g.edge_index, _LINK).view(1, 1)


def transformed_link(n: Any, g: Graph) -> Any:
    """Predict a link with a model that takes personalised page ranks."""
    ranks = torch.full((NODES, NODES), 0.5 / NODES) + 0.5 * torch.eye(NODES)
    return n.model(_LINK, g.x, g.edge_index, ranks.to_sparse()).view(1, 1)


def summarized(n: Any, g: Graph) -> Any:
    """Use the summary of DeepGraphInfomax."""
    return n.head(n.model(g.x, g.edge_index)[2].view(1, -1))


def encoded(n: Any, g: Graph) -> Any:
    """Use the rows of a GCN layer as positional encodings."""
    return n.pooled(n.model(g.x, n.start(g)), g)


def labelled(n: Any, g: Graph) -> Any:
    """Let a GCN layer follow labels that are masked."""
    return n.pooled(n.start(g._replace(x=n.model(g.x, g.node_type, g.edge_type[:NODES] > 0))), g)


def propagated(n: Any, g: Graph) -> Any:
    """Propagate labels."""
    return n.pooled(n.model(g.x.sigmoid(), g.edge_index), g)


def corrected(n: Any, g: Graph) -> Any:
    """Correct predictions by the labels of every other node."""
    known = g.node_type == 0
    return n.pooled(n.model(g.x.softmax(dim=1), g.edge_type[:NODES][known], known, g.edge_index), g)


def logits(*last: str) -> Callable[[Any, Graph], Any]:
    """Return the logits of a node classifier, the output of its last linear layer before log-softmax."""

    def steps(n: Any, g: Graph) -> Any:
        kept: list[Tensor] = []
        layers = [n.model.get_submodule(name) for name in last]
        hooks = [layer.register_forward_hook(lambda module, args, out: kept.append(out)) for layer in layers]
        n.model(g.x, g.edge_index, graph_of_nodes(g))
        for hook in hooks:
            hook.remove()
        return n.pooled(kept[-1], g)

    return steps
