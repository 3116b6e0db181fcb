"""One comparison: explain, measure, and put side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.compare.comparison import Comparison
from captum_goat.compare.explainers import EXPLAINERS, EdgeExplainer, ExplainerSkippedError
from captum_goat.compare.explainers.randomness import seeded
from captum_goat.compare.explanations import Advance, Explanation, explain, make_explainer
from captum_goat.compare.measures import SPARSITIES, Conditions, Key, measure
from captum_goat.compare.rows import ComparisonRow, rows_of
from captum_goat.compare.subject import Given
from captum_goat.metrics import NodePolicy
from captum_goat.metrics.reduced_graphs import reads_roots
from captum_goat.runs.progress import progress_bar
from captum_goat.tracking import UnsupportedModelError

DEFAULT = (
    "goat",
    "goat_adjacency",
    "integrated_gradients",
    "input_x_gradient",
    "saliency",
    "occlusion",
    "ig_half_adjacency_peeled_2_1",
    "random",
)
BUDGET = 60.0


class Outcome(NamedTuple):
    """What one explainer did: its times, its scores graph by graph, and what was measured of them."""

    explanation: Explanation
    scores: list[Tensor]
    values: dict[Key, Tensor]


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
    """Compare explainers on a model and graphs of one's own.

    All explainers explain the same classes of the same graphs, each on its own copy of the model. At every sparsity the
    same number of edges is taken from each, those with the highest scores; and edges are really removed.

    Args:
        model: A classifier in evaluation mode that is called as ``model(x, edge_index, batch)`` and returns logits
            ``[G, C]``. It stays as it is. With ``nodes``, one that is called as ``model(x, edge_index)`` and returns
            logits ``[N, C]``.
        graphs: Graphs that the model was not trained on, in no particular order: an explainer that runs out of time has
            the first ones. They need ``x`` and ``edge_index``; ``edge_label``, bool ``[E]``, says which edges are the
            true ones, if that is known. With ``nodes``, one graph.
        explainers: Names in :data:`~captum_goat.compare.explainers.EXPLAINERS`, or explainers of one's own:
            subclasses of :class:`~captum_goat.compare.explainers.Explainer`, or whatever does the same
            (:class:`~captum_goat.compare.explainers.EdgeExplainer`).
        target: The class to explain of all graphs, or one per graph; ``None`` for the predicted one.
        nodes: The nodes to explain, as numbers or as a mask ``[N]``. Each is explained in its computation graph
            (:func:`~captum_goat.datasets.computation_graphs`).
        num_hops: For ``nodes``, the number of message passing layers; one more where degrees count, as in GCN.
        training_graphs: Other graphs, for explainers that have to learn first; without any, they are skipped. For
            ``nodes``, those that :func:`~captum_goat.datasets.computation_graphs` cuts.
        sparsities: The shares of edges that are not taken, in ascending order.
        node_policy: What becomes of nodes that have no edge left, as for :func:`~captum_goat.metrics.fidelity_plus`:
            they ``"stay"`` in the graph, or ``"leave"`` the pool. With ``nodes``, they stay.
        reference: The explainer with which the others are compared in pairs. If it is not among them, there are no
            differences.
        budget: The seconds after which an explainer takes up no further graphs; infinity for no limit.
        seed: Where random numbers start, of explainers and of metrics.
        show_progress: Whether to show a progress bar (if tqdm is installed).

    Returns:
        The result. Print it. Explainers that do not apply, or whose packages are not installed, are in its ``skipped``,
        and those that raised another error in its ``failed``.

    Raises:
        ValueError: If the arguments do not fit together.
        RuntimeError: If every explainer failed.

    Examples::

        >>> import torch
        >>> from captum_goat.compare import compare
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> class Hubs:  # an explainer of one's own
        ...     name, complete = "hubs", False
        ...     def fit(self, model, graphs):
        ...         pass
        ...     def __call__(self, model, data, target):
        ...         degrees = torch.bincount(data.edge_index[1], minlength=data.num_nodes)
        ...         return degrees[data.edge_index[1]].float()
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
        >>> comparison = compare(model, ba_2motifs(4), explainers=("goat", "saliency", Hubs()), show_progress=False)
        >>> list(comparison.scores), comparison.scores["hubs"][0].shape
        (['goat', 'saliency', 'hubs'], torch.Size([50]))
        >>> comparison.get("hubs", "area_gain").verdict in ("better", "alike", "worse")
        True
        >>> comparison.get("goat", "largest_completeness_error").value < 1e-3
        True
    """
    if not budget > 0.0:
        raise ValueError(f"Expected a budget of more than 0 seconds (got {budget}).")
    conditions = Conditions(tuple(float(each) for each in sparsities), node_policy, seed)
    conditions.check()
    made = _made(explainers, seed)
    with torch.inference_mode(False):  # in which a caller may be, and in which nothing can be differentiated
        given = Given.of(
            model, graphs, target=target, nodes=nodes, num_hops=num_hops, training_graphs=list(training_graphs)
        )
        _check_policy(node_policy, given)
        return _compared(made, given, conditions, budget, reference, show_progress)


def _check_policy(node_policy: NodePolicy, given: Given) -> None:
    if node_policy == "leave" and reads_roots(given.model):
        raise ValueError(
            "Expected node_policy='stay' for nodes (got 'leave'). The output is that of one node: there is no pool "
            "that others could leave."
        )


def _compared(
    explainers: Sequence[EdgeExplainer],
    given: Given,
    conditions: Conditions,
    budget: float,
    reference: str | None,
    show_progress: bool,
) -> Comparison:
    """Let all explain, and measure what they say; an error of one of them leaves the others alone."""
    outcomes: dict[str, Outcome] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, Exception] = {}
    with progress_bar(len(explainers) * len(given.graphs), "graph", show_progress) as advance:
        for explainer in explainers:
            try:
                explanation = _explained(explainer, given, budget, conditions.seed, advance)
                outcomes[explainer.name] = _outcome(explanation, explainer, given, conditions)
            except (ExplainerSkippedError, UnsupportedModelError, ImportError) as error:
                skipped[explainer.name] = " ".join(str(error).split())
            except Exception as error:
                failed[explainer.name] = error
    if failed and not outcomes:
        first = next(iter(failed.values()))
        reasons = "; ".join(f"{name}: {type(each).__name__}: {each}" for name, each in failed.items())
        raise RuntimeError(f"Expected an explainer that works (got none, but errors: {reasons}).") from first
    return _side_by_side(outcomes, skipped, failed, given, conditions, reference)


def _made(explainers: Sequence[str | EdgeExplainer], seed: int) -> list[EdgeExplainer]:
    """Make explainers that are named; check those that are given."""
    if isinstance(explainers, str) or not explainers:
        raise ValueError(f"Expected a sequence of explainers, one or more (got {explainers!r}).")
    made: list[EdgeExplainer] = []
    for each in explainers:
        if isinstance(each, str) and each not in EXPLAINERS:
            raise ValueError(f"Expected names of explainers, {', '.join(EXPLAINERS)} (got {each!r}).")
        if isinstance(each, str):
            made.append(make_explainer(EXPLAINERS[each], seed))
            continue
        missing = [name for name in ("name", "complete", "fit", "__call__") if not hasattr(each, name)]
        if isinstance(each, type) or missing:
            got = f"the class {each.__name__}" if isinstance(each, type) else f"an object without {', '.join(missing)}"
            raise ValueError(
                f"Expected an explainer as an object with name, complete, fit(model, graphs) and __call__(model, data, "
                f"target) (got {got}). Subclass captum_goat.compare.explainers.Explainer, and pass an object of it."
            )
        made.append(each)
    names = [each.name for each in made]
    for name in names:
        if not isinstance(name, str) or "|" in name or name.splitlines() != [name]:
            raise ValueError(f"Expected names of explainers that fit into a table, one line without | (got {name!r}).")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"Expected explainers with different names (got {', '.join(twice)} more than once).")
    return made


def _explained(explainer: EdgeExplainer, given: Given, budget: float, seed: int, advance: Advance) -> Explanation:
    """Let an explainer explain on copies, and with random numbers that do not depend on the explainers before it."""
    if getattr(explainer, "trained", False) and not given.training_graphs:
        raise ExplainerSkippedError("It has to learn first (got no graphs to learn from). Pass training_graphs.")
    with seeded(seed), torch.enable_grad():
        return explain(explainer, given.copied(), len(given.graphs), budget, advance)


def _outcome(explanation: Explanation, explainer: EdgeExplainer, given: Given, conditions: Conditions) -> Outcome:
    sizes = [graph.num_edges for graph in given.graphs[: explanation.count]]
    scores = list(explanation.scores.split(sizes))
    values = measure(given, scores, conditions)
    if explainer.complete:
        values["completeness_error", ""] = explanation.completeness_error
    return Outcome(explanation, scores, values)


def _side_by_side(
    outcomes: dict[str, Outcome],
    skipped: dict[str, str],
    failed: dict[str, Exception],
    given: Given,
    conditions: Conditions,
    reference: str | None,
) -> Comparison:
    """Put what explainers did side by side."""
    notes = list(given.notes)
    of_reference = outcomes.get(reference) if reference is not None else None
    if reference is not None and of_reference is None and outcomes:
        notes.append(f"There are no differences: the reference `{reference}` is not among the explainers above.")
    if any(len(each.scores) < len(given.graphs) for each in outcomes.values()):
        notes.append("Where an explainer has fewer graphs, its time was over; differences are those on its graphs.")
    rows: list[ComparisonRow] = []
    for name, each in outcomes.items():
        others = None if of_reference is None or name == reference else of_reference.values
        rows += rows_of(name, each.explanation, each.values, others)
    return Comparison(
        rows=tuple(rows),
        scores={name: each.scores for name, each in outcomes.items()},
        values={name: each.values for name, each in outcomes.items()},
        skipped=skipped,
        failed=failed,
        reference=None if of_reference is None else reference,
        num_graphs=len(given.graphs),
        sparsities=conditions.sparsities,
        node_policy=conditions.nodes,
        notes=tuple(notes),
    )
