"""Pictures by RDKit: bonds in the colours of their attributions."""

from __future__ import annotations

import re
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from torch_geometric.data import Data

from captum_goat import undirected_feature_mask
from captum_goat.plot import molecule as molecule_module
from captum_goat.plot import (
    molecule_svg,
    visualize_molecule_attr,
    visualize_molecule_attr_multiple,
)
from captum_goat.plot.molecule import ALPHA
from captum_goat.plot.style import NEGATIVE, NEUTRAL, POSITIVE, PictureSettings

matplotlib.use("Agg")
needs_rdkit = pytest.mark.usefixtures("rdkit")

# Nitromethane: C - N, N = O twice, and three hydrogens. Merged scores: 2, -4, 0, 1, 1, 1.
BONDS = [(0, 1), (1, 2), (1, 3), (0, 4), (0, 5), (0, 6)]
THERE = torch.tensor(BONDS).t()
EDGE_INDEX = torch.cat([THERE, THERE.flip(0)], dim=1)
SCORES = [2.0, -4.0, 0.0, 1.0, 1.0, 1.0]
ATTRIBUTIONS = torch.tensor(SCORES).repeat(2) / 2
GRAPH = Data(edge_index=EDGE_INDEX, num_nodes=7)
ATOMS = ["C", "N", "O", "O", "H", "H", "H"]
ORDERS = torch.tensor([1.0, 2, 2, 1, 1, 1]).repeat(2)
TRUTH = torch.tensor([False, True, True, False, False, False] * 2)


@pytest.fixture(autouse=True)
def full_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(molecule_module, "ALPHA", 1.0)


@pytest.fixture
def rdkit() -> None:
    pytest.importorskip("rdkit")


def svg(attributions: torch.Tensor = ATTRIBUTIONS, molecule: Any = GRAPH, **options: Any) -> str:
    return molecule_svg(attributions, molecule, **{"atoms": ATOMS} | options)


def bands(text: str) -> dict[int, str]:
    """The colours of the bands below bonds, by the number of the bond."""
    matches = re.findall(r"class='bond-(\d+) atom-\d+ atom-\d+' [^>]*style='fill:(#\w{6})", text)
    assert len({number for number, _ in matches}) == len(matches)
    return {int(number): colour.lower() for number, colour in matches}


def dots(text: str) -> np.ndarray:
    return np.array(
        [[float(x), float(y)] for x, y in re.findall(r"<ellipse cx='([\d.]+)' cy='([\d.]+)'[^>]*fill:#404040", text)]
    )


@needs_rdkit
def test_every_bond_has_the_colour_of_its_attribution() -> None:
    colours = bands(svg())
    expected = [to_hex(colour) for colour in PictureSettings(vmax=4.0).scale(1.0).colours(np.array(SCORES))]
    assert colours == dict(enumerate(expected))
    assert (colours[1], colours[2]) == (NEGATIVE, NEUTRAL)
    assert bands(svg(vmax=2.0))[0] == POSITIVE  # the scale can be shared


@needs_rdkit
def test_sums_of_both_directions_are_counted_once() -> None:
    summed, undirected = torch.tensor(SCORES).repeat(2), undirected_feature_mask(EDGE_INDEX)
    for options in ({"vmax": 4.0}, {"vmax": 4.0, "hydrogens": "none"}):
        assert svg(summed, feature_mask=undirected, **options) == svg(**options)
        assert svg(summed, **options) != svg(**options)
    fig, _ = visualize_molecule_attr(
        summed, GRAPH, atoms=ATOMS, feature_mask=undirected, show_colorbar=True, use_pyplot=False
    )
    assert fig.axes[1].get_ylim() == (-4, 4)


@needs_rdkit
@pytest.mark.parametrize(
    ("options", "colour_of_the_first"),
    [({"sign": "positive"}, POSITIVE), ({"sign": "negative"}, NEUTRAL), ({"outlier_perc": 70}, POSITIVE)],
)
def test_sign_and_outliers_are_as_in_other_pictures(options: dict[str, Any], colour_of_the_first: str) -> None:
    assert bands(svg(**options))[0] == colour_of_the_first


