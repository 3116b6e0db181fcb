"""The report's page on duels: guided Shapley values and the search for edge sets against others, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.markdown_tables import markdown
from benchmarks.paper.duels import GAIN, PLAN, ROBUST, Duel, all_duels, corrected
from benchmarks.paper.pages.page import joined
from benchmarks.paper.recipes import MINUS, PLUS
from benchmarks.paper.study import Study
from benchmarks.paper.tables import title
from benchmarks.paper.verdicts import VERDICTS, Verdict
from captum_goat.compare.comparison import EMPTY, number, signed

INTRODUCTION = """\
Each explainer of a row stands against another one on the graphs that both explained, predicted class, edges really
removed, nodes stay. "Better" and "worse" mean a paired difference of more than two standard errors and of more than
0.0005; behind it, in brackets, the counts after Holm's correction for all comparisons of the table, which needs larger
differences. Slow explainers have fewer graphs: with 20 graphs only large differences are seen, so read "alike" together
with the differences below. The search for edge sets optimises what fidelity measures; its control are swaps drawn at
random (`random_swaps`), which are measured in the same way."""

MEASURES = {
    GAIN: "gain (area under fid+ minus area under fid-, sparsities 0.5 to 0.9)",
    PLUS: "area under fid+ (more is better)",
    MINUS: "area under fid- (less is better)",
    ROBUST: "robust fid+ minus robust fid-",
}


def duels_page(studies: Sequence[Study], csv: str) -> str:
    """Return the page.

    Args:
        studies: What the explainers did on each task, those of models that are not the paper's included.
        csv: Where the numbers are.

    Returns:
        The page; empty if nothing was run that could be compared.
    """
    duels = all_duels(studies)
    if not duels:
        return ""
    parts = [
        f"{INTRODUCTION} All numbers are in [{csv}]({csv}).",
        idle_in_words(studies),
        "## In short",
        in_short(duels),
    ]
    parts += ["## Where they lose", losses(duels)]
    for own, others, metrics in PLAN:
        for metric in metrics:
            chosen = [duel for duel in duels if (duel.explainer, duel.metric) == (own, metric)]
            if chosen:
                parts += [f"## `{own}`: {MEASURES[metric]}", difference_table(chosen, others)]
    return joined(parts)


def in_short(duels: Sequence[Duel]) -> str:
    """Return the table of counts."""
    verdicts = dict(zip(duels, corrected(duels), strict=True))
    lines = []
    for own, others, metrics in PLAN:
        for metric in metrics:
            for other in others:
                chosen = [duel for duel in duels if (duel.explainer, duel.metric, duel.other) == (own, metric, other)]
                if chosen:
                    plain = _counts([duel.verdict for duel in chosen])
                    held = _counts([verdicts[duel] for duel in chosen])
                    mean = f"{fmean(duel.difference for duel in chosen):+.3f}"
                    name = MEASURES[metric].split(" (")[0]
                    lines.append([f"`{own}`", f"`{other}`", name, f"{plain} ({held})", mean, _graphs(chosen)])
    header = ["explainer", "against", "by", "better / alike / worse", "mean difference", "graphs"]
    return markdown(header, lines)


def losses(duels: Sequence[Duel]) -> str:
    """Return every duel that is lost, with its figures, the largest first."""
    lost = sorted((duel for duel in duels if duel.verdict == "worse"), key=lambda duel: duel.advantage)
    if not lost:
        return "Nowhere."
    lines = [
        [
            f"`{duel.explainer}`",
            f"`{duel.other}`",
            title(duel.dataset, duel.gnn),
            MEASURES[duel.metric].split(" (")[0],
            f"{number(duel.value)} against {number(duel.other_value)}",
            signed(duel.difference, duel.difference_error),
            str(duel.n),
        ]
        for duel in lost
    ]
    return markdown(["explainer", "against", "dataset, model", "by", "values", "difference", "graphs"], lines)


def difference_table(duels: Sequence[Duel], others: Sequence[str]) -> str:
    """Return the paired differences, one line per dataset and model; those that are decided are bold."""
    lines = []
    for task in dict.fromkeys((duel.dataset, duel.gnn) for duel in duels):
        found = {duel.other: duel for duel in duels if (duel.dataset, duel.gnn) == task}
        own = next(iter(found.values()))
        cells = []
        for other in others:
            text = signed(found[other].difference, found[other].difference_error) if other in found else EMPTY
            cells.append(f"**{text}**" if other in found and found[other].verdict != "alike" else text)
        values = {duel.value for duel in found.values() if duel.n == max(duel.n for duel in found.values())}
        lines.append([title(own.dataset, own.gnn), number(next(iter(values))), *cells])
    return markdown(["dataset, model", "value", *(f"minus `{other}`" for other in others)], lines)


def idle_in_words(studies: Sequence[Study]) -> str:
    """Say which models have not learned anything."""
    idle = [
        f"{title(study.task.dataset, study.task.gnn)} (test accuracy {study.task.training.test_accuracy:.2f})"
        for study in studies
        if study.task.held_out and study.task.training.test_accuracy <= 1.1 / max(2, len(study.task.labels.unique()))
    ]
    return f"Counted, although the model has not learned anything: {'; '.join(idle)}." if idle else ""


def _counts(verdicts: Sequence[Verdict]) -> str:
    return " / ".join(str(verdicts.count(verdict)) for verdict in VERDICTS)


def _graphs(duels: Sequence[Duel]) -> str:
    counts = sorted(duel.n for duel in duels)
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
