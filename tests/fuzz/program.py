"""Write a case as Python code: the model that is tested, and a program that shows a failure."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
from torch import Tensor, nn

from . import layers as own_layers
from .case import WITH_ATTRIBUTES, Case, Op, shapes

IMPORTS = """\
import zlib

import torch
import torch.nn.functional as F
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

from captum_goat import EdgeMaskedModel, GOAtAttribution, rules
"""

OWN = ("OwnConv(", "AttributedConv(", "HandConv(", "HandGAT(")
ACTIVATIONS = {  # by name: its spellings
    "relu": (
        "self.relu({})",
        "F.relu({})",
        "torch.relu({})",
        "{}.relu()",
        "{}.clamp(min=0)",
        "torch.clamp_min({}, 0)",
        "F.threshold({}, 0, 0)",
    ),
    "tanh": ("torch.tanh({})", "self.tanh({})", "{}.tanh()"),
    "sigmoid": ("torch.sigmoid({})", "F.sigmoid({})"),
    "elu": ("F.elu({})", "self.elu({})"),
    "leaky_relu": ("F.leaky_relu({}, 0.1)", "self.leaky_relu({})"),
    "gelu": ("F.gelu({})", "nn.functional.gelu({})"),
    "silu": ("F.silu({})", "nn.functional.silu({})"),
    "softplus": ("F.softplus({})",),
}
INPLACE = ("{}.relu_()", "self.relu_inplace({})", "F.relu({}, inplace=True)", "torch.relu_({})", "{}.clamp_(min=0)")
SHARED_MODULES = {
    "relu": "nn.ReLU()",
    "relu_inplace": "nn.ReLU(inplace=True)",
    "tanh": "nn.Tanh()",
    "elu": "nn.ELU()",
    "leaky_relu": "nn.LeakyReLU(0.1)",
    "jump_cat": 'gnn.JumpingKnowledge("cat")',
    "jump_max": 'gnn.JumpingKnowledge("max")',
    "dropout": "nn.Dropout(0.5)",
}
BINARY_SPELLINGS = {
    "add": ("{} + {}", "torch.add({}, {})", "torch.stack([{}, {}]).sum(dim=0)"),
    "mul": ("{} * {}", "torch.mul({}, {})"),
    "cat": ("torch.cat([{}, {}], dim=-1)", "self.jump_cat([{}, {}])"),
    "div": ("{0} / (1 + {1} * {1})", "torch.div({0}, {1} * {1} + 1)", "{0}.true_divide(1 + {1} * {1})"),
    "weigh": ("{0} * torch.exp(-{1} * {1})", "torch.mul((-({1} * {1})).exp(), {0})"),
    "maximum": (
        "torch.maximum({}, {})",
        "torch.stack([{}, {}], dim=-1).max(dim=-1)[0]",
        "self.jump_max([{}, {}])",
        "torch.stack([{}, {}]).amax(dim=0)",
    ),
}
DROPOUT_SPELLINGS = ("self.dropout({})", "F.dropout({}, p=0.5, training=self.training)")
POOLS = {"mean": "gnn.global_mean_pool", "sum": "gnn.global_add_pool", "max": "gnn.global_max_pool"}
BROADCASTS = ("{}[graphs]", "{}.index_select(0, graphs)")


def layer_code(op: Op, width: int, channels: int, edge_dim: int) -> str:
    """Return the expression that makes an operation's layer."""
    named = ", ".join(f"{name}={value!r}" for name, value in op.options.items())
    if op.kind in ("gin", "gine"):
        mlp = f"nn.Sequential(nn.Linear({width}, {channels}), nn.ReLU(), nn.Linear({channels}, {channels}))"
        return (
            f"gnn.GINConv({mlp}, {named})" if op.kind == "gin" else f"gnn.GINEConv({mlp}, edge_dim={edge_dim}, {named})"
        )
    names = {"gcn": "GCNConv", "sage": "SAGEConv", "graph_conv": "GraphConv", "gat": "GATConv"}
    if op.options.get("hand"):
        return f"HandConv({named})" if op.kind == "own" else f"HandGAT({width}, {channels}, {named})"
    if op.kind in names:
        return f"gnn.{names[op.kind]}({width}, {channels}, {named})"
    return {
        "own": f"OwnConv({named})",
        "attributed": f"AttributedConv({width}, {edge_dim}, {named})",
        "gru": f"nn.GRUCell({width}, {width})",
        "linear": f"nn.Linear({width}, {channels}, {named})",
        "bias": f"nn.Parameter(torch.zeros({width}))",
        "batch_norm": f"nn.BatchNorm1d({width})",
        "layer_norm": f"nn.LayerNorm({width})",
    }[op.kind]


