"""Captum's generic suites, on GOAt: a target per example, no hooks left behind, a delta per example.

The cases are those of Captum's own configuration that InputXGradient takes, a method with the same arguments, and
cases of GOAt in the same form. Their models are MLPs with ReLU. Captum's weights of ones make the attributions of all
classes equal, so that a wrong target would go unnoticed: its cases are run with random weights, too.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from captum._utils.common import _format_additional_forward_args
from captum.attr import Attribution, InputXGradient, NoiseTunnel
from captum.testing.attr.helpers.gen_test_utils import gen_test_name, parse_test_config
from captum.testing.attr.helpers.test_config import config
from captum.testing.helpers.basic import set_all_random_seeds
from captum.testing.helpers.basic_models import (
    BasicLinearReLULinear,
    BasicModel3,
    BasicModel_MultiLayer,
    BasicModel_MultiLayer_MultiInput,
    BasicModel_MultiLayer_TrueMultiInput,
    BasicModelWithReusedModules,
    ReLULinearModel,
)
from conftest import make_gnn, random_edges, randomize, slow_unless
from torch import Tensor, nn

from captum_goat import GOAtAttribution

Case = dict[str, Any]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


OWN: list[Case] = [
    {
        "name": "relu_linear",
        "model": ReLULinearModel(),
        "attribute_args": {"inputs": (10 * normal(6, 3), 5 * normal(6, 3, seed=1)), "target": [0] * 6},
    },
    {
        "name": "relu_linear_inplace_with_argument",
        "model": ReLULinearModel(inplace=True),
        "attribute_args": {
            "inputs": (normal(4, 3), normal(4, 3, seed=1)),
            "additional_forward_args": 2,
            "target": torch.zeros(4, dtype=torch.long),
        },
    },
    {
        "name": "multi_relu_inplace",
        "model": BasicModel_MultiLayer(inplace=True, multi_input_module=True),
        "attribute_args": {"inputs": 4 * normal(4, 3), "target": [(1,), (0,), (0,), (1,)]},
    },
    {
        "name": "four_inputs",
        "model": BasicModel_MultiLayer_TrueMultiInput(),
        "attribute_args": {"inputs": tuple(normal(5, 3, seed=k) for k in range(4)), "target": [1, 0, 1, 1, 0]},
    },
    {
        "name": "tuple_target",
        "model": BasicModel_MultiLayer(),
        "attribute_args": {
            "inputs": normal(4, 3),
            "target": (1, 0, 1),
            "additional_forward_args": (normal(4, 3, seed=1), True),
        },
    },
    {
        "name": "reused_relu",
        "model": BasicModelWithReusedModules(),
        "attribute_args": {"inputs": 3 * normal(4, 3), "target": torch.tensor([1, 0, 0, 1])},
    },
    {
        "name": "without_biases",
        "model": BasicLinearReLULinear(3),
        "attribute_args": {"inputs": normal(4, 3), "target": 0},
    },
    {
        "name": "no_target",
        "model": nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1), nn.Flatten(0)),
        "attribute_args": {"inputs": normal(4, 3), "target": None},
    },
    {
        "name": "relus_first",
        "model": BasicModel3(),
        "attribute_args": {"inputs": (3 * normal(4, 2), normal(4, 2, seed=1)), "target": [0, 1, 1, 0]},
    },
    {
        "name": "noise",
        "model": BasicModel_MultiLayer_MultiInput(),
        "attribute_args": {
            "inputs": (normal(4, 3), normal(4, 3, seed=1)),
            "additional_forward_args": (normal(4, 3, seed=2), 3),
            "target": [0, 1, 1, 0],
            "nt_samples": 7,
            "nt_samples_batch_size": 3,
            "stdevs": 0.0,
        },
        "noise_tunnel": True,
    },
]
CAPTUMS: list[Case] = [case for case in config if InputXGradient in case["algorithms"] and "layer" not in case]
RANDOM: list[Case] = [
    {**case, "name": case["name"] + "_random", "model": randomize(copy.deepcopy(case["model"]), seed=4)}
    for case in CAPTUMS + OWN
]
CASES = [{**case, "algorithms": [GOAtAttribution]} for case in CAPTUMS + RANDOM]
IDS = [gen_test_name("case", case["name"], GOAtAttribution, case.get("noise_tunnel", False)) for case in CASES]


def prepare(case: Case) -> tuple[Attribution, nn.Module, dict[str, Any]]:
    """Return the method, with a noise tunnel if the case says so, its model and the arguments, copied."""
    (algorithm,), model, arguments, _, noise_tunnel, _ = copy.deepcopy(parse_test_config(case))
    method = algorithm(model.eval())
    set_all_random_seeds(1234)
    return NoiseTunnel(method) if noise_tunnel else method, model, arguments


def as_tuple(value: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else value


def rows(values: Iterable[Any], index: int) -> tuple[Any, ...]:
    """Cut one example out of every tensor."""
    return tuple(value[index : index + 1] if isinstance(value, Tensor) else value for value in values)


def example(arguments: dict[str, Any], index: int) -> dict[str, Any]:
    """Return the arguments of one example, but for its target."""
    single = {**arguments, "inputs": rows(as_tuple(arguments["inputs"]), index)}
    if "additional_forward_args" in arguments:
        others = _format_additional_forward_args(arguments["additional_forward_args"])
        single["additional_forward_args"] = rows(others, index)
    return single


def test_captums_cases_are_found() -> None:
    assert len(CAPTUMS) >= 13
    assert {type(case["model"]) for case in CAPTUMS} == {BasicModel_MultiLayer, BasicModel_MultiLayer_MultiInput}
    assert sum(case.get("noise_tunnel", False) for case in CAPTUMS) >= 6


@pytest.mark.parametrize("case", slow_unless(lambda case: any(case is fast for fast in CASES[::4]), CASES), ids=IDS)
def test_targets(case: Case) -> None:
    """Every example on its own, with its own target, alone or in a list of one, has the attributions of the batch."""
    method, _, arguments = prepare(case)
    target, count = arguments["target"], len(as_tuple(arguments["inputs"])[0])
    together = as_tuple(method.attribute(**arguments))
    is_list = isinstance(target, (list, Tensor)) and len(target) == count
    assert all(bool(part.abs().max() > 0) for part in together)
    for index in range(count):
        for single_target in (target[index], target[index : index + 1]) if is_list else (target,):
            set_all_random_seeds(1234)
            alone = method.attribute(**{**example(arguments, index), "target": single_target})
            torch.testing.assert_close(rows(together, index), as_tuple(alone), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("nt_type", ["smoothgrad", "smoothgrad_sq", "vargrad"])
@pytest.mark.parametrize("target", [[0, 1, 1, 0], torch.tensor([0, 1, 1, 0]), [(0,), (1,), (1,), (0,)]])
def test_targets_through_noise(nt_type: str, target: Any) -> None:
    """With equal seeds, hence equal noise, each row is that of a call in which its target is everybody's."""
    tunnel = NoiseTunnel(GOAtAttribution(randomize(BasicModel_MultiLayer(), seed=4)))

    def attribute(target: Any) -> Tensor:
        set_all_random_seeds(1234)
        return tunnel.attribute(4 * normal(4, 3), nt_type=nt_type, nt_samples=6, stdevs=0.5, target=target)

    together, first, second = attribute(target), attribute(0), attribute(1)
    assert not torch.allclose(first, second)
    torch.testing.assert_close(together[[0, 3]], first[[0, 3]], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together[[1, 2]], second[[1, 2]], rtol=1e-5, atol=1e-5)


