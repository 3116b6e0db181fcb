"""The rules of the comparison, as the report states them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarks.explainers import EXPLAINERS
from benchmarks.markdown_tables import markdown
from benchmarks.paper.machine import describe_machine
from benchmarks.paper.options import Options
from benchmarks.paper.pages.page import joined
from benchmarks.paper.study import Study
from benchmarks.paper.tables import title
from benchmarks.paper.tasks import FIT_GRAPHS, NUM_HOPS
from captum_goat.compare.comparison import EMPTY

RULES = f"""\
- Held-out test graphs of every class are explained, in a seeded order in which classes take turns. Of nodes those are
  explained that are in the test set and on an edge of a motif: each is a graph of its own, the {NUM_HOPS}-hop
  computation graph, with the node's row as output. Graphs without edges are left out.
- The predicted class is explained. "Predicted" counts all graphs; "correct", the paper's variant, only those whose
  predicted class is the true one.
- Every method returns signed scores, and gets the same k: of M edges the best floor((1 - sparsity) M), and one at
  least. Both directions of an undirected edge are one edge, with the sum of their scores. (Computation graphs are
  directed, because at their border only one direction counts: there every direction is an edge.)
- Fixed-k curves over sparsities 0.5 to 0.9 come first. The prefix search of the authors' code is reported separately,
  and every method has it, random included.
- Edges are really removed. Nodes that are left without edges stay in the pool ("stay") or leave it ("leave", the
  authors' code). A classifier of nodes has no pool: there both are the same.
- Differences are paired, on the same graphs, against GOAt; a slow method has fewer graphs, which are the first of the
  same order, and its difference is taken on these.
- Every explainer works on its own copy of the model. Explainers that learn first do so on {FIT_GRAPHS} training graphs
  at most.
- A model that is not the paper's, the textbook GCN, is in the tables of recipes, accuracies, times and completeness,
  and has one of fidelities; what is counted over datasets and models elsewhere is counted without it. So it is with
  recipes, of which most equal others on the paper's models."""


def protocol_page(options: Options, studies: Sequence[Study]) -> str:
    """Return the rules, the explainers, how many graphs each had, and what could not be run."""
    lines = []
    studies = [study for study in studies if study.task.held_out]
    for name in dict.fromkeys((*options.explainers, *(options.other_explainers or ()))):
        kind = EXPLAINERS[name]
        counts = [len(cell.explanation.scores) for study in studies if (cell := study.cell(name)) and cell.explanation]
        number = (
            EMPTY
            if not counts
            else str(min(counts))
            if min(counts) == max(counts)
            else f"{min(counts)} to {max(counts)}"
        )
        lines.append([f"`{name}`", getattr(kind, "citation", EMPTY), number])
    data = [
        f"- {title(study.task.dataset, study.task.gnn)}: {study.task.origin} data, {len(study.task.graphs)} graphs, "
        f"{int(study.task.correct.sum())} of them predicted correctly"
        for study in studies
    ]
    table = markdown(["explainer", "source", "graphs explained"], lines)
    machine = describe_machine(options, sum(map(_processor_time, studies)))
    return joined([RULES, "## Explainers", table, "## Graphs", "\n".join(data), _left_out(studies), machine])


def _processor_time(study: Study) -> float:
    """Return the seconds of all explanations of a task: of single graphs, of batches and of fitting."""
    total = 0.0
    for explanation in (cell.explanation for cell in study.cells):
        if explanation is not None:
            batch = 0.0 if math.isnan(explanation.seconds_in_batch) else explanation.seconds_in_batch
            total += float(explanation.seconds_alone.sum()) + batch * len(explanation.scores)
            total += explanation.seconds_to_fit
    return total


def _left_out(studies: Sequence[Study]) -> str:
    """Return what could not be run, and why."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for study in studies:
        for cell in study.cells:
            if cell.skipped:
                tasks.setdefault((cell.explainer, cell.skipped), []).append(title(study.task.dataset, study.task.gnn))
    names: dict[tuple[str, str], list[str]] = {}  # those with the same reason on the same tasks together
    for (name, reason), titles in tasks.items():
        where = "all" if len(titles) == len(studies) > 1 else "; ".join(titles)
        names.setdefault((where, reason), []).append(f"`{name}`")
    lines = [f"- {', '.join(some)} on {where}: {reason}" for (where, reason), some in names.items()]
    return "## Left out\n\n" + "\n".join(lines) if lines else ""
