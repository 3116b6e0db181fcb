"""The report: tables as CSV, pictures and Markdown pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper.csv_files import write_csv
from benchmarks.paper.duels import Duel, all_duels
from benchmarks.paper.explainer_order import of_main_tables
from benchmarks.paper.options import GNNS, Options
from benchmarks.paper.pages.costs import times_page
from benchmarks.paper.pages.duels import duels_page
from benchmarks.paper.pages.fidelity import fidelity_page, search_page
from benchmarks.paper.pages.interpretation import discriminability_page, stability_page, truth_page
from benchmarks.paper.pages.page import joined
from benchmarks.paper.pages.protocol import protocol_page
from benchmarks.paper.pages.recipes import all_trials, recipes_page
from benchmarks.paper.pages.summary import summary_page
from benchmarks.paper.recipes import Area
from benchmarks.paper.results import Row, rows_of
from benchmarks.paper.study import Results, Study

FOLDER, TABLE, RECIPE_TABLE, DUEL_TABLE = "benchmark", "results.csv.gz", "recipes.csv", "duels.csv"
WRITTEN_BY = "Written by `python -m benchmarks paper`; nothing on this page is written by hand."

# Each page's title, and what the first page says of it.
PAGES = {
    "protocol": ("Protocol", "the rules, all explainers with their sources, the machine, what was left out"),
    "fidelity": ("Fidelity", "curves and areas with the same k for every method, verdicts task by task, robust ones"),
    "search": ("Fidelity with prefix search", "the authors' search, given to every method, beside the same k"),
    "truth": ("Ground truth", "how well scores find the edges of the motifs"),
    "discriminability": ("Discriminability", "how far explanations of different classes are apart, with pictures"),
    "stability": ("Stability", "how many graphs of a class have the same explanation, and what it looks like"),
    "times": ("Time and completeness", "seconds per graph of every method, and how far scores are from adding up"),
    "duels": ("Duels", "guided Shapley values and the search for edge sets, against others on every pair"),
    "recipes": ("Recipes", "ways to put the library's parts together, against occlusion and plain GOAt"),
}


def write_report(options: Options, studies: Sequence[Study]) -> Path:
    """Write ``benchmark.md`` and, in ``benchmark/``, the other pages, the tables and the pictures.

    Args:
        options: What was run, and where to write.
        studies: What the explainers did on each task. Models that are not the paper's are in the tables of accuracies,
            recipes, times and completeness, and in one of fidelities, so that the others stay what they are without
            them; recipes have a page of their own, if they can be compared.

    Returns:
        The path of the first page.
    """
    folder, everything = (
        options.out / FOLDER,
        Results(row for study in studies for row in rows_of(study.task, study.cells)),
    )
    write_csv(folder / TABLE, everything.rows, Row)
    recipes = recipes_page(studies, RECIPE_TABLE)
    if recipes:
        areas = [area for trial in all_trials(studies) for area in (trial.plus, trial.minus)]
        write_csv(folder / RECIPE_TABLE, areas, Area)
    if duels := all_duels(studies):
        write_csv(folder / DUEL_TABLE, duels, Duel)
    own = [study for study in studies if study.task.gnn in GNNS] or studies
    names = {study.task.gnn for study in own}
    rows = [row for row in everything.rows if row.gnn in names]
    results = Results(of_main_tables(rows, recipes_apart=bool(recipes)))
    texts = {
        "protocol": protocol_page(options, studies),
        "fidelity": fidelity_page(results, everything, folder),
        "search": search_page(results),
        "truth": truth_page(results),
        "discriminability": discriminability_page(results, own, folder, options.seed),
        "stability": stability_page(results, own, folder),
        "times": times_page(results, everything, folder),
        "duels": duels_page(studies, DUEL_TABLE),
        "recipes": recipes,
    }
    links = [f"- [results.csv]({FOLDER}/{TABLE}): every number, one per line, also of what has no table"]
    for name, text in texts.items():
        heading, what = PAGES[name]
        if text:
            _write(folder / f"{name}.md", f"{heading}: the GOAt paper's experiments", text)
            links.append(f"- [{heading}]({FOLDER}/{name}.md): {what}")
    text = summary_page(results, everything, links, options.out)
    return _write(options.out / f"{FOLDER}.md", "The GOAt paper's experiments, with all explainers", text)


def _write(path: Path, heading: str, text: str) -> Path:
    path.write_text(joined([f"# {heading}", WRITTEN_BY, text]) + "\n", encoding="utf-8")
    return path
