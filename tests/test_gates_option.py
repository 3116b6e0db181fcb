"""GOAtAttribution(gates="proportional"): a gate is shared in proportion to the sizes of the edges' own shares."""

from __future__ import annotations

import pytest
import test_oracle
import test_oracle_features
import torch
from conftest import KINDS, combinations, make_gnn, random_edges
from oracle import Network, Values, equal_contributions
from torch import Tensor

from captum_goat import GOAtAttribution

EDGES = random_edges(6, 14, seed=1)
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def literal(explained: Network, baseline: Network, target: tuple[int, int], field: str) -> dict[str, Tensor]:
    """Share the gates of written out products by the own shares of what is in their fields; equally if there are none.

    Returns, under "edge" and "feature", a number per edge and a number per feature, node by node.
    """
    row, channel = target
    own = equal_contributions(explained.table[row][channel], explained.values)
    result: Values = {variable: own.get(variable, 0.0) for variable in explained.values}
    for network, sign in ((explained, 1), (baseline, -1)):
        for gate, share in equal_contributions(network.table[row][channel], network.values).items():
            if gate[0] == "gate":
                listings = network.field_of(network.gates[gate], field)
                sizes = [abs(own.get(listing, 0.0)) for listing in listings]
                sizes = sizes if any(sizes) else [1.0] * len(listings)
                for listing, size in zip(listings, sizes, strict=True):
                    result[listing] += sign * share * size / sum(sizes)
    shares: dict[str, list[float]] = {"edge": [], "feature": []}
    for variable, number in result.items():
        shares[variable[0]].append(number)
    return {kind: torch.tensor(numbers, dtype=torch.float64) for kind, numbers in shares.items()}


@pytest.mark.parametrize("field", ["distinct", "repeated"])
@pytest.mark.parametrize(
    ("architecture", "readout", "seed"),
    combinations(["gcn", "gcn_unnormalised", "sage_mean", "gin", "mixed"], ["node", "mean"], range(4)),
)
def test_edges_agree_with_written_out_products(architecture: str, readout: str, seed: int, field: str) -> None:
    case = test_oracle.draw_case(architecture, readout, seed)
    for mask, network in zip(case.masks, case.with_edges, strict=True):
        attributions = GOAtAttribution(case.model, field, gates="proportional").attribute(  # type: ignore[arg-type]
            mask, case.package_target, (case.x, case.edge_index)
        )
        expected = literal(network, case.without_edges, case.target, field)["edge"]
        torch.testing.assert_close(attributions, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("attributed", ["node", "node_and_edge"])
@pytest.mark.parametrize(("architecture", "seed"), combinations(["gcn", "gin"], range(3)))
def test_features_agree_with_written_out_products(architecture: str, seed: int, attributed: str) -> None:
    case = test_oracle_features.draw_case(architecture, "sum", seed, attributed)
    goat = GOAtAttribution(case.model, mask_type=attributed, gates="proportional")  # type: ignore[arg-type]
    both = attributed == "node_and_edge"
    attributions = goat.attribute((case.x, case.mask) if both else case.x, case.target[1], case.edge_index)
    expected = literal(*case.networks, case.target, "distinct")
    features = attributions[0] if both else attributions
    torch.testing.assert_close(features, expected["feature"].view_as(case.x), rtol=0, atol=1e-10)
    if both:
        torch.testing.assert_close(attributions[1], expected["edge"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("at", ["message", "adjacency"])
@pytest.mark.parametrize("kind", KINDS)
def test_attributions_add_up(kind: str, at: str, batch_of_graphs: tuple[Tensor, Tensor, Tensor]) -> None:
    x, edges, batch = batch_of_graphs
    goat = GOAtAttribution(make_gnn(kind), at=at, gates="proportional")  # type: ignore[arg-type]
    mask = torch.ones(edges.size(1), dtype=torch.float64)
    attributions, delta = goat.attribute(mask, [0, 1, 2, 0], (x, edges, batch), return_convergence_delta=True)
    assert delta.abs().max() < 1e-9
    alone = goat.attribute(mask[:14], 0, (x[:6], edges[:, :14]))
    torch.testing.assert_close(attributions[:14], alone, rtol=1e-7, atol=1e-9)


def test_without_gates_it_makes_no_difference() -> None:
    model = make_gnn("gcn", layers=1, pool=None).convs[0]
    mask = torch.ones(EDGES.size(1), dtype=torch.float64)
    by_default, proportional = (
        GOAtAttribution(model.eval(), gates=gates).attribute(mask, (2, 0), (X, EDGES))  # type: ignore[arg-type]
        for gates in ("equal", "proportional")
    )
    torch.testing.assert_close(proportional, by_default)


def test_other_ways_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Expected gates to be 'equal' or 'proportional' \(got 'constant'\)"):
        GOAtAttribution(make_gnn(), gates="constant")  # type: ignore[arg-type]
