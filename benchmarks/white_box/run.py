"""Explainers against the edges that matter to hand-set weights: ``python -m benchmarks white_box``."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor
from torch_geometric.data import Batch

from benchmarks.command_lines import add_explainers, write_results
from benchmarks.explainers import EXPLAINERS, SLOW, Explainer, ExplainerSkippedError
from benchmarks.explainers.adjacency import Deletion
from benchmarks.markdown_tables import markdown
from benchmarks.white_box.cases import CASES, FORMS, Case
from benchmarks.white_box.networks import Form, WhiteBox
from captum_goat import EdgeMaskedModel
from captum_goat.metrics import ground_truth_auc, precision_at_k
from captum_goat.metrics.counted_edges import CountedEdges

GRAPHS = 5
TAKES_MINUTES = {"rg_explainer"}  # to be fitted to 27 models
DELETING = ("guided_shapley", "edge_set_search", "random_swaps")  # methods by the beginning of their names
EMPTY = "-"


@dataclass(frozen=True)
class Row:
    """One explainer on one model: means over graphs.

    Attributes:
        case: The rule.
        form: The architecture.
        explainer: The explainer.
        auc: The probability that an edge that matters has a higher score than a decoy; ties count one half.
        precision: The share of edges that matter among as many with the highest scores.
        decoy_credit: The share of the absolute scores that decoys have.
        completeness_error: The largest error of scores that are meant to add up; nan for others.
        seconds: The time per graph.
    """

    case: str
    form: str
    explainer: str
    auc: float
    precision: float
    decoy_credit: float
    completeness_error: float
    seconds: float


def decoy_credit(batch: Batch, scores: Tensor) -> Tensor:
    """Return the share of the absolute scores of edges that decoys have, one number per graph; nan if all are 0.

    Examples::

        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from benchmarks.white_box.run import decoy_credit
        >>> label = torch.tensor([True, False, False])
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), edge_label=label, num_nodes=4)
        >>> decoy_credit(data, torch.tensor([3.0, -1.0, 0.0]))
        tensor([0.2500])
    """
    edges = CountedEdges.of(batch)
    size = edges.totals(scores).abs()
    return edges.per_graph(torch.where(edges.any(batch.edge_label), 0.0, size)) / edges.per_graph(size)


def completeness_error(explainer: Explainer, model: WhiteBox, batch: Batch, target: Tensor, scores: Tensor) -> float:
    """Return the largest error of scores that are meant to add up to f(graph) - f(no edges); nan for others."""
    if not explainer.complete:
        return math.nan
    inputs = (batch.x, batch.edge_index, batch.batch)
    if explainer.baseline == "masked":
        nothing = EdgeMaskedModel(model)(torch.zeros_like(scores), *inputs)
    else:
        nothing = model(batch.x, batch.edge_index[:, :0], batch.batch)
    difference = (model(*inputs) - nothing).gather(1, target.view(-1, 1)).view(-1)
    graph = batch.batch[batch.edge_index[0]]
    sums = torch.zeros_like(difference).index_add_(0, graph, scores)
    return float((sums - difference).abs().max())


def explains_deletion(explainer: Explainer) -> bool:
    """Return whether scores are about edges that are deleted and no longer count in degrees, not about messages."""
    return isinstance(explainer, Deletion) or explainer.baseline == "removed" or explainer.name.startswith(DELETING)


def measure(case: Case, form: Form, name: str, count: int, **size: int) -> Row | None:
    """Explain a model's predictions for several graphs.

    Args:
        case: The rule.
        form: The architecture.
        name: The explainer.
        count: The number of graphs.
        size: The arguments of :meth:`Case.graph`.

    Returns:
        The means; ``None`` if the explainer does not apply. A degree-normalised GCN is another function of deleted
        edges than of masked messages, for which the edges that matter are known: methods that delete are left out.
    """
    model, batch = case.model(form), Batch.from_data_list([case.graph(seed, **size) for seed in range(count)])
    target = torch.full((count,), case.target)
    explainer = EXPLAINERS[name]()
    if form == "gcn" and explains_deletion(explainer):
        return None
    start = time.perf_counter()
    try:
        explainer.fit(model, [case.graph(1000 + seed, **size) for seed in range(2 * count)])
        scores = explainer(model, batch, target)
    except ExplainerSkippedError:
        return None
    seconds = (time.perf_counter() - start) / count
    error = completeness_error(explainer, model, batch, target, scores)
    # Scores that differ from 0 by rounding only are ties.
    scores = torch.where(scores.abs() < 1e-6, 0.0, scores)
    credit = decoy_credit(batch, scores)
    return Row(
        case.name,
        form,
        name,
        float(ground_truth_auc(batch, scores).mean()),
        float(precision_at_k(batch, scores).mean()),
        float(credit.nanmean()),
        error,
        seconds,
    )


def run(names: Sequence[str], cases: Sequence[str], count: int, **size: int) -> list[Row]:
    """Measure explainers on the models of several cases, in all their forms."""
    rows = []
    for case in (CASES[name] for name in cases):
        for form in case.forms:
            for name in names:
                if (row := measure(case, form, name, count, **size)) is not None:
                    rows.append(row)
            print(f"{case.name}, {FORMS[form]}: done", flush=True)
    return rows


def mean(values: Iterable[float]) -> float:
    """Return the mean of what is not nan; nan if nothing is left."""
    left = [value for value in values if not math.isnan(value)]
    return fmean(left) if left else math.nan


def shown(value: float) -> str:
    """Return a number of a table."""
    return EMPTY if math.isnan(value) else f"{value:.2f}"


def tables(rows: Sequence[Row]) -> str:
    """Return the tables: explainers over all models, and their AUCs by rule."""
    names = list(dict.fromkeys(row.explainer for row in rows))
    cases = list(dict.fromkeys(row.case for row in rows))
    overall: list[tuple[float, list[str]]] = []  # with the key to sort by
    by_case: list[tuple[float, list[str]]] = []
    credits: list[tuple[float, list[str]]] = []
    for name in names:
        own = [row for row in rows if row.explainer == name]
        parts = [[row for row in own if row.case == case] for case in cases]
        errors = [row.completeness_error for row in own if not math.isnan(row.completeness_error)]
        averages = [mean(mean(getattr(row, key) for row in part) for part in parts) for key in ("auc", "precision")]
        overall.append(
            (
                -averages[0],
                [
                    f"`{name}`",
                    *map(shown, averages),
                    shown(mean(mean(row.decoy_credit for row in part) for part in parts)),
                    f"{max(errors):.0e}" if errors else EMPTY,
                    str(len(own)),
                    f"{1e3 * mean(row.seconds for row in own):.0f} ms",
                ],
            )
        )
        for table, key in ((by_case, "auc"), (credits, "decoy_credit")):
            cells = [shown(mean(getattr(row, key) for row in part)) for part in parts]
            table.append((-averages[0], [f"`{name}`", *cells]))
    header = ["explainer", "AUC", "precision", "decoy credit", "completeness error", "models", "time per graph"]
    return "\n\n".join(
        [
            "Means over rules; the completeness error is the largest of all:",
            markdown(header, [line for _, line in sorted(overall)]),
            "AUC by rule, means over architectures:",
            markdown(["explainer", *(f"`{case}`" for case in cases)], [line for _, line in sorted(by_case)]),
            "Decoy credit by rule:",
            markdown(["explainer", *(f"`{case}`" for case in cases)], [line for _, line in sorted(credits)]),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables and write every number as CSV."""
    fast = [name for name in EXPLAINERS if name not in SLOW | TAKES_MINUTES]
    parser = argparse.ArgumentParser(prog="python -m benchmarks white_box", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add_explainers(parser, fast, help="default: all but slow ones")
    add("--cases", nargs="+", choices=CASES, metavar="NAME", default=list(CASES), help=f"of {', '.join(CASES)}")
    add("--graphs", type=int, default=GRAPHS, help="graphs per rule (default: %(default)s)")
    add("--carbons", type=int, default=9, help="size of the graphs; 3 for exact Shapley values (default: %(default)s)")
    add("--decoys", type=int, default=5, help="decoys attached to each graph (default: %(default)s)")
    given = parser.parse_args(arguments)
    start = time.perf_counter()
    rows = run(given.explainers, given.cases, given.graphs, carbons=given.carbons, decoys=given.decoys)
    write_results(given.out, "white_box", tables(rows), rows, Row, time.perf_counter() - start)


if __name__ == "__main__":
    main()
