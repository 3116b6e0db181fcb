"""Metrics of edge scores from any explainer, for graphs and batches of graphs.

Scores are signed numbers, one per edge, and :func:`select_edges` turns them into explanations. Fidelity and sparsity
measure explanations; ground truth and infidelity measure the scores themselves. Arguments come in the order ``(model,
data, scores, ...)``; those that many functions share are described at :func:`fidelity_plus`.
"""

from captum_goat.metrics.captum_metrics import PerturbFunc, drop_edges, gaussian_noise, graph_infidelity
from captum_goat.metrics.counted_edges import ground_truth_auc, precision_at_k, select_edges, sparsity
from captum_goat.metrics.fidelity import (
    FidelityCurve,
    NodePolicy,
    area_under_curve,
    fidelity_curve,
    fidelity_minus,
    fidelity_plus,
)

__all__ = [
    "FidelityCurve",
    "NodePolicy",
    "PerturbFunc",
    "area_under_curve",
    "drop_edges",
    "fidelity_curve",
    "fidelity_minus",
    "fidelity_plus",
    "gaussian_noise",
    "graph_infidelity",
    "ground_truth_auc",
    "precision_at_k",
    "select_edges",
    "sparsity",
]