@needs_rdkit
def test_top_k_leaves_other_bonds_without_a_band() -> None:
    assert bands(svg(top_k=2)).keys() == {0, 1}
    assert not bands(svg(top_k=0))


@needs_rdkit
def test_colours_are_pale(monkeypatch: pytest.MonkeyPatch) -> None:
    strong = int(bands(svg())[1][3:5], 16)
    monkeypatch.setattr(molecule_module, "ALPHA", ALPHA)
    assert int(bands(svg())[1][3:5], 16) == pytest.approx(ALPHA * strong + (1 - ALPHA) * 255, abs=1)


@needs_rdkit
def test_bond_types_are_drawn() -> None:
    def lines(text: str) -> int:
        return len(re.findall(r"class='bond-1 [^']*'[^>]*fill:none", text))

    single, double = svg(), svg(bond_types=ORDERS)
    assert lines(double) == 2 * lines(single)  # two lines, in as many pieces
    assert bands(double) == bands(single)


@needs_rdkit
def test_atoms_can_be_coloured_too() -> None:
    text = svg(node_attributions=torch.tensor([4.0, 0, 0, -4.0, 0, 0, 0]))
    circles = re.findall(r"class='atom-(\d+)'[^>]*style='fill:(#\w{6})", text)
    assert {(int(number), colour.lower()) for number, colour in circles} == {(0, POSITIVE), (3, NEGATIVE)}


@needs_rdkit
def test_hidden_hydrogens_colour_their_atom() -> None:
    text = svg(hydrogens="polar", vmax=3.0)
    assert bands(text).keys() == {0, 1, 2}
    ((number, colour),) = set(re.findall(r"class='atom-(\d+)'[^>]*style='fill:(#\w{6})", text))
    assert (number, colour.lower()) == ("0", POSITIVE)  # 1 + 1 + 1


@needs_rdkit
def test_ground_truth_has_dots_on_both_sides() -> None:
    both, one = dots(svg(ground_truth=TRUTH)), dots(svg(ground_truth=torch.tensor([False, True] + [False] * 10)))
    assert len(both) == 2 * len(one) == 4 * molecule_module.DOTS  # two sides of two bonds
    assert len(dots(svg())) == 0
    left, right = one[::2], one[1::2]
    assert np.ptp(np.linalg.norm(left - right, axis=1)) < 0.1  # parallel lines
    along, across = left[-1] - left[0], left[0] - right[0]
    assert abs(along @ across) < 1e-2 * np.linalg.norm(along) * np.linalg.norm(across)


@needs_rdkit
def test_picture_on_axes_has_the_colours_of_the_bonds() -> None:
    fig, ax = visualize_molecule_attr(
        ATTRIBUTIONS, GRAPH, atoms=ATOMS, show_colorbar=True, title="Nitromethane", use_pyplot=False
    )
    (image,) = ax.images
    pixels = {to_hex(colour) for colour in np.asarray(image.get_array()).reshape(-1, image.get_array().shape[2])[::7]}
    assert {NEGATIVE, NEUTRAL, "#ffffff"} <= pixels
    assert ax.get_title() == "Nitromethane"
    (bar,) = [panel for panel in fig.axes if panel is not ax]
    assert bar.get_ylim() == (-4, 4)
    assert not ax.axison


@needs_rdkit
def test_molecules_of_rdkit_and_smiles_have_bonds_in_their_order() -> None:
    from rdkit import Chem

    scores = torch.tensor([1.0, -1.0, 0.0])
    for molecule in ("CCN=O", Chem.MolFromSmiles("CCN=O")):
        assert bands(molecule_svg(scores, molecule)) == {0: POSITIVE, 1: NEGATIVE, 2: NEUTRAL}
    backwards = torch.tensor([[3, 2, 1], [2, 1, 0]])
    assert bands(molecule_svg(scores, "CCN=O", edge_index=backwards)) == {
        0: NEUTRAL,
        1: NEGATIVE,
        2: POSITIVE,
    }


