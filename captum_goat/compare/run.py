"""Compare explainers: their scores within a time budget, the metrics of these, and the results side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, TypeAlias

import torch
from torch import Generator, Tensor
from torch.nn import Module
from torch_geometric.data import Batch, Data

from captum_goat import metrics
from captum_goat.compare.comparison import Comparison, Key, TimedScores, rows_of
from captum_goat.compare.explainers import ExplainerSkippedError, as_explainer, name_of
from captum_goat.compare.graphs import SPARSITIES, Graphs, MaskedTargets, Subject, batches, seeded
from captum_goat.metrics import NodePolicy
from captum_goat.metrics.counted_edges import check_scores
from captum_goat.metrics.fidelity import output_of
from captum_goat.models import RootClassifier
from captum_goat.runs import progress_bar
from captum_goat.tracking import UnsupportedModelError

DEFAULT = ("goat", "integrated_gradients", "saliency", "occlusion", "random")  # GNNExplainer is much slower
BUDGET = 60.0  # seconds
INFIDELITY_SAMPLES = 20
TIMED_ALONE = 10  # graphs that batched explainers also explain one by one, to be timed
LARGEST_BATCH = 64
ALONE_SHARE = 0.25  # of the budget, for the graphs that are only timed

# A function of (model, data, target), such as an Explainer, which may have the attributes of one.
EdgeExplainer: TypeAlias = Callable[..., Tensor]
Advance: TypeAlias = Callable[[int], object]


def compare(
    model: Module,
    graphs: Iterable[Data] | Data,
    explainers: Sequence[Any] = DEFAULT,
    *,
    target: Tensor | Sequence[int] | int | None = None,
    nodes: Tensor | Sequence[int] | None = None,
    num_hops: int | None = None,
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
    that do not apply, or whose packages are not installed, are in ``skipped`` of the result, others in ``failed``. An
    interrupt (Ctrl-C) ends the comparison with the explainers that are done, if there are any.

    Args:
        model: A classifier in evaluation mode, called as for :func:`~captum_goat.metrics.fidelity_plus`. It returns
            logits ``[G, C]``, or one logit of class 1 ``[G, 1]``; with ``nodes``, a row per node.
        graphs: Graphs that the model was not trained on, in random order: an explainer that runs out of time explains
            the first ones. ``edge_label``, bool ``[E]``, is the ground truth if it is known. With ``nodes``, one graph.
        explainers: Names of :data:`~captum_goat.compare.explainers.EXPLAINERS`; objects of subclasses of
            :class:`~captum_goat.compare.explainers.Explainer`, fitted if they learn; functions of ``(model, data,
            target)`` that return one score per edge; classes of Captum; algorithms of :mod:`torch_geometric.explain`.
        target: The class to explain, for all graphs or one per graph; ``None`` for the predicted class.
        nodes: The nodes to explain, as numbers or as a mask ``[N]``, each in its :func:`computation graph
            <captum_goat.compare.computation_graphs>`.
        num_hops: For ``nodes``, the number of message-passing layers; one more if degrees matter, as in GCN.
        sparsities: The shares of edges that are not selected, in ascending order.
        node_policy: What happens to nodes without edges, as for :func:`~captum_goat.metrics.fidelity_plus`.
        reference: The name of the explainer that the others are compared with; ``None`` for no differences.
        budget: The seconds after which an explainer starts no further graphs; infinity for no limit.
        seed: The seed of explainers and metrics.
        show_progress: Whether to show a progress bar.

    Examples:
        >>> from captum.attr import InputXGradient
        >>> from captum_goat.compare import compare
        >>> from captum_goat.datasets import ba_2motifs
        >>> from captum_goat.models import GraphClassifier
        >>> model = GraphClassifier("gin", in_channels=10, hidden_channels=8, num_classes=2).eval()
        >>> comparison = compare(model, ba_2motifs(4), explainers=("goat", InputXGradient), show_progress=False)
        >>> comparison.get("InputXGradient", "area_gain").verdict in ("better", "alike", "worse")
        True
        >>> comparison, comparison.get("goat", "largest_completeness_error").value < 1e-3, comparison.skipped
        (Comparison(goat, InputXGradient: 4 graphs), True, {})
    """
    if not budget > 0.0:
        raise ValueError(f"Expected a budget of more than 0 seconds (got {budget}).")
    levels = tuple(float(sparsity) for sparsity in sparsities)
    if len(levels) < 2 or sorted(set(levels)) != list(levels) or not 0.0 <= levels[0] <= levels[-1] <= 1.0:
        raise ValueError(f"Expected two or more sparsities from 0 to 1 in ascending order (got {levels}).")
    if node_policy not in ("stay", "leave"):
        raise ValueError(f"Expected node_policy to be 'stay' or 'leave' (got {node_policy!r}).")
    named = _named_explainers(explainers, seed)
    if reference is not None and reference not in (*named, "goat"):
        raise ValueError(f"Expected reference to be one of the explainers, {', '.join(named)} (got {reference!r}).")
    with torch.inference_mode(False):  # which the caller may be in, and which forbids gradients
        subject = Subject.of(model, graphs, target, nodes, num_hops)
        if node_policy == "leave" and isinstance(subject.model, RootClassifier):
            raise ValueError("Expected node_policy='stay' for nodes (got 'leave'). There is no pool to leave.")
        subject = replace(subject, sparsities=levels, node_policy=node_policy, seed=seed)
        return _compare(named, subject, budget, reference, show_progress)