def hooks(model: nn.Module) -> dict[str, Counter[str]]:
    """Count the hooks of every kind on every module."""
    return {
        name: Counter({kind: len(value) for kind, value in vars(module).items() if kind.endswith("_hooks")})
        for name, module in model.named_modules()
    }


def graph_case(name: str, mask_type: str | None, inputs: Any, *others: Tensor) -> Case:
    """Return a case with a model of graphs, for three masks or features of one graph."""
    others = (*others, random_edges(5, 8, seed=1))
    return {
        "name": name,
        "algorithms": [lambda model: GOAtAttribution(model, mask_type=mask_type)],
        "model": make_gnn(dtype=torch.float32),
        "attribute_args": {"inputs": inputs, "target": [0, 2, 1], "additional_forward_args": others},
    }


GRAPHS = [
    graph_case("edges", None, normal(3, 8), normal(5, 4)),
    graph_case("nodes", "node", normal(3, 5, 4)),
    graph_case("nodes_and_edges", "node_and_edge", (normal(3, 5, 4), normal(3, 8))),
]


@pytest.mark.parametrize("case", CASES + GRAPHS, ids=[*IDS, *(case["name"] for case in GRAPHS)])
@pytest.mark.parametrize("mode", ["normal", "incorrect_target"])
def test_hook_removal(case: Case, mode: str) -> None:
    """As many hooks after as before, the user's among them; also if the target is wrong."""
    method, model, arguments = prepare(case)
    calls: list[nn.Module] = []
    last = list(model.modules())[-1]
    last.register_forward_hook(lambda module, *_: calls.append(module))
    last.register_forward_pre_hook(lambda *_: None)
    before = hooks(model)
    assert sum(sum(counts.values()) for counts in before.values()) == 2
    if mode == "normal":
        method.attribute(**arguments)
        assert calls
    else:
        with pytest.raises((ValueError, IndexError)):
            method.attribute(**{**arguments, "target": (9999,) * 20})
    assert hooks(model) == before


@pytest.mark.parametrize("case", CASES + GRAPHS, ids=[*IDS, *(case["name"] for case in GRAPHS)])
def test_delta(case: Case) -> None:
    """One number per example, or per example and sample of noise, and each of them small."""
    method, _, arguments = prepare(case)
    attributions, delta = method.attribute(**arguments, return_convergence_delta=True)
    inputs = as_tuple(arguments["inputs"])
    assert delta.shape == (len(inputs[0]) * arguments.get("nt_samples", 1),)
    assert float(delta.abs().max()) < 1e-3 * max(1.0, *(float(part.abs().max()) for part in as_tuple(attributions)))
    assert isinstance(attributions, tuple) == isinstance(arguments["inputs"], tuple)
    for part, given in zip(as_tuple(attributions), inputs, strict=True):
        assert part.shape == given.shape
