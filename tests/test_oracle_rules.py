"""The package against the oracle of smooth gates and frozen factors; and the oracle against PyG."""

from __future__ import annotations

import pytest
import torch
from conftest import slow_unless
from oracle_rules import attributions, masked_output, run
from oracle_rules_cases import TOLERANCE, Case, build_model, draw_case, random_graph
from oracle_rules_products import value
from oracle_rules_recipes import ATTENTION, CASES, FAST_CASES, MAXIMA

from captum_goat import EdgeMaskedModel, GOAtAttribution

every_case = pytest.mark.parametrize(("recipe", "seed"), slow_unless(FAST_CASES.__contains__, CASES))


@every_case
def test_package_agrees_with_oracle(recipe: str, seed: int) -> None:
    case = draw_case(recipe, seed)
    for index, expected in enumerate(case.expected):
        torch.testing.assert_close(case.actual(index), expected, rtol=0, atol=TOLERANCE)


@every_case
def test_oracle_is_complete_and_agrees_with_pyg(recipe: str, seed: int) -> None:
    case = draw_case(recipe, seed)
    row, channel = case.target
    outputs = [value(oracle.table[row][channel]) for oracle in case.oracles]
    for mask, output in zip([*case.masks, 0 * case.masks[0]], outputs, strict=True):
        real = masked_output(case.model, case.x, case.edge_index, mask)[row, channel]
        assert output == pytest.approx(float(real), rel=1e-11, abs=1e-11)
    for expected, output in zip(case.expected, outputs, strict=False):
        assert float(expected.sum()) == pytest.approx(output - outputs[-1], rel=1e-10, abs=1e-10)


@pytest.mark.slow
def test_masked_model_of_the_package_agrees_with_pyg() -> None:
    """The user's loops among the masked edges, too; layers that replace loops by their own among the models."""
    for recipe in [*ATTENTION, *MAXIMA]:
        case = draw_case(recipe, 0)
        mask = case.masks[1]
        actual = EdgeMaskedModel(case.model)(mask, case.x, case.edge_index)
        expected = masked_output(case.model, case.x, case.edge_index, mask)
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_several_masks_at_once() -> None:
    for recipe, seed in FAST_CASES[::5]:
        case = draw_case(recipe, seed)
        target = case.target[1] if case.pooled else case.target
        actual = GOAtAttribution(case.model).attribute(
            torch.stack(case.masks), target=[target] * 2, additional_forward_args=(case.x, case.edge_index)
        )
        torch.testing.assert_close(actual, torch.stack(case.expected), rtol=0, atol=TOLERANCE)


BATCHED = [
    "gat gat pool linear",
    "sage_max relu sage_max pool linear",
    "gcn norm gcn unit pool linear",
    "gcn softplus gat norm max_pool linear sigmoid linear",
]


@pytest.mark.parametrize("recipe", BATCHED)
def test_graphs_of_a_batch_are_explained_one_by_one(recipe: str) -> None:
    """Three graphs, one of them without edges; the edges of the others in a mixed order."""
    generator = torch.Generator().manual_seed(3)
    model = build_model(recipe, generator)
    targets = [1, 0, 1]
    graphs = [random_graph(0, generator), (3, torch.empty(2, 0, dtype=torch.long)), random_graph(1, generator)]
    xs = [torch.randn(nodes, 2, generator=generator, dtype=torch.float64) for nodes, _ in graphs]
    masks = [torch.randn(edges.shape[1], generator=generator, dtype=torch.float64) for _, edges in graphs]
    expected = [
        attributions(*(run(model.stages, x, edges, m) for m in (mask, 0 * mask)), (0, target))
        for x, (_, edges), mask, target in zip(xs, graphs, masks, targets, strict=True)
    ]
    sizes = torch.tensor([nodes for nodes, _ in graphs])
    offsets = (sizes.cumsum(0) - sizes).tolist()
    edge_index = torch.cat([edges + offset for (_, edges), offset in zip(graphs, offsets, strict=True)], dim=1)
    order = torch.randperm(edge_index.shape[1], generator=generator)
    actual = GOAtAttribution(model).attribute(
        torch.cat(masks)[order],
        target=targets,
        additional_forward_args=(torch.cat(xs), edge_index[:, order], torch.arange(3).repeat_interleave(sizes)),
    )
    torch.testing.assert_close(actual, torch.cat(expected)[order], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "recipe", ["gat gat", "sage_max relu sage_max", "gcn norm sigmoid gcn unit", "graph softplus graph"]
)
def test_a_node_that_no_edge_reaches(recipe: str) -> None:
    case = draw_case(recipe, 2)
    unreached = sorted(set(range(len(case.x))) - set(case.edge_index[1].tolist()))
    for node in unreached:
        case = Case(case.model, case.x, case.edge_index, case.masks, (node, 0))
        for index in range(2):
            assert not case.expected[index].any()
            torch.testing.assert_close(case.actual(index), case.expected[index], rtol=0, atol=1e-12)
    assert unreached