@needs_rdkit
def test_aromatic_molecules_and_fragments() -> None:
    text = molecule_svg(torch.ones(6), "c1ccccc1.[Na]")
    assert bands(text).keys() == set(range(6))


@needs_rdkit
@pytest.mark.parametrize("count", [0, 1, 3])
def test_molecules_without_bonds(count: int) -> None:
    graph = Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=count)
    assert not bands(molecule_svg(torch.empty(0), graph, atoms=["C"] * count))
    visualize_molecule_attr(torch.empty(0), graph, atoms=["C"] * count, use_pyplot=False, show_colorbar=True)


@needs_rdkit
def test_several_methods_share_a_scale() -> None:
    methods = {"one": ATTRIBUTIONS, "tenth": ATTRIBUTIONS / 10}
    fig, axes = visualize_molecule_attr_multiple(methods, GRAPH, atoms=ATOMS, ground_truth=TRUTH, use_pyplot=False)
    fig.draw_without_rendering()
    assert [ax.get_title() for ax in axes] == ["one", "tenth"]
    (bar,) = [panel for panel in fig.axes if panel.get_label() == "<colorbar>"]
    assert bar.get_ylim() == (-4, 4)
    reds = [_share_of(ax, NEGATIVE) for ax in axes]
    assert reds[0] > 0.001
    assert reds[1] == 0
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["ground truth"]
    _, own = visualize_molecule_attr_multiple(methods, GRAPH, atoms=ATOMS, shared_scale=False, use_pyplot=False)
    assert all(_share_of(ax, NEGATIVE) > 0.001 for ax in own)


def _share_of(ax: Any, colour: str) -> float:
    pixels = np.asarray(ax.images[0].get_array())[..., :3]
    wanted = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return float((np.abs(pixels - wanted).max(axis=-1) < 0.004).mean())


@needs_rdkit
def test_figures_of_pyplot_are_shown_and_given_axes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[int]] = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.get_fignums()))
    fig, _ = visualize_molecule_attr(torch.ones(2), "CCO", fig_size=(3, 2))
    assert shown == [[fig.number]]
    assert tuple(fig.get_size_inches()) == (3, 2)
    pyplot.close(fig)
    own = Figure()
    axes = own.subplots()
    assert visualize_molecule_attr(torch.ones(2), "CCO", plt_fig_axis=(own, axes)) == (own, axes)
    assert len(shown) == 1


@needs_rdkit
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"molecule": "no smiles"}, r"a valid SMILES \(got 'no smiles'\)"),
        ({"molecule": 7}, r"a Data, an RDKit molecule, or a valid SMILES \(got 7\)"),
        ({"molecule": Data(x=torch.ones(2, 1))}, r"a Data with edge_index \(got one without\)"),
        ({"hydrogens": "some"}, r"hydrogens to be one of 'all', 'polar', 'none' \(got 'some'\)"),
        ({"atoms": None}, r"Expected atoms, the element of every node"),
        ({"vmax": -1.0}, r"vmax to be a magnitude"),
        ({"sign": "both"}, r"sign to be one of"),
        ({"attributions": torch.ones(3)}, r"attributions of shape \[12\], one per edge \(got \[3\]\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    given = {"attributions": ATTRIBUTIONS, "molecule": GRAPH, "atoms": ATOMS} | options
    with pytest.raises(ValueError, match=message):
        visualize_molecule_attr(**given)
    assert not pyplot.get_fignums()


@pytest.mark.parametrize("draw", [visualize_molecule_attr, molecule_svg])
def test_missing_rdkit_is_named(draw: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.split(".")[0] == "rdkit"] or ["rdkit"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "rdkit", None)
    message = r"RDKit is needed to draw molecules: pip install captum-goat\[molecules\]"
    with pytest.raises(ImportError, match=message):
        draw(ATTRIBUTIONS, GRAPH, atoms=ATOMS)
    assert not pyplot.get_fignums()
