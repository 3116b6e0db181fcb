"""GOAt: exact edge attributions for graph neural networks, inside Captum."""

from captum_goat import rules
from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk import check, explain_dataset, load_attributions
from captum_goat.explainer import CaptumGraphExplainer, GOAtExplainer
from captum_goat.inputs.feature_masks import average_features, undirected_feature_mask
from captum_goat.masked_model import EdgeMaskedModel
from captum_goat.nodes import explain_nodes
from captum_goat.peeling import Peeling, UpperHalfGradients
from captum_goat.shapley import EdgeGame, GuidedShapley
from captum_goat.tracking import UnsupportedModelError

__all__ = [
    "CaptumGraphExplainer",
    "EdgeGame",
    "EdgeMaskedModel",
    "GOAtAttribution",
    "GOAtExplainer",
    "GuidedShapley",
    "Peeling",
    "UnsupportedModelError",
    "UpperHalfGradients",
    "average_features",
    "check",
    "explain_dataset",
    "explain_nodes",
    "load_attributions",
    "rules",
    "undirected_feature_mask",
]
__version__ = "0.1.0"