def _named_explainers(explainers: Sequence[Any], seed: int) -> dict[str, EdgeExplainer]:
    if isinstance(explainers, str) or not explainers:
        raise ValueError(f"Expected a sequence of one or more explainers (got {explainers!r}).")
    made = [as_explainer(explainer, seed) for explainer in explainers]
    names = [name_of(explainer) for explainer in made]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"Expected explainers with different names (got {', '.join(repeated)} more than once).")
    return dict(zip(names, made, strict=True))


def _compare(
    explainers: Mapping[str, EdgeExplainer], subject: Subject, budget: float, reference: str | None, show_progress: bool
) -> Comparison:
    """Run all explainers and measure their scores; an error of one does not affect the others."""
    explanations: dict[str, TimedScores] = {}
    values: dict[str, dict[Key, Tensor]] = {}
    skipped: dict[str, str] = {}
    failed: dict[str, Exception] = {}
    with progress_bar(len(explainers) * len(subject.graphs), "graph", show_progress) as advance:
        for name, explainer in explainers.items():
            try:
                with seeded(subject.seed), torch.enable_grad():  # independent of the other explainers
                    explanation = explain(explainer, subject.copied(), budget, advance)
                measured = measure(subject, explanation.scores)
                if getattr(explainer, "complete", False):
                    measured["completeness_error", ""] = explanation.completeness_error
                explanations[name], values[name] = explanation, measured
            except (ExplainerSkippedError, UnsupportedModelError, ImportError) as error:
                skipped[name] = " ".join(str(error).split())
            except KeyboardInterrupt:
                if not explanations:
                    raise
                done = {*explanations, *failed, *skipped}
                skipped |= {other: "interrupted" for other in explainers if other not in done}
                break
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
    return Comparison(
        rows=tuple(
            row
            for name, explanation in explanations.items()
            for row in rows_of(name, explanation, values[name], None if name == reference else of_reference)
        ),
        scores={name: explanation.scores for name, explanation in explanations.items()},
        values=values,
        skipped=skipped,
        failed=failed,
        reference=None if of_reference is None else reference,
        sparsities=subject.sparsities,
        node_policy=subject.node_policy,
        notes=tuple(notes),
        graphs=tuple(subject.graphs),
        target=subject.target,
    )


