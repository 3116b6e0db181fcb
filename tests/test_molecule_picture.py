"""Pictures of molecules: bonds in the colours of their attributions."""

from __future__ import annotations

import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from torch_geometric.data import Data

from captum_goat import undirected_feature_mask
from captum_goat.plot import molecule as molecule_module
from captum_goat.plot import visualize_molecule_attr
from captum_goat.plot.molecule import OPACITY
from captum_goat.plot.style import NEGATIVE, NEUTRAL, POSITIVE, checked, colour_scale

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
    monkeypatch.setattr(molecule_module, "OPACITY", 1.0)


@pytest.fixture
def rdkit() -> None:
    pytest.importorskip("rdkit")


def picture(attributions: torch.Tensor = ATTRIBUTIONS, molecule: Any = GRAPH, **options: Any) -> Axes:
    given = {"atoms": ATOMS, "use_pyplot": False} | options
    return visualize_molecule_attr(attributions, molecule, **given)[1]


def parts(ax: Axes, gid: str) -> Any:
    (found,) = [collection for collection in ax.collections if collection.get_gid() == gid]
    return found


def bands(ax: Axes, scores: Any = SCORES) -> dict[int, str]:
    """The colours of the bands below bonds, by the number of the bond: the strongest are drawn last."""
    colours = [to_hex(colour) for colour in parts(ax, "bands").get_colors()]
    numbers = np.argsort(np.abs(np.asarray(scores)), kind="stable")[len(scores) - len(colours) :]
    return dict(zip(numbers.tolist(), colours, strict=True))


@needs_rdkit
def test_every_bond_has_the_colour_of_its_attribution() -> None:
    colours = bands(picture())
    expected = colour_scale(checked({"vmax": 4.0}), []).to_rgba(np.array(SCORES))
    np.testing.assert_allclose([to_rgb(colours[bond]) for bond in range(6)], expected[:, :3], atol=0.01)
    assert (colours[1], colours[2]) == (NEGATIVE, NEUTRAL)
    assert bands(picture(vmax=2.0))[0] == POSITIVE  # the scale can be shared


@needs_rdkit
def test_sums_of_both_directions_are_counted_once() -> None:
    summed, undirected = torch.tensor(SCORES).repeat(2), undirected_feature_mask(EDGE_INDEX)
    options: dict[str, Any]
    for options, scores in (({"vmax": 4.0}, SCORES), ({"vmax": 4.0, "hydrogens": "none"}, SCORES[:3])):
        expected = bands(picture(**options), scores)
        assert bands(picture(summed, feature_mask=undirected, **options), scores) == expected
        assert bands(picture(summed, **options), scores) != expected
    fig = picture(summed, feature_mask=undirected, show_colorbar=True).figure
    assert fig.axes[1].get_ylim() == (-4, 4)


@needs_rdkit
@pytest.mark.parametrize(
    ("options", "colour_of_the_first"),
    [({"sign": "positive"}, POSITIVE), ({"sign": "negative"}, NEUTRAL), ({"outlier_perc": 70}, POSITIVE)],
)
def test_sign_and_outliers_are_as_in_other_pictures(options: dict[str, Any], colour_of_the_first: str) -> None:
    scores = {"positive": np.clip(SCORES, 0, None), "negative": np.clip(SCORES, None, 0)}
    assert bands(picture(**options), scores.get(options.get("sign", ""), SCORES))[0] == colour_of_the_first


@needs_rdkit
def test_top_k_leaves_other_bonds_without_a_band() -> None:
    assert bands(picture(top_k=2)).keys() == {0, 1}
    assert not bands(picture(top_k=0))


@needs_rdkit
def test_colours_are_pale(monkeypatch: pytest.MonkeyPatch) -> None:
    strong = int(bands(picture())[1][3:5], 16)
    monkeypatch.setattr(molecule_module, "OPACITY", OPACITY)
    assert int(bands(picture())[1][3:5], 16) == pytest.approx(OPACITY * strong + (1 - OPACITY) * 255, abs=1)


