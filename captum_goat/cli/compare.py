"""``captum-goat compare``: a table of explainers on a saved model and saved graphs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
from captum.attr import Attribution
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.cli.options import add_choice_of_nodes, load_sources, only_graph, positive, target_type
from captum_goat.cli.saved_files import find_class
from captum_goat.compare.explainers import EXPLAINERS
from captum_goat.compare.run import BUDGET, DEFAULT, compare
from captum_goat.compare.subject import SPARSITIES
from captum_goat.inputs.targets import node_numbers

# Graphs and no nodes, or one graph and nodes of it; and their labels.
Chosen: TypeAlias = tuple[list[Data] | Data, Tensor | None, list[Any]]
EPILOG = """example:
  captum-goat compare --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out comparison

Take graphs that the model was not trained on, if you can."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add(
        "--explainers",
        nargs="+",
        default=list(DEFAULT),
        metavar="NAME",
        help=f"of {', '.join(EXPLAINERS)}; or your own as module:ClassName (default: {' '.join(DEFAULT)})",
    )
    add("--limit", type=positive, default=100, metavar="N", help="graphs, or nodes, drawn at random (default: 100)")
    target = target_type(("predicted", "label"), none="predicted")
    add("--target", type=target, help="predicted, label or a class (default: predicted)")
    add("--hops", type=int, metavar="N", help="for --nodes, message passing layers; one more where degrees count (GCN)")
    add("--sparsities", type=float, nargs="+", default=list(SPARSITIES), metavar="SHARE", help="of edges left out")
    add("--node-policy", choices=("stay", "leave"), default="stay", help="nodes without edges (default: stay)")
    add("--reference", default="goat", metavar="NAME", help="what the others are compared with (default: goat)")
    add("--budget", type=float, default=BUDGET, metavar="SECONDS", help="of each explainer (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of random numbers (default: 0)")
    add("--out", type=Path, metavar="DIR", help="folder for the table, as Markdown and CSV, and for a picture")
    add_choice_of_nodes(parser)


def run(options: argparse.Namespace) -> int:
    """Compare explainers, and print the table."""
    _check_folder(options.out)
    explainers = [_explainer(name) for name in options.explainers]
    model, graphs = load_sources(options)
    draw = _some_graphs if options.nodes is None else _some_nodes
    chosen, nodes, labels = draw(options, graphs)
    comparison = compare(
        model.to(options.device),
        chosen,
        explainers,
        target=_classes(labels) if options.target == "label" else options.target,
        nodes=nodes,
        num_hops=options.hops,
        sparsities=options.sparsities,
        node_policy=options.node_policy,
        reference=options.reference,
        budget=options.budget,
        seed=options.seed,
        show_progress=not options.quiet,
    )
    print(comparison)
    if options.out is not None:
        print(f"\nThe table is in {comparison.write(options.out)}.")
    return 0


def _check_folder(folder: Path | None) -> None:
    """Raise ValueError if a folder cannot be made, before the work is done."""
    for part in () if folder is None else (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"Expected a folder for --out (got {part}, which is a file).")


def _explainer(name: str) -> Any:
    """Return the name of an explainer, a class of Captum, or an object of the user's own class."""
    if ":" not in name:
        return name
    try:
        own = find_class(name)
        return own if issubclass(own, Attribution) else own()
    except TypeError as error:
        raise ValueError(f"Expected {name} as a class that can be called without arguments (got: {error}).") from error


def _some_graphs(options: argparse.Namespace, graphs: Sequence[Data]) -> Chosen:
    drawn = (graphs[number] for number in _drawn(len(graphs), options.seed))
    chosen = list(islice((graph.to(options.device) for graph in drawn if graph.num_edges), options.limit))
    return chosen, None, [graph.y for graph in chosen]


def _some_nodes(options: argparse.Namespace, graphs: Sequence[Data]) -> Chosen:
    """Draw some of the chosen nodes, or of all nodes that edges lead to, with their graph and labels."""
    data = only_graph(graphs).to(options.device)
    nodes = data.edge_index[1].unique()
    if options.nodes:
        nodes = node_numbers(options.nodes, data.num_nodes, options.device)
    nodes = nodes.cpu()[_drawn(len(nodes), options.seed)[: options.limit]]
    return data, nodes, [None] * len(nodes) if data.y is None else list(data.y[nodes.to(data.y.device)])


def _drawn(count: int, seed: int) -> list[int]:
    numbers: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return numbers


def _classes(labels: Sequence[Any]) -> list[int]:
    classes = [int(label) for label in labels if isinstance(label, Tensor) and label.numel() == 1]
    if len(classes) < len(labels):
        raise ValueError("Expected one label y per graph, or node, for --target label (got none, or several).")
    return classes
