"""Metrics of edge scores from any explainer, for graphs and batches of graphs.

Scores are signed numbers, one per edge, and :func:`select_edges` turns them into explanations. Fidelity and sparsity
measure explanations; ground truth, infidelity and sensitivity measure the scores themselves. Arguments come in the
order ``(model, data, scores, ...)``; those that many functions share are described at :func:`fidelity_plus`.
"""

from captum_goat.metrics.captum_metrics import (
    PerturbFunc,
    drop_edges,
    gaussian_noise,
    graph_infidelity,
    graph_sensitivity,
)
from captum_goat.metrics.fidelity import (
    FidelityCurve,
    RobustFidelity,
    area_under_curve,
    characterization_score,
    fidelity_curve,
    fidelity_minus,
    fidelity_plus,
    robust_fidelity,
)
from captum_goat.metrics.ground_truth import ground_truth_auc, precision_at_k
from captum_goat.metrics.reduced_graphs import Measure, NodePolicy
from captum_goat.metrics.sanity import SanityChecks, rank_correlation
from captum_goat.metrics.selection import select_edges, sparsity

__all__ = [
    "FidelityCurve",
    "Measure",
    "NodePolicy",
    "PerturbFunc",
    "RobustFidelity",
    "SanityChecks",
    "area_under_curve",
    "characterization_score",
    "drop_edges",
    "fidelity_curve",
    "fidelity_minus",
    "fidelity_plus",
    "gaussian_noise",
    "graph_infidelity",
    "graph_sensitivity",
    "ground_truth_auc",
    "precision_at_k",
    "rank_correlation",
    "robust_fidelity",
    "select_edges",
    "sparsity",
]
