"""Captum's own methods and metrics on EdgeMaskedModel, and GOAtAttribution beside them, at default arguments.

What is expected comes from the same network written with dense matrices (`Dense`), a function of the masks alone. It
owes nothing to EdgeMaskedModel and needs no additional arguments. Given the same seed, a method draws the same random
numbers for either, so that methods that sample can be compared number by number, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import captum
import captum.attr as ca
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from captum.log import log_usage
from captum.metrics import infidelity, sensitivity_max
from conftest import GNN, combinations, make_gnn, randomize, slow_unless
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GINConv, global_mean_pool

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.metrics import drop_edges, gaussian_noise

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
EDGES = torch.tensor([[0, 1, 1, 2, 0], [1, 0, 2, 3, 1]])  # directed, one of them double
PLACES = F.one_hot(4 * EDGES[1] + EDGES[0], 16).double()  # of the edges in a matrix [target, source]
MASKS = 0.3 + torch.rand(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
ARGUMENTS = {"tensors": (X, EDGES), "data": Data(x=X, edge_index=EDGES)}
NETWORKS = [(kind, pool) for kind in ("gcn", "gin") for pool in ("mean", None)]
# Both kinds of arguments for every kind of network and for every pool.
CALLS = [("gcn", "mean", "tensors"), ("gin", None, "tensors"), ("gcn", None, "data"), ("gin", "mean", "data")]
AXES = ["gcn", "gin"], ["mean", None], ["tensors", "data"]


def every_call_of(names: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("name", "kind", "pool", "arguments"), combinations(list(names), *AXES))


class ModularGNN(GNN):
    """The tests' GNN with a module of its own for every ReLU, as methods with hooks on modules need it."""

    def __init__(self, kind: str, pool: str | None) -> None:
        super().__init__(kind, pool=pool)
        self.relus = nn.ModuleList(nn.ReLU() for _ in range(4))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        for conv, relu in zip(self.convs, self.relus, strict=False):
            x = relu(conv(x, edge_index))
        return self.out(self.relus[-1](self.hidden(global_mean_pool(x, batch) if self.pool else x)))


class Dense(nn.Module):
    """A GNN on the tests' graph as a function of masks [B, E], with dense matrices."""

    def __init__(self, model: GNN) -> None:
        super().__init__()
        self.model = model

    def forward(self, masks: Tensor) -> Tensor:
        relus = getattr(self.model, "relus", [F.relu] * 4)
        adjacency = (masks @ PLACES).view(-1, 4, 4)
        x = X.expand(len(masks), -1, -1)
        for conv, relu in zip(self.model.convs, relus, strict=False):
            x = relu(self._convolved(conv, x, adjacency))
        return self.model.out(relus[-1](self.model.hidden(x.mean(dim=1) if self.model.pool else x)))

    @staticmethod
    def _convolved(conv: nn.Module, x: Tensor, adjacency: Tensor) -> Tensor:
        if isinstance(conv, GINConv):
            return conv.nn((adjacency @ x + (1 + conv.eps) * x).flatten(0, 1)).view(len(x), 4, -1)
        norm = (1.0 + EDGES[1].bincount(minlength=4)).rsqrt()
        return norm[:, None] * (adjacency + torch.eye(4)) * norm @ x @ conv.lin.weight.t() + conv.bias


class RowByRow(ca.Attribution):
    """GOAt, one mask after the other."""

    @log_usage()  # NoiseTunnel reaches below it
    def attribute(self, inputs: Any, target: Any = None) -> Any:
        if isinstance(inputs, tuple):
            return (self.attribute(*inputs, target=target),)
        goat = GOAtAttribution(self.forward_func)
        return torch.cat([goat.attribute(row[None], target, (X, EDGES)) for row in inputs])


class Method(NamedTuple):
    make: Callable[[Any], ca.Attribution]
    needs: tuple[tuple[str, Any], ...] = ()  # what has no default


