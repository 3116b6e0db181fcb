"""What is drawn beside the attributions: ground truth, labels, legends; and graphs of PyG."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.explain import Explanation

from captum_goat.plot import visualize_graph_attr

matplotlib.use("Agg")

# A path 0 - 1 - 2 - 3 in both directions. Merged: +3, -1 and 0.
EDGE_INDEX = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
ATTRIBUTIONS = torch.tensor([2.0, 1.0, -3.0, 2.0, 1.0, -1.0])
POS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
TRUTH = torch.tensor([False, False, True, False, False, True])  # 1 - 2 and 2 - 3


def draw(
    attributions: Tensor = ATTRIBUTIONS, edge_index: Tensor | Data = EDGE_INDEX, **options: Any
) -> tuple[Figure, Axes]:
    fig, ax = visualize_graph_attr(attributions, edge_index, use_pyplot=False, **options)
    fig.draw_without_rendering()
    return fig, ax


def lines_of(ax: Axes) -> list[LineCollection]:
    return [collection for collection in ax.collections if isinstance(collection, LineCollection)]


def nodes_of(ax: Axes) -> Any:
    return ax.collections[-1]


def test_ground_truth_is_inside_a_dotted_outline() -> None:
    ax = draw(layout=POS, ground_truth=TRUTH)[1]
    dotted, background, *_ = sorted(lines_of(ax), key=lambda collection: collection.get_zorder())
    assert sorted(segment[:, 0].min() for segment in dotted.get_segments()) == [1, 2]
    np.testing.assert_allclose(dotted.get_colors(), [to_rgba("#404040")])
    for width, (_, dashes), inner in zip(
        dotted.get_linewidths(), dotted.get_linestyles(), background.get_linewidths(), strict=True
    ):
        dot, gap = dashes  # points
        assert 1 < dot < gap < 3
        assert width - inner == pytest.approx(2 * dot)  # the rim that is left is as thick as dots are long
    np.testing.assert_allclose(background.get_colors(), [to_rgba("white")])
    (edges,) = [collection for collection in lines_of(ax) if collection.get_array() is not None]
    assert min(background.get_linewidths()) > max(edges.get_linewidths()[:2]) + 3  # some white beside the edge
    assert background.get_zorder() < edges.get_zorder()
    assert [len(segments) for segments in (dotted.get_segments(), edges.get_segments())] == [2, 3]
    assert len(lines_of(draw(layout=POS, ground_truth=torch.zeros(6))[1])) == len(lines_of(draw(layout=POS)[1]))


def test_legend_says_what_outlines_mean() -> None:
    fig = Figure()
    given = fig.subplots()
    assert draw(layout=POS, ground_truth=TRUTH, plt_fig_axis=(fig, given))[1].get_legend() is None  # its owner's task
    assert given.get_legend_handles_labels()[1] == ["ground truth"]
    (legend,) = draw(layout=POS, ground_truth=TRUTH)[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["ground truth"]
    assert legend.get_lines()[0].get_linestyle() == ":"
    assert not draw(layout=POS)[0].legends  # there is nothing to say


def test_data_stands_for_its_edges_nodes_and_points() -> None:
    graph = Data(edge_index=EDGE_INDEX, num_nodes=5)
    assert len(nodes_of(draw(edge_index=graph)[1]).get_offsets()) == 5
    graph.pos = torch.cat([POS, torch.tensor([[4.0, 4.0]])])
    np.testing.assert_array_equal(nodes_of(draw(edge_index=graph)[1]).get_offsets(), graph.pos)
    moved = nodes_of(draw(edge_index=graph, layout=2 * graph.pos)[1]).get_offsets()
    np.testing.assert_array_equal(moved, 2 * graph.pos)
    graph.pos = torch.rand(5, 3)  # not points of the plane
    assert len(nodes_of(draw(edge_index=graph)[1]).get_offsets()) == 5


def test_batches_and_explanations_are_graphs_too() -> None:
    graph = Data(edge_index=EDGE_INDEX, num_nodes=4)
    batch = Batch.from_data_list([graph, graph])
    points = nodes_of(draw(ATTRIBUTIONS.repeat(2), batch)[1]).get_offsets()
    assert len(np.unique(points.round(6), axis=0)) == 8
    explanation = Explanation(edge_mask=ATTRIBUTIONS, edge_index=EDGE_INDEX, num_nodes=4)
    assert len(draw(explanation.edge_mask, explanation)[1].collections) > 0


def test_positions_are_a_layout() -> None:
    ax = draw(layout=POS.numpy())[1]
    np.testing.assert_array_equal(nodes_of(ax).get_offsets(), POS)


def path_graph(count: int) -> tuple[Tensor, Tensor]:
    """Return both directions of a path, and points on a line."""
    there = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    points = torch.stack([torch.arange(float(count)), torch.zeros(count)], dim=1)
    return torch.cat([there, there.flip(0)], dim=1), points


def coloured_lines(ax: Axes) -> LineCollection:
    (lines,) = [collection for collection in lines_of(ax) if collection.get_array() is not None]
    return lines


def test_graphs_with_many_nodes_are_drawn_finer_on_larger_figures() -> None:
    edge_index, points = path_graph(240)
    attributions = torch.zeros(478)
    attributions[0] = 1.0
    many_fig, many = draw(attributions, edge_index, layout=points)
    few_fig, few = draw(torch.tensor([1.0, 0, 0, 0, 0, 0]), layout=POS)
    (*many_widths, many_widest), (*few_widths, few_widest) = (
        sorted(coloured_lines(ax).get_linewidths()) for ax in (many, few)
    )
    assert many_widths[0] == pytest.approx(few_widths[0] / 2)
    assert few_widest / 2 < many_widest < few_widest
    assert nodes_of(many).get_sizes()[0] == pytest.approx(nodes_of(few).get_sizes()[0] / 4)
    opacities = coloured_lines(many).get_colors()[:, 3]
    assert (opacities.min(), opacities.max()) == (0.5, 1.0)  # many weak edges must not hide the strong one
    assert many_fig.get_size_inches()[0] > 1.5 * few_fig.get_size_inches()[0]


def test_labels_are_beside_nodes_that_have_no_room_for_them() -> None:
    inside = draw(layout=POS, node_labels=["C", "N", "O", "999"])[1]
    assert {tuple(text.get_position()) for text in inside.texts} == {(0, 0)}
    beside = draw(layout=POS, node_labels=["account 1", "2", "3", "4"])[1]
    first, *_, last = beside.texts
    assert first.get_position()[0] < 0 < last.get_position()[0]  # away from their neighbours
    assert (first.get_ha(), last.get_ha()) == ("right", "left")
    assert nodes_of(beside).get_sizes()[0] < nodes_of(inside).get_sizes()[0]
    assert first.get_fontsize() >= 6


def test_labels_of_large_graphs_are_those_of_the_coloured_edges() -> None:
    edge_index, points = path_graph(100)
    attributions = torch.zeros(198)
    attributions[[3, 50]] = 1.0
    options: dict[str, Any] = {"layout": points, "node_labels": [f"n{node}" for node in range(100)]}
    assert len(draw(attributions, edge_index, **options)[1].texts) == 100
    top = draw(attributions, edge_index, top_k=2, **options)[1]
    assert [text.get_text() for text in top.texts] == ["n3", "n4", "n50", "n51"]


def test_margins_are_tight() -> None:
    fig, ax = draw(layout=POS * torch.tensor([1.0, 0.0]) + torch.tensor([[0.0, 0], [0, 3], [0, 0], [0, 3]]))
    pixels = ax.transData.transform(nodes_of(ax).get_offsets())
    assert (np.ptp(pixels, axis=0) > 0.88 * fig.bbox.size).all()


@pytest.mark.parametrize("with_points", [False, True])
def test_only_top_draws_the_strongest_edges_and_their_neighbourhood(with_points: bool) -> None:
    edge_index, points = path_graph(1000)
    attributions, truth = torch.zeros(1998), torch.zeros(1998, dtype=torch.bool)
    attributions[[10, 11, 700]] = torch.tensor([3.0, -2.0, 1.0])  # 10 - 11 - 12, and 700 - 701
    truth[[11, 400]] = True
    options: dict[str, Any] = {"layout": points} if with_points else {}
    ax = draw(attributions, edge_index, top_k=3, only_top=True, ground_truth=truth, **options)[1]
    assert len(nodes_of(ax).get_offsets()) == 5 + 4  # 9 to 13, and 699 to 702
    assert [text.get_text() for text in ax.texts] == ["10", "11", "12", "700", "701"]
    assert sorted(coloured_lines(ax).get_array()) == [-2, 1, 3]
    dotted, _, plain, _ = sorted(lines_of(ax), key=lambda lines: lines.get_zorder())
    assert (len(dotted.get_segments()), len(plain.get_segments())) == (1, 4 + 3)
    if with_points:
        assert nodes_of(ax).get_offsets()[:, 0].tolist() == [9, 10, 11, 12, 13, 699, 700, 701, 702]
    sizes = nodes_of(ax).get_sizes()
    assert (sizes > sizes.min()).tolist() == [False, True, True, True, False, False, True, True, False]
    named = draw(attributions, edge_index, top_k=1, only_top=True, node_labels=torch.arange(1000) % 7)[1]
    assert [text.get_text() for text in named.texts] == ["3", "4"]
    colours = draw(attributions, edge_index, top_k=1, only_top=True, node_colors=["red"] * 10 + ["blue"] * 990)[1]
    np.testing.assert_allclose(nodes_of(colours).get_facecolors(), [to_rgba("red")] + [to_rgba("blue")] * 3)


def test_only_top_of_nothing() -> None:
    assert len(nodes_of(draw(layout=POS, top_k=0, only_top=True)[1]).get_offsets()) == 0


@pytest.mark.parametrize(
    ("sign", "label"),
    [
        ("all", "against  ←  attribution  →  for"),
        ("positive", "positive attribution"),
        ("negative", "negative attribution"),
        ("absolute_value", "magnitude of attribution"),
    ],
)
def test_colour_bar_says_what_is_shown(sign: Any, label: str) -> None:
    fig, ax = draw(layout=POS, sign=sign, show_colorbar=True)
    (bar,) = [panel for panel in fig.axes if panel is not ax]
    assert bar.get_ylabel() == label


@pytest.mark.parametrize(
    ("vmax", "sign", "extend"),
    [(3.0, "all", "neither"), (2.0, "all", "max"), (0.5, "all", "both"), (0.5, "negative", "min")],
)
def test_colour_bar_points_on_where_attributions_are_cut_off(vmax: float, sign: Any, extend: str) -> None:
    fig, ax = draw(layout=POS, vmax=vmax, sign=sign, show_colorbar=True)
    (bar,) = [panel for panel in fig.axes if panel is not ax]
    assert bar._colorbar.extend == extend


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ground_truth": torch.ones(5)}, r"ground_truth of shape \[6\], one per edge \(got \[5\]\)"),
        ({"layout": "circle"}, r"layout to be the nodes' positions \(got 'circle'\)"),
        ({"layout": POS[:3]}, r"at least 4 .* \(got \[3\]\)"),
        ({"node_labels": "CNO"}, r"at least 4 .* \(got \[3\]\)"),
        ({"edge_index": HeteroData()}, r"Expected a tensor \[2, E\] or a Data \(got HeteroData\). Draw edge types one"),
        ({"edge_index": Data(x=torch.ones(2, 1))}, r"a Data with edge_index \(got one without\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        visualize_graph_attr(**({"attributions": ATTRIBUTIONS, "edge_index": EDGE_INDEX} | options))
    assert not pyplot.get_fignums()
