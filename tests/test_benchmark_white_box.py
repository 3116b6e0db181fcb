"""Hand-set models: the edges that matter, by trying all subgraphs; scores computed by hand; the command."""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import pytest
import torch
from conftest import slow_unless
from metrics_oracle import counted
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Batch, Data

from benchmarks.explainers import EXPLAINERS
from benchmarks.white_box import CASES, Case
from benchmarks.white_box.cases import CARBON, LABELS, NITROGEN, OXYGEN, SULPHUR
from benchmarks.white_box.networks import Form
from benchmarks.white_box.run import completeness_error, decoy_credit, main, measure
from captum_goat import EdgeMaskedModel

MODELS: list[tuple[Case, Form]] = [(case, form) for case in CASES.values() for form in case.forms]


def molecule(labels: list[int], bonds: list[tuple[int, int]], mattering: set[tuple[int, int]]) -> Data:
    """Return a graph with the two directions of each bond next to each other."""
    columns = [column for one, other in bonds for column in ((one, other), (other, one))]
    truth = [(min(column), max(column)) in mattering for column in columns]
    x = one_hot(torch.tensor(labels), LABELS).double()
    return Data(x=x, edge_index=torch.tensor(columns).t(), edge_label=torch.tensor(truth))


def of_bonds(scores: Tensor) -> list[float]:
    return scores.view(-1, 2).sum(dim=1).tolist()


@pytest.mark.parametrize(("case", "form"), slow_unless(lambda pair: pair[1] == pair[0].forms[-1], MODELS))
def test_an_edge_matters_if_it_changes_the_output_in_some_subgraph(case: Case, form: Form) -> None:
    model, graph = case.model(form), case.graph(1, carbons=3, decoys=1)
    edges = counted(graph)
    count, number = len(edges), torch.empty(graph.num_edges, dtype=torch.long)
    for place, columns in enumerate(edges):
        number[columns] = place
    masks = torch.tensor(list(itertools.product((0.0, 1.0), repeat=count)), dtype=torch.double)
    with torch.no_grad():
        logits = EdgeMaskedModel(model)(masks[:, number], graph.x, graph.edge_index)
    values = logits[:, case.target].view([2] * count)
    effect = torch.stack([(values.select(edge, 1) - values.select(edge, 0)).abs().max() for edge in range(count)])
    assert (effect > 1e-9).tolist() == [bool(graph.edge_label[columns].any()) for columns in edges]
    assert int(logits[-1].argmax()) == case.target


@pytest.mark.parametrize(("case", "form"), MODELS)
def test_output_is_the_rule(case: Case, form: Form) -> None:
    """f is 1 where one motif is planted, 0 where two cancel, and 2 bonds beyond the third for the hub."""
    batch = Batch.from_data_list([case.graph(seed) for seed in range(8)])
    logits = case.model(form)(batch.x, batch.edge_index, batch.batch)
    assert torch.equal(logits.argmax(dim=1), torch.full((8,), case.target))
    if form != "gcn" or case.name == "functional_group":
        f = {"xor_both": 0.0, "degree_threshold": 2.0}.get(case.name, 1.0)
        torch.testing.assert_close(logits[:, 1], torch.full((8,), 2 * f - 1).double())
    assert all(graph.edge_label.any() and not graph.edge_label.all() for graph in batch.to_data_list())


def test_walk_by_hand() -> None:
    """S - C - first atom, f = 1 and a logit of 2 f - 1.

    The walk S -> C -> first has two edges and three gates (at C, at the first atom, in the head), so each has 2 / 5.
    The gate at C is shared among the two edges into C, the others among all three that reach the first atom.
    """
    graph = molecule([CARBON, CARBON, SULPHUR], [(2, 1), (1, 0)], {(1, 2), (0, 1)})
    scores = EXPLAINERS["goat"]()(CASES["walk"].model("gcn_sum"), graph, torch.tensor([1]))
    share = 2 / 5
    wanted = [share + share / 2 + 2 * share / 3, 0.0, share + 2 * share / 3, share / 2 + 2 * share / 3]
    torch.testing.assert_close(scores, torch.tensor(wanted).double())  # S -> C, C -> S, C -> first, first -> C


