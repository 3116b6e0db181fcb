"""GOAt: exact edge attributions for graph neural networks, inside Captum.

Names are imported when they are first used: Captum and torch_geometric, and what they import, take seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from captum_goat import rules
    from captum_goat.attribution import GOAtAttribution
    from captum_goat.bulk import check, explain_dataset, load_attributions
    from captum_goat.explainer import CaptumGraphExplainer, GOAtExplainer
    from captum_goat.hooks.made_edges import MadeEdges
    from captum_goat.inputs.feature_masks import average_features, undirected_feature_mask
    from captum_goat.masked_model import EdgeMaskedModel
    from captum_goat.nodes import explain_nodes
    from captum_goat.search import EdgeSetSearch
    from captum_goat.shapley import EdgeGame, GuidedShapley
    from captum_goat.tracking import UnsupportedModelError

__all__ = [
    "CaptumGraphExplainer",
    "EdgeGame",
    "EdgeMaskedModel",
    "EdgeSetSearch",
    "GOAtAttribution",
    "GOAtExplainer",
    "GuidedShapley",
    "MadeEdges",
    "UnsupportedModelError",
    "average_features",
    "check",
    "explain_dataset",
    "explain_nodes",
    "load_attributions",
    "rules",
    "undirected_feature_mask",
]
__version__ = "0.1.0"

_MODULES = {
    "attribution": ["GOAtAttribution"],
    "bulk": ["check", "explain_dataset", "load_attributions"],
    "explainer": ["CaptumGraphExplainer", "GOAtExplainer"],
    "hooks.made_edges": ["MadeEdges"],
    "inputs.feature_masks": ["average_features", "undirected_feature_mask"],
    "masked_model": ["EdgeMaskedModel"],
    "nodes": ["explain_nodes"],
    "search": ["EdgeSetSearch"],
    "shapley": ["EdgeGame", "GuidedShapley"],
    "tracking": ["UnsupportedModelError"],
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = (
    *("bulk", "compare", "datasets", "metrics", "models", "nodes", "plot", "report", "rules", "search", "shapley"),
)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f"captum_goat.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'captum_goat' has no attribute {name!r}")
    value = getattr(import_module(f"captum_goat.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
