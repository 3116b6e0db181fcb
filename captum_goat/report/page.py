"""One HTML page with everything in it (pictures, scores, and how they were made), as a file or a notebook widget."""

from __future__ import annotations

import hashlib
import json
import platform
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timezone
from functools import cache
from html import escape
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from torch.nn import Module
from torch_geometric.data import Data

import captum_goat
from captum_goat.bulk.files import SavedAttributions
from captum_goat.plot import visualize_graph_attr
from captum_goat.report.records import SHARES, Appearance, add_curves, columns_of, graph_record, graph_svg, methods_of
from captum_goat.report.substructures import frequent_parts

SPARSITY, TOP_PARTS = 0.7, 6  # of the summary
MIN_SUMMARIZED = 8  # graphs
BATCH_SIZE = 64  # graphs in one pass of the model


def write_report(path: str | PathLike[str], explanations: Any, **options: Any) -> Path:
    """Write explanations as one HTML page, which needs no network and no other file.

    The page shows a graph or a gallery of graphs, its edges coloured by score, with zoom, a slider for the number of
    edges, a table linked with the picture, the prediction, whether the scores add up, and how they were made. Large
    graphs are drawn as their strongest edges and some edges around them; the table has all edges.

    Args:
        path: The file to write, in place of an existing one; missing folders are made. The path is returned.
        explanations: One explanation or a list of them, as :func:`~captum_goat.explain_dataset` and PyG's ``Explainer``
            return them; the result of :func:`~captum_goat.explain_nodes` or :func:`~captum_goat.load_attributions`; or
            a dictionary of any of these by method, to compare methods on the same graphs.
        **options: Any of these:

    - ``model``: The classifier, in evaluation mode, called as in :func:`~captum_goat.metrics.fidelity_plus`: the page
      then also shows fid+ and fid- over the number of edges, beside those of random edges.
    - ``title``: The heading of the page.
    - ``class_names``: The names of the classes.
    - ``node_labels``: The nodes' labels, for a single graph (or the whole graph, if nodes are explained), or a function
      that returns them for a graph; for molecules the default is the elements.
    - ``graph_names``: The names of the graphs; by default, their ``name``, ``smiles`` or number.
    - ``atoms``: A function that returns the elements of a graph's nodes: ``lambda graph: one_hot_atoms(graph.x)``.
      Graphs are drawn as molecules with it, and by default if they have ``z`` or ``smiles``.
    - ``bond_types``: A function that returns the ``bond_types`` of :func:`~captum_goat.plot.visualize_molecule_attr`.
    - ``directed``: Whether to show the directions of an edge separately; by default, if one has no reverse.
    - ``graphs``: The explained graphs, for the result of ``load_attributions``, which has only their edges.
    - ``details``: Further lines of the receipt at the end of the page, by name: where the data is from, options, ...
    - ``limit``: The largest number of graphs, of which the first ones are taken; by default all.

    Examples:
        >>> import tempfile
        >>> from captum_goat import explain_dataset
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> from captum_goat.report import write_report
        >>> model, graphs = GraphClassifier("gin", 10, 8, 2).eval(), ba_2motifs(4)
        >>> explanations = explain_dataset(model, graphs, show_progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = write_report(f"{folder}/page.html", explanations, model=model, class_names=["cycle", "house"])
        ...     page.read_text(encoding="utf-8")[:15]
        '<!doctype html>'
    """
    data = page_data(explanations, **options)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(page_html(data), encoding="utf-8")
    return Path(path)


