from __future__ import annotations

import builtins
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from captum_goat.datasets import ba_2motifs
from captum_goat.visualization import visualize_graph_attr

matplotlib.use("Agg")

# A path 0 - 1 - 2 - 3 in both directions. Merged: +3, -1 and 0.
EDGE_INDEX = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
ATTRIBUTIONS = torch.tensor([2.0, 1.0, -3.0, 2.0, 1.0, -1.0])
POS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])


def draw(attributions: Tensor = ATTRIBUTIONS, edge_index: Tensor = EDGE_INDEX, **options: Any) -> tuple[Figure, Axes]:
    fig, ax = visualize_graph_attr(attributions, edge_index, use_pyplot=False, **options)
    fig.draw_without_rendering()  # colours are computed when drawing
    return fig, ax


def edge_lines(ax: Axes) -> LineCollection:
    (lines,) = [each for each in ax.collections if isinstance(each, LineCollection) and each.get_array() is not None]
    return lines


def node_points(ax: Axes) -> np.ndarray:
    (nodes,) = [each for each in ax.collections if not isinstance(each, LineCollection)]
    return np.asarray(nodes.get_offsets())


def drawn(ax: Axes) -> dict[int, tuple[float, float, np.ndarray]]:
    """Score, width and colour of the edges of the path, by the node at their left."""
    lines = edge_lines(ax)
    columns = zip(lines.get_segments(), lines.get_array(), lines.get_linewidths(), lines.get_colors(), strict=True)
    return {int(segment[:, 0].min()): (float(score), width, color) for segment, score, width, color in columns}


def test_directions_are_merged_and_drawn_with_signed_colours_and_widths() -> None:
    edges = drawn(draw(pos=POS)[1])
    assert {node: score for node, (score, _, _) in edges.items()} == {0: 3.0, 1: -1.0, 2: 0.0}
    widths = {node: width for node, (_, width, _) in edges.items()}
    assert widths[0] > widths[1] > widths[2] > 0
    (red_0, _, blue_0, _), (red_1, _, blue_1, _), neutral = (edges[node][2] for node in range(3))
    assert blue_0 > red_0 + 0.5  # positive is blue
    assert red_1 > blue_1 + 0.05  # negative is red, and paler because it is smaller
    assert np.ptp(neutral[:3]) < 0.02  # zero is grey
    assert neutral[:3].mean() < 0.9  # and can be seen on white


def test_scale_is_centred_and_can_be_shared() -> None:
    norm = edge_lines(draw(pos=POS)[1]).norm
    assert (norm.vmin, norm.vmax) == (-3, 3)
    shared = draw(pos=POS, vmax=12.0)[1]
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
    ax = draw(pos=POS, sign=sign)[1]
    assert {node: score for node, (score, _, _) in drawn(ax).items()} == scores
    assert (edge_lines(ax).norm.vmin, edge_lines(ax).norm.vmax) == limits
    # Whatever is shown, zero has the same grey.
    np.testing.assert_allclose(drawn(ax)[2][2], to_rgba("#d0d0d0"), atol=0.01)


def test_outliers_saturate() -> None:
    edge_index = torch.stack([torch.arange(100), torch.arange(1, 101)])
    attributions = torch.ones(100)
    attributions[7] = 50.0
    pos = torch.stack([torch.arange(101.0), torch.zeros(101)], dim=1)
    assert edge_lines(draw(attributions, edge_index, pos=pos)[1]).norm.vmax == 50
    ax = draw(attributions, edge_index, pos=pos, outlier_perc=40)[1]
    assert edge_lines(ax).norm.vmax == 1
    assert drawn(ax)[7][1] == drawn(ax)[8][1]
    with pytest.raises(ValueError, match="outlier_perc between 0 and 100"):
        draw(outlier_perc=101)


def test_cmap_colorbar_title_and_size() -> None:
    fig, ax = draw(pos=POS, cmap="PuOr", show_colorbar=True, title="A path", fig_size=(3, 2))
    assert edge_lines(ax).get_cmap().name == "PuOr"
    assert ax.get_title() == "A path"
    assert tuple(fig.get_size_inches()) == (3, 2)
    (bar,) = [each for each in fig.axes if each is not ax]
    assert bar.get_ylim() == (-3, 3)
    assert len(draw(pos=POS)[0].axes) == 1


def test_ground_truth_has_a_wider_halo_below_the_edge() -> None:
    label = torch.tensor([False, False, True, True, False, False])
    ax = draw(pos=POS, edge_label=label)[1]
    handles, labels = ax.get_legend_handles_labels()
    assert labels == ["ground truth"]
    (halo,) = handles
    (segment,) = halo.get_segments()
    assert sorted(segment[:, 0]) == [1, 2]
    assert halo.get_linewidths()[0] > drawn(ax)[1][1]
    assert halo.get_zorder() < edge_lines(ax).get_zorder()
    assert not draw(pos=POS)[1].get_legend_handles_labels()[0]


