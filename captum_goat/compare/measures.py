"""What is measured of scores, graph by graph, so that explainers can be compared in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Generator, Tensor
from torch_geometric.data import Batch

from captum_goat.compare.chunks import parts_of
from captum_goat.compare.questions import Questions
from captum_goat.metrics import (
    NodePolicy,
    area_under_curve,
    characterization_score,
    fidelity_curve,
    graph_infidelity,
    ground_truth_auc,
    robust_fidelity,
    select_edges,
)
from captum_goat.tracking import UnsupportedModelError

INFIDELITY_SAMPLES = 20
SPARSITIES = (0.5, 0.6, 0.7, 0.8, 0.9)

# A metric and a sparsity, which is empty where there is none, or where all count.
Key: TypeAlias = tuple[str, str]

# Whether more or less of a metric is better.
BETTER: dict[str, Literal["more", "less"]] = {
    "fidelity_plus": "more",
    "fidelity_minus": "less",
    "area_plus": "more",
    "area_minus": "less",
    "area_gain": "more",
    "robust_fidelity_plus": "more",
    "robust_fidelity_minus": "less",
    "robust_gain": "more",
    "characterization_score": "more",
    "ground_truth_auc": "more",
    "infidelity": "less",
    "completeness_error": "less",
    "largest_completeness_error": "less",
    "seconds_alone": "less",
    "seconds_in_batch": "less",
    "seconds_to_fit": "less",
}


class Conditions(NamedTuple):
    """How explanations are measured, the same for every explainer.

    Attributes:
        sparsities: The shares of edges that are left out, in ascending order.
        nodes: What becomes of nodes without edges.
        seed: Where the random numbers of robust fidelities and of infidelity start.
    """

    sparsities: tuple[float, ...] = SPARSITIES
    nodes: NodePolicy = "stay"
    seed: int = 0

    @property
    def middle(self) -> float:
        """The sparsity at which robust fidelities are measured."""
        return self.sparsities[len(self.sparsities) // 2]

    def check(self) -> None:
        """Refuse what cannot be measured.

        Raises:
            ValueError: If sparsities are not two or more in ascending order from 0 to 1, or nodes do something else.
        """
        values = self.sparsities
        if len(values) < 2 or sorted(set(values)) != list(values) or not 0.0 <= values[0] <= values[-1] <= 1.0:
            raise ValueError(f"Expected two sparsities or more from 0 to 1, in ascending order (got {values}).")
        if self.nodes not in ("stay", "leave"):
            raise ValueError(f"Expected node_policy to be 'stay' or 'leave' (got {self.nodes!r}).")


def measure(questions: Questions, scores: Sequence[Tensor], conditions: Conditions) -> dict[Key, Tensor]:
    """Measure the scores of the first graphs.

    Args:
        questions: The model, the graphs and their classes.
        scores: The scores of each of the first graphs, ``[E]`` each.
        conditions: How to measure.

    Returns:
        A number for each of these graphs, ``[G]``; nan where a metric does not apply.
    """
    found: dict[Key, list[Tensor]] = {}
    for part in parts_of(questions.graphs):
        if part.start >= len(scores):
            break
        graphs = questions.graphs[part]
        # Parts are whole, with zeros for graphs without scores: so random numbers do not depend on how many have some.
        missing = [graph.x.new_zeros(graph.num_edges) for graph in graphs[len(scores[part]) :]]
        joined = torch.cat([*scores[part], *missing])
        for key, values in _measure(questions, Batch.from_data_list(list(graphs)), joined, part, conditions).items():
            found.setdefault(key, []).append(values)
    return {key: torch.cat(values)[: len(scores)] for key, values in found.items()}


def _measure(
    questions: Questions, batch: Batch, scores: Tensor, part: slice, conditions: Conditions
) -> dict[Key, Tensor]:
    model, target, (sparsities, nodes, seed) = questions.model, questions.target[part], conditions
    curve = fidelity_curve(model, batch, scores, sparsities, target, nodes)
    found = {("fidelity_plus", str(each)): values for each, values in zip(sparsities, curve.plus, strict=True)}
    found |= {("fidelity_minus", str(each)): values for each, values in zip(sparsities, curve.minus, strict=True)}
    curves = {
        "area_plus": curve.plus,
        "area_minus": curve.minus,
        "area_gain": curve.plus - curve.minus,
        "characterization_score": characterization_score(curve.plus, curve.minus),
    }
    for name, values in curves.items():
        found[name, ""] = area_under_curve(values, curve.sparsities, normalize=True)
    # Every explainer has the same random numbers: they start anew with each part.
    selected, random = select_edges(batch, scores, conditions.middle), Generator().manual_seed(seed + part.start)
    robust = robust_fidelity(model, batch, selected, target, nodes, generator=random)
    found["robust_fidelity_plus", ""], found["robust_fidelity_minus", ""] = robust.plus, robust.minus
    found["robust_gain", ""] = robust.delta
    if "edge_label" in batch:
        found["ground_truth_auc", ""] = ground_truth_auc(batch, scores)
    found["infidelity", ""] = _infidelity(questions, batch, scores, target, seed + part.start)
    return found


def _infidelity(questions: Questions, batch: Batch, scores: Tensor, target: Tensor, seed: int) -> Tensor:
    """Return infidelity with scores in the unit that fits best, so that scores of any kind have one."""
    random = Generator().manual_seed(seed)
    try:
        return graph_infidelity(
            questions.model, batch, scores, target, samples=INFIDELITY_SAMPLES, normalize=True, generator=random
        )
    except UnsupportedModelError:  # edges do more in it than to send messages, and those are what is masked
        return scores.new_full((batch.num_graphs,), torch.nan)
