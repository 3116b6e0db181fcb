"""Train a GIN on BA-2Motifs, explain it with GOAt beside IntegratedGradients, and draw what both find.

Run ``python examples/demo.py`` (or ``make demo``). It takes about half a minute, prints a table, and writes one picture
per class and an HTML page to the folder ``demo``. It needs the extra ``demo``: ``pip install captum-goat[demo]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.compare import Comparison, compare
from captum_goat.datasets import ba_2motifs
from captum_goat.models import GraphClassifier, train_model
from captum_goat.plot import visualize_graph_attr_multiple

CLASS_NAMES = ("cycle", "house")
TITLES = {"goat": "GOAt", "integrated_gradients": "IntegratedGradients"}
LEGEND = """
fid+                how far the probability of the class drops without the highest-scored edges (more is better)
fid-                how far it drops if only these edges are left (less is better); gain is fid+ minus fid-
AUC                 how well the scores tell the edges of the motif from the others; 1 is best, 0.5 is chance
completeness error  how far, at worst, a graph's scores are from adding up to f(graph) - f(graph without edges)"""


def draw(comparison: Comparison, graphs: list[Data], classes: Tensor, label: int, folder: Path) -> Path:
    """Draw the first correctly classified graph of a class as both methods explain it."""
    of_class = [index for index, graph in enumerate(graphs) if int(graph.y) == label]
    index = next((index for index in of_class if int(classes[index]) == label), of_class[0])
    scores = {name: comparison.scores[name][index] for name in TITLES}
    figure, _ = visualize_graph_attr_multiple(
        {f"{TITLES[name]}: edges add up to {float(values.sum()):.2f}": values for name, values in scores.items()},
        graphs[index],
        ground_truth=graphs[index].edge_label,
        title=f"Which edges tell the GIN that this graph has a {CLASS_NAMES[int(classes[index])]}?",
        fig_size=(11, 5.5),
        use_pyplot=False,
    )
    path = folder / f"ba_2motifs_{CLASS_NAMES[label]}.png"
    figure.savefig(path, dpi=150)
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, explain, compare and draw.

    Args:
        arguments: The command line; ``None`` for that of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder of the output (default: demo)")
    parser.add_argument("--graphs", type=int, default=1000, help="number of graphs (default: 1000)")
    parser.add_argument("--epochs", type=int, default=60, help="epochs of training (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of graphs, model and training (default: 0)")
    options = parser.parse_args(arguments)

    graphs = ba_2motifs(options.graphs, options.seed)
    torch.manual_seed(options.seed)
    model = GraphClassifier("gin", in_channels=10, hidden_channels=32, num_classes=2)
    result = train_model(model, graphs, epochs=options.epochs, seed=options.seed)
    test = [graphs[index] for index in result.test_set.tolist()]
    print(f"GIN on BA-2Motifs: test accuracy {result.test_accuracy:.3f} ({len(test)} graphs)\n")

    with torch.no_grad():
        classes = torch.cat([model(graph.x, graph.edge_index) for graph in test]).argmax(dim=1)
    comparison = compare(model, test, list(TITLES), target=classes, show_progress=False)
    print(f"{comparison}\n{LEGEND}\n")

    options.output.mkdir(parents=True, exist_ok=True)
    for label in sorted({int(graph.y) for graph in test}):
        print(f"Picture: {draw(comparison, test, classes, label, options.output)}")
    page = comparison.write_html(options.output / "report.html", model=model, class_names=CLASS_NAMES, limit=40)
    print(f"Page:    {page} (open it in a browser: the graphs, their edges and scores, and what the model looks at)")


if __name__ == "__main__":
    torch.set_num_threads(1)  # layers this small gain nothing from threads, and lose a lot on a busy machine
    main()