def expression(op: Op, names: Sequence[str]) -> str:
    """Return an operation's expression."""
    spelling = op.options.get("spelling", 0)
    layer = f"self.layer{op.layer}"
    if op.kind == "activation":
        spellings = INPLACE if op.options.get("inplace") else ACTIVATIONS[op.options["function"]]
        return spellings[spelling % len(spellings)].format(*names)
    if op.kind in BINARY_SPELLINGS:
        spellings = BINARY_SPELLINGS[op.kind]
        return spellings[spelling % len(spellings)].format(*names)
    if op.kind == "dropout":
        return DROPOUT_SPELLINGS[spelling % len(DROPOUT_SPELLINGS)].format(*names)
    if op.kind == "normalize":
        return f"F.normalize({names[0]}, dim=-1)"
    if op.kind == "pool":
        return f"{POOLS[op.options['aggr']]}({names[0]}, batch)"
    if op.kind == "broadcast":
        return BROADCASTS[spelling % len(BROADCASTS)].format(*names)
    if op.kind == "bias":
        return f"{names[0]} + {layer}"
    if op.kind in ("linear", "batch_norm", "layer_norm", "gru"):
        return f"{layer}({', '.join(names)})"
    attributes = ", edge_attr" if op.kind in WITH_ATTRIBUTES else ""
    return f"{layer}({names[0]}, edge_index{attributes})"


def model_code(case: Case) -> str:
    """Return the class of a case's model."""
    widths = [shape.width for shape in shapes(case)]
    edge_dim = len(case.attributes[0]) if case.attributes else 0
    layers: dict[str, str] = {}
    body = []
    for number, op in enumerate(case.ops, start=1):
        names = ["x" if k == 0 else f"h{k}" for k in op.inputs]
        code = expression(op, names)
        body.append(f"        h{number} = {code}")
        if f"self.layer{op.layer}" in code:
            layers[f"layer{op.layer}"] = layer_code(op, widths[op.inputs[0]], case.channels, edge_dim)
    text = "\n".join(body)
    layers |= {name: module for name, module in SHARED_MODULES.items() if f"self.{name}(" in text}
    if "graphs" in text:
        body.insert(0, "        graphs = edge_index.new_zeros(len(x)) if batch is None else batch")
    result = f"F.log_softmax(h{len(case.ops)}, dim=-1)" if case.log_probabilities else f"h{len(case.ops)}"
    return "\n".join(
        [
            "class Model(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        self.{name} = {module}" for name, module in layers.items()),
            "",
            f"    def forward(self, x, edge_index, {'edge_attr, ' if case.attributes else ''}batch=None):",
            *body,
            f"        return {result}",
            "",
        ]
    )


def set_parameters(model: nn.Module, seed: int) -> None:
    """Give every parameter and buffer random numbers that depend on its name and the seed only."""
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
            numbers = 0.8 * torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.data.copy_(numbers.abs() + 0.5 if name.endswith("running_var") else numbers)