def page_data(
    explanations: Any,
    *,
    model: Module | None = None,
    title: str = "Which edges made the model say that?",
    class_names: Sequence[str] | None = None,
    graphs: Sequence[Data] | None = None,
    details: Mapping[str, object] | None = None,
    limit: int | None = None,
    **names: Any,
) -> dict[str, Any]:
    """Return all that the page shows, as plain values; ``names`` are the fields of :class:`Appearance`."""
    if unknown := sorted(names.keys() - {field.name for field in fields(Appearance)}):
        raise TypeError(f"Expected options of write_report (got {', '.join(unknown)}). Its docstring lists them.")
    if isinstance(class_names, str):
        raise TypeError(f"Expected class_names as a list of names (got the string {class_names!r}).")
    appearance, classes = Appearance(**names), [str(name) for name in class_names or ()]
    methods = methods_of(explanations, graphs, limit)
    explained = [*methods.values()]
    if appearance.graph_names is not None and len(appearance.graph_names) < len(explained[0]):
        raise ValueError(f"Expected graph_names for {len(explained[0])} graphs (got {len(appearance.graph_names)}).")
    records = [graph_record(same, number, appearance) for number, same in enumerate(zip(*explained, strict=True))]
    if model is not None:
        for first in range(0, len(records), BATCH_SIZE):
            part = slice(first, first + BATCH_SIZE)
            add_curves(records[part], [method[part] for method in explained], model)
    num_edges = sum(len(record["edges"][0]) for record in records)
    size = f"{len(records)} graph{'s' * (len(records) > 1)}, {num_edges} edges"
    return {
        "title": title,
        "subtitle": f"{size} · {datetime.now(timezone.utc):%d %B %Y}",
        "classes": classes,
        "methods": [*methods],
        "shares": SHARES,
        "graphs": records,
        "summary": _summary(explained[0], appearance, classes) if len(records) >= MIN_SUMMARIZED else [],
        "receipt": _receipt(explanations, size, model, details or {}),
    }


def _summary(explained: Sequence[Data], appearance: Appearance, class_names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the frequent substructures of a gallery, with their pictures."""
    rows, names = [], {None: "all graphs"} | dict(enumerate(class_names))
    for row, pattern in frequent_parts(explained, appearance, SPARSITY, TOP_PARTS):
        nodes, labels = zip(*pattern.nodes(data="label"), strict=True)
        edges = np.array([(nodes.index(source), nodes.index(target)) for source, target in pattern.edges])
        picture = graph_svg(edges, np.arange(len(edges)), np.arange(len(nodes)), labels=labels)
        column = row["target_class"]
        rows.append(row | {"class": names.get(column, f"class {column}"), "svg": picture})
    return rows


def _receipt(
    explanations: Any, size: str, model: Module | None, details: Mapping[str, object]
) -> list[tuple[str, str]]:
    lines: dict[str, object] = {"Graphs": size}
    if isinstance(explanations, SavedAttributions):
        options = (f"{name} {value}" for name, value in explanations.meta.items() if isinstance(value, str | bool))
        lines["Options"] = ", ".join(options)
    if model is not None:
        count = sum(parameter.numel() for parameter in model.parameters())
        lines["Model"] = f"{type(model).__name__}, {count:,} parameters"
    versions = {"captum_goat": captum_goat.__version__, "Python": platform.python_version()}
    versions |= {name: version(name) for name in ("torch", "torch_geometric", "captum")}
    lines |= details
    lines["Versions"] = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines["Written"] = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return [(name, str(value)) for name, value in lines.items()]


def _asset(name: str) -> str:
    return files("captum_goat.report").joinpath(name).read_text(encoding="utf-8")


def page_html(data: dict[str, Any]) -> str:
    """Return the page: a policy that allows only this script and style, the data as JSON, the script and the style."""
    script, style = _asset("page.js"), _asset("page.css")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'"
    policy += "; form-action 'none'"
    island = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    island = island.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    parts = {"policy": policy, "title": escape(data["title"]), "style": style, "island": island, "script": script}
    html = Template(_asset("page.html")).substitute(parts)
    return html.encode("utf-8", "replace").decode()  # without lone surrogates


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def show(explanations: Any, **options: Any) -> Any:
    """Show explanations in a notebook as the page of :func:`write_report`, whose arguments and options it takes.

    The widget's ``graph`` is the position of the graph that is shown, ``selected`` the numbers of its selected edges in
    the table's order, which can be set, and ``selected_edges`` their nodes. It needs anywidget (``pip install
    captum-goat[widget]``); without it, the first graph is drawn by :func:`~captum_goat.plot.visualize_graph_attr`.

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
        ((first,), *_) = methods_of(explanations, options.get("graphs"), 1).values()
        return visualize_graph_attr(columns_of(first)[0][1], first, use_pyplot=False)[0]
    return _widget_class()(data=json.dumps(page_data(explanations, **options)))


@cache
def _widget_class() -> Any:
    import anywidget
    import traitlets

    class ReportWidget(anywidget.AnyWidget):
        _esm = _asset("page.js")
        _css = _asset("page.css")
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
