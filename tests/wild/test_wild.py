"""Models in the wild, unmodified: exact or refused by name, never wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, GraphConv, SAGEConv
from torch_geometric.utils import to_edge_index, to_torch_coo_tensor, to_torch_csr_tensor

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError
from captum_goat.method import explain
from tests.wild import adjacencies, by_hand, containers, factors, outputs, pooling, recurrent
from tests.wild.cases import Wild, graph, randomized

TOPICS = [outputs, containers, pooling, recurrent, factors, adjacencies, by_hand]
NEAR = 1e-9
SAGEConv(
    1, 1
)  # PyG writes the code of a class for the options of its first layer; those of others have no fused kernels
pytestmark = [
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),  # checkpoints without gradients
    pytest.mark.filterwarnings("ignore:.*[Ss]parse"),  # torch and PyG have advice on sparse matrices
]


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    """Let models make tensors of their own in double precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def _cases(*, refused: bool) -> list[Any]:
    return [
        pytest.param(case, id=f"{topic.__name__.rpartition('.')[2]}-{_name(case, number)}")
        for topic in TOPICS
        for number, case in enumerate(topic.CASES)
        if (case.refused is not None) == refused
    ]


def _name(case: Wild, number: int) -> str:
    name = getattr(case.build, "__name__", "")
    return str(number) if name == "<lambda>" else name


def _ones(arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """Return masks of ones: one, or one per relation."""
    lists = [value for value in arguments if isinstance(value, list) and isinstance(value[0], Tensor)]
    sizes = [edges.size(1) for edges in lists[0]] if lists else [graph().edge_index.size(1)]
    return tuple(torch.ones(size, dtype=torch.float64) for size in sizes)


def _explained(output: Tensor, target: Any) -> Tensor:
    return output[target] if isinstance(target, tuple) else output[:, target]


def _part(output: Any, selector: Any) -> Tensor:
    """Return a part of an output, without the package."""
    if selector is None or callable(selector):
        return output if selector is None else selector(output)
    return getattr(output, selector) if hasattr(output, "__dataclass_fields__") else output[selector]


@pytest.mark.parametrize("case", _cases(refused=True))
def test_models_that_cannot_be_explained_are_refused_by_name(case: Wild) -> None:
    model, arguments = randomized(case.build()), case.arguments(graph())
    with pytest.raises((UnsupportedModelError, ValueError), match=case.refused):
        GOAtAttribution(model, output=case.output).attribute(_ones(arguments)[0], case.target, arguments)


@pytest.mark.parametrize("case", _cases(refused=False))
def test_models_are_explained_exactly(case: Wild) -> None:
    model, arguments = randomized(case.build()), case.arguments(graph())
    ones = _ones(arguments)
    inputs = ones if len(ones) > 1 else ones[0]
    masked, goat = EdgeMaskedModel(model, output=case.output), GOAtAttribution(model, output=case.output)
    with torch.no_grad():
        expected = _part(model(*case.arguments(graph())), case.output)
        with_edges, without = (masked(*masks, *arguments) for masks in (ones, map(torch.zeros_like, ones)))
    assert torch.allclose(with_edges, expected, rtol=NEAR, atol=NEAR)
    attributions, delta = goat.attribute(inputs, case.target, arguments, return_convergence_delta=True)
    scores = attributions if isinstance(attributions, tuple) else (attributions,)
    assert delta.abs().max() < NEAR
    assert max(float(score.abs().max()) for score in scores) > 1e-6
    end, start = (_explained(output, case.target) for output in (with_edges, without))
    if torch.allclose(goat.explained_values(inputs, case.target, arguments), end):  # else a last softmax is left out
        assert abs(float(sum(score.sum() for score in scores) - (end - start).sum())) < NEAR


@pytest.mark.parametrize("case", [case for case in _cases(refused=False) if case.values[0].deletes])
def test_masked_edges_are_deleted_edges(case: Wild) -> None:
    model, given = randomized(case.build()), graph()
    masked, arguments = EdgeMaskedModel(model, output=case.output), case.arguments(given)
    for edge in (0, 7, 17):
        mask = _ones(arguments)[0]
        mask[edge] = 0.0
        with torch.no_grad():
            deleted = _part(model(*case.arguments(given.without(edge))), case.output)
            assert torch.allclose(masked(mask, *arguments), deleted, rtol=NEAR, atol=NEAR)


@pytest.mark.parametrize("conv", [GraphConv, GCNConv, SAGEConv])
@pytest.mark.parametrize("layout", [to_torch_csr_tensor, to_torch_coo_tensor])
def test_entries_of_sparse_matrices_are_edges(conv: type[nn.Module], layout: Callable[..., Tensor]) -> None:
    given, model = graph(), randomized(adjacencies.Transposed(conv))
    adjacency = layout(given.edge_index.flip(0), size=(10, 10))
    edge_index = to_edge_index(adjacency)[0].flip(0)  # the same edges, in the order of the entries
    mask = torch.linspace(0.2, 1.0, edge_index.size(1))
    expected = GOAtAttribution(model).attribute(mask, (3, 1), (given.x, edge_index))
    found = GOAtAttribution(model).attribute(mask, (3, 1), (given.x, adjacency))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_a_compiled_model_is_the_original_module() -> None:
    model = randomized(outputs.Nested())
    assert EdgeMaskedModel(torch.compile(model)).model is model


@pytest.mark.parametrize("build", [recurrent.GatedGraph, recurrent.Cells, recurrent.SetReadout])
def test_fewer_points_than_the_formal_degree_asks_for_are_enough(
    build: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, given = randomized(build()), graph()
    call = torch.ones(given.edge_index.size(1)), 1, (given.x, given.edge_index, given.batch)
    found = GOAtAttribution(model).attribute(*call)
    monkeypatch.setattr(explain, "SMOOTH_POINTS", (300,))  # exact for products of up to 600 variables
    torch.testing.assert_close(found, GOAtAttribution(model).attribute(*call), rtol=1e-9, atol=1e-11)
