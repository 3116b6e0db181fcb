from __future__ import annotations

import builtins
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from conftest import make_gnn
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.data import Data

from captum_goat import GOAtAttribution, explain_dataset, undirected_feature_mask
from captum_goat.plot import visualize_graph_attr

matplotlib.use("Agg")

# A path 0 - 1 - 2 - 3 in both directions. Merged: +3, -1 and 0.
EDGE_INDEX = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
ATTRIBUTIONS = torch.tensor([2.0, 1.0, -3.0, 2.0, 1.0, -1.0])
POS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])


def draw(
    attributions: Tensor = ATTRIBUTIONS, edge_index: Tensor | Data = EDGE_INDEX, **options: Any
) -> tuple[Figure, Axes]:
    fig, ax = visualize_graph_attr(attributions, edge_index, use_pyplot=False, **options)
    fig.draw_without_rendering()  # colours are computed when drawing
    return fig, ax


def edge_lines(ax: Axes) -> LineCollection:
    (lines,) = [
        artist for artist in ax.collections if isinstance(artist, LineCollection) and artist.get_array() is not None
    ]
    return lines


def node_points(ax: Axes) -> np.ndarray:
    (nodes,) = [artist for artist in ax.collections if not isinstance(artist, LineCollection)]
    return np.asarray(nodes.get_offsets())


def drawn(ax: Axes) -> dict[int, tuple[float, float, np.ndarray]]:
    """Score, width and colour of the edges of the path, by the node at their left."""
    lines = edge_lines(ax)
    columns = zip(lines.get_segments(), lines.get_array(), lines.get_linewidths(), lines.get_colors(), strict=True)
    return {int(segment[:, 0].min()): (float(score), width, color) for segment, score, width, color in columns}


def test_directions_are_merged_and_drawn_with_signed_colours_and_widths() -> None:
    edges = drawn(draw(layout=POS)[1])
    assert {node: score for node, (score, _, _) in edges.items()} == {0: 3.0, 1: -1.0, 2: 0.0}
    widths = {node: width for node, (_, width, _) in edges.items()}
    assert widths[0] > widths[1] > widths[2] > 0
    (red_0, _, blue_0, _), (red_1, _, blue_1, _), neutral = (edges[node][2] for node in range(3))
    assert blue_0 > red_0 + 0.5  # positive is blue
    assert red_1 > blue_1 + 0.05  # negative is red, and paler because it is smaller
    assert np.ptp(neutral[:3]) < 0.02  # zero is grey
    assert neutral[:3].mean() < 0.9  # and can be seen on white


def test_sums_of_both_directions_are_counted_once() -> None:
    """With one edge that has no reverse, one that is there twice, and a self-loop."""
    model, x = make_gnn("gin"), torch.arange(20.0, dtype=torch.float64).view(5, 4) / 10
    edge_index = torch.cat([EDGE_INDEX, torch.tensor([[0, 3, 4], [1, 4, 4]])], dim=1)
    goat, undirected = GOAtAttribution(model), undirected_feature_mask(edge_index)
    mask = torch.ones(9, dtype=torch.float64)
    plain, summed = (
        goat.attribute(mask, 0, (x, edge_index), feature_mask=feature_mask) for feature_mask in (None, undirected)
    )

    def scores(attributions: Tensor, **options: Any) -> Any:
        ax = draw(attributions, edge_index, layout=x[:, :2], directed=False, **options)[1]
        return edge_lines(ax).get_array()

    np.testing.assert_allclose(scores(summed, feature_mask=undirected), scores(plain), rtol=1e-12)
    assert np.abs(scores(summed) - scores(plain)).max() > 0.1 * np.abs(scores(plain)).max(), "the sums were doubled"
    assert scores(summed, feature_mask=undirected).sum() == pytest.approx(float(plain.sum()))


def test_means_of_both_directions_are_drawn_as_they_are() -> None:
    """``explain_dataset(undirected=True)`` gives both directions their mean: the picture shows their sum."""
    x = torch.arange(16.0, dtype=torch.float64).view(4, 4) / 10
    model, graph = make_gnn("gin"), Data(x=x, edge_index=EDGE_INDEX)
    options: dict[str, Any] = {"target": 0, "show_progress": False}
    plain, means = (explain_dataset(model, [graph], undirected=value, **options)[0] for value in (False, True))
    assert not torch.allclose(plain.edge_mask, means.edge_mask)
    pictures = [drawn(draw(explanation.edge_mask, explanation, layout=POS)[1]) for explanation in (plain, means)]
    for node in range(3):
        assert pictures[0][node][0] == pytest.approx(pictures[1][node][0])