WINDOW = (("sliding_window_shapes", (1,)),)
BASELINES = (("baselines", 0.2 * torch.rand(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)),)
PLAIN = {  # any ReLU will do
    "IntegratedGradients": Method(ca.IntegratedGradients),
    "Saliency": Method(ca.Saliency),
    "InputXGradient": Method(ca.InputXGradient),
    "FeatureAblation": Method(ca.FeatureAblation),
    "Occlusion": Method(ca.Occlusion, WINDOW),
}
HOOKED = {  # hooks on nn.ReLU modules
    "DeepLift": Method(ca.DeepLift),
    "DeepLiftShap": Method(ca.DeepLiftShap, BASELINES),
    "GuidedBackprop": Method(ca.GuidedBackprop),
    "Deconvolution": Method(ca.Deconvolution),
}
SAMPLING = {
    "GradientShap": Method(ca.GradientShap, BASELINES),
    "ShapleyValueSampling": Method(ca.ShapleyValueSampling),
    "FeaturePermutation": Method(ca.FeaturePermutation),
}
DRAWN = ("draw_baseline_from_distrib", True)  # NoiseTunnel asks for it where baselines are a distribution
PER_ROW = {"KernelShap": Method(ca.KernelShap), "Lime": Method(ca.Lime)}


def _tunnel(make: Callable[[Any], ca.Attribution]) -> Callable[[Any], ca.Attribution]:
    return lambda forward: ca.NoiseTunnel(make(forward))


TUNNELS = {
    f"NoiseTunnel-{name}": Method(_tunnel(method.make), method.needs and (*method.needs, DRAWN))
    for name, method in (PLAIN | HOOKED | SAMPLING).items()
    if issubclass(method.make, ca.GradientAttribution)
}
METHODS = PLAIN | HOOKED | SAMPLING | TUNNELS | PER_ROW

ignore_hooks = pytest.mark.filterwarnings("ignore:Setting (forward, )?backward hooks:UserWarning")


def network(kind: str, pool: str | None, *, modules: bool = False) -> tuple[GNN, Any]:
    """Return a network, and a target that all masks share."""
    model = randomize(ModularGNN(kind, pool).double(), seed=5) if modules else make_gnn(kind, pool=pool)
    return model, 1 if pool else (2, 1)


def attributed(method: Method, forward: Any, masks: Tensor, target: Any, arguments: Any = None) -> Tensor:
    """Attribute with fixed random numbers; masks that require gradients spare Captum's warning that it sets that."""
    torch.manual_seed(0)
    np.random.seed(0)
    given = dict(method.needs) | ({} if arguments is None else {"additional_forward_args": arguments})
    return method.make(forward).attribute(masks.clone().requires_grad_(), target=target, **given).detach()


def assert_near(actual: Tensor, expected: Tensor) -> None:
    assert expected.abs().max() > 1e-3, "nothing to compare"
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@ignore_hooks
@every_call_of(PLAIN | HOOKED | SAMPLING | TUNNELS)
def test_methods_agree_with_dense_matrices(name: str, kind: str, pool: str | None, arguments: str) -> None:
    model, target = network(kind, pool, modules=any(hooked in name for hooked in HOOKED))
    # FeaturePermutation exchanges the entries of different masks; ShapleyValueSampling takes its time.
    for count in (2,) if name in ("FeaturePermutation", "ShapleyValueSampling") else (1, 2):
        attributions = attributed(METHODS[name], EdgeMaskedModel(model), MASKS[:count], target, ARGUMENTS[arguments])
        assert_near(attributions, attributed(METHODS[name], Dense(model), MASKS[:count], target))


@ignore_hooks
@every_call_of([*PLAIN, *HOOKED, "GOAt"])
def test_masks_at_once_agree_with_one_at_a_time(name: str, kind: str, pool: str | None, arguments: str) -> None:
    """For methods without chance; each mask has a target of its own."""
    model, _ = network(kind, pool, modules=name in HOOKED)
    method = (METHODS | {"GOAt": Method(GOAtAttribution)})[name]
    targets, given = [2, 0] if pool else [(2, 0), (1, 2)], ARGUMENTS[arguments]
    singles = [
        attributed(method, EdgeMaskedModel(model), mask[None], target, given)
        for mask, target in zip(MASKS, targets, strict=True)
    ]
    assert_near(attributed(method, EdgeMaskedModel(model), MASKS, targets, given), torch.cat(singles))