@pytest.mark.parametrize("carbons", [1, 2, 5])
def test_decoys_share_the_gates_of_goat(carbons: int) -> None:
    """A nitrogen with one oxygen and k carbons: the edge O -> N, its gate and the head's gate have a third each.

    The gate is shared among the k + 1 edges into the nitrogen, the head's among all 2 k + 2 edges of the graph.
    """
    bonds = [(0, other) for other in range(1, carbons + 2)]
    graph = molecule([NITROGEN, OXYGEN] + [CARBON] * carbons, bonds, {(0, 1)})
    model, target = CASES["bond_count"].model("sage"), torch.tensor([1])
    third, gate, head = 2 / 3, 2 / 3 / (carbons + 1), 2 / 3 / (2 * carbons + 2)
    goat = EXPLAINERS["goat"]()(model, graph, target)
    torch.testing.assert_close(
        torch.tensor(of_bonds(goat)), torch.tensor([third + gate + 2 * head] + [gate + 2 * head] * carbons)
    )
    assert float(decoy_credit(graph, goat)) == pytest.approx(2 / 3 * carbons / (carbons + 1))
    for name in ("integrated_gradients", "occlusion", "guided_shapley_64"):
        assert of_bonds(EXPLAINERS[name]()(model, graph, target)) == pytest.approx([2.0] + [0.0] * carbons, abs=1e-5)


def test_redundant_bonds_by_hand() -> None:
    """Either of two bonds is enough: each has half of the Shapley value, and occlusion sees neither."""
    graph = molecule([NITROGEN, OXYGEN, CARBON, NITROGEN, OXYGEN], [(0, 1), (0, 2), (2, 3), (3, 4)], {(0, 1), (3, 4)})
    model, target = CASES["bond_presence"].model("sage"), torch.tensor([1])
    assert of_bonds(EXPLAINERS["guided_shapley_64"]()(model, graph, target)) == pytest.approx([1, 0, 0, 1], abs=1e-9)
    assert of_bonds(EXPLAINERS["occlusion"]()(model, graph, target)) == pytest.approx([0, 0, 0, 0], abs=1e-9)


@pytest.mark.parametrize("name", ["goat", "goat_proportional"])
def test_goat_spreads_a_saturated_presence_over_all_edges(name: str) -> None:
    """min(count, 1) = relu(count) - relu(count - 1), and both gates are on: what edges have of one is what they lose by
    the other. All that is left, 2, is the second gate's bias, and a gate behind the pool belongs to every edge.
    """
    case = CASES["bond_presence"]
    graph = case.graph(0)
    for form in case.forms:
        scores = EXPLAINERS[name]()(case.model(form), graph, torch.tensor([1]))
        torch.testing.assert_close(scores, torch.full_like(scores, 2 / graph.num_edges))


def test_proportional_gates_leave_decoys_out() -> None:
    """Decoys have nothing of their own, so that they get nothing of a gate that is shared in proportion."""
    graph = molecule([NITROGEN, OXYGEN, CARBON, CARBON], [(0, 1), (0, 2), (0, 3)], {(0, 1)})
    scores = EXPLAINERS["goat_proportional"]()(CASES["bond_count"].model("sage"), graph, torch.tensor([1]))
    assert of_bonds(scores) == pytest.approx([2.0, 0.0, 0.0])


def test_completeness_error_is_caught() -> None:
    case, target = CASES["functional_group"], torch.tensor([1, 1])
    model, batch = case.model("sage"), Batch.from_data_list([case.graph(0), case.graph(1)])
    goat, random = EXPLAINERS["goat"](), EXPLAINERS["random"]()
    scores = goat(model, batch, target)
    assert completeness_error(goat, model, batch, target, scores) < 1e-12
    scores[0] += 0.25
    assert completeness_error(goat, model, batch, target, scores) == pytest.approx(0.25)
    assert math.isnan(completeness_error(random, model, batch, target, scores))


def test_a_decoy_explainer_is_caught() -> None:
    row = measure(CASES["decoy"], "sage", "random", 4)
    assert row is not None
    assert row.auc < 0.9
    assert row.decoy_credit > 0.5
    assert measure(CASES["bond_count"], "gin", "integrated_gradients_weights", 2) is None  # takes no weights
    for name in ("occlusion_adjacency", "guided_shapley_64", "integrated_gradients_weights"):
        assert measure(CASES["walk"], "gcn", name, 2) is None  # another function of deleted edges


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["goat", "random", "guided_backprop"]
    main(["--explainers", *names, "--cases", "walk", "decoy", "--graphs", "2", "--out", str(tmp_path)])
    with (tmp_path / "white_box.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * (4 + 3)
    assert {float(row["auc"]) for row in rows if row["explainer"] == "goat"} == {1.0}
    text = (tmp_path / "white_box.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in [*names, "walk", "decoy"])
    assert text in capsys.readouterr().out
