"""Models of smooth gates, attention, maxima and norms, each a row of names, and the cases drawn of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from oracle_rules_rows import ACTIVATIONS

# A model is a row of names. Smooth gates: two layers of each kind, with one row per node or pooled; then with gates
# that no edge reaches, and with gates after pooling.
GATES, MORE_GATES = (
    [
        recipe.format(conv=conv, act=activation)
        for activation, conv, recipe in itertools.product(ACTIVATIONS, ("graph", "sage", "gcn"), recipes)
    ]
    for recipes in (
        ["{conv} {act} {conv}", "{conv} {act} {conv} {act} pool linear"],
        ["linear {act} {conv} {act} {conv} {act} linear", "{conv} {act} {conv} pool linear {act} linear"],
    )
)
ATTENTION = [
    "gat",
    "gat gat",
    "gat gat gat",
    "gat relu gat",
    "gat gat pool linear",
    "gat relu gat relu pool linear",
    "gat softplus gat sigmoid pool linear",
    "linear elu gat elu gat",
    "gcn gat pool linear",
    "graph sigmoid gat",
    "gat_heads gat pool linear",
    "gat_heads relu gat_heads linear",
    "gat_max gat_max pool linear",
    "gat norm relu gat norm pool linear",
    "gat unit gat unit pool linear",
]
MAXIMA = [
    "sage_max",
    "sage_max relu linear",
    "sage_max pool linear",
    "sage_max relu pool linear",
    "sage_max sage_max",
    "sage_max relu sage_max",
    "sage_max sage_max pool linear",
    "sage_max relu sage_max relu pool linear",
    "sage_max sigmoid sage_max softplus pool linear",
    "sage_max norm sage_max pool linear",
    "sage_max unit relu sage_max unit pool linear",
    "graph_max elu graph_max tanh linear",
    "gcn_max gcn_max",
    "gcn_max relu gcn_max",
    "gcn_max gcn_max pool linear",
    "gcn_max gelu gcn_max silu pool linear",
    "sage_max gat pool linear",
    "gat sage_max pool linear",
    "graph max_pool linear",
    "graph relu graph max_pool linear relu linear",
    "gcn norm gcn max_pool linear",
]
NORMS = [
    recipe.format(conv=conv, norm=norm)
    for norm, conv, recipe in itertools.product(
        ("norm", "unit"),
        ("graph", "sage", "gcn"),
        (
            "{conv} {norm} relu {conv}",  # before the activation
            "{conv} {norm} elu {conv} {norm} softplus pool linear",
            "{conv} relu {norm} {conv}",  # after it
            "{conv} tanh {norm} {conv} sigmoid {norm} pool linear",
            "{conv} {norm}",  # no activation: products of frozen factors and constants
            "{conv} {norm} {conv} {norm} linear",
            "{conv} {norm} {conv} {norm} pool linear",
            "{conv} relu {conv} {norm} pool linear",
            "{conv} {conv} {norm} pool linear",
            "{norm} {conv} relu pool {norm} linear",  # that no edge reaches; and after pooling
        ),
    )
] + ["sage_unit relu sage_unit", "sage_unit sage_unit pool linear", "graph norm unit norm pool linear relu linear"]
FACTORS = [
    "graph divided graph",
    "graph relu graph divided pool linear",
    "gcn weighted gcn relu linear",
    "graph weighted pool linear",
    "graph with_norm graph",
    "sage relu graph with_norm pool linear",
    "graph cell",
    "gcn cell pool linear",
    "graph relu graph chosen linear",
    "sage chosen relu pool linear",
    "gcn elu graph chosen pool linear relu linear",
]
RECIPES = [*FACTORS, *GATES, *MORE_GATES, *NORMS] + 3 * [*ATTENTION, *MAXIMA]
CASES = [(recipe, number % 7) for number, recipe in enumerate(RECIPES)]  # a recipe's draws have different seeds


def _fast() -> Iterator[tuple[str, int]]:
    """Yield every recipe once; of recipes that differ only in the kind of convolution one, the kinds by turns."""
    forms: dict[str, list[tuple[str, int]]] = {}
    for recipe, seed in dict(reversed(CASES)).items():
        form = " ".join("conv" if name in ("graph", "sage", "gcn") else name for name in recipe.split())
        forms.setdefault(form, []).append((recipe, seed))
    for number, cases in enumerate(forms.values()):
        yield cases[number % len(cases)]


FAST_CASES = list(_fast())