def build_model(case: Case) -> nn.Module:
    """Build the real model."""
    namespace: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "gnn": gnn, "Tensor": Tensor}
    namespace |= vars(own_layers)
    exec(compile(model_code(case), "<fuzz case>", "exec"), namespace)
    model: nn.Module = namespace["Model"]().double().eval()
    set_parameters(model, case.seed)
    return model


def arguments_code(case: Case) -> dict[str, str]:
    """Return expressions for the tensors of a case."""
    edges = f"torch.tensor({[list(edge) for edge in case.edges]}).t()" if case.edges else "torch.empty(2, 0).long()"
    masks: Any = [list(mask) for mask in case.masks] if case.many else list(case.masks[0])
    attributes = {}
    if case.attributes:
        attributes = {"edge_attr": f"torch.tensor({[list(row) for row in case.attributes]}, dtype=torch.float64)"}
    return {
        "x": f"torch.tensor({[list(row) for row in case.x]}, dtype=torch.float64)",
        "edge_index": edges,
        **attributes,
        "batch": "None" if case.batch is None else f"torch.tensor({list(case.batch)})",
        "mask": f"torch.tensor({masks}, dtype=torch.float64)",
    }


def tensors(case: Case) -> dict[str, Any]:
    """Return x, edge_index, edge_attr (if there are attributes), batch and mask."""
    values = {name: eval(code, {"torch": torch}) for name, code in arguments_code(case).items()}
    if case.many:
        values["mask"] = values["mask"].view(len(case.masks), len(case.edges))
    return values


def inputs_and_rest(case: Case) -> tuple[list[str], list[str]]:
    """Return the names of what is attributed, and of the other arguments of the model in their order."""
    inputs = [{"node": "x", "edge": "mask"}.get(name, name) for name in case.attributed]
    names = ["x", "edge_index", *(["edge_attr"] if case.attributes else []), *([] if case.batch is None else ["batch"])]
    return inputs, [name for name in names if name not in inputs]


def captum_target(case: Case) -> Any:
    """Return the target in the form of ``attribute``."""
    level, width = shapes(case)[-1]
    rows = len(case.x)
    pairs = [(row % rows, column % width) for row, column in case.targets]
    targets = [column for _, column in pairs] if level == "graph" else pairs
    return targets if case.many or len(targets) > 1 else targets[0]


def failing_program(case: Case, expected: Sequence[Tensor], output: Tensor) -> str:
    """Return a program of its own that fails where the package differs from what the referee expects."""
    own = inspect.getsource(own_layers)
    names, others = inputs_and_rest(case)
    inputs, rest = names[0] if len(names) == 1 else f"({', '.join(names)})", ", ".join(others)
    options = f"field={case.field!r}, mask_type={case.mask_type!r}"
    values = ", ".join(f"torch.tensor({part.tolist()}, dtype=torch.float64)" for part in expected)
    lines = [
        IMPORTS,
        own[own.index("class ") :] + "\n" if any(name in model_code(case) for name in OWN) else "",
        model_code(case),
        inspect.getsource(set_parameters),
        "model = Model().double().eval()",
        f"set_parameters(model, {case.seed})",
        *(f"{name} = {code}" for name, code in arguments_code(case).items()),
        f"result = GOAtAttribution(model, {options}).attribute({inputs}, {captum_target(case)!r}, ({rest},))",
        f"expected = [{values}]",
        "for part, number in zip(result if isinstance(result, tuple) else [result], expected, strict=True):",
        "    torch.testing.assert_close(part, number.view_as(part), rtol=1e-8, atol=1e-8)",
    ]
    if "edge" in case.attributed:
        arguments = ", ".join(name for name in ("x", "edge_index", "edge_attr", "batch") if name in [*names, *others])
        lines += [
            f"output = torch.tensor({output.tolist()}, dtype=torch.float64)",
            f"masked = EdgeMaskedModel(model)(mask, {arguments})",
            "torch.testing.assert_close(masked, output.view_as(masked), rtol=1e-8, atol=1e-8)",
        ]
    return "\n".join(line for line in lines if line) + "\n"
