from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from captum.attr import visualization
from matplotlib import colormaps, pyplot
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, to_rgba
from matplotlib.figure import Figure
from torch import Tensor

from captum_goat.plot.captum_visualizers import (
    to_image_attr,
    to_text_record,
    to_timeseries_attr,
    visualize_adjacency_attr,
)

matplotlib.use("Agg")

# A triangle with one edge in both directions, one of them twice: 0 -> 1 has 2 + 2, and 1 -> 0 has -1.
EDGE_INDEX = torch.tensor([[0, 1, 1, 2, 0], [1, 0, 2, 0, 1]])
ATTRIBUTIONS = torch.tensor([2.0, -1.0, 0.5, 0.0, 2.0])
MATRIX = np.array([[0.0, 4.0, 0.0], [-1.0, 0.0, 0.5], [0.0, 0.0, 0.0]])
NO_EDGES, NO_ATTRIBUTIONS = torch.empty(2, 0, dtype=torch.long), torch.empty(0)


def test_image_is_the_adjacency_matrix() -> None:
    image = to_image_attr(ATTRIBUTIONS, EDGE_INDEX, num_nodes=4)
    assert image.shape == (4, 4, 1)
    np.testing.assert_array_equal(image[:3, :3, 0], MATRIX)
    assert image.sum() == ATTRIBUTIONS.sum()
    assert not image[3].any()
    assert to_image_attr(ATTRIBUTIONS.bfloat16().requires_grad_(), EDGE_INDEX).shape == (3, 3, 1)
    assert to_image_attr(NO_ATTRIBUTIONS, NO_EDGES).shape == (0, 0, 1)


def draw(attributions: Tensor = ATTRIBUTIONS, edge_index: Tensor = EDGE_INDEX, **options: Any) -> tuple[Figure, Axes]:
    fig, ax = visualize_adjacency_attr(attributions, edge_index, use_pyplot=False, **options)
    fig.draw_without_rendering()
    return fig, ax


def heat(**options: Any) -> np.ndarray:
    return np.asarray(draw(**options)[1].images[0].get_array().filled(np.nan))


@pytest.mark.parametrize("sign", ["all", "positive", "negative", "absolute_value"])
@pytest.mark.parametrize("outlier_perc", [0, 2, 30])
def test_adjacency_has_the_proportions_of_captum_s_picture(sign: Any, outlier_perc: float) -> None:
    image = to_image_attr(ATTRIBUTIONS, EDGE_INDEX)
    _, captum = visualization.visualize_image_attr(image, sign=sign, outlier_perc=outlier_perc, use_pyplot=False)
    drawn = draw(sign=sign, outlier_perc=outlier_perc)[1].images[0]
    scale = max(abs(drawn.norm.vmin), abs(drawn.norm.vmax))
    ours = np.nan_to_num(drawn.get_array().filled(np.nan)) / scale
    # Captum shows the magnitudes of negative attributions.
    theirs = np.asarray(captum.images[0].get_array()) * (-1 if sign == "negative" else 1)
    np.testing.assert_allclose(ours.clip(-1, 1), theirs, atol=1e-12)


def test_cells_of_edges_and_of_other_pairs() -> None:
    expected = np.array([[np.nan, 4.0, np.nan], [-1.0, np.nan, 0.5], [0.0, np.nan, np.nan]])
    np.testing.assert_array_equal(heat(), expected)
    np.testing.assert_array_equal(heat(top_k=1), np.where(np.isnan(expected) | (expected == 4), expected, 0))
    image = draw(top_k=1)[1].images[0]
    colours = image.to_rgba(image.get_array())
    np.testing.assert_allclose(colours[2, 0], to_rgba("#d0d0d0"), atol=0.01)  # an edge without attribution
    assert colours[0, 0, 3] == 0  # no edge
    assert heat(num_nodes=5).shape == (5, 5)


def test_sums_of_both_directions_are_counted_once() -> None:
    edge_index = torch.tensor([[0, 1], [1, 0]])
    matrix = draw(torch.tensor([4.0, 4.0]), edge_index, feature_mask=torch.tensor([0, 0]))[1].images[0].get_array()
    assert matrix.filled(0).tolist() == [[0, 2], [2, 0]]


