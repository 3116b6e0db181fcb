"""The explainers that :func:`captum_goat.compare.compare` knows by name, and the base class for one's own.

Explainers take a model, graphs and their target classes, and return signed edge scores. :data:`EXPLAINERS` has the
classes by name::

    >>> import torch
    >>> from captum_goat.compare.explainers import EXPLAINERS
    >>> from captum_goat.datasets import ba_2motifs
    >>> from captum_goat.models import GraphClassifier
    >>> list(EXPLAINERS)
    ['goat', 'guided_shapley', 'integrated_gradients', 'saliency', 'occlusion', 'gnn_explainer', 'random']
    >>> (graph,) = ba_2motifs(num_graphs=1)
    >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
    >>> EXPLAINERS["occlusion"]()(model, graph, target=torch.tensor([0])).shape
    torch.Size([50])

Every explainer works on its own copy of the model, and returns the same scores for a graph alone and in a batch,
whatever the global random state.
"""

from captum_goat.compare.explainers.interface import EdgeExplainer, Explainer, ExplainerSkippedError
from captum_goat.compare.explainers.shapley import GuidedShapleyValues
from captum_goat.compare.explainers.standard import (
    EdgeOcclusion,
    GNNExplainer,
    GOAt,
    IntegratedGradients,
    Random,
    Saliency,
)

__all__ = ["EXPLAINERS", "EdgeExplainer", "Explainer", "ExplainerSkippedError"]

EXPLAINERS: dict[str, type[Explainer]] = {
    explainer.name: explainer
    for explainer in (GOAt, GuidedShapleyValues, IntegratedGradients, Saliency, EdgeOcclusion, GNNExplainer, Random)
}
