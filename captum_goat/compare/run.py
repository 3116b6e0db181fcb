"""Compare explainers: explain, measure, and put the results side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.compare.comparison import Comparison, ComparisonRow, rows_of
from captum_goat.compare.explainers import EXPLAINERS, EdgeExplainer, ExplainerSkippedError
from captum_goat.compare.explainers.randomness import seeded
from captum_goat.compare.explanation import Advance, TimedScores, explain, make_explainer
from captum_goat.compare.measures import SPARSITIES, Conditions, Key, measure
from captum_goat.compare.subject import Subject
from captum_goat.metrics import NodePolicy
from captum_goat.metrics.reduced_graphs import reads_roots
from captum_goat.runs.progress import progress_bar
from captum_goat.tracking import UnsupportedModelError

DEFAULT = ("goat", "integrated_gradients", "saliency", "occlusion", "random")  # GNNExplainer is much slower
BUDGET = 60.0  # seconds


def compare(
    model: Module,
    graphs: Iterable[Data] | Data,
    explainers: Sequence[str | EdgeExplainer] = DEFAULT,
    *,
    target: Tensor | Sequence[int] | int | None = None,
    nodes: Tensor | Sequence[int] | None = None,
    num_hops: int | None = None,
    training_graphs: Iterable[Data] = (),
    sparsities: Sequence[float] = SPARSITIES,
    node_policy: NodePolicy = "stay",
    reference: str | None = "goat",
    budget: float = BUDGET,
    seed: int = 0,
    show_progress: bool = True,
) -> Comparison:
    """Compare explainers on a model and graphs.

    All explainers explain the same classes of the same graphs, each on its own copy of the model. At every sparsity the
    same number of edges is selected from each, those with the highest scores, and edges are really removed. Explainers
    that do not apply, or whose packages are not installed, are in ``skipped`` of the result, others in ``failed``.

    Args:
        model: A classifier in evaluation mode, called as ``model(x, edge_index, batch)``, that returns logits ``[G,
            C]``; with ``nodes``, one called as ``model(x, edge_index)`` that returns logits ``[N, C]``.
        graphs: Graphs that the model was not trained on, in random order: an explainer that runs out of time explains
            the first ones. ``edge_label``, bool ``[E]``, is the ground truth if it is known. With ``nodes``, one graph.
        explainers: Names of :data:`~captum_goat.compare.explainers.EXPLAINERS`, or objects of subclasses of
            :class:`~captum_goat.compare.explainers.Explainer`.
        target: The class to explain, for all graphs or one per graph; ``None`` for the predicted class.
        nodes: The nodes to explain, as numbers or as a mask ``[N]``, each in its :func:`computation graph
            <captum_goat.compare.computation_graphs>`.
        num_hops: For ``nodes``, the number of message-passing layers; one more if degrees matter, as in GCN.
        training_graphs: Other graphs (for ``nodes``, computation graphs), for explainers that have to learn.
        sparsities: The shares of edges that are not selected, in ascending order.
        node_policy: What happens to nodes without edges, as for :func:`~captum_goat.metrics.fidelity_plus`.
        reference: The name of the explainer that the others are compared with; without it, there are no differences.
        budget: The seconds after which an explainer starts no further graphs; infinity for no limit.
        seed: The seed of explainers and metrics.
        show_progress: Whether to show a progress bar.

    Examples:
        >>> from captum_goat.compare import compare
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
        >>> comparison = compare(model, ba_2motifs(4), explainers=("goat", "saliency"), show_progress=False)
        >>> comparison.get("saliency", "area_gain").verdict in ("better", "alike", "worse")
        True
        >>> comparison.get("goat", "largest_completeness_error").value < 1e-3
        True
    """
    if not budget > 0.0:
        raise ValueError(f"Expected a budget of more than 0 seconds (got {budget}).")
    conditions = Conditions(tuple(float(sparsity) for sparsity in sparsities), node_policy, seed)
    conditions.check()
    made = _make_explainers(explainers, seed)
    with torch.inference_mode(False):  # which the caller may be in, and which forbids gradients
        subject = Subject.of(model, graphs, target, nodes, num_hops, training_graphs)
        if node_policy == "leave" and reads_roots(subject.model):
            raise ValueError("Expected node_policy='stay' for nodes (got 'leave'). There is no pool to leave.")
        return _compare(made, subject, conditions, budget, reference, show_progress)


def _make_explainers(explainers: Sequence[str | EdgeExplainer], seed: int) -> list[EdgeExplainer]:
    if isinstance(explainers, str) or not explainers:
        raise ValueError(f"Expected a sequence of one or more explainers (got {explainers!r}).")
    made: list[EdgeExplainer] = []
    for explainer in explainers:
        if isinstance(explainer, str):
            if explainer not in EXPLAINERS:
                raise ValueError(f"Expected names of explainers, {', '.join(EXPLAINERS)} (got {explainer!r}).")
            explainer = make_explainer(EXPLAINERS[explainer], seed)
        _check_explainer(explainer)
        made.append(explainer)
    names = [explainer.name for explainer in made]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"Expected explainers with different names (got {', '.join(repeated)} more than once).")
    return made


def _check_explainer(explainer: EdgeExplainer) -> None:
    missing = [name for name in ("name", "complete", "fit", "__call__") if not hasattr(explainer, name)]
    if isinstance(explainer, type) or missing:
        kind = explainer.__name__ if isinstance(explainer, type) else None
        got = f"an object without {', '.join(missing)}" if kind is None else f"the class {kind}"
        raise ValueError(
            f"Expected an explainer as an object with name, complete, fit(model, graphs) and __call__(model, data, "
            f"target) (got {got}). Subclass captum_goat.compare.explainers.Explainer, and pass an object of it."
        )
    name = explainer.name
    if not isinstance(name, str) or "|" in name or name.splitlines() != [name]:
        raise ValueError(f"Expected names of explainers that fit into a table, one line without | (got {name!r}).")


def _compare(
    explainers: Sequence[EdgeExplainer],
    subject: Subject,
    conditions: Conditions,
    budget: float,
    reference: str | None,
    show_progress: bool,
) -> Comparison:
    """Run all explainers and measure their scores; an error of one does not affect the others."""
    explanations: dict[str, TimedScores] = {}
    values: dict[str, dict[Key, Tensor]] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, Exception] = {}
    with progress_bar(len(explainers) * len(subject.graphs), "graph", show_progress) as advance:
        for explainer in explainers:
            name = explainer.name
            try:
                explanation = _explain(explainer, subject, conditions.seed, budget, advance)
                measured = measure(subject, explanation.scores, conditions)
                if explainer.complete:
                    measured["completeness_error", ""] = explanation.completeness_error
                explanations[name], values[name] = explanation, measured
            except (ExplainerSkippedError, UnsupportedModelError, ImportError) as error:
                skipped[name] = " ".join(str(error).split())
            except Exception as error:  # of an explainer, which may be the user's: it is reported
                failed[name] = error
    if failed and not explanations:
        first = next(iter(failed.values()))
        reasons = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise RuntimeError(f"Expected an explainer that works (got errors from all: {reasons}).") from first
    notes = list(subject.notes)
    of_reference = values.get(reference) if reference is not None else None
    if reference is not None and of_reference is None and explanations:
        notes.append(f"There are no differences: the reference `{reference}` is not among the explainers above.")
    if any(len(explanation.scores) < len(subject.graphs) for explanation in explanations.values()):
        notes.append("An explainer with fewer graphs ran out of time; its differences are those on its graphs.")
    rows: list[ComparisonRow] = []
    for name, explanation in explanations.items():
        rows += rows_of(name, explanation, values[name], None if name == reference else of_reference)
    return Comparison(
        rows=tuple(rows),
        scores={name: explanation.scores for name, explanation in explanations.items()},
        values=values,
        skipped=skipped,
        failed=failed,
        reference=None if of_reference is None else reference,
        num_graphs=len(subject.graphs),
        sparsities=conditions.sparsities,
        node_policy=conditions.node_policy,
        notes=tuple(notes),
        graphs=tuple(subject.graphs),
        target=subject.target,
    )


def _explain(explainer: EdgeExplainer, subject: Subject, seed: int, budget: float, advance: Advance) -> TimedScores:
    """Run an explainer on copies, with random numbers independent of other explainers."""
    if getattr(explainer, "trained", False) and not subject.training_graphs:
        raise ExplainerSkippedError("It has to learn first (got no graphs to learn from). Pass training_graphs.")
    with seeded(seed), torch.enable_grad():
        return explain(explainer, subject.copied(), budget, advance)