FITTED = [(name, *network) for name in PER_ROW for network in NETWORKS]


@pytest.mark.filterwarnings("ignore:You are providing multiple inputs for Lime:UserWarning")
@pytest.mark.parametrize(("name", "kind", "pool"), slow_unless(lambda case: case in FITTED[::5], FITTED))
@pytest.mark.slow
def test_methods_that_fit_a_model_per_mask(name: str, kind: str, pool: str | None) -> None:
    """KernelShap and Lime cut tensors into rows if there are several masks; a graph in one piece is not cut."""
    model, target = network(kind, pool)
    forward, dense, method = EdgeMaskedModel(model), Dense(model), PER_ROW[name]
    one, two = (attributed(method, dense, MASKS[:count], target) for count in (1, 2))
    data = ARGUMENTS["data"]
    for arguments in ((X, EDGES), (data,)):
        assert_near(attributed(method, forward, MASKS[:1], target, arguments), one)
    assert_near(attributed(method, forward, MASKS, target, data), two)
    with pytest.raises(ValueError, match="Lime and KernelShap hand over one row of every tensor"):
        attributed(method, forward, MASKS, target, (X, EDGES))


@pytest.mark.parametrize("name", ["IntegratedGradients", "NoiseTunnel-Saliency", "FeatureAblation", "KernelShap"])
def test_a_batch_of_graphs(name: str) -> None:
    forward, both, method = EdgeMaskedModel(make_gnn()), Batch.from_data_list([ARGUMENTS["data"]] * 2), METHODS[name]
    attributions = attributed(method, forward, MASKS.view(1, 10), (1, 2), both)  # the second graph's class 2
    assert_near(
        attributions, attributed(method, forward, MASKS.view(1, 10), (1, 2), (both.x, both.edge_index, both.batch))
    )
    assert name == "KernelShap" or torch.equal(attributions[:, :5], torch.zeros(1, 5))


@pytest.mark.parametrize(("kind", "pool", "arguments"), slow_unless(lambda call: call in CALLS[::3], CALLS))
def test_goat_in_a_noise_tunnel(kind: str, pool: str | None, arguments: str) -> None:
    model, target = network(kind, pool)
    goat, rows = Method(_tunnel(GOAtAttribution)), Method(_tunnel(RowByRow))
    attributions = attributed(goat, EdgeMaskedModel(model), MASKS, target, ARGUMENTS[arguments])
    assert_near(attributions, attributed(rows, model, MASKS, target))
    assert torch.equal(attributions, attributed(goat, model, MASKS, target, ARGUMENTS[arguments])), (
        "the model itself will do"
    )


@ignore_hooks
def test_functional_relus_are_not_seen_by_hooks() -> None:
    """Without modules the methods with hooks fall back, silently, to the plain gradient."""
    model, target = network("gcn", "mean")
    forward = EdgeMaskedModel(model)
    gradient = attributed(PLAIN["InputXGradient"], forward, MASKS, target, (X, EDGES)) / MASKS
    for name, expected in [("GuidedBackprop", gradient), ("Deconvolution", gradient), ("DeepLift", gradient * MASKS)]:
        assert_near(attributed(HOOKED[name], forward, MASKS, target, (X, EDGES)), expected)
        modular, _ = network("gcn", "mean", modules=True)
        seen = attributed(HOOKED[name], EdgeMaskedModel(modular), MASKS, target, (X, EDGES))
        assert not torch.allclose(seen, expected, rtol=1e-2), name


