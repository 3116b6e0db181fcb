"""Which explainers stand in the report's main tables, and how they look in its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.paper.recipes import CONTROL, OCCLUSIONS, RECIPES
from benchmarks.paper.results import REFERENCE, Row

# On the recipes' own page and not in the main tables, where most of them would stand as copies of others.
RECIPES_ONLY = frozenset((*RECIPES, CONTROL, OCCLUSIONS[0])) - {REFERENCE}

# Of each explainer that pictures tell apart: a colour. The others are thin and grey, and their numbers in the tables.
COLOURS = {
    REFERENCE: "black",
    "random": "dimgrey",
    "occlusion": "tab:green",
    "integrated_gradients": "tab:blue",
    "shapley_value_sampling": "tab:purple",
    "gnn_explainer": "tab:orange",
    "pg_explainer": "tab:red",
    "guided_shapley_64": "gold",
    "edge_set_search": "tab:brown",
    "rg_explainer": "tab:pink",
    "rc_explainer": "tab:olive",
    "degree": "tab:cyan",
}
MARKERS = dict(zip(COLOURS, "o.s^vD<>PXhp", strict=True))
OTHERS = "others"


def of_main_tables(rows: Sequence[Row], *, recipes_apart: bool) -> list[Row]:
    """Return the rows that the main tables are made of.

    Args:
        rows: The table of results.
        recipes_apart: Whether recipes have a page of their own.

    Returns:
        The rows, without those of recipes if these have their page.
    """
    return [row for row in rows if not (recipes_apart and row.explainer in RECIPES_ONLY)]


def line_style(name: str) -> dict[str, Any]:
    """Return the look of an explainer's line: GOAt's is black and thick, random's is dotted.

    Args:
        name: The explainer.

    Returns:
        Arguments of matplotlib's ``plot``.

    Examples::

        >>> from benchmarks.paper.explainer_order import line_style
        >>> line_style("goat")["color"], line_style("saliency")["label"]
        ('black', 'others')
    """
    if name not in COLOURS:
        return {"color": "lightgrey", "linewidth": 0.9, "label": OTHERS, "zorder": 1}
    style: dict[str, Any] = {"color": COLOURS[name], "linewidth": 1.3, "marker": MARKERS[name], "markersize": 4.5}
    if name == REFERENCE:
        style |= {"linewidth": 2.6, "zorder": 5}
    if name == "random":
        style |= {"linestyle": ":", "linewidth": 2.0}
    return {"label": name, "zorder": 3} | style
