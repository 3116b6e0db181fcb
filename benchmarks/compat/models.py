"""Every model of PyTorch Geometric, as it is or with a mean over nodes and a linear layer after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch_geometric.nn.models as pyg
from torch import nn
from torch_geometric.nn import GCN2Conv, GCNConv, RGCNConv

from benchmarks.compat import model_parts as part
from benchmarks.compat.check import Case
from benchmarks.compat.graphs import CHANNELS as C
from benchmarks.compat.graphs import EDGE_CHANNELS, METADATA, NODES
from benchmarks.compat.networks import CLASSES, HeteroNetwork, Network, SignedNetwork, Steps, mlp

SECTION = "Models"
PNA = {
    "aggregators": ["mean", "min", "max", "std"],
    "scalers": ["identity", "amplification", "attenuation"],
    "deg": torch.tensor([1, 2, 4, 2, 1]),
}


def _row(
    name: str,
    variant: str,
    build: Callable[[], nn.Module],
    steps: Steps | None = part.nodes,
    family: str = "graphs",
    makes: bool = False,
) -> Case:
    """Return a case; without steps the model is called as it is."""
    network = build if steps is None else lambda: Network(steps, model=build())
    return Case(SECTION, name, variant, network, family, makes)


_WALKS = part.nothing("no message passing: embeddings learnt from random walks, no edges in its forward")
_HISTORY = part.nothing("no message passing: recurrent over histories, no edges in its forward")
_MEMORY = part.nothing("no message passing: a memory of nodes, no edges in its forward")
_FUNCTION = part.nothing("a function, not a model")
_RGCN, _GCN2 = part.stack("edge_index", "edge_type"), part.stack("x", "edge_index")
_ROWS = [
    _row("MLP", "alone, on its inputs", lambda: pyg.MLP([C, C, CLASSES]), None, "rows"),
    _row("MLP", "act=gelu, alone", lambda: pyg.MLP([C, C, CLASSES], act="gelu"), None, "rows"),
    _row("MLP", "norm=None, alone", lambda: pyg.MLP([C, C, CLASSES], norm=None), None, "rows"),
    _row("MLP", "after GCN", lambda: pyg.MLP([C, C, C]), part.after_gcn),
    _row("GCN", "", lambda: pyg.GCN(C, C, 2)),
    _row("GraphSAGE", "", lambda: pyg.GraphSAGE(C, C, 2)),
    _row("GIN", "", lambda: pyg.GIN(C, C, 2)),
    _row("GAT", "", lambda: pyg.GAT(C, C, 2)),
    _row("GAT", "v2", lambda: pyg.GAT(C, C, 2, v2=True)),
    _row("PNA", "", lambda: pyg.PNA(C, C, 2, **PNA)),
    _row("EdgeCNN", "", lambda: pyg.EdgeCNN(C, C, 2)),
    _row("MetaLayer", "", lambda: pyg.MetaLayer(part.EdgeModel(), part.NodeModel()), part.attributed_nodes),
    _row("Node2Vec", "", _WALKS),
    _row("DeepGraphInfomax", "nodes", part.infomax, part.first_of_nodes),
    _row("DeepGraphInfomax", "summary", part.infomax, part.summarized, "single"),
    _row("InnerProductDecoder", "after GCN", lambda: pyg.InnerProductDecoder(), part.decoded_link, "single"),
    _row("GAE", "a link", lambda: pyg.GAE(pyg.GCN(C, C, 2)), part.encoded_link, "single"),
    _row("VGAE", "a link", lambda: pyg.VGAE(part.Variational()), part.encoded_link, "single"),
    _row("ARGA", "a link", lambda: pyg.ARGA(pyg.GCN(C, C, 2), mlp(C, C)), part.encoded_link, "single"),
    _row("ARGVA", "a link", lambda: pyg.ARGVA(part.Variational(), mlp(C, C)), part.encoded_link, "single"),
    _row("SignedGCN", "", lambda: SignedNetwork(pyg.SignedGCN(C, C, 2)), None, "signed"),
    _row("RENet", "", _HISTORY),
    _row("GraphUNet", "", lambda: pyg.GraphUNet(C, C, C, depth=2), part.nodes_of_batch),
    _row("SchNet", "", lambda: pyg.SchNet(C, C, 2, 5), part.molecule, makes=True),
    _row("SchNet", "edges given", lambda: pyg.SchNet(C, C, 2, 5, interaction_graph=len), part.given_molecule),
    _row("DimeNet", "", lambda: pyg.DimeNet(C, 1, 2, 2, 2, 2), part.molecule, makes=True),
    _row("DimeNetPlusPlus", "", lambda: pyg.DimeNetPlusPlus(C, 1, 2, 4, 4, 4, 2, 2), part.molecule, makes=True),
    _row("GPSE", "encodings", part.gpse, part.data_nodes),
    _row("GPSE", "no l2 norms", lambda: part.gpse(final_l2norm=False, has_l2norm=False), part.data_nodes),
    _row("GPSENodeEncoder", "after GCN", lambda: pyg.GPSENodeEncoder(2 * C, C, C), part.encoded),
    _row("to_captum_model", "", _FUNCTION),
    _row("to_captum_input", "", _FUNCTION),
    _row("captum_output_to_dicts", "", _FUNCTION),
    _row("MetaPath2Vec", "", _WALKS),
    _row("DeepGCNLayer", "block=res+", lambda: part.deep("res+"), part.layer_after_gcn),
    _row("DeepGCNLayer", "block=res", lambda: part.deep("res"), part.layer_after_gcn),
    _row("DeepGCNLayer", "block=dense", lambda: part.deep("dense"), part.layer_after_gcn),
    _row("DeepGCNLayer", "block=plain", lambda: part.deep("plain"), part.layer_after_gcn),
    _row("DeepGCNLayer", "ckpt_grad", lambda: part.deep("res+", ckpt_grad=True), part.layer_after_gcn),
    _row("TGNMemory", "", _MEMORY),
    _row("LabelPropagation", "", lambda: pyg.LabelPropagation(2, 0.5), part.propagated),
    _row("CorrectAndSmooth", "", lambda: pyg.CorrectAndSmooth(2, 0.5, 2, 0.5), part.corrected),
    _row("CorrectAndSmooth", "autoscale=False", lambda: pyg.CorrectAndSmooth(2, 0.5, 2, 0.5, False), part.corrected),
    _row("AttentiveFP", "", lambda: pyg.AttentiveFP(C, C, CLASSES, EDGE_CHANNELS, 2, 2), part.attributed_graphs),
    _row("RECT_L", "", lambda: pyg.RECT_L(C, C)),
    _row("LINKX", "", lambda: pyg.LINKX(NODES, C, C, C, 2)),
    _row("LightGCN", "a link", lambda: pyg.LightGCN(NODES, C, 2), part.recommended_link, "single"),
    _row("MaskLabel", "before GCN", lambda: pyg.MaskLabel(2, C), part.labelled),
    _row("GroupAddRev", "", part.reversible, part.layer_after_gcn),
    _row("GroupAddRev", "disable", lambda: part.reversible(disable=True), part.layer_after_gcn),
    _row("GNNFF", "", lambda: pyg.GNNFF(C, C, 2), part.forces, makes=True),
    _row("PMLP", "", lambda: pyg.PMLP(C, C, C, 2), part.nodes, "single"),
    _row("PMLP", "norm=False", lambda: pyg.PMLP(C, C, C, 2, norm=False)),
    _row("NeuralFingerprint", "", lambda: pyg.NeuralFingerprint(C, C, CLASSES, 2), part.graphs),
    # It adds 0 times a sum over all graphs of a batch.
    _row("ViSNet", "", lambda: pyg.ViSNet(num_layers=2, hidden_channels=C), part.molecule, "single", makes=True),
    _row("LPFormer", "a link", lambda: pyg.LPFormer(C, C), part.transformed_link, "single"),
    _row("SGFormer", "", lambda: pyg.SGFormer(C, C, C), part.logits("fc")),
    _row("Polynormer", "local", lambda: pyg.Polynormer(C, C, C, local_layers=2), part.logits("pred_local")),
    _row(
        "Polynormer", "global", lambda: _globally(pyg.Polynormer(C, C, C, local_layers=2)), part.logits("pred_global")
    ),
    _row("ARLinkPredictor", "after GCN", lambda: pyg.ARLinkPredictor(C, C), part.attracted_link, "single"),
    _row("stack of RGCNConv", "", lambda: nn.ModuleList([RGCNConv(C, C, 2) for _ in range(2)]), _RGCN),
    _row("stack of GCN2Conv", "", lambda: nn.ModuleList([GCN2Conv(C, 0.1, 0.5, k) for k in (1, 2)]), _GCN2),
]


def _globally(model: nn.Module) -> nn.Module:
    """Switch the second stage of training on."""
    model._global = True  # type: ignore[assignment]
    return model


def cases() -> Iterator[Case]:
    """Yield the cases of all models, in PyG's order."""
    order = {name: number for number, name in enumerate(pyg.__all__)}
    yield from sorted([*_ROWS, *_of_jumps()], key=lambda case: order.get(case.name, len(order)))


def _of_jumps() -> Iterator[Case]:
    for mode in ("cat", "max", "lstm"):

        def jump(mode: str = mode) -> nn.Module:
            return Network(part.jump, model=pyg.JumpingKnowledge(mode, C, 2), conv=GCNConv(C, C))

        def hetero_jump(mode: str = mode) -> nn.Module:
            model = pyg.HeteroJumpingKnowledge(METADATA[0], mode, C, 2)
            return HeteroNetwork(part.hetero_jump, jump=model, lin=nn.Linear(C, C))

        yield Case(SECTION, "JumpingKnowledge", f"mode={mode}", jump)
        yield Case(SECTION, "HeteroJumpingKnowledge", f"mode={mode}", hetero_jump, "hetero")
