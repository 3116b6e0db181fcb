"""The interface of GOAtAttribution: layouts, targets, dtypes, modes, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from captum.attr import Attribution
from conftest import KINDS, make_gnn, random_edges
from torch import Tensor, nn
from torch_geometric.explain import ModelConfig
from torch_geometric.explain.algorithm.captum import CaptumModel
from torch_geometric.nn import GIN, to_captum_model

from captum_goat import EdgeMaskedModel, GOAtAttribution, UnsupportedModelError

Batch = tuple[Tensor, Tensor, Tensor]


def graph(seed: int = 0, nodes: int = 6, edges: int = 12) -> tuple[Tensor, Tensor]:
    x = torch.randn(nodes, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x, random_edges(nodes, edges, seed)


def ones(edge_index: Tensor, *rows: int) -> Tensor:
    return torch.ones(*rows, edge_index.size(1), dtype=torch.float64)


def test_is_an_attribution_with_captums_words() -> None:
    goat = GOAtAttribution(make_gnn())
    assert isinstance(goat, Attribution)
    assert goat.get_name() == "GOAt"
    assert goat.multiplies_by_inputs
    assert goat.has_convergence_delta()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["distinct", "repeated"])
def test_batch_equals_single_graphs(kind: str, field: str, batch_of_graphs: Batch) -> None:
    x, edge_index, batch = batch_of_graphs
    goat = GOAtAttribution(make_gnn(kind), field=field)
    targets = [2, 0, 1, 1]
    mask = torch.rand(edge_index.size(1), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    together, delta = goat.attribute(mask, targets, (x, edge_index, batch), return_convergence_delta=True)
    assert delta.shape == (4,)
    for number, target in enumerate(targets):
        nodes, edges = batch == number, batch[edge_index[0]] == number
        first = int(nodes.nonzero()[0])
        alone = goat.attribute(mask[edges], target, (x[nodes], edge_index[:, edges] - first))
        torch.testing.assert_close(together[edges], alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("target", [1, torch.tensor(1), torch.tensor([1]), [1, 1, 1, 1], torch.tensor([1, 1, 1, 1])])
def test_forms_of_graph_targets(target: object, batch_of_graphs: Batch) -> None:
    x, edge_index, batch = batch_of_graphs
    goat = GOAtAttribution(make_gnn())
    expected = goat.attribute(ones(edge_index), 1, (x, edge_index, batch))
    torch.testing.assert_close(goat.attribute(ones(edge_index), target, (x, edge_index, batch)), expected)


@pytest.mark.parametrize("pool", ["mean", None])
def test_many_masks_equal_single_masks(pool: str | None) -> None:
    x, edge_index = graph()
    goat = GOAtAttribution(make_gnn("sage_mean", pool=pool))
    masks = torch.randn(4, edge_index.size(1), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = [0, 2, 1, 1] if pool else [(3, 0), (1, 2), (0, 1), (3, 1)]
    together, delta = goat.attribute(masks, targets, (x, edge_index), return_convergence_delta=True)
    assert together.shape == masks.shape
    assert delta.shape == (4,)
    for mask, target, row in zip(masks, targets, together, strict=True):
        torch.testing.assert_close(goat.attribute(mask, target, (x, edge_index)), row, rtol=1e-12, atol=1e-12)


def test_edges_under_another_name_are_copied_too() -> None:
    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn(pool=None)

        def forward(self, features: Tensor, links: Tensor) -> Tensor:
            return self.gnn(features, links)

    x, edge_index = graph()
    goat = GOAtAttribution(Renamed().eval())
    together = goat.attribute(ones(edge_index, 2), [(1, 0), (4, 1)], (x, edge_index))
    torch.testing.assert_close(together[1], goat.attribute(ones(edge_index), (4, 1), (x, edge_index)))
    assert together[1].any()


def test_one_target_for_many_masks() -> None:
    x, edge_index = graph()
    nodes, graphs = GOAtAttribution(make_gnn(pool=None)), GOAtAttribution(make_gnn())
    for goat, target in ((nodes, (2, 1)), (graphs, 1), (graphs, torch.tensor([1]))):
        rows = goat.attribute(ones(edge_index, 3), target, (x, edge_index))
        torch.testing.assert_close(rows[0], rows[2])
        torch.testing.assert_close(rows[0], goat.attribute(ones(edge_index), target, (x, edge_index)))


def test_models_that_mix_graphs_are_explained_one_mask_at_a_time() -> None:
    class WholeGraph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn(pool=None)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.gnn(x, edge_index).mean(dim=0, keepdim=True)

    x, edge_index = graph()
    goat = GOAtAttribution(WholeGraph().eval())
    masks = torch.rand(3, edge_index.size(1), dtype=torch.float64)
    together = goat.attribute(masks, torch.tensor([0, 1, 2]), (x, edge_index))
    for number, (mask, row) in enumerate(zip(masks, together, strict=True)):
        torch.testing.assert_close(goat.attribute(mask, number, (x, edge_index)), row)


def test_outputs_of_one_and_three_dimensions() -> None:
    class Shaped(nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.gnn, self.shape = make_gnn(), shape

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            out = self.gnn(x, edge_index, batch)
            return out[:, 0] if self.shape == () else torch.stack([out, 2 * out], dim=1)

    x, edge_index = graph()
    mask = ones(edge_index)
    expected = GOAtAttribution(make_gnn()).attribute(mask, 0, (x, edge_index))
    torch.testing.assert_close(GOAtAttribution(Shaped(()).eval()).attribute(mask, None, (x, edge_index)), expected)
    three = GOAtAttribution(Shaped((2, 3)).eval())
    for target in ((1, 0), [(1, 0)], (0, 1, 0)):
        torch.testing.assert_close(three.attribute(mask, target, (x, edge_index)), 2 * expected)
    torch.testing.assert_close(three.attribute(mask, (0, 0), (x, edge_index)), expected)


def test_tuple_in_tuple_out_detached_and_of_the_inputs_dtype() -> None:
    x, edge_index = graph()
    goat = GOAtAttribution(make_gnn(dtype=torch.float32))
    mask = ones(edge_index).requires_grad_()
    (result,) = goat.attribute((mask,), 1, (x.float(), edge_index))
    assert result.dtype == torch.float64
    assert not result.requires_grad
    single = goat.attribute(mask.float(), 1, (x.float(), edge_index))
    assert single.dtype == torch.float32
    torch.testing.assert_close(result.float(), single)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_as_fine_as_the_model_where_no_gate_flips(kind: str, dtype: torch.dtype) -> None:
    """All inputs of gates are far above 0; sums over 400 edges in half precision would be off by 20 roundings."""
    eps = torch.finfo(dtype).eps
    for seed in range(3):
        model = make_gnn(kind, seed=seed, layers=2)
        with torch.no_grad():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                if tensor.is_floating_point() and "var" not in name:
                    tensor.copy_(-tensor.abs() if "running_mean" in name else 0.3 * tensor.abs())
        x, edge_index = graph(seed, 30, 400)
        x, model = x.abs().to(dtype), model.to(dtype)
        attributions, delta = GOAtAttribution(model).attribute(
            ones(edge_index).to(dtype), 0, (x, edge_index), return_convergence_delta=True
        )
        expected = GOAtAttribution(model.double()).attribute(ones(edge_index), 0, (x.double(), edge_index))
        assert attributions.dtype == dtype
        torch.testing.assert_close(attributions.double(), expected, rtol=0, atol=2 * eps * float(expected.abs().max()))
        assert abs(float(delta)) < 3 * eps * float(expected.sum())


def test_sums_are_checked_in_half_precision_too() -> None:
    calls = list[int]()

    class Wavering(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gnn = make_gnn("gcn")

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            calls.append(1)
            out: Tensor = self.gnn(x, edge_index) * 1.0
            out.data.mul_(2 if len(calls) == 1 else 1)  # of which torch knows nothing
            return out * 1.0

    x, edge_index = graph()
    model = Wavering().eval().bfloat16()
    with pytest.raises(UnsupportedModelError, match="has a state that changes"):
        GOAtAttribution(model).attribute(ones(edge_index).bfloat16(), 0, (x.bfloat16(), edge_index))


def test_gradients_of_the_user_are_left_alone() -> None:
    x, edge_index = graph()
    model = make_gnn()
    expected = GOAtAttribution(model).attribute(ones(edge_index), 1, (x, edge_index))
    model(x, edge_index).sum().backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    with torch.no_grad():
        torch.testing.assert_close(GOAtAttribution(model).attribute(ones(edge_index), 1, (x, edge_index)), expected)
    assert all(torch.equal(p.grad, grad) for p, grad in zip(model.parameters(), before, strict=True))
    model.requires_grad_(False)
    torch.testing.assert_close(GOAtAttribution(model).attribute(ones(edge_index), 1, (x, edge_index)), expected)
    with torch.inference_mode():
        inputs = (x.clone(), edge_index.clone())
        torch.testing.assert_close(GOAtAttribution(model).attribute(ones(edge_index), 1, inputs), expected)


def test_every_kind_of_forward_func_gives_the_same() -> None:
    x, edge_index = graph()
    model = make_gnn()
    expected = GOAtAttribution(model).attribute(ones(edge_index), 1, (x, edge_index))
    for wrapped in (EdgeMaskedModel(model), to_captum_model(model, "edge"), torch.compile(model)):
        attributions = GOAtAttribution(wrapped).attribute(ones(edge_index, 1), 1, (x, edge_index))
        torch.testing.assert_close(attributions, expected.unsqueeze(0))


def test_pygs_wrapper_with_an_output_index() -> None:
    x, edge_index = graph()
    model = make_gnn(pool=None)
    goat = GOAtAttribution(model)
    expected = goat.attribute(ones(edge_index, 2), (3, 1), (x, edge_index))
    for index in (3, torch.tensor(3), torch.tensor([3])):
        wrapped = GOAtAttribution(to_captum_model(model, "edge", index))
        torch.testing.assert_close(wrapped.attribute(ones(edge_index, 2), 1, (x, edge_index)), expected)
    with pytest.raises(ValueError, match="mask_type 'node'"):
        GOAtAttribution(to_captum_model(model, "node"), mask_type="edge")


def test_pygs_wrapper_for_binary_classification() -> None:
    x, edge_index = graph()
    model = make_gnn(pool=None)
    config = ModelConfig(mode="binary_classification", task_level="node", return_type="probs")

    class FirstColumn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.model(x, edge_index)[:, 0]

    wrapper = CaptumModel(FirstColumn().eval(), "edge", 2, config)
    expected = GOAtAttribution(model).attribute(ones(edge_index, 1), (2, 0), (x, edge_index))
    torch.testing.assert_close(GOAtAttribution(wrapper).attribute(ones(edge_index, 1), 1, (x, edge_index)), expected)
    torch.testing.assert_close(GOAtAttribution(wrapper).attribute(ones(edge_index, 1), 0, (x, edge_index)), -expected)


def test_convergence_delta_is_sum_minus_difference(batch_of_graphs: Batch) -> None:
    x, edge_index, batch = batch_of_graphs
    model = make_gnn("sage_sum")
    goat, masked = GOAtAttribution(model), EdgeMaskedModel(model)
    mask = ones(edge_index)
    scores = torch.arange(edge_index.size(1), dtype=torch.float64)
    sums = torch.zeros(4, dtype=torch.float64).index_add(0, batch[edge_index[0]], scores)
    for start in (None, 0.5, torch.zeros_like(mask)):
        begin = mask * (start if start is not None else 0.0)
        change = masked(mask, x, edge_index, batch)[:, 2] - masked(begin, x, edge_index, batch)[:, 2]
        delta = goat.compute_convergence_delta(scores, start, mask, 2, (x, edge_index, batch))
        owned = torch.tensor([True, True, False, True])
        torch.testing.assert_close(delta[owned], (sums - change)[owned])
    x, edge_index = graph()
    masks = torch.rand(3, edge_index.size(1), dtype=torch.float64)
    attributions = goat.attribute(masks, [0, 1, 2], (x, edge_index))
    delta = goat.compute_convergence_delta((attributions + 1.0,), None, (masks,), [0, 1, 2], (x, edge_index))
    torch.testing.assert_close(delta, torch.full((3,), float(edge_index.size(1)), dtype=torch.float64))


@pytest.mark.parametrize(
    ("mask", "target", "message"),
    [
        (torch.ones(11), 1, "12 for 'edge_index' \\(got 11\\)"),
        (torch.ones(12, dtype=torch.long), 1, "floating point"),
        (torch.ones(1, 1, 12), 1, r"\[1, 1, 12\]"),
        (torch.ones(0, 12), 1, r"\[0, 12\]"),
        ((torch.ones(12), torch.ones(12)), 1, "got 2 masks"),
        (torch.ones(12), [1, 2], "got 2 targets for 1"),
        (torch.ones(12), None, r"shape \[1, 3\]"),
        (torch.ones(12), "1", "selects one number"),
        (torch.ones(12), torch.tensor([1.0]), "selects one number"),
        (torch.ones(2, 12), [0, 1, 2], "got 3 targets for 2"),
    ],
)
def test_errors_name_what_was_expected(mask: object, target: object, message: str) -> None:
    x, edge_index = graph()
    with pytest.raises(ValueError, match=message):
        GOAtAttribution(make_gnn(dtype=torch.float32)).attribute(mask, target, (x.float(), edge_index))


def test_errors_of_other_kinds() -> None:
    x, edge_index = graph()
    model = make_gnn()
    mask = ones(edge_index)
    with pytest.raises(IndexError, match="within the output's shape"):
        GOAtAttribution(model).attribute(mask, 3, (x, edge_index))
    with pytest.raises(ValueError, match=r"\(node, class\)"):
        GOAtAttribution(make_gnn(pool=None)).attribute(mask, 1, (x, edge_index))
    with pytest.raises(ValueError, match=r"\(node, class\)"):
        GOAtAttribution(make_gnn(pool=None)).attribute(mask.expand(2, -1), 1, (x, edge_index))
    with pytest.raises(ValueError, match="field"):
        GOAtAttribution(model, field="other")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        GOAtAttribution(lambda mask: mask)
    with pytest.raises(TypeError, match="at most 3 arguments"):
        GOAtAttribution(model).attribute(mask, 1, (x, edge_index, None, None))
    model.convs[1].train()
    with pytest.raises(ValueError, match=r"'convs.1' is in training mode"):
        GOAtAttribution(model).attribute(mask, 1, (x, edge_index))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("at", ["message", "adjacency"])
@pytest.mark.parametrize("kind", ["gcn", "gin"])
def test_numbers_that_are_not_finite_are_named(value: float, at: Any, kind: str) -> None:
    x, edge_index = graph()
    model, mask, wrong = make_gnn(kind), ones(edge_index), x.clone()
    wrong[edge_index[0, 0], 2] = value
    with pytest.raises(ValueError, match=r"Expected finite numbers \(got infinite or nan entries in 'x'\)"):
        GOAtAttribution(model, at=at).attribute(mask, 0, (wrong, edge_index))
    with pytest.raises(ValueError, match="nan entries in the edge mask"):
        GOAtAttribution(model, at=at).attribute(mask * value, 0, (x, edge_index))
    with torch.no_grad():
        model.out.bias[0] = value
    with pytest.raises(ValueError, match=r"nan entries in the model's 'out\.bias'"):
        GOAtAttribution(model, at=at).attribute(mask, 0, (x, edge_index))


def test_models_without_messages_are_refused() -> None:
    class Own(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x + x[edge_index[0]].sum(dim=0)

    x, edge_index = graph()
    with pytest.raises(UnsupportedModelError, match="message passing"):
        GOAtAttribution(Own().eval()).attribute(ones(edge_index), (0, 0), (x, edge_index))


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_made_on_the_inputs_device(kind: str) -> None:
    """Without a GPU: a tensor made on the default device, here one without values, could not mix with the inputs."""
    x, edge_index = graph()
    goat, nodes = GOAtAttribution(make_gnn(kind)), GOAtAttribution(make_gnn(kind, pool=None))
    mask, masks, batch = ones(edge_index), ones(edge_index, 2), torch.zeros(len(x), dtype=torch.long)
    expected = goat.attribute(mask, 1, (x, edge_index, batch))
    torch.set_default_device("meta")
    try:
        assert torch.equal(goat.attribute(mask, 1, (x, edge_index, batch)), expected)
        goat.attribute(masks, [0, 1], (x, edge_index))
        nodes.attribute(masks, [(0, 1), (1, 2)], (x, edge_index))
        goat.compute_convergence_delta(expected, None, mask, 1, (x, edge_index, batch))
    finally:
        torch.set_default_device(None)


def test_messages_of_integers() -> None:
    """Counts as features: a mask that is no integer multiplies their messages as it does those of other numbers."""
    model = GIN(4, 8, num_layers=2, out_channels=2).double().eval()
    x, edge_index = torch.randint(3, (6, 4)), torch.randint(6, (2, 12))
    for mask in (torch.ones(12, dtype=torch.float64), torch.full((12,), 0.5, dtype=torch.float64)):
        masked, expected = (EdgeMaskedModel(model)(mask, values, edge_index) for values in (x, x.double()))
        torch.testing.assert_close(masked, expected)
        goat = GOAtAttribution(model)
        attributions, expected = (goat.attribute(mask, (0, 1), (values, edge_index)) for values in (x, x.double()))
        torch.testing.assert_close(attributions, expected)