@ignore_hooks
def test_a_relu_module_that_is_used_twice() -> None:
    model, target = network("gcn", "mean", modules=True)
    expected = {name: attributed(HOOKED[name], Dense(model), MASKS, target) for name in HOOKED}
    model.relus = nn.ModuleList([nn.ReLU()] * 4)
    for name in ("GuidedBackprop", "Deconvolution"):
        assert_near(attributed(HOOKED[name], EdgeMaskedModel(model), MASKS, target, (X, EDGES)), expected[name])
    for name in ("DeepLift", "DeepLiftShap"):
        with pytest.raises(RuntimeError, match="module is being used more than once"):
            attributed(HOOKED[name], EdgeMaskedModel(model), MASKS, target, (X, EDGES))


@ignore_hooks
def test_deep_lift_is_complete_for_one_layer_only() -> None:
    """It has no rule for the product of a mask entry with a message that the mask has already changed."""
    model, target = network("gcn", "mean", modules=True)
    masks = MASKS.clone().requires_grad_()
    arguments = {"target": target, "additional_forward_args": (X, EDGES), "return_convergence_delta": True}
    deep_lift = ca.DeepLift(EdgeMaskedModel(model))
    assert (deep_lift.attribute(masks, **arguments)[1].abs() > 0.1).all()
    assert (GOAtAttribution(model).attribute(masks, **arguments)[1].abs() < 1e-9).all()
    model.convs = model.convs[:1]
    assert (deep_lift.attribute(masks, **arguments)[1].abs() < 1e-9).all()


@pytest.mark.skipif(captum.__version__.startswith("0.7"), reason="Captum 0.7 refuses a single example")
def test_feature_permutation_needs_several_masks() -> None:
    model, target = network("gcn", "mean")
    attributions = attributed(SAMPLING["FeaturePermutation"], EdgeMaskedModel(model), MASKS[:1], target, (X, EDGES))
    assert torch.equal(attributions, torch.zeros_like(attributions))


EXPLAINED = {"GOAt": GOAtAttribution, "IntegratedGradients": ca.IntegratedGradients, "Saliency": ca.Saliency}


@every_call_of(EXPLAINED)
def test_infidelity(name: str, kind: str, pool: str | None, arguments: str) -> None:
    model, target = network(kind, pool)
    forward, given = EdgeMaskedModel(model), {"target": target, "additional_forward_args": ARGUMENTS[arguments]}
    method = EXPLAINED[name](forward)
    attributions = method.attribute(MASKS.clone().requires_grad_(), **given).detach()
    for perturbation in (drop_edges, gaussian_noise):
        perturb = perturbation(0.3, multiply_by_inputs=method.multiplies_by_inputs)
        torch.manual_seed(0)
        infidelities = infidelity(forward, perturb, MASKS, attributions, **given)
        torch.manual_seed(0)
        assert_near(infidelities, infidelity(Dense(model), perturb, MASKS, attributions, target=target))
        assert infidelities.shape == (2,)


@every_call_of(EXPLAINED)
@pytest.mark.filterwarnings(
    "ignore:Input Tensor 0 did not already require gradients:UserWarning"
)  # Captum's own inputs
@pytest.mark.slow
def test_sensitivity(name: str, kind: str, pool: str | None, arguments: str) -> None:
    (model, target), given = network(kind, pool), ARGUMENTS[arguments]
    expected = RowByRow(model) if name == "GOAt" else EXPLAINED[name](Dense(model))
    torch.manual_seed(0)
    sensitivities = sensitivity_max(
        EXPLAINED[name](EdgeMaskedModel(model)).attribute, MASKS, target=target, additional_forward_args=given
    )
    torch.manual_seed(0)
    assert_near(sensitivities, sensitivity_max(expected.attribute, MASKS, target=target))
    assert sensitivities.shape == (2,)


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients:UserWarning")
def test_the_page_on_captum_runs() -> None:
    page = Path(__file__).parents[1].joinpath("docs", "captum.md").read_text()
    names: dict[str, Any] = {"model": make_gnn(dtype=torch.float32), "data": Data(x=X.float(), edge_index=EDGES)}
    for code in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(code, names)
    assert names["masks"].shape == names["attributions"].shape == names["smooth"].shape == (1, 5)
    assert names["faithful"].shape == names["stable"].shape == (1,)