def test_node_labels() -> None:
    ax = draw(pos=POS, node_labels=["C", "N", 3, "O"])[1]
    assert [(text.get_text(), *text.get_position()) for text in ax.texts] == [
        ("C", 0, 0),
        ("N", 1, 0),
        ("3", 2, 0),
        ("O", 3, 0),
    ]


def test_positions_as_a_layout_of_networkx_or_computed() -> None:
    as_dict = draw(pos=dict(enumerate(POS.tolist())))[1]
    assert drawn(as_dict).keys() == {0, 1, 2}
    points = node_points(draw()[1])
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps == pytest.approx(np.full(3, steps.mean()), rel=1e-2)  # a path is drawn straight and even
    assert np.linalg.norm(points[3] - points[0]) == pytest.approx(steps.sum(), rel=1e-2)


def test_layout_unfolds_a_house() -> None:
    house = ba_2motifs(num_graphs=2)[1]
    ax = draw(torch.ones(house.num_edges), house.edge_index)[1]
    points = node_points(ax)
    square, roof = points[20:24], points[24]
    # The roof lies on the other side of the wall 20 - 21 than the floor 22 - 23.
    wall = square[1] - square[0]
    normal = np.array([-wall[1], wall[0]])
    assert ((roof - square[0]) @ normal) * ((square[2] - square[0]) @ normal) < 0


def test_separate_parts_stay_apart() -> None:
    triangle, path = [(0, 1), (1, 2), (0, 2)], [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)]
    ax = draw(torch.ones(8), torch.tensor(triangle + path).t())[1]
    points = node_points(ax)
    lengths = [np.linalg.norm(points[source] - points[target]) for source, target in triangle + path]
    gaps = np.linalg.norm(points[:3, None] - points[None, 3:], axis=-1)
    assert min(lengths) > 0.1
    assert gaps.min() > 2 * max(lengths)


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_self_loop_is_a_circle_outside_its_node(size: float) -> None:
    edge_index, attributions = torch.tensor([[0, 1, 1], [1, 0, 1]]), torch.tensor([1.0, 1.0, -5.0])
    lines = edge_lines(draw(attributions, edge_index, pos=size * POS[:2])[1])
    assert lines.get_array().tolist() == [2, -5]
    *_, loop = lines.get_segments()  # the strongest is drawn last
    distances = np.linalg.norm(loop / size - np.array([1.0, 0.0]), axis=1)
    assert distances.min() < 0.01
    assert distances.max() == pytest.approx(0.1, rel=0.01)
    assert (loop[:, 0] / size).min() > 0.99


def test_zero_attributions() -> None:
    edges = drawn(draw(torch.zeros(6), pos=POS, show_colorbar=True)[1])
    assert {width for _, width, _ in edges.values()} == {1.0}
    assert draw(torch.zeros(6), pos=POS, vmax=0.0)


@pytest.mark.parametrize("num_nodes", [None, 0, 1, 2, 5])
def test_graph_without_edges(num_nodes: int | None) -> None:
    empty = torch.empty(2, 0, dtype=torch.long)
    ax = draw(torch.empty(0), empty, num_nodes=num_nodes, show_colorbar=True)[1]
    assert len(node_points(ax)) == (num_nodes or 0)


def test_isolated_nodes_are_drawn() -> None:
    assert len(node_points(draw(num_nodes=6)[1])) == 6


def test_figures_of_pyplot_and_given_axes() -> None:
    from matplotlib import pyplot

    fig, _ = visualize_graph_attr(ATTRIBUTIONS, EDGE_INDEX)
    assert pyplot.fignum_exists(fig.number)
    pyplot.close(fig)
    own = Figure()
    axes = own.subplots()
    assert visualize_graph_attr(ATTRIBUTIONS, EDGE_INDEX, plt_fig_axis=(own, axes)) == (own, axes)
    assert not pyplot.get_fignums()


def test_attributions_that_require_gradients() -> None:
    assert drawn(draw(ATTRIBUTIONS.clone().requires_grad_(), pos=POS)[1])[0][0] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attributions": torch.ones(5)}, r"attributions of shape \[6\], one per edge \(got \[5\]\)"),
        ({"edge_label": torch.ones(3)}, r"edge_label of shape \[6\], one per edge \(got \[3\]\)"),
        ({"edge_index": torch.ones(3, 6)}, r"edge_index of shape \[2, num_edges\] \(got \[3, 6\]\)"),
        ({"sign": "both"}, "sign to be one of 'all', .* \\(got 'both'\\)"),
        ({"num_nodes": 3}, r"at least 4 .* \(got \[3\]\)"),
        ({"pos": POS, "node_labels": "abcde"}, r"agree on one number of nodes.*\(got \[4, 5\]\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(**options)


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
