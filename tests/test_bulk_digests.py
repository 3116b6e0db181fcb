"""Digests tell models and values apart by contents and code; a run does not go on with another model."""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from bulk_models import numbered_graphs
from conftest import KINDS, make_gnn, randomize
from torch import Tensor, nn
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GraphConv, MessagePassing, PNAConv, global_add_pool

from captum_goat import GOAtAttribution
from captum_goat.bulk import explain_dataset
from captum_goat.runs import digest_of

GRAPHS = numbered_graphs(10)
LONG = np.zeros(5000)
LONG_OTHER = np.where(np.arange(5000) == 2500, 1.0, LONG)


class Settings:
    """An object with attributes of its own."""

    __slots__ = ("factor", "names")

    def __init__(self, factor: float) -> None:
        self.factor, self.names = factor, ["a"]


def scaled(factor: float) -> Callable[[float], float]:
    return lambda value: factor * value


def with_default(factor: float) -> Callable[[float], float]:
    def function(value: float, by: float = factor) -> float:
        return value * by

    return function


DIFFERENT: dict[str, tuple[Any, Any]] = {
    "tensors that print alike": (torch.tensor(1.00001), torch.tensor(1.00002)),
    "tensors in lists": ([torch.tensor(1.00001)], [torch.tensor(1.00002)]),
    "types of tensors": (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
    "shapes of tensors": (torch.zeros(2, 3), torch.zeros(3, 2)),
    "sparse tensors": (torch.eye(3).to_sparse(), (2 * torch.eye(3)).to_sparse()),
    "edge indices": (EdgeIndex([[0, 1], [1, 2]]), EdgeIndex([[0, 1], [1, 1]])),
    "long arrays": (LONG, LONG_OTHER),
    "long arrays in dictionaries": ({"a": LONG}, {"a": LONG_OTHER}),
    "arrays of objects": (np.array([1, "a"], dtype=object), np.array([1, "b"], dtype=object)),
    "floats": (1.0, math.nextafter(1.0, 2.0)),
    "types of numbers": (1, 1.0),
    "strings and names": ("None", None),
    "nesting": ([[1], [2]], [[1, 2]]),
    "bytes": ([b"a", b"b"], [b"ab"]),
    "tuples and lists": ((1, 2), [1, 2]),
    "keys": ({"a": 1}, {"b": 1}),
    "order": (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
    "sets": ({1, 2}, {1, 3}),
    "constants of lambdas": (lambda value: value * 2, lambda value: value * 3),
    "operations of lambdas": (lambda value: value * 2, lambda value: value + 2),
    "inner functions": (lambda: [lambda value: value * 2], lambda: [lambda value: value * 3]),
    "names of functions": (lambda value: torch.relu(value), lambda value: torch.tanh(value)),
    "closures": (scaled(1.0), scaled(2.0)),
    "defaults": (with_default(1.0), with_default(2.0)),
    "partial functions": (functools.partial(max, 1), functools.partial(max, 2)),
    "cached functions": (functools.cache(lambda: 1), functools.cache(lambda: 2)),
    "functions of libraries": (torch.relu, torch.tanh),
    "objects": (Settings(1.0), Settings(2.0)),
    "bound methods": ([1].append, [2].append),
    "weights": (make_gnn("gcn", seed=1), make_gnn("gcn", seed=2)),
    "kinds of layers": (nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())),
    "options of layers": (nn.LeakyReLU(0.1), nn.LeakyReLU(0.2)),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_contents_decide(what: str) -> None:
    one, other = DIFFERENT[what]
    assert digest_of({"value": one}) != digest_of({"value": other})
    assert digest_of({"value": one}) == digest_of({"value": one})
    if not callable(one) or isinstance(one, nn.Module):
        assert digest_of({"value": one}) == digest_of({"value": copy.deepcopy(one)})


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_compressed_tensors() -> None:
    one, again, other = (digest_of({"x": (factor * torch.eye(3)).to_sparse_csr()}) for factor in (1, 1, 2))
    assert one == again != other


def test_things_that_contain_themselves() -> None:
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [2]
    other.append(other)
    assert digest_of({"value": one}) != digest_of({"value": other})


def test_things_that_cannot_be_saved() -> None:
    assert digest_of({"value": (number for number in range(3))}) == digest_of({"value": (number for number in [1])})
    with Path(__file__).open() as file:
        assert digest_of({"value": file}) != digest_of({"value": None})


def model_of(source: str) -> nn.Module:
    """Return the model that code in a module of its own defines."""
    module = ModuleType("models_of_a_user")
    sys.modules[module.__name__] = module
    exec(
        f"import torch\nfrom torch import nn\nfrom torch_geometric.nn import GraphConv, global_add_pool\n{source}",
        vars(module),
    )
    torch.manual_seed(0)
    return module.Model().eval()  # type: ignore[no-any-return]


MODEL = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GraphConv(4, 2)
        {attributes}

    def forward(self, x, edge_index, batch=None):
        h = self.conv(x, edge_index).relu()
        {code}
        return global_add_pool(h, batch)
"""
CHANGES = {  # attributes and code of two models
    "lambda": [(f"self.act = lambda h: {factor} * h", "h = self.act(h)") for factor in (2, 3)],
    "closure": [(f"self.act = (lambda by: lambda h: by * h)({factor})", "h = self.act(h)") for factor in (2, 3)],
    "plain tensor": [(f"self.scale = torch.tensor({factor})", "h = self.scale * h") for factor in (1.00001, 1.00002)],
    "buffer that is not saved": [
        (f"self.register_buffer('scale', torch.tensor({factor}), persistent=False)", "h = self.scale * h")
        for factor in (1.0, 2.0)
    ],
    "tuple": [(f"self.scale = (1.0, {factor})", "h = self.scale[1] * h") for factor in (1.0, 2.0)],
    "list": [(f"self.scale = [{factor}]", "h = self.scale[0] * h") for factor in (1.0, 2.0)],
    "dictionary": [(f"self.scale = {{'by': [{factor}]}}", "h = self.scale['by'][0] * h") for factor in (1.0, 2.0)],
    "forward": [("", f"h = {factor} * h") for factor in (2, 3)],
    "hook": [(f"self.conv.register_forward_hook(lambda m, i, o: {factor} * o)", "pass") for factor in (2, 3)],
}


@pytest.mark.parametrize("change", CHANGES)
def test_runs_do_not_go_on_with_another_model(change: str, tmp_path: Path) -> None:
    one, other = (MODEL.format(attributes=attributes, code=code) for attributes, code in CHANGES[change])
    path = tmp_path / "attributions.pt"
    interrupt(model_of(one), path)
    with pytest.raises(ValueError, match="differs in model"):
        explain(model_of(other), path)
    assert len(explain(model_of(one), path)) == len(GRAPHS)


def interrupt(model: nn.Module, path: Path, **options: Any) -> None:
    """Explain the first of two batches."""

    class Interrupted(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            if index == 5:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        explain_dataset(model, Interrupted(GRAPHS), batch_size=5, show_progress=False, out=path, **options)


def explain(model: nn.Module, path: Path, **options: Any) -> Any:
    return explain_dataset(model, GRAPHS, batch_size=5, show_progress=False, out=path, **options)


def test_runs_do_not_go_on_with_other_arguments(tmp_path: Path) -> None:
    def arguments(factor: float) -> Callable[[Data], Any]:
        return lambda batch: (factor * batch.x, batch.edge_index, batch.batch)

    model, path = make_gnn("gin", dtype=torch.float32), tmp_path / "attributions.pt"
    interrupt(model, path, arguments=arguments(1.0))
    with pytest.raises(ValueError, match="differs in arguments"):
        explain(model, path, arguments=arguments(2.0))
    assert len(explain(model, path, arguments=arguments(1.0))) == len(GRAPHS)


@pytest.mark.parametrize("code", ["self.last = h.detach()", "self.calls = self.calls + 1"])
def test_models_that_keep_something_of_what_they_compute(code: str, tmp_path: Path) -> None:
    model, path = model_of(MODEL.format(attributes="self.calls = 0", code=code)), tmp_path / "attributions.pt"
    interrupt(model, path)
    explain(model, path)
    explain(model_of(MODEL.format(attributes="self.calls = 0", code=code)), tmp_path / "expected.pt")
    assert path.read_bytes() == (tmp_path / "expected.pt").read_bytes()


def test_finished_graphs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that no digest sees: of the environment."""
    source = MODEL.format(attributes="", code="h = float(__import__('os').environ['SCALE']) * h")
    path = tmp_path / "attributions.pt"
    monkeypatch.setenv("SCALE", "1")
    interrupt(model_of(source), path)
    monkeypatch.setenv("SCALE", "1.002")
    with pytest.raises(ValueError, match=r"Expected the outputs in the parts of .* \(got others when a batch was"):
        explain(model_of(source), path)
    monkeypatch.setenv("SCALE", "1.000001")  # as much as rounding
    assert len(explain(model_of(source), path)) == len(GRAPHS)


class Doubling(MessagePassing):
    def __init__(self) -> None:
        super().__init__(aggr="add")
        self.lin = nn.Linear(4, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=self.lin(x))

    def message(self, x_j: Tensor) -> Tensor:
        return 2 * x_j


class Pooled(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        return global_add_pool(self.conv(x, edge_index).relu(), batch)


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{kind: functools.partial(make_gnn, kind, dtype=torch.float32) for kind in KINDS},
    "own": lambda: Pooled(Doubling()),
    "graph": lambda: Pooled(GraphConv(4, 3)),
    "attention": lambda: Pooled(GATConv(4, 3)),
    "several aggregations": lambda: Pooled(PNAConv(4, 3, ["mean", "max"], ["identity"], torch.ones(9).long())),
}


def made(name: str) -> nn.Module:
    return randomize(MODELS[name](), seed=3)


@pytest.mark.parametrize("name", MODELS)
def test_explaining_does_not_change_digests(name: str) -> None:
    model, graph = made(name), GRAPHS[0]
    before = digest_of({"model": model})
    GOAtAttribution(model).attribute(torch.ones(graph.num_edges), 1, (graph.x, graph.edge_index))
    assert digest_of({"model": model}) == before == digest_of({"model": made(name)})
