"""One adapter per explainer, all with one signature: a model, graphs and their classes in; signed edge scores out.

:data:`EXPLAINERS` has them by name. Each is a class that makes an :class:`Explainer`; its attributes say what it
is::

    >>> import torch
    >>> from benchmarks.explainers import EXPLAINERS
    >>> from captum_goat.datasets import ba_2motifs
    >>> from captum_goat.models import GraphClassifier
    >>> EXPLAINERS["occlusion"].batched, EXPLAINERS["occlusion"].complete
    (True, False)
    >>> (graph,) = ba_2motifs(num_graphs=1)
    >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
    >>> EXPLAINERS["occlusion"]()(model, graph, target=torch.tensor([0])).shape
    torch.Size([50])

Every explainer works on its own copy of the model, and gives a graph the same scores alone and in a batch, whatever
random numbers were drawn before. Where one does not apply, or is not installed, it raises
:class:`ExplainerSkippedError`.
"""

from benchmarks.explainers.adjacency import (
    AdjacencyGOAt,
    AdjacencyOcclusion,
    LeaningUpperHalfAdjacencyGradients,
    PeeledAdjacencyGOAt,
    PeeledUpperHalfAdjacencyGradients,
    ProportionalAdjacencyGOAt,
)
from benchmarks.explainers.coalitions import ExactShapley, GNNShap
from benchmarks.explainers.counterfactual import CFGNNExplainer
from benchmarks.explainers.degree import DEGREE
from benchmarks.explainers.edge_weights import WeightIntegratedGradients
from benchmarks.explainers.eig_search import EiGSearch
from benchmarks.explainers.flows import FlowXMarginals
from benchmarks.explainers.goat_options import ProportionalGOAt, RepeatedGOAt
from benchmarks.explainers.gradients import Deconvolution, GradientShap, GuidedBackprop, InputXGradient
from benchmarks.explainers.peeled import (
    LeaningUpperHalfGradients,
    PeeledGOAt,
    PeeledRandom,
    PeeledUpperHalfGradients,
)
from benchmarks.explainers.pgm import PGMExplainerOfPyG
from benchmarks.explainers.pyg import AttentionOfPyG, GraphMaskOfPyG, PGExplainerOfPyG
from benchmarks.explainers.receptive_fields import GraphSHAPIQ
from benchmarks.explainers.reinforced import RGExplainer
from benchmarks.explainers.relevance import GNNLRP
from benchmarks.explainers.robust_counterfactual import RCExplainer
from benchmarks.explainers.sampling import KernelShap, ShapleyValueSampling
from benchmarks.explainers.search import LongEdgeSets, RandomEdgeSets
from benchmarks.explainers.shapley import GUIDED_SHAPLEY, GUIDED_SHAPLEY_MARGIN
from benchmarks.explainers.subgraphx import SubgraphX
from captum_goat.compare.explainers import (
    EdgeOcclusion,
    EdgeSets,
    Explainer,
    ExplainerSkippedError,
    GNNExplainer,
    GOAt,
    IntegratedGradients,
    Random,
    Saliency,
)

__all__ = ["EXPLAINERS", "SLOW", "Explainer", "ExplainerSkippedError"]

# Too slow for more than a sample of the graphs.
SLOW = frozenset(kind.name for kind in (ShapleyValueSampling, KernelShap, GraphMaskOfPyG, SubgraphX))

_CLASSES: tuple[type[Explainer], ...] = (
    GOAt,
    RepeatedGOAt,
    ProportionalGOAt,
    AdjacencyGOAt,
    ProportionalAdjacencyGOAt,
    PeeledGOAt,
    PeeledAdjacencyGOAt,
    PeeledUpperHalfGradients,
    LeaningUpperHalfGradients,
    PeeledUpperHalfAdjacencyGradients,
    LeaningUpperHalfAdjacencyGradients,
    Random,
    PeeledRandom,
    EdgeOcclusion,
    AdjacencyOcclusion,
    EiGSearch,
    Saliency,
    InputXGradient,
    IntegratedGradients,
    WeightIntegratedGradients,
    GradientShap,
    GuidedBackprop,
    Deconvolution,
    *GUIDED_SHAPLEY,
    *GUIDED_SHAPLEY_MARGIN,
    ExactShapley,
    GNNShap,
    GraphSHAPIQ,
    EdgeSets,
    LongEdgeSets,
    RandomEdgeSets,
    ShapleyValueSampling,
    KernelShap,
    GNNExplainer,
    PGExplainerOfPyG,
    PGMExplainerOfPyG,
    GraphMaskOfPyG,
    AttentionOfPyG,
    CFGNNExplainer,
    RCExplainer,
    RGExplainer,
    DEGREE,
    GNNLRP,
    FlowXMarginals,
    SubgraphX,
)
EXPLAINERS: dict[str, type[Explainer]] = {explainer.name: explainer for explainer in _CLASSES}
