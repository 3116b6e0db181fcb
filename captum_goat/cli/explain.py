"""``captum-goat explain``: attributions for a saved model and saved graphs, written to a file."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import BATCH_SIZE, EdgeMethod, explain_dataset
from captum_goat.bulk.files import file_format, load_attributions
from captum_goat.bulk.ranks import Ranks, joined
from captum_goat.bulk.targets import NAMES
from captum_goat.cli.options import add_choice_of_nodes, load_sources, only_graph, positive, target_type
from captum_goat.nodes.explainer import MAX_EDGES, explain_nodes
from captum_goat.search import EdgeSetSearch
from captum_goat.shapley import GuidedShapley

EPILOG = """examples:
  captum-goat explain --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out attributions.pt
  torchrun --nproc-per-node 2 -m captum_goat explain ...    (shares the work among processes, also of several machines)

To continue an interrupted run, call it again. Read the file with captum_goat.load_attributions; a .pt file is also
read by torch.load, a .parquet file by pandas and others."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    methods = ("goat", "guided_shapley", "edge_set_search")
    add("--method", choices=methods, default="goat", help="GOAt, Shapley values, or edge sets (default: goat)")
    add("--samples", type=positive, default=64, metavar="N", help="coalitions of guided_shapley (default: %(default)s)")
    add("--passes", type=positive, default=30, metavar="N", help="passes of edge_set_search (default: %(default)s)")
    places = ("message", "adjacency")
    add("--at", choices=places, help="where masks enter (default: message; other methods: edges are deleted)")
    fields = ("distinct", "repeated")
    add("--field", choices=fields, default="distinct", help="how gates are shared (default: distinct)")
    add("--gates", choices=("equal", "proportional"), default="equal", help="in what proportion (default: equal)")
    add("--out", type=Path, required=True, metavar="FILE", help="the file to write: .pt or .parquet (needs pyarrow)")
    add(
        "--target",
        type=target_type((*NAMES, "none"), none="none"),
        default="predicted",
        help=f"what to explain: {', '.join(NAMES)}, none (one number per graph) or a class (default: predicted)",
    )
    add("--undirected", action="store_true", help="give both directions of an edge their mean")
    add(
        "--columns",
        nargs="+",
        default=(),
        metavar="NAME",
        help="attributes of the graphs for the file, such as y smiles",
    )
    add("--batch-size", type=positive, metavar="N", help=f"graphs explained together (default: {BATCH_SIZE})")
    add("--max-edges", type=positive, metavar="N", help=f"for --nodes, edges at once (default: {MAX_EDGES})")
    add("--restart", action="store_true", help="do not continue an interrupted run (--nodes never does)")
    add_choice_of_nodes(parser)


def run(options: argparse.Namespace) -> int:
    """Explain a dataset, or nodes of a graph, and print a summary."""
    with joined(options.device) as device:
        file_format(options.out)  # raises before anything is loaded
        model, graphs = load_sources(options)
        method: EdgeMethod
        if options.method == "guided_shapley":
            method = GuidedShapley(model.to(device), n_samples=options.samples, at=options.at)
        elif options.method == "edge_set_search":
            method = EdgeSetSearch(model.to(device), options.passes, at=options.at)
        else:
            method = GOAtAttribution(model.to(device), options.field, at=options.at, gates=options.gates)
        shared = {"target": options.target, "out": options.out, "show_progress": not options.quiet}
        start = time.perf_counter()
        if options.nodes is None:
            if options.max_edges is not None:
                raise ValueError("Expected --max-edges with --nodes (got it without). Pass --batch-size for graphs.")
            given = {"undirected": options.undirected, "batch_size": options.batch_size, "columns": options.columns}
            explain_dataset(method, graphs, device=device, resume=not options.restart, **given, **shared)
        else:
            wrong = [name for name in ("undirected", "batch_size", "columns") if getattr(options, name)]
            if wrong or Ranks.current().count > 1:
                got = f"--{wrong[0].replace('_', '-')}" if wrong else "several"
                raise ValueError(
                    f"Expected --nodes in one process, without --undirected, --columns and --batch-size (got {got}). "
                    "Pass --max-edges to limit memory."
                )
            limit = options.max_edges or MAX_EDGES
            explain_nodes(method, only_graph(graphs).to(device), options.nodes or None, max_edges=limit, **shared)
        seconds = time.perf_counter() - start
        if Ranks.current().rank == 0:
            saved, unit = load_attributions(options.out), "graphs" if options.nodes is None else "nodes"
            error = f", largest completeness error {saved.meta['largest_error']:.1e}"
            print(
                f"{len(saved)} {unit} in {seconds:.1f} s ({len(saved) / seconds:.0f} {unit} per second)"
                f"{error if method.has_convergence_delta() else ''}: {options.out}"
            )
    return 0
