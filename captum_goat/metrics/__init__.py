"""How good are edge scores? Metrics for any explainer of graph models, on graphs and on batches of graphs.

Scores are signed numbers, one per edge. :func:`select_edges` or :func:`search_prefix` makes explanations of them;
fidelities, sparsity, discriminability and stability measure explanations; ground truth, infidelity and sensitivity
measure the scores themselves.
"""

from captum_goat.metrics.captum_metrics import infidelity, sensitivity_max
from captum_goat.metrics.embeddings import discriminability, explanation_embeddings
from captum_goat.metrics.fidelity import (
    FidelityCurve,
    area_under_curve,
    characterization_score,
    fidelity_curve,
    fidelity_minus,
    fidelity_plus,
)
from captum_goat.metrics.ground_truth import ground_truth_auc, precision_at_k
from captum_goat.metrics.perturbations import PerturbFunc, drop_edges, gaussian_noise
from captum_goat.metrics.prefix_search import Prefix, search_prefix
from captum_goat.metrics.reduced_graphs import Measure, NodePolicy
from captum_goat.metrics.robust_fidelity import RobustFidelity, robust_fidelity
from captum_goat.metrics.selection import select_edges, sparsity
from captum_goat.metrics.stability import (
    TopExplanations,
    distinct_embeddings,
    distinct_explanations,
    stability,
    top_explanations,
)

__all__ = [
    "FidelityCurve",
    "Measure",
    "NodePolicy",
    "PerturbFunc",
    "Prefix",
    "RobustFidelity",
    "TopExplanations",
    "area_under_curve",
    "characterization_score",
    "discriminability",
    "distinct_embeddings",
    "distinct_explanations",
    "drop_edges",
    "explanation_embeddings",
    "fidelity_curve",
    "fidelity_minus",
    "fidelity_plus",
    "gaussian_noise",
    "ground_truth_auc",
    "infidelity",
    "precision_at_k",
    "robust_fidelity",
    "search_prefix",
    "select_edges",
    "sensitivity_max",
    "sparsity",
    "stability",
    "top_explanations",
]
