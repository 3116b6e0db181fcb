from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch_geometric.data import Data

from captum_goat import undirected_feature_mask
from captum_goat.plot import visualize_graph_attr, visualize_graph_attr_multiple

matplotlib.use("Agg")

EDGE_INDEX = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
METHODS = {
    "small": torch.tensor([0.5, 0.5, -0.25, 0.0, 0.0, 0.0]),  # 1, -0.25, 0
    "large": torch.tensor([2.0, 1.0, -3.0, 2.0, 1.0, -1.0]),  # 3, -1, 0
    "nothing": torch.zeros(6),
}
TRUTH = torch.tensor([True, True, False, False, False, False])


def draw(attributions: Any = METHODS, **options: Any) -> tuple[Figure, list[Axes]]:
    fig, axes = visualize_graph_attr_multiple(attributions, EDGE_INDEX, use_pyplot=False, **options)
    fig.draw_without_rendering()
    return fig, axes


def edges_of(ax: Axes) -> LineCollection:
    (lines,) = [
        artist for artist in ax.collections if isinstance(artist, LineCollection) and artist.get_array() is not None
    ]
    return lines


def bars_of(fig: Figure, axes: list[Axes]) -> list[Axes]:
    return [panel for panel in fig.axes if panel not in axes and panel.get_label() == "<colorbar>"]


def test_panels_share_scale_layout_and_colour_bar() -> None:
    fig, axes = draw()
    assert [ax.get_title() for ax in axes] == ["small", "large", "nothing"]
    assert {(edges_of(ax).norm.vmin, edges_of(ax).norm.vmax) for ax in axes} == {(-3, 3)}
    (bar,) = bars_of(fig, axes)
    assert bar.get_ylim() == (-3, 3)
    points = [ax.collections[-1].get_offsets() for ax in axes]
    np.testing.assert_array_equal(points[0], points[1])
    np.testing.assert_array_equal(points[0], points[2])
    # A number has the same colour and width in every panel: -1 of "large" is drawn as in a picture of its own.
    small, large = (edges_of(ax) for ax in axes[:2])
    one, minus_one = small.get_array().tolist().index(1.0), large.get_array().tolist().index(-1.0)
    assert small.get_linewidths()[one] == pytest.approx(large.get_linewidths()[minus_one])
    assert max(small.get_linewidths()) < max(large.get_linewidths())


def test_sums_of_both_directions_are_counted_once() -> None:
    undirected = undirected_feature_mask(EDGE_INDEX)
    _, axes = draw({"sums": torch.tensor([3.0, 3.0, -1.0, -1.0, 0.0, 0.0])}, feature_mask=undirected)
    assert edges_of(axes[0]).norm.vmax == 3
    assert sorted(edges_of(axes[0]).get_array()) == [-1, 0, 3]


@pytest.mark.slow
def test_panels_with_scales_of_their_own() -> None:
    fig, axes = draw(shared_scale=False)
    assert [edges_of(ax).norm.vmax for ax in axes] == [1, 3, 1]  # nothing has any scale
    assert len(bars_of(fig, axes)) == 3
    assert max(edges_of(axes[0]).get_linewidths()) == max(edges_of(axes[1]).get_linewidths())
    fig, axes = draw(shared_scale=False, vmax=5.0)
    assert {edges_of(ax).norm.vmax for ax in axes} == {5}
    assert len(bars_of(fig, axes)) == 1


@pytest.mark.slow
def test_zeros_and_tiny_numbers_share_a_tiny_scale() -> None:
    _, axes = draw({"tiny": 1e-6 * METHODS["large"], "nothing": torch.zeros(6)})
    assert edges_of(axes[0]).norm.vmax == pytest.approx(3e-6)
    assert {edges_of(ax).norm.vmax for ax in draw({"nothing": torch.zeros(6)})[1]} == {1}


@pytest.mark.parametrize(("sign", "limits"), [("positive", (0, 3)), ("negative", (-1, 0)), ("absolute_value", (0, 3))])
@pytest.mark.slow
def test_sign_and_outliers_go_to_the_shared_scale(sign: Any, limits: tuple[float, float]) -> None:
    _, axes = draw(sign=sign)
    assert {(edges_of(ax).norm.vmin, edges_of(ax).norm.vmax) for ax in axes} == {limits}
    assert edges_of(draw(outlier_perc=80)[1][0]).norm.vmax == 1