def test_scale_is_centred_and_can_be_shared() -> None:
    norm = edge_lines(draw(layout=POS)[1]).norm
    assert (norm.vmin, norm.vmax) == (-3, 3)
    shared = draw(layout=POS, vmax=12.0)[1]
    assert (edge_lines(shared).norm.vmin, edge_lines(shared).norm.vmax) == (-12, 12)
    assert drawn(shared)[0][1] == pytest.approx(1 + 5 * 3 / 12)


@pytest.mark.parametrize(
    ("sign", "scores", "limits"),
    [
        ("all", {0: 3, 1: -1, 2: 0}, (-3, 3)),
        ("positive", {0: 3, 1: 0, 2: 0}, (0, 3)),
        ("negative", {0: 0, 1: -1, 2: 0}, (-1, 0)),
        ("absolute_value", {0: 3, 1: 1, 2: 0}, (0, 3)),
    ],
)
def test_sign(sign: Any, scores: dict[int, float], limits: tuple[float, float]) -> None:
    ax = draw(layout=POS, sign=sign)[1]
    assert {node: score for node, (score, _, _) in drawn(ax).items()} == scores
    assert (edge_lines(ax).norm.vmin, edge_lines(ax).norm.vmax) == limits
    # Whatever is shown, zero has the same grey.
    np.testing.assert_allclose(drawn(ax)[2][2], to_rgba("#d0d0d0"), atol=0.01)


def test_outliers_saturate() -> None:
    edge_index = torch.stack([torch.arange(100), torch.arange(1, 101)])
    attributions = torch.ones(100)
    attributions[7] = 50.0
    pos = torch.stack([torch.arange(101.0), torch.zeros(101)], dim=1)
    assert edge_lines(draw(attributions, edge_index, layout=pos)[1]).norm.vmax == 50
    ax = draw(attributions, edge_index, layout=pos, outlier_perc=40)[1]
    assert edge_lines(ax).norm.vmax == 1
    assert drawn(ax)[7][1] == drawn(ax)[8][1]
    assert edge_lines(draw(layout=POS, outlier_perc=100)[1]).norm.vmax == 1  # the smallest that is not zero
    with pytest.raises(ValueError, match=r"outlier_perc between 0 and 100 \(got 101\)"):
        draw(layout=POS, outlier_perc=101)


def test_cmap_colorbar_title_and_size() -> None:
    fig, ax = draw(layout=POS, cmap="PuOr", show_colorbar=True, title="A path", fig_size=(3, 2))
    assert edge_lines(ax).get_cmap().name == "PuOr"
    assert ax.get_title() == "A path"
    assert tuple(fig.get_size_inches()) == (3, 2)
    (bar,) = [panel for panel in fig.axes if panel is not ax]
    assert bar.get_ylim() == (-3, 3)
    assert len(draw(layout=POS)[0].axes) == 1


def test_node_labels() -> None:
    ax = draw(layout=POS, node_labels=["C", "N", 3, "O"])[1]
    assert [(text.get_text(), *text.xy) for text in ax.texts] == [
        ("C", 0, 0),
        ("N", 1, 0),
        ("3", 2, 0),
        ("O", 3, 0),
    ]


def test_self_loops_are_drawn() -> None:
    edge_index, attributions = torch.tensor([[0, 1, 1], [1, 0, 1]]), torch.tensor([1.0, 1.0, -5.0])
    lines = edge_lines(draw(attributions, edge_index, layout=POS[:2])[1])
    assert lines.get_array().tolist() == [2, -5]
    assert [len(segment) for segment in lines.get_segments()] == [2, 25]  # a circle; the strongest is drawn last


def test_zero_attributions() -> None:
    edges = drawn(draw(torch.zeros(6), layout=POS, show_colorbar=True)[1])
    assert {width for _, width, _ in edges.values()} == {1.0}
    assert draw(torch.zeros(6), layout=POS, vmax=0.0)


