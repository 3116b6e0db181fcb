"""The report's page on recipes: which meet both conditions, on which tasks, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from benchmarks.markdown_tables import markdown
from benchmarks.paper.recipes import (
    COMPARED,
    CONTROL,
    MINUS,
    PLUS,
    RECIPES,
    UNPEELED_CONTROL,
    Area,
    Trial,
    areas_of_graphs,
    attributions_of,
    best_of,
    paired,
    trials_of,
)
from benchmarks.paper.study import Study
from benchmarks.paper.tables import GNN_TITLES, title
from captum_goat.compare.comparison import DECISIVE, EMPTY, number, signed

IDLE = 0.001  # an area under which no edges matter
CHANCE = 0.1  # the share of comparisons that random numbers may win without being flattered
VERDICTS = ("by the mean", "within two errors")

INTRODUCTION = """\
Ways to put the library's parts together, for whoever wants the edges that count and needs no scores that add up: GOAt
or integrated gradients (the upper half of the path, 4 points), masks of messages or at the adjacency, gates shared
equally or in proportion, plain or peeled. Two things are asked of a recipe, for the predicted class of all graphs,
with the same k for every method, edges really removed and nodes that stay: that its area under fid+ over sparsities
0.5 to 0.9 is **at least occlusion's** (by deleting edges one at a time, `occlusion_adjacency`; `occlusion` masks their
messages), and that its area under fid- is **not above plain GOAt's**. Areas are divided by the width of the curve,
taken graph by graph and compared in pairs; differences are means with their standard errors. A condition is met "by
the mean" if the mean difference says so, and "within two errors" if it misses by two of its standard errors or less,
which is easy where graphs are few. No recipe takes more than 8 attributions, whatever the size of a graph; occlusion
takes one pass for each edge."""

KINDNESS = """\
**These figures are kind to the recipes.** That edges are cut out and not masked (`removal="cut"`), that they are
peeled from both ends (`order="both"`) and that gradients are taken on the upper half of the path was chosen on graphs
of these same datasets. That two edges from the top are named for each from the bottom (`2_1`) was chosen, of one, two
and three, on 100 training graphs of each task, which are not among those measured here. And the best of several recipes
for a task is chosen by the very figures that it is then praised for; the table of one recipe for all tasks does without
that choice."""

SAME = """\
Masks at the adjacency differ from masks of messages only where a model divides by degrees or takes means: here in the
textbook GCN. The paper's three models sum over edges, and there `goat_adjacency` is `goat`, up to rounding, and so
with the peeled ones."""


def all_trials(studies: Sequence[Study]) -> list[Trial]:
    """Return the trials of all tasks."""
    return [trial for study in studies for trial in trials_of(study)]


def recipes_page(studies: Sequence[Study], csv: str) -> str:
    """Return the page.

    Args:
        studies: What the explainers did on each task, those of models that are not the paper's included.
        csv: Where the numbers are.

    Returns:
        The page; empty if no peeled recipe was run, or nothing to compare it with.
    """
    trials = all_trials(studies)
    if not any(trial.explainer in RECIPES and "peeled" in trial.explainer for trial in trials):
        return ""
    left_out = idle_tasks(trials)
    counted = [trial for trial in trials if trial.task not in left_out]
    parts = [
        f"{INTRODUCTION} All numbers are in [{csv}]({csv}).",
        "\n\n".join(
            paragraph for paragraph in (KINDNESS, control_in_words(studies), SAME, idle_in_words(left_out)) if paragraph
        ),
        "## One recipe for all tasks",
        everywhere(counted),
        "## The best recipe for each task",
        in_words(counted),
        by_task(counted, studies),
    ]
    for dataset in dict.fromkeys(trial.task[0] for trial in trials):
        parts += [f"## {title(dataset)}, areas", "Under fid+ (more is better), minus occlusion's:"]
        parts += [area_table(trials, dataset, PLUS), "Under fid- (less is better), minus GOAt's:"]
        parts += [area_table(trials, dataset, MINUS)]
    return "\n\n".join(parts)


def idle_tasks(trials: Sequence[Trial]) -> list[tuple[str, str]]:
    """Return the tasks whose predictions hardly depend on any edge."""
    largest: dict[tuple[str, str], float] = {}
    for trial in trials:
        largest[trial.task] = max(largest.get(trial.task, 0.0), abs(trial.plus.value), abs(trial.minus.value))
    return [task for task, area in largest.items() if area < IDLE]


def idle_in_words(tasks: Sequence[tuple[str, str]]) -> str:
    """Say which tasks are not counted."""
    if not tasks:
        return ""
    return (
        f"Not counted is what has nothing to explain: {'; '.join(title(*task) for task in tasks)}. Predictions hardly "
        f"depend on edges there: no method has an area of {IDLE} or more."
    )


def _of_task(trials: Sequence[Trial]) -> dict[tuple[str, str], list[Trial]]:
    """Return the recipes' trials of each task, without those of occlusion and of random numbers."""
    trials_by_task: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        if trial.explainer in RECIPES:
            trials_by_task.setdefault(trial.task, []).append(trial)
    return trials_by_task


def difference(area: Area) -> str:
    """Return an area's difference with its standard error; a dash where it would be compared with itself."""
    return signed(area.difference, area.difference_error)