@pytest.mark.slow
def test_options_go_to_every_panel() -> None:
    fig, axes = draw(
        ground_truth=TRUTH,
        node_labels="CNOH",
        node_colors="gold",
        layout=torch.rand(4, 2),
        title="Methods",
        cmap="PuOr",
        top_k=1,
    )
    for ax in axes:
        assert [text.get_text() for text in ax.texts] == list("CNOH")
        assert ax.get_legend() is None
        assert (edges_of(ax).get_cmap().name, len(edges_of(ax).get_segments())) == ("PuOr", 1)
    (legend,) = fig.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ground truth"]
    assert fig.get_suptitle() == "Methods"
    assert not draw()[0].legends
    directed = draw(directed=True)[1]
    assert len(edges_of(directed[0]).get_segments()) == 6


def test_only_top_draws_what_is_strongest_for_any_method() -> None:
    edge_index = torch.stack([torch.arange(9), torch.arange(1, 10)])
    methods = {"first": torch.eye(9)[0], "last": torch.eye(9)[8]}
    _, axes = visualize_graph_attr_multiple(methods, edge_index, top_k=1, only_top=True, use_pyplot=False)
    for ax in axes:
        assert [text.get_text() for text in ax.texts] == ["0", "1", "8", "9"]
        assert len(ax.collections[-1].get_offsets()) == 6  # with nodes 2 and 7
        assert len(edges_of(ax).get_segments()) == 1


def test_data_with_isolated_nodes() -> None:
    graph = Data(edge_index=EDGE_INDEX, num_nodes=7)
    _, axes = visualize_graph_attr_multiple(METHODS, graph, use_pyplot=False)
    assert [len(ax.collections[-1].get_offsets()) for ax in axes] == [7, 7, 7]


@pytest.mark.slow
def test_rows_of_panels() -> None:
    fig, axes = draw({str(index): METHODS["large"] for index in range(6)})
    rows = {round(ax.get_position().y0, 3) for ax in axes}
    assert (len(axes), len(rows)) == (6, 2)  # 4 and 2
    assert sum(ax.axison for ax in fig.axes) == 1  # the colour bar: graphs have no frames, nor have empty places
    fig, _ = draw(fig_size=(3, 9))
    assert tuple(fig.get_size_inches()) == (3, 9)


def test_given_axes_are_used_and_figures_of_pyplot_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[int]] = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.get_fignums()))
    fig, _ = visualize_graph_attr_multiple(METHODS, EDGE_INDEX)
    assert shown == [[fig.number]]
    pyplot.close(fig)
    own = Figure()
    given = own.subplots(1, 3)
    fig, axes = visualize_graph_attr_multiple(METHODS, EDGE_INDEX, plt_fig_axis=(own, given))
    assert (fig, axes) == (own, list(given))
    assert len(shown) == 1
    assert not pyplot.get_fignums()


def test_one_panel_is_the_picture_of_one() -> None:
    _, (ax,) = draw({"large": METHODS["large"]})
    _, single = visualize_graph_attr(METHODS["large"], EDGE_INDEX, use_pyplot=False)
    np.testing.assert_array_equal(edges_of(ax).get_array(), edges_of(single).get_array())
    np.testing.assert_array_equal(edges_of(ax).get_linewidths(), edges_of(single).get_linewidths())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"attributions": {}}, ValueError, r"one or more methods, .* \(got none\)"),
        ({"attributions": torch.zeros(3, 6)}, ValueError, r"\(got Tensor\)"),
        ({"vmax": -1.0}, ValueError, r"vmax to be a magnitude"),
        ({"plt_fig_axis": (Figure(), [None])}, ValueError, r"3 axes, one per picture \(got 1\)"),
        ({"ground_truth": torch.ones(2)}, ValueError, r"ground_truth of shape \[6\]"),
        (
            {"attributions": {"short": torch.zeros(5)}},
            ValueError,
            r"attributions of shape \[6\], one per edge \(got \[5\]\)",
        ),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        visualize_graph_attr_multiple(**({"attributions": METHODS, "edge_index": EDGE_INDEX} | options))
    assert not pyplot.get_fignums()  # nothing is left behind