def clock() -> float:
    """Return the processor time with one thread, which other programs do not disturb; else the wall-clock time."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def explain(
    explainer: EdgeExplainer, subject: Subject, budget: float = float("inf"), advance: Advance = lambda _: None
) -> TimedScores:
    """Explain the target classes of the graphs, or of the first ones if the budget, in seconds, is not enough for all.

    One graph is explained in any case.
    """
    seconds_in_batch = float("nan")
    if getattr(explainer, "batched", False):
        _, seconds_alone = _timed(explainer, subject, TIMED_ALONE, 1, ALONE_SHARE * budget)
        budget *= 1 - ALONE_SHARE
        size = max(1, int(min(LARGEST_BATCH, budget / max(median(seconds_alone), 1e-6))))
        scores, seconds = _timed(explainer, subject, len(subject.graphs), size, budget, advance)
        seconds_in_batch = sum(seconds) / len(scores)
    else:
        scores, seconds_alone = _timed(explainer, subject, len(subject.graphs), 1, budget, advance)
    error = completeness_error(explainer, subject, scores)
    return TimedScores(scores, torch.tensor(seconds_alone), seconds_in_batch, error)


def _timed(
    explainer: EdgeExplainer, subject: Subject, count: int, size: int, budget: float, advance: Advance = lambda _: None
) -> tuple[list[Tensor], list[float]]:
    """Return the scores of the first ``count`` graphs, and the seconds of each call with ``size`` graphs."""
    scores: list[Tensor] = []
    seconds: list[float] = []
    for first in range(0, min(count, len(subject.graphs)), size):
        if seconds and sum(seconds) >= budget:
            break
        graphs = subject.graphs[first : min(first + size, count)]
        data = graphs[0] if size == 1 else Batch.from_data_list(graphs)
        target = subject.target[first : first + len(graphs)]
        start = clock()
        try:
            new_scores = explainer(subject.model, data, target)
        except TimeoutError:  # of an explainer with a time limit of its own
            if not seconds:
                raise
            break
        seconds.append(clock() - start)
        # Checked twice: a finite number may overflow in another dtype.
        checked = check_scores(check_scores(new_scores, data).to(data.x), data)
        scores += checked.split([graph.num_edges for graph in graphs])
        advance(len(graphs))
    return scores, seconds


@torch.no_grad()
def completeness_error(explainer: EdgeExplainer, subject: Subject, scores: list[Tensor]) -> Tensor:
    r"""Return :math:`|\sum_e s_e - (f(G)_c - f(\text{no edges})_c)|` of the first graphs; nan if not ``complete``."""
    totals = torch.stack([graph_scores.sum() for graph_scores in scores])
    if not getattr(explainer, "complete", False):
        return torch.full_like(totals, torch.nan)
    model, lost = subject.model, []
    for part, batch in batches(subject.graphs[: len(scores)]):
        graphs = Graphs.of(batch, subject.target[part], model)
        if getattr(explainer, "baseline", None) == "removed":
            without = graphs.of_target(output_of(model, batch, graphs.mask == 0))
        else:
            without = MaskedTargets(model, graphs).values(0 * graphs.mask.unsqueeze(0))[0]
        lost.append(graphs.of_target(output_of(model, batch)) - without)
    return (totals - torch.cat(lost)).abs()


def measure(subject: Subject, scores: Sequence[Tensor]) -> dict[Key, Tensor]:
    """Return all metrics of the first graphs by metric and sparsity, ``[G]`` each; nan where one does not apply."""
    measured: dict[Key, list[Tensor]] = {}
    for part, batch in batches(subject.graphs):
        if part.start >= len(scores):
            break
        # Graphs without scores get zeros, so that random numbers do not depend on how many graphs have scores.
        missing = [graph.x.new_zeros(graph.num_edges) for graph in subject.graphs[part][len(scores[part]) :]]
        for key, values in _measure(subject, batch, torch.cat([*scores[part], *missing]), part).items():
            measured.setdefault(key, []).append(values)
    return {key: torch.cat(values)[: len(scores)] for key, values in measured.items()}


def _measure(subject: Subject, batch: Batch, scores: Tensor, part: slice) -> dict[Key, Tensor]:
    model, target, sparsities = subject.model, subject.target[part], subject.sparsities
    curve = metrics.fidelity_curve(model, batch, scores, sparsities, target, subject.node_policy)
    values: dict[Key, Tensor] = {}
    for sparsity, plus, minus in zip(sparsities, curve.plus, curve.minus, strict=True):
        values["fidelity_plus", str(sparsity)], values["fidelity_minus", str(sparsity)] = plus, minus
    curves = {"area_plus": curve.plus, "area_minus": curve.minus, "area_gain": curve.plus - curve.minus}
    for metric, heights in curves.items():
        values[metric, ""] = metrics.area_under_curve(heights, curve.sparsities, normalize=True)
    if "edge_label" in batch:
        values["ground_truth_auc", ""] = metrics.ground_truth_auc(batch, scores)
    # Every explainer gets the same random numbers: they are seeded anew for each part.
    random = Generator().manual_seed(subject.seed + part.start)
    options: dict[str, Any] = {"samples": INFIDELITY_SAMPLES, "normalize": True, "generator": random}
    try:  # scaled by the factor that fits best, so that scores of any unit compare
        values["infidelity", ""] = metrics.graph_infidelity(model, batch, scores, target, **options)
    except UnsupportedModelError:  # the model has no messages that could be masked
        values["infidelity", ""] = torch.full_like(curve.plus[0], torch.nan)
    return values