def everywhere(trials: Sequence[Trial]) -> str:
    """Return a table that counts for each recipe, used on all tasks, on how many it meets the conditions."""
    lines = []
    for name in COMPARED:
        own = [trial for trial in trials if trial.explainer == name]
        if own:
            lines.append(
                [
                    f"`{name}`",
                    str(attributions_of(name) or EMPTY),
                    *(_share([trial.meets(errors) for trial in own]) for errors in (0.0, DECISIVE)),
                    *(_share([trial.plus.is_met(errors) for trial in own]) for errors in (0.0, DECISIVE)),
                    *(_share([trial.minus.is_met(errors) for trial in own]) for errors in (0.0, DECISIVE)),
                    _mean([-trial.plus.shortfall for trial in own]),
                    _mean([trial.minus.shortfall for trial in own]),
                ]
            )
    header = ["recipe", "attributions", "both, by the mean", "both, within two errors"]
    header += ["fid+, by the mean", "fid+, within two errors", "fid-, by the mean", "fid-, within two errors"]
    return markdown([*header, "fid+ minus occlusion's, mean of tasks", "fid- minus GOAt's, mean of tasks"], lines)


def _share(conditions: Sequence[bool]) -> str:
    return f"{sum(conditions)} of {len(conditions)}"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):+.3f}"


def by_task(trials: Sequence[Trial], studies: Sequence[Study]) -> str:
    """Return a table with the recipes that meet both conditions on each task, and the best one."""
    accuracies = {
        (study.task.dataset, study.task.gnn): study.task.training.test_accuracy
        for study in studies
        if study.task.held_out
    }
    lines = []
    for task, own in _of_task(trials).items():
        best = best_of(own)
        met = {verdict: [f"`{trial.explainer}`" for trial in own if trial.verdict == verdict] for verdict in VERDICTS}
        lines.append(
            [
                title(*task),
                number(accuracies[task], 2),
                *(", ".join(met[verdict]) or "none" for verdict in VERDICTS),
                f"`{best.explainer}`" if best.verdict != "no" else f"none; nearest `{best.explainer}`",
                str(attributions_of(best.explainer)),
                difference(best.plus),
                difference(best.minus),
            ]
        )
    header = ["dataset, model", "test accuracy", "meet both by the mean", "only within two errors", "best"]
    return markdown([*header, "attributions", "its fid+ minus occlusion's", "its fid- minus GOAt's"], lines)


def in_words(trials: Sequence[Trial]) -> str:
    """Say on how many tasks some recipe meets both conditions, and by how much the best ones fail on the others."""
    best = [best_of(own) for own in _of_task(trials).values()]
    counts = {verdict: sum(trial.verdict == verdict for trial in best) for verdict in VERDICTS}
    text = (
        f"On {counts[VERDICTS[0]]} of {len(best)} tasks a recipe meets both conditions by the mean, on "
        f"{counts[VERDICTS[1]]} more within two errors. The best is, of those that meet most, the one with the "
        "largest fid+ minus fid-; `goat` counts as a recipe."
    )
    failed = [trial for trial in best if trial.verdict == "no"]
    if not failed:
        return text
    figures = "; ".join(
        f"{title(*trial.task)}: `{trial.explainer}` has fid+ {_against(trial.plus)} against occlusion and fid- "
        f"{_against(trial.minus)} against GOAt"
        for trial in failed
    )
    return f"{text} **No recipe does on {len(failed)}.** The largest fid+ minus fid- there: {figures}."


def _against(area: Area) -> str:
    return "the same" if area.explainer == area.reference else difference(area)


def control_in_words(studies: Sequence[Study]) -> str:
    """Say how far random numbers that are peeled are from random numbers: not far, or the protocol flatters rounds."""
    differences: dict[str, list[tuple[float, float]]] = {PLUS: [], MINUS: []}
    for study in studies:
        peeled, plain = study.cell(CONTROL), study.cell(UNPEELED_CONTROL)
        if peeled is not None and plain is not None and study.task.held_out:
            for metric, pairs in differences.items():
                pairs.append(paired(areas_of_graphs(peeled, metric), areas_of_graphs(plain, metric)))
    if not differences[PLUS]:
        return ""
    parts = [
        f"{name} by {_mean([value for value, _ in differences[metric]])} on average over {len(differences[metric])} "
        f"tasks, and by more than two standard errors on {sum(abs(d) > DECISIVE * e for d, e in differences[metric])}"
        for metric, name in ((PLUS, "fid+"), (MINUS, "fid-"))
    ]
    helped = sum(d > DECISIVE * e for d, e in differences[PLUS]) + sum(-d > DECISIVE * e for d, e in differences[MINUS])
    flattered = helped > CHANCE * 2 * len(differences[PLUS])
    return (
        f"**The wrapper itself is {'' if flattered else 'not '}flattered**: `{CONTROL}`, random numbers in rounds, "
        f"beside `{UNPEELED_CONTROL}`, differs in {', and in '.join(parts)} (one task in twenty would, by chance)."
    )


def area_table(trials: Sequence[Trial], dataset: str, metric: str) -> str:
    """Return one dataset's areas under a curve with paired differences, one column per model."""
    area_by_column = {
        (trial.explainer, trial.task[1]): trial.plus if metric == PLUS else trial.minus
        for trial in trials
        if trial.task[0] == dataset
    }
    gnns = list(dict.fromkeys(gnn for _, gnn in area_by_column))
    lines = []
    for name in COMPARED:
        areas = [area_by_column.get((name, gnn)) for gnn in gnns]
        if any(areas):
            counts = sorted({area.n for area in areas if area is not None})
            lines.append([f"`{name}`", *map(_with_difference, areas), "/".join(map(str, counts))])
    return markdown(["recipe", *(GNN_TITLES[gnn] for gnn in gnns), "graphs"], lines)


def _with_difference(area: Area | None) -> str:
    if area is None:
        return EMPTY
    return number(area.value) if math.isnan(area.difference) else f"{area.value:.3f} ({difference(area)})"
