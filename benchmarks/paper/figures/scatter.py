"""Explanation embeddings in the plane."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
except ImportError as error:
    raise ImportError("The benchmark's scatter plots need scikit-learn: pip install captum-goat[demo]") from error

from benchmarks.figure_style import new_figure, save
from benchmarks.paper.measurements import PAPER_SPARSITY, Key, original_embeddings
from benchmarks.paper.study import Study
from benchmarks.paper.tables import title

COLUMNS, MOST_PANELS = 4, 11  # beside that of the original graphs
FEWEST_SHOWN = 20  # graphs: fewer points show nothing


def draw_embeddings(study: Study, names: Sequence[str], path: Path, seed: int = 0) -> Path:
    """Draw the embeddings of correctly predicted graphs' explanations by t-SNE, one panel per explainer.

    The last panel has the original graphs.

    Args:
        study: What the explainers did on a task.
        names: The explainers to draw, as many as the picture holds; those with few graphs are left out.
        path: Where to write.
        seed: Where t-SNE's random numbers start.

    Returns:
        The path.
    """
    task = study.task
    key = Key("discriminability", task.policies[-1], "fixed", str(PAPER_SPARSITY))
    embeddings = [(name, cell.measurements.embeddings.get(key)) for name in names if (cell := study.cell(name))]
    shown = [(name, rows) for name, rows in embeddings if rows is not None and len(rows) >= FEWEST_SHOWN][:MOST_PANELS]
    shown.append(("original graphs", original_embeddings(task)))
    columns = min(COLUMNS, len(shown))
    figure, axes = new_figure(-(-len(shown) // columns), columns, 2.4, 2.1)
    panels = [axis for row in axes for axis in row]
    for axis, (name, rows) in zip(panels, shown, strict=False):
        correct = task.correct[: len(rows)]
        points = in_the_plane(rows[correct].double().numpy(), seed)
        classes = task.predicted[: len(rows)][correct].numpy()
        axis.scatter(points[:, 0], points[:, 1], c=classes, s=8, cmap="tab10", vmin=0, vmax=9, alpha=0.7)
        axis.set_title(name, fontsize=9)
    for axis in panels[len(shown) :]:
        axis.set_axis_off()
    for axis in panels:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.suptitle(f"{title(task.dataset, task.gnn)}, sparsity {PAPER_SPARSITY}: explanations by class", fontsize=10)
    return save(figure, path)


def in_the_plane(rows: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Map rows to points by t-SNE from the principal components; by these alone where rows are few or all equal.

    Args:
        rows: The embeddings ``[M, H]``.
        seed: Where the random numbers start.

    Returns:
        The points ``[M, 2]``.
    """
    if len(rows) < 3 or len(np.unique(rows, axis=0)) < 3:
        points = np.zeros((len(rows), 2))
        points[:, : min(2, rows.shape[1])] = (rows - rows.mean(axis=0, keepdims=True) if len(rows) else rows)[:, :2]
        return points
    components: NDArray[np.float64] = PCA(n_components=2, random_state=seed).fit_transform(rows)
    if len(rows) < 10:
        return components
    start = components / max(components[:, 0].std(), 1e-12) * 1e-4  # as scikit-learn scales it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        positions: NDArray[np.float64] = TSNE(
            perplexity=min(30.0, (len(rows) - 1) / 3), init=start, random_state=seed
        ).fit_transform(rows)
    return positions