@needs_rdkit
def test_bond_types_are_drawn() -> None:
    def lines(ax: Axes) -> int:
        return len(parts(ax, "bonds").get_segments())

    single, double = picture(), picture(bond_types=ORDERS)
    assert (lines(single), lines(double)) == (6, 8)  # two double bonds
    assert bands(double) == bands(single)
    assert lines(picture(torch.ones(6), "c1ccccc1", atoms=None)) == 9
    assert lines(picture(torch.ones(1), "C#C", atoms=None)) == 3


@needs_rdkit
def test_letters_of_atoms() -> None:
    def letters(smiles: str, count: int) -> list[str]:
        return [text.get_text() for text in picture(torch.ones(count), smiles, atoms=None).texts]

    assert letters("NCC[N+](=O)[O-]", 5) == ["NH₂", "N⁺", "O", "O⁻"]
    assert letters("C", 0) == ["CH₄"]


@needs_rdkit
def test_self_loops_colour_their_atom() -> None:
    loops = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 1]])
    ax = picture(torch.tensor([1.0, 1.0, 4.0, -4.0]), "CO", atoms=None, edge_index=loops)
    assert [to_hex(colour) for colour in parts(ax, "discs").get_facecolors()] == [POSITIVE, NEGATIVE]


@needs_rdkit
def test_hidden_hydrogens_colour_their_atom() -> None:
    ax = picture(hydrogens="polar", vmax=3.0)
    assert bands(ax, SCORES[:3]).keys() == {0, 1, 2}
    assert [to_hex(colour) for colour in parts(ax, "discs").get_facecolors()] == [POSITIVE]  # 1 + 1 + 1


@needs_rdkit
def test_ground_truth_is_inside_a_dotted_outline() -> None:
    def outlined(ax: Axes) -> int:
        dotted = [lines for lines in ax.collections if lines.get_zorder() == 0.8]
        assert all(
            width > parts(ax, "bands").get_linewidths()[0] for lines in dotted for width in lines.get_linewidths()
        )
        return sum(len(lines.get_segments()) for lines in dotted)

    assert outlined(picture(ground_truth=TRUTH)) == 2
    assert outlined(picture()) == 0


@needs_rdkit
def test_picture_fills_its_axes() -> None:
    ax = picture(show_colorbar=True, title="Nitromethane")
    assert ax.get_title() == "Nitromethane"
    (bar,) = [panel for panel in ax.figure.axes if panel is not ax]
    assert bar.get_ylim() == (-4, 4)
    assert not ax.axison
    ax.figure.draw_without_rendering()
    points = np.concatenate(parts(ax, "bands").get_segments())
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    shares = np.ptp(points, axis=0) / [right - left, high - low]
    assert 0.5 < shares.max() <= 1


@needs_rdkit
def test_molecules_of_rdkit_and_smiles_have_bonds_in_their_order() -> None:
    from rdkit import Chem

    scores = torch.tensor([1.0, -1.0, 0.0])
    for molecule in ("CCN=O", Chem.MolFromSmiles("CCN=O")):
        assert bands(picture(scores, molecule, atoms=None), scores) == {0: POSITIVE, 1: NEGATIVE, 2: NEUTRAL}
    backwards = torch.tensor([[3, 2, 1], [2, 1, 0]])
    colours = bands(picture(scores, "CCN=O", atoms=None, edge_index=backwards), scores.flip(0))
    assert colours == {0: NEUTRAL, 1: NEGATIVE, 2: POSITIVE}


@needs_rdkit
@pytest.mark.parametrize("count", [0, 1, 3])
def test_molecules_without_bonds(count: int) -> None:
    graph = Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=count)
    assert not bands(picture(torch.empty(0), graph, atoms=["C"] * count, show_colorbar=True), [])


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


def test_missing_rdkit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.split(".")[0] == "rdkit"] or ["rdkit"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "rdkit", None)
    message = r"RDKit is needed to draw molecules: pip install captum-goat\[molecules\]"
    with pytest.raises(ImportError, match=message):
        visualize_molecule_attr(ATTRIBUTIONS, GRAPH, atoms=ATOMS)
    assert not pyplot.get_fignums()
