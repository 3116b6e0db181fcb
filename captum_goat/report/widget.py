"""The page as a widget of notebooks, which tells Python what is selected."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from typing import Any

from torch_geometric.data import Data

from captum_goat.plot import visualize_graph_attr
from captum_goat.report.page import asset, page_data
from captum_goat.report.records import columns_of, explanations_by_method


def show(explanations: Any, **options: Any) -> Any:
    """Show explanations in a notebook as the page of :func:`write_report`, whose arguments and options it takes.

    The widget's ``graph`` is the position of the graph that is shown, ``selected`` the numbers of its selected edges in
    the table's order of edges, and ``selected_edges`` their nodes; ``selected`` can be set, too. It needs anywidget
    (``pip install captum-goat[widget]``); without it, the first graph is drawn by
    :func:`~captum_goat.plot.visualize_graph_attr`, and the figure is returned.

    Examples:
        >>> import torch
        >>> from torch_geometric.explain import Explanation
        >>> from captum_goat.report import show
        >>> edges = torch.tensor([[0, 1], [1, 2]])
        >>> shown = show(Explanation(edge_index=edges, edge_mask=torch.tensor([2.0, -1.0]), num_nodes=3))
        >>> type(shown).__name__ in ("ReportWidget", "Figure")
        True
    """
    if find_spec("anywidget") is None:
        first: Data = next(iter(explanations_by_method(explanations, options.get("graphs"), 1).values()))[0]
        return visualize_graph_attr(columns_of(first)[0][1], first, use_pyplot=False)[0]
    return _widget_class()(data=json.dumps(page_data(explanations, **options)))


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class ReportWidget(anywidget.AnyWidget):
        _esm = asset("page.js")
        _css = asset("page.css")
        data = traitlets.Unicode().tag(sync=True)
        graph = traitlets.Int(0).tag(sync=True)
        selected = traitlets.List(traitlets.Int()).tag(sync=True)

        @property
        def selected_edges(self) -> list[tuple[int, int]]:
            record = json.loads(self.data)["graphs"][self.graph]
            nodes = record["ids"] or range(record["size"])
            source, target = record["edges"]
            return [(nodes[source[edge]], nodes[target[edge]]) for edge in self.selected]

    return ReportWidget
