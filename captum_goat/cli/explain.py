"""``python -m captum_goat explain``: a saved model and a saved data set in, a file of attributions out."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.data import Data

from captum_goat.bulk.dataset import explain_dataset
from captum_goat.bulk.files import file_format
from captum_goat.bulk.graph_targets import NAMES
from captum_goat.bulk.graphs import BATCH_SIZE
from captum_goat.bulk.ranks import Ranks, joined
from captum_goat.bulk.saved import SavedAttributions
from captum_goat.cli.sources import add_source_options, load_sources, warn_of_trust
from captum_goat.nodes.node_explainer import explain_nodes
from captum_goat.nodes.node_file import save_nodes
from captum_goat.tracking import UnsupportedModelError

EPILOG = """examples:
  python -m captum_goat explain --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out attributions.pt
  torchrun --nproc-per-node 2 -m captum_goat explain ...    (shares the work among processes, also of several machines)

An interrupted run goes on where it stopped when it is called again. Read the file with
captum_goat.bulk.load_attributions; a .pt file is also read by torch.load, a .parquet file by pandas and others."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = argparse.ArgumentParser(
        prog="captum-goat explain",
        description="Attribute a model's output for every graph of a data set to the graph's edges.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_source_options(made)
    add = made.add_argument
    add("--out", type=Path, required=True, metavar="FILE", help="the file to write: .pt or .parquet (needs pyarrow)")
    add(
        "--target",
        type=_target,
        default="predicted",
        help=f"what to explain: {', '.join(NAMES)}, none (one number per graph) or a class (default: predicted)",
    )
    add(
        "--field", choices=("distinct", "repeated"), default="distinct", help="how gates are shared (default: distinct)"
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
        type=int,
        metavar="N",
        help=f"graphs, or nodes, explained together (default: {BATCH_SIZE} graphs)",
    )
    add(
        "--restart",
        action="store_true",
        help="forget what an interrupted run has explained (--nodes always starts anew)",
    )
    add("--quiet", action="store_true", help="no progress bar")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = parser().parse_args(arguments)
    warn_of_trust(options)
    try:
        with joined(options.device) as device:
            summary = _explain(options, device)
            if Ranks.current().is_first:
                print(summary)
    except (ImportError, OSError, UnsupportedModelError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. Call again to go on.", file=sys.stderr)
        return 130
    return 0


def _explain(options: argparse.Namespace, device: torch.device) -> str:
    """Explain a data set or nodes, and return what there is to say about it."""
    file_format(options.out)  # before anything is loaded
    model, graphs = load_sources(options)
    start = time.perf_counter()
    saved = (_explain_graphs if options.nodes is None else _explain_nodes)(options, model, graphs, device)
    seconds = time.perf_counter() - start
    what = "graphs" if options.nodes is None else "nodes"
    return (
        f"{len(saved)} {what} in {seconds:.1f} s ({len(saved) / seconds:.0f} {what} per second), largest completeness "
        f"error {saved.meta['largest_error']:.1e}: {options.out}"
    )


def _explain_graphs(
    options: argparse.Namespace, model: Module, graphs: Sequence[Data], device: torch.device
) -> SavedAttributions:
    saved: SavedAttributions = explain_dataset(
        model,
        graphs,
        target=options.target,
        out=options.out,
        field=options.field,
        undirected=options.undirected,
        batch_size=options.batch_size,
        device=device,
        show_progress=not options.quiet,
        resume=not options.restart,
    )
    return saved


def _explain_nodes(
    options: argparse.Namespace, model: Module, graphs: Sequence[Data], device: torch.device
) -> SavedAttributions:
    if len(graphs) != 1 or options.undirected or Ranks.current().count > 1:
        raise ValueError(
            f"Expected one graph and one process for --nodes, without --undirected (got {len(graphs)} graph(s))."
        )
    found = explain_nodes(
        model.to(device),
        graphs[0].to(device),
        options.nodes or None,
        target=options.target,
        field=options.field,
        batch_size=options.batch_size,
        show_progress=not options.quiet,
    )
    return save_nodes(found, options.out, {"target": options.target, "field": options.field})


def _target(text: str) -> Any:
    if text == "none":
        return None
    if text in NAMES:
        return text
    try:
        return int(text)
    except ValueError:
        names = ", ".join((*NAMES, "none"))
        raise argparse.ArgumentTypeError(f"expected {names} or a class (got {text!r})") from None