def test_ground_truth_has_dots() -> None:
    fig, ax = draw(ground_truth=torch.tensor([0, 0, 1, 0, 0]))
    (dots,) = ax.lines
    assert (dots.get_xdata().tolist(), dots.get_ydata().tolist()) == ([2], [1])  # column 2, row 1
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["ground truth"]


@pytest.mark.parametrize("labels", [None, "CNO"])
def test_adjacency_has_labels_colour_bar_and_title(labels: str | None) -> None:
    fig, ax = draw(node_labels=labels, cmap="RdBu", show_colorbar=True, title="Bonds")
    for axis in (ax.xaxis, ax.yaxis):
        inside = [tick.label1 if axis is ax.yaxis else tick.label2 for tick in axis.get_major_ticks()]
        shown = {text.get_text() for text, at in zip(inside, axis.get_ticklocs(), strict=True) if 0 <= at <= 2}
        assert shown == set(labels or "012")
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("target", "source", "Bonds")
    assert ax.images[0].get_cmap().name == "RdBu"
    assert len(fig.axes) == 2


NOTHING_TO_SEE: list[tuple[Tensor, Tensor, int | None, str]] = [
    (NO_ATTRIBUTIONS, NO_EDGES, None, "all"),
    (NO_ATTRIBUTIONS, NO_EDGES, 1, "negative"),
    (NO_ATTRIBUTIONS, NO_EDGES, 3, "absolute_value"),
    (torch.zeros(5), EDGE_INDEX, None, "all"),
    (torch.zeros(5), EDGE_INDEX, None, "negative"),
    (-torch.ones(5), EDGE_INDEX, None, "positive"),
    (torch.ones(5), EDGE_INDEX, None, "negative"),
]


@pytest.mark.parametrize(("attributions", "edge_index", "num_nodes", "sign"), NOTHING_TO_SEE)
def test_nothing_to_see_is_a_grey_picture(
    attributions: Tensor, edge_index: Tensor, num_nodes: int | None, sign: Any
) -> None:
    options: dict[str, Any] = {"num_nodes": num_nodes, "sign": sign, "title": "Nothing", "show_colorbar": True}
    ax = draw(attributions, edge_index, **options)[1]
    assert not np.nan_to_num(ax.images[0].get_array().filled(np.nan)).any()
    assert ax.get_title() == "Nothing"


def test_time_series_counts_and_adds_up_the_edges_of_nodes() -> None:
    attr, data = to_timeseries_attr(ATTRIBUTIONS, EDGE_INDEX, num_nodes=4)
    incoming, outgoing = attr.T
    np.testing.assert_array_equal(incoming, [*MATRIX.sum(axis=0), 0])
    np.testing.assert_array_equal(outgoing, [*MATRIX.sum(axis=1), 0])
    assert data.T.tolist() == [[2, 2, 1, 0], [2, 2, 1, 0]]
    assert [array.shape for array in to_timeseries_attr(NO_ATTRIBUTIONS, NO_EDGES)] == [(0, 2), (0, 2)]


