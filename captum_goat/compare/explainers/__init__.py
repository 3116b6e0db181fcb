"""The explainers that :func:`captum_goat.compare.compare` knows by name.

All have one signature: a model, graphs and their classes in, signed edge scores out. :data:`EXPLAINERS` has them by
name. Each is a class that makes an :class:`EdgeExplainer`; its attributes say what it is::

    >>> import torch
    >>> from captum_goat.compare.explainers import EXPLAINERS
    >>> from captum_goat.datasets import ba_2motifs
    >>> from captum_goat.models import GraphClassifier
    >>> EXPLAINERS["occlusion"].batched, EXPLAINERS["occlusion"].complete
    (True, False)
    >>> (graph,) = ba_2motifs(num_graphs=1)
    >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
    >>> EXPLAINERS["occlusion"]()(model, graph, target=torch.tensor([0])).shape
    torch.Size([50])

Every explainer works on its own copy of the model, and gives a graph the same scores alone and in a batch, whatever
random numbers were drawn before. Where one does not apply it raises :class:`ExplainerSkippedError`.
"""

from captum_goat.compare.explainers.gradients import IntegratedGradients, Saliency
from captum_goat.compare.explainers.interface import EdgeExplainer, Explainer, ExplainerSkippedError
from captum_goat.compare.explainers.pyg import GNNExplainerOfPyG
from captum_goat.compare.explainers.simple import EdgeOcclusion, GOAt, Random

__all__ = ["EXPLAINERS", "EdgeExplainer", "Explainer", "ExplainerSkippedError"]

EXPLAINERS: dict[str, type[Explainer]] = {
    explainer.name: explainer
    for explainer in (GOAt, IntegratedGradients, Saliency, EdgeOcclusion, GNNExplainerOfPyG, Random)
}
