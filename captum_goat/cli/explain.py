"""``captum-goat explain``: attributions for a saved model and saved graphs, written to a file."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch_geometric.data import Data

from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import explain_dataset
from captum_goat.bulk.files import SavedAttributions, file_format
from captum_goat.bulk.graph_batches import BATCH_SIZE
from captum_goat.bulk.ranks import Ranks, joined
from captum_goat.bulk.targets import NAMES
from captum_goat.cli.options import (
    add_method_options,
    command_parser,
    load_sources,
    method_of,
    positive,
    run_command,
    target_type,
)
from captum_goat.nodes.explainer import explain_nodes
from captum_goat.nodes.results import save_nodes
from captum_goat.shapley import GuidedShapley

EPILOG = """examples:
  captum-goat explain --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out attributions.pt
  torchrun --nproc-per-node 2 -m captum_goat explain ...    (shares the work among processes, also of several machines)

To continue an interrupted run, call it again. Read the file with captum_goat.load_attributions; a .pt file is also
read by torch.load, a .parquet file by pandas and others."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = command_parser(
        "explain", "Attribute a model's output for every graph of a dataset to the graph's edges.", EPILOG
    )
    add_method_options(made)
    add = made.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the file to write: .pt or .parquet (needs pyarrow)")
    add(
        "--target",
        type=target_type((*NAMES, "none"), none="none"),
        default="predicted",
        help=f"what to explain: {', '.join(NAMES)}, none (one number per graph) or a class (default: predicted)",
    )
    add("--undirected", action="store_true", help="give both directions of an edge their mean")
    add(
        "--nodes",
        type=int,
        nargs="*",
        metavar="NODE",
        help="explain these nodes of one graph, or all if none are given, of a model with a row of output per node",
    )
    add(
        "--batch-size",
        type=positive,
        metavar="N",
        help=f"graphs, or nodes, explained together (default: {BATCH_SIZE} graphs)",
    )
    add("--restart", action="store_true", help="do not continue an interrupted run (--nodes never does)")
    add("--quiet", action="store_true", help="no progress bar")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(parser(), arguments, _run, "Interrupted. Call again to continue.")


def _run(options: argparse.Namespace) -> int:
    """Explain a dataset or nodes, and print a summary."""
    with joined(options.device) as device:
        file_format(options.out)  # raises before anything is loaded
        model, graphs = load_sources(options)
        method = method_of(options, model)
        start = time.perf_counter()
        saved = (_explain_graphs if options.nodes is None else _explain_nodes)(options, method, graphs, device)
        seconds = time.perf_counter() - start
        unit = "graphs" if options.nodes is None else "nodes"
        if Ranks.current().is_first:
            print(
                f"{len(saved)} {unit} in {seconds:.1f} s ({len(saved) / seconds:.0f} {unit} per second), largest "
                f"completeness error {saved.meta['largest_error']:.1e}: {options.out}"
            )
    return 0


def _explain_graphs(
    options: argparse.Namespace, method: GOAtAttribution | GuidedShapley, graphs: Sequence[Data], device: torch.device
) -> SavedAttributions:
    saved: SavedAttributions = explain_dataset(
        method,
        graphs,
        target=options.target,
        out=options.out,
        undirected=options.undirected,
        batch_size=options.batch_size,
        device=device,
        show_progress=not options.quiet,
        resume=not options.restart,
    )
    return saved


def _explain_nodes(
    options: argparse.Namespace, method: GOAtAttribution | GuidedShapley, graphs: Sequence[Data], device: torch.device
) -> SavedAttributions:
    if len(graphs) != 1 or options.undirected or Ranks.current().count > 1:
        raise ValueError(
            f"Expected one graph and one process for --nodes, without --undirected (got {len(graphs)} graph(s))."
        )
    method.model.to(device)
    explanations = explain_nodes(
        method,
        graphs[0].to(device),
        options.nodes or None,
        target=options.target,
        batch_size=options.batch_size,
        show_progress=not options.quiet,
    )
    return save_nodes(explanations, options.out, {"target": options.target, **method.options})