@pytest.mark.parametrize("dtype", [torch.long, torch.float])  # torch.tensor([[], []]) is of floats
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("num_nodes", [None, 0, 1, 5])
def test_graph_without_edges(num_nodes: int | None, directed: bool, dtype: torch.dtype) -> None:
    empty = torch.empty(2, 0, dtype=dtype)
    options = {"directed": directed, "show_colorbar": True, "top_k": 2}
    graph = empty if num_nodes is None else Data(edge_index=empty, num_nodes=num_nodes)
    nodes = draw(torch.empty(0), graph, **options)[1].collections[-1]
    assert len(nodes.get_offsets()) == (num_nodes or 0)


def test_top_k_leaves_the_rest_grey_and_the_scale_alone() -> None:
    edge_index = torch.stack([torch.arange(5), torch.arange(1, 6)])
    attributions, pos = torch.tensor([1.0, -4.0, 0.5, 3.0, -4.0]), torch.stack([torch.arange(6.0), torch.zeros(6)], 1)
    everything = drawn(draw(attributions, edge_index, layout=pos)[1])
    for top_k, expected in [(0, set()), (1, {1}), (2, {1, 4}), (3, {1, 3, 4}), (99, set(range(5)))]:
        ax = draw(attributions, edge_index, layout=pos, top_k=top_k)[1]
        edges = drawn(ax)
        assert edges.keys() == expected
        for node, (_, width, color) in edges.items():
            assert width == everything[node][1]
            np.testing.assert_array_equal(color, everything[node][2])
        (plain,) = [
            artist for artist in ax.collections if isinstance(artist, LineCollection) and artist.get_array() is None
        ]
        assert len(plain.get_segments()) == 5
        assert plain.get_zorder() < edge_lines(ax).get_zorder()
        np.testing.assert_allclose(plain.get_colors(), [to_rgba("#d0d0d0")])
    # The sign comes first.
    assert drawn(draw(attributions, edge_index, layout=pos, top_k=2, sign="positive")[1]).keys() == {0, 3}


def test_directed_edges_part_and_have_heads_that_point_to_their_targets() -> None:
    edge_index = torch.tensor([[0, 1, 2, 0], [1, 0, 1, 1]])  # 0 -> 1 twice
    ax = draw(torch.tensor([2.0, -1.0, 5.0, 2.0]), edge_index, layout=POS, directed=True)[1]
    lines = edge_lines(ax)
    assert lines.get_array().tolist() == [-1, 4, 5]
    there, back, straight = (lines.get_segments()[index] for index in (1, 0, 2))
    assert (there[0], there[-1]) == (pytest.approx([0, 0]), pytest.approx([1, 0]))
    assert (back[0], back[-1]) == (pytest.approx([1, 0]), pytest.approx([0, 0]))
    assert there[12] == pytest.approx([0.5, 0.1])  # bent to its left
    assert back[12] == pytest.approx([0.5, -0.1])
    assert straight.tolist() == [[2, 0], [1, 0]]
    heads = next(
        artist for artist in ax.collections if isinstance(artist, PathCollection) and artist.get_array() is not None
    )
    assert heads.get_array().tolist() == [-1, 4, 5]
    np.testing.assert_array_equal(heads.get_facecolors(), lines.get_colors())
    assert np.all(np.diff(heads.get_sizes()) > 0)
    assert heads.get_offsets()[2] == pytest.approx([1.4, 0])
    tips, *corners = np.array([path.vertices for path in heads.get_paths()]).transpose(1, 0, 2)
    assert tips[2] == pytest.approx([-0.6, 0])
    for corner in corners:  # no head is sheared
        assert np.linalg.norm(tips - corner, axis=1) == pytest.approx([np.hypot(1, 0.45)] * 3)
    assert np.sign(tips[:2]).tolist() == [[-1, 1], [1, -1]]  # past the middle, curves turn back to the straight line


def test_a_graph_is_directed_if_an_edge_has_no_reverse() -> None:
    one_way = EDGE_INDEX[:, :5]
    assert len(edge_lines(draw()[1]).get_segments()) == 3
    assert len(edge_lines(draw(ATTRIBUTIONS[:5], one_way)[1]).get_segments()) == 5
    assert len(edge_lines(draw(ATTRIBUTIONS[:5], one_way, directed=False)[1]).get_segments()) == 3
    repeated = torch.cat([EDGE_INDEX, EDGE_INDEX[:, :1], torch.tensor([[2], [2]])], dim=1)  # 0 -> 1 again, and a loop
    assert len(edge_lines(draw(torch.ones(8), repeated)[1]).get_segments()) == 4