@pytest.fixture
def get_cmap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give matplotlib.cm the function that Captum calls: what matplotlib had until 3.10, without the warning."""

    def get_cmap(cmap: str | Colormap) -> Colormap:
        return cmap if isinstance(cmap, Colormap) else colormaps[cmap]

    monkeypatch.setattr(matplotlib.cm, "get_cmap", get_cmap, raising=False)


@pytest.mark.usefixtures("get_cmap")
def test_captum_draws_nodes_as_time_series() -> None:
    attr, data = to_timeseries_attr(ATTRIBUTIONS, EDGE_INDEX)
    _, axes = visualization.visualize_timeseries_attr(attr, data, sign="all", use_pyplot=False)
    pyplot.close("all")  # Captum touches the current figure of pyplot
    for channel, ax in enumerate(axes):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), data[:, channel])
        assert len(ax.patches) == 3  # one colour per node


def test_figures_of_pyplot_are_shown_and_given_axes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[int]] = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(pyplot.get_fignums()))
    fig, _ = visualize_adjacency_attr(ATTRIBUTIONS, EDGE_INDEX, fig_size=(3, 2))
    assert shown.pop() == [fig.number]
    assert tuple(fig.get_size_inches()) == (3, 2)
    pyplot.close(fig)
    own = Figure()
    axes = own.subplots()
    assert visualize_adjacency_attr(ATTRIBUTIONS, EDGE_INDEX, plt_fig_axis=(own, axes))[0] is own
    assert not shown
    assert not pyplot.get_fignums()


def test_text_has_edges_as_words() -> None:
    record = to_text_record(
        ATTRIBUTIONS, EDGE_INDEX, ["C", "N", 3], pred_class=1, pred_prob=0.9, convergence_score=0.25
    )
    assert record.raw_input_ids == ["C-N", "C-3", "N-3"]
    assert record.word_attributions.tolist() == pytest.approx([1, 0, 0.5 / 3])
    assert (record.attr_score, record.convergence_score) == (3.5, 0.25)
    assert (record.pred_class, record.pred_prob, record.attr_class, record.true_class) == (1, 0.9, "", "")
    directed = to_text_record(ATTRIBUTIONS, EDGE_INDEX, "CNO", directed=True)
    assert directed.raw_input_ids == ["C→N", "N→C", "N→O", "O→C"]
    assert directed.word_attributions.tolist() == [1, -0.25, 0.125, 0]


def test_text_counts_the_sum_of_both_directions_once() -> None:
    edge_index = torch.tensor([[0, 1, 1], [1, 0, 2]])
    record = to_text_record(torch.tensor([4.0, 4.0, -2.0]), edge_index, feature_mask=torch.tensor([0, 0, 1]))
    assert (record.word_attributions.tolist(), record.attr_score) == ([1.0, -0.5], 2.0)


@pytest.mark.parametrize("graph", [(NO_ATTRIBUTIONS, NO_EDGES), (torch.zeros(5), EDGE_INDEX)])
def test_text_without_attributions(graph: tuple[Tensor, Tensor]) -> None:
    record = to_text_record(*graph)
    assert len(record.raw_input_ids) == len(record.word_attributions) == (3 if len(graph[0]) else 0)
    assert (record.attr_score, record.word_attributions.abs().sum()) == (0, 0)


def test_captum_prints_the_records() -> None:
    pytest.importorskip("IPython")
    records = [
        to_text_record(ATTRIBUTIONS, EDGE_INDEX, "CNO", pred_class="toxic"),
        to_text_record(NO_ATTRIBUTIONS, NO_EDGES),
    ]
    html = visualization.visualize_text(records).data
    assert html.index("toxic") < html.index("C-N") < html.index("C-O") < html.index("N-O")
    assert "hsl(120, 75%, 50%)" in html  # the strongest edge has the full green
    assert html.count("<mark") == 3


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (to_image_attr, {"num_nodes": 2}, r"num_nodes to agree .* at least 3 .* \(got \[2\]\)"),
        (to_timeseries_attr, {"num_nodes": 2}, r"at least 3 .* \(got \[2\]\)"),
        (to_image_attr, {"attributions": torch.ones(2)}, r"attributions of shape \[5\], one per edge \(got \[2\]\)"),
        (visualize_adjacency_attr, {"node_labels": "CN"}, r"node_labels to agree .* at least 3 .* \(got \[2\]\)"),
        (to_text_record, {"node_labels": "CN"}, r"node_labels to agree .* at least 3 .* \(got \[2\]\)"),
        (visualize_adjacency_attr, {"sign": "both"}, r"sign to be one of .* \(got 'both'\)"),
        (visualize_adjacency_attr, {"outlier_perc": -1}, r"between 0 and 100 \(got -1\)"),
        (visualize_adjacency_attr, {"plt_fig_axis": (Figure(), [])}, r"1 axes, one per picture \(got 0\)"),
    ],
)
def test_arguments_that_do_not_fit(function: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        function(**({"attributions": ATTRIBUTIONS, "edge_index": EDGE_INDEX} | options))
    assert not pyplot.get_fignums()
