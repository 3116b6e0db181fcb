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
from captum_goat.plot.style import INK

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
    return [each for each in ax.collections if isinstance(each, LineCollection)]


def nodes_of(ax: Axes) -> Any:
    return ax.collections[-1]


def test_ground_truth_is_inside_a_dotted_outline() -> None:
    ax = draw(layout=POS, ground_truth=TRUTH)[1]
    dotted, background, *_ = sorted(lines_of(ax), key=lambda each: each.get_zorder())
    assert sorted(segment[:, 0].min() for segment in dotted.get_segments()) == [1, 2]
    np.testing.assert_allclose(dotted.get_colors(), [to_rgba(INK)])
    for width, (_, dashes), inner in zip(
        dotted.get_linewidths(), dotted.get_linestyles(), background.get_linewidths(), strict=True
    ):
        dot, gap = dashes  # points
        assert 1 < dot < gap < 3
        assert width - inner == pytest.approx(2 * dot)  # the rim that is left is as thick as dots are long
    np.testing.assert_allclose(background.get_colors(), [to_rgba("white")])
    (edges,) = [each for each in lines_of(ax) if each.get_array() is not None]
    assert min(background.get_linewidths()) > max(edges.get_linewidths()[:2]) + 3  # some white beside the edge
    assert background.get_zorder() < edges.get_zorder()
    assert [len(each) for each in (dotted.get_segments(), edges.get_segments())] == [2, 3]
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
    moved = nodes_of(draw(edge_index=graph, layout="spring")[1]).get_offsets()
    assert not np.allclose(moved, graph.pos)
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


def test_graphs_with_many_nodes_are_drawn_finer() -> None:
    count = 240
    path = torch.stack([torch.arange(count - 1), torch.arange(1, count)])
    points = torch.stack([torch.arange(float(count)), torch.zeros(count)], dim=1)
    many = draw(torch.ones(count - 1), path, layout=points, node_labels=range(count))[1]
    few = draw(torch.ones(6), layout=POS, node_labels=range(4))[1]
    (many_lines,), (few_lines,) = (
        [each for each in lines_of(ax) if each.get_array() is not None] for ax in (many, few)
    )
    assert many_lines.get_linewidths()[0] == pytest.approx(few_lines.get_linewidths()[0] / 2)
    assert nodes_of(many).get_sizes()[0] == pytest.approx(nodes_of(few).get_sizes()[0] / 4)
    assert many.texts[0].get_fontsize() == pytest.approx(few.texts[0].get_fontsize() / 2)


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
    (bar,) = [each for each in fig.axes if each is not ax]
    assert bar.get_ylabel() == label


@pytest.mark.parametrize(
    ("vmax", "sign", "extend"),
    [(3.0, "all", "neither"), (2.0, "all", "max"), (0.5, "all", "both"), (0.5, "negative", "min")],
)
def test_colour_bar_points_on_where_attributions_are_cut_off(vmax: float, sign: Any, extend: str) -> None:
    fig, ax = draw(layout=POS, vmax=vmax, sign=sign, show_colorbar=True)
    (bar,) = [each for each in fig.axes if each is not ax]
    assert bar._colorbar.extend == extend


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ground_truth": torch.ones(5)}, r"ground_truth of shape \[6\], one per edge \(got \[5\]\)"),
        ({"layout": "circle"}, r"layout to be one of .* \(got 'circle'\)"),
        ({"layout": POS[:3]}, r"at least 4 .* \(got \[3\]\)"),
        ({"node_labels": "CNO"}, r"at least 4 .* \(got \[3\]\)"),
        ({"edge_index": HeteroData()}, r"or a Data that has it \(got HeteroData\). Draw the edge types"),
        ({"edge_index": Data(x=torch.ones(2, 1))}, r"a Data with edge_index \(got one without\)"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        visualize_graph_attr(**({"attributions": ATTRIBUTIONS, "edge_index": EDGE_INDEX} | options))
    assert not pyplot.get_fignums()
