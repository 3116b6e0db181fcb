"""``captum-goat compare``: a table of explainers on a saved model and saved graphs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data

from captum_goat.cli.options import check_device, command_parser, load_sources, positive, run_command, target_type
from captum_goat.cli.saved_files import find_class, load_graphs
from captum_goat.compare.comparison import Comparison
from captum_goat.compare.explainers import EXPLAINERS, EdgeExplainer
from captum_goat.compare.measures import SPARSITIES
from captum_goat.compare.run import BUDGET, DEFAULT, compare
from captum_goat.inputs.node_selection import node_numbers

LIMIT = 100
EPILOG = """example:
  captum-goat compare --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out comparison

Take graphs that the model was not trained on, if you can."""


class Chosen(NamedTuple):
    """What is explained: graphs with their labels, or nodes of one graph."""

    graphs: list[Data] | Data
    labels: Sequence[Tensor | None]
    nodes: Tensor | None = None


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = command_parser("compare", "Compare explainers on your model and graphs under the same conditions.", EPILOG)
    add = made.add_argument
    add(
        "--explainers",
        nargs="+",
        default=list(DEFAULT),
        metavar="NAME",
        help=f"of {', '.join(EXPLAINERS)}; or your own as module:ClassName (default: {' '.join(DEFAULT)})",
    )
    add(
        "--limit",
        type=positive,
        default=LIMIT,
        metavar="N",
        help="graphs, or nodes, drawn at random (default: %(default)s)",
    )
    add("--training-data", type=Path, metavar="PATH", help="graphs, as --data, for explainers that have to learn first")
    add(
        "--target",
        type=target_type(("predicted", "label"), none="predicted"),
        help="predicted, label or a class (default: predicted)",
    )
    add(
        "--nodes",
        type=int,
        nargs="*",
        metavar="NODE",
        help="explain these nodes of one graph, or all if none are given, of a model with a row of output per node",
    )
    add("--hops", type=int, metavar="N", help="for --nodes, message passing layers; one more where degrees count (GCN)")
    add("--sparsities", type=float, nargs="+", default=list(SPARSITIES), metavar="SHARE", help="of edges left out")
    add("--node-policy", choices=("stay", "leave"), default="stay", help="nodes without edges (default: stay)")
    add("--reference", default="goat", metavar="NAME", help="what the others are compared with (default: goat)")
    add("--budget", type=float, default=BUDGET, metavar="SECONDS", help="of each explainer (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of random numbers (default: 0)")
    add("--out", type=Path, metavar="DIR", help="folder for the table, as Markdown and CSV, and for a picture")
    add("--quiet", action="store_true", help="no progress bar")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), arguments, _run)


def _run(options: argparse.Namespace) -> int:
    _check_folder(options.out)
    check_device(options.device)
    comparison = _compare(options)
    print(comparison)
    if options.out is not None:
        print(f"\nThe table is in {comparison.write(options.out)}.")
    return 0


def _check_folder(folder: Path | None) -> None:
    """Raise ValueError if a folder cannot be made, before the work is done."""
    for part in () if folder is None else (folder, *folder.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"Expected a folder for --out (got {part}, which is a file).")


def _compare(options: argparse.Namespace) -> Comparison:
    explainers = [_explainer(name) for name in options.explainers]
    model, graphs = load_sources(options)
    chosen = (_some_graphs if options.nodes is None else _some_nodes)(options, graphs)
    return compare(
        model.to(options.device),
        chosen.graphs,
        explainers,
        target=_classes(chosen.labels) if options.target == "label" else options.target,
        nodes=chosen.nodes,
        num_hops=options.hops,
        training_graphs=_training_graphs(options),
        sparsities=options.sparsities,
        node_policy=options.node_policy,
        reference=options.reference,
        budget=options.budget,
        seed=options.seed,
        show_progress=not options.quiet,
    )


def _explainer(name: str) -> str | EdgeExplainer:
    """Return the name of an explainer, or an object of the user's own class."""
    if ":" not in name:
        return name
    try:
        made: EdgeExplainer = find_class(name)()
    except TypeError as error:
        raise ValueError(
            f"Expected {name} to be a class that can be called without arguments (got: {error})."
        ) from error
    return made


def _some_graphs(options: argparse.Namespace, graphs: Sequence[Data]) -> Chosen:
    """Draw some of the graphs that have edges."""
    drawn = (graphs[number] for number in _drawn(len(graphs), options.seed))
    chosen = list(islice((graph.to(options.device) for graph in drawn if graph.num_edges), options.limit))
    return Chosen(chosen, [graph.y for graph in chosen])


def _some_nodes(options: argparse.Namespace, graphs: Sequence[Data]) -> Chosen:
    """Draw some of the chosen nodes, or of all nodes that edges lead to."""
    if len(graphs) != 1:
        raise ValueError(f"Expected one graph for --nodes (got {len(graphs)}).")
    data = graphs[0].to(options.device)
    nodes = (
        node_numbers(options.nodes, data.num_nodes, options.device) if options.nodes else data.edge_index[1].unique()
    )
    nodes = nodes.cpu()[_drawn(len(nodes), options.seed)[: options.limit]]
    return Chosen(data, [None if data.y is None else data.y[node] for node in nodes.tolist()], nodes)


def _drawn(count: int, seed: int) -> list[int]:
    """Return the integers below ``count`` in random order."""
    numbers: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return numbers


def _training_graphs(options: argparse.Namespace) -> list[Data]:
    if options.training_data is None:
        return []
    graphs = load_graphs(options.training_data, trust_pickle=options.trust_pickle)
    return [graph.to(options.device) for graph in graphs if graph.num_edges]


def _classes(labels: Sequence[Tensor | None]) -> list[int]:
    classes = [int(label) for label in labels if isinstance(label, Tensor) and label.numel() == 1]
    if len(classes) < len(labels):
        raise ValueError("Expected one label y per graph, or node, for --target label (got none, or several).")
    return classes