@pytest.mark.parametrize("convert", [np.asarray, torch.Tensor.tolist, lambda values: values[None]])
def test_numpy_arrays_lists_and_single_rows_are_attributions(convert: Any) -> None:
    ax = draw(convert(ATTRIBUTIONS), EDGE_INDEX.numpy(), layout=POS, ground_truth=np.arange(6) > 3)[1]
    assert {node: score for node, (score, _, _) in drawn(ax).items()} == {0: 3.0, 1: -1.0, 2: 0.0}


def test_directed_edges_that_are_not_coloured_have_grey_heads() -> None:
    ax = draw(layout=POS, directed=True, top_k=2)[1]
    grey, coloured = [artist for artist in ax.collections if isinstance(artist, PathCollection)][:2]
    assert (len(grey.get_offsets()), len(coloured.get_offsets())) == (4, 2)
    np.testing.assert_allclose(grey.get_facecolors(), [to_rgba("#d0d0d0")])


def test_node_colors() -> None:
    faces = draw(layout=POS, node_colors="gold")[1].collections[-1].get_facecolors()
    np.testing.assert_allclose(faces, [to_rgba("gold")] * 4)
    ax = draw(layout=POS, node_labels="CNOS", node_colors=["white", "navy", (1, 1, 0), "0.1"])[1]
    np.testing.assert_allclose(ax.collections[-1].get_facecolors()[1], to_rgba("navy"))
    assert [text.get_color() for text in ax.texts] == ["#404040", "white", "#404040", "white"]  # legible on its node


def test_isolated_nodes_are_drawn() -> None:
    graph = Data(edge_index=EDGE_INDEX, num_nodes=6)
    assert len(node_points(draw(edge_index=graph)[1])) == 6


def test_figures_of_pyplot_are_shown_and_given_axes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[int]] = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.get_fignums()))
    fig, _ = visualize_graph_attr(ATTRIBUTIONS, EDGE_INDEX, layout=POS)
    assert shown == [[fig.number]]
    pyplot.close(fig)
    own = Figure()
    axes = own.subplots()
    assert visualize_graph_attr(ATTRIBUTIONS, EDGE_INDEX, layout=POS, plt_fig_axis=(own, axes)) == (own, axes)
    draw(layout=POS)
    assert len(shown) == 1
    assert not pyplot.get_fignums()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attributions": (ATTRIBUTIONS,)}, r"attributions as a tensor or a NumPy array \(got tuple\)"),
        ({"attributions": None}, r"attributions as a tensor or a NumPy array \(got NoneType\)"),
        ({"edge_index": "path"}, r"edge_index as a tensor or a NumPy array \(got str\)"),
        ({"only_top": True}, r"top_k, the number of edges to draw, with only_top=True \(got None\)"),
        ({"top_k": -1}, r"top_k of at least 0, or None for all edges \(got -1\)"),
        ({"vmax": -1.0}, r"vmax to be a magnitude, finite and at least 0 \(got -1.0\)"),
        ({"node_colors": ["red", "blue"]}, r"one for each of 4 nodes \(got \['red', 'blue'\]\)"),
        ({"node_colors": "no colour"}, r"matplotlib colours, .* \(got 'no colour'\)"),
        ({"layout": torch.zeros(4, 3)}, r"positions of shape \[4, 2\], one point per node \(got \[4, 3\]\)"),
        ({"sign": "both"}, "sign to be one of 'all', .* \\(got 'both'\\)"),
        ({"edge_index": Data(edge_index=EDGE_INDEX, num_nodes=3), "layout": None}, r"at least 4 .* \(got \[3\]\)"),
        ({"layout": POS, "node_labels": "abcde"}, r"agree on one number of nodes.*\(got \[4, 5\]\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        visualize_graph_attr(**({"attributions": ATTRIBUTIONS, "edge_index": EDGE_INDEX, "layout": POS} | options))
    assert not pyplot.get_fignums()  # nothing is left behind


@pytest.mark.parametrize("missing", ["matplotlib", "networkx"])
def test_missing_packages_are_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == missing:
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=rf"{missing}.*pip install captum-goat\[plot\]"):
        visualize_graph_attr(ATTRIBUTIONS, EDGE_INDEX)
