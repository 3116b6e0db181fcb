"""The commands of ``captum-goat``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from captum.attr import Attribution
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

import captum_goat
from captum_goat.attribution import GOAtAttribution
from captum_goat.bulk.dataset import BATCH_SIZE, NAMES, EdgeMethod, explain_dataset
from captum_goat.bulk.files import SavedAttributions, check_format, load_attributions
from captum_goat.bulk.model_check import check
from captum_goat.bulk.part_folder import Ranks
from captum_goat.cli.saved_files import find_class, load_graphs, load_model
from captum_goat.compare.explainers import EXPLAINERS
from captum_goat.compare.graphs import SPARSITIES
from captum_goat.compare.run import BUDGET, DEFAULT, compare
from captum_goat.inputs.targets import node_numbers
from captum_goat.nodes.explainer import MAX_EDGES, explain_nodes
from captum_goat.plot import one_hot_atoms
from captum_goat.report import write_report
from captum_goat.search import EdgeSetSearch
from captum_goat.shapley import GuidedShapley
from captum_goat.tracking import UnsupportedModelError

# Shown without a traceback.
ERRORS = (ImportError, IndexError, OSError, RuntimeError, TypeError, UnsupportedModelError, ValueError)
# What messages say to callers of functions, and what it is on the command line.
FLAGS = {"resume=False": "--restart", "batch_size=1": "--batch-size 1", "call explain_nodes": "pass --nodes"}
PATIENCE = timedelta(days=1)  # with the slowest process; if one dies, torchrun ends all of them
COMPARE_EPILOG = """example:
  captum-goat compare --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out comparison

Take graphs that the model was not trained on, if you can."""
EXPLAIN_EPILOG = """examples:
  captum-goat explain --model weights.pt --class my_models:GIN \\
      --arguments '{"in_channels": 14, "num_classes": 2}' --data data/Mutagenicity --out attributions.pt
  torchrun --nproc-per-node 2 -m captum_goat explain ...    (shares the work among processes, also of several machines)

To continue an interrupted run, call it again. Read the file with captum_goat.load_attributions; a .pt file is also
read by torch.load, a .parquet file by pandas and others."""
REPORT_EPILOG = """example:
  captum-goat report --attributions attributions.pt --data data/Mutagenicity --out page.html \\
      --class-names mutagen nonmutagen --elements C O Cl H N F Br S P I Na K Li Ca

With --model (and --class, --arguments) the page also shows fid+ and fid-."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, given by words or by those of this process, print its errors, and return its exit code."""
    parser = _parser()
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words:
        parser.print_help()
        return 0
    if not {"", os.getcwd()} & {*sys.path}:
        sys.path.insert(0, os.getcwd())  # as python -m does, so that --class finds the user's modules
    try:
        options = parser.parse_args(words)
        if options.trust_pickle:
            print("Warning: --trust-pickle executes whatever code is in the files.", file=sys.stderr)
        _check_device(options.device)
        code: int = options.run(options)
        return code
    except ERRORS as error:
        message = " ".join(str(error).split())
        for python, flag in FLAGS.items():
            message = message.replace(python, flag)
        print(f"{type(error).__name__}: {message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"Interrupted.{' Call again to continue.' * (words[0] == 'explain')}", file=sys.stderr)
        return 130


def positive(text: str) -> int:
    """Read an integer of at least 1; the type of an option."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more (got {text})")
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("captum-goat", description="Explain graph neural networks with GOAt.")
    parser.add_argument("--version", action="version", version=f"captum-goat {captum_goat.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")

    def add_command(name: str, text: str, run: Callable[[argparse.Namespace], int], epilog: str = "") -> Any:
        form, description = argparse.RawDescriptionHelpFormatter, f"{text[0].upper()}{text[1:]}."
        command = commands.add_parser(name, help=text, description=description, epilog=epilog, formatter_class=form)
        command.set_defaults(run=run)
        _add_sources(command.add_argument, required=name != "report")
        return command.add_argument

    add = add_command("check", "check whether a saved model can be explained exactly", _check)
    add("--graph", type=int, default=0, metavar="N", help="which graph to take (default: 0)")
    text = "compare explainers on a saved model and saved graphs"
    _add_compare(add_command("compare", text, _compare, COMPARE_EPILOG))
    text = "attribute the output for every graph of a dataset to its edges"
    _add_explain(add_command("explain", text, _explain, EXPLAIN_EPILOG))
    _add_report(add_command("report", "show attributions from a file as one HTML page", _report, REPORT_EPILOG))
    return parser


def _add_sources(add: Any, required: bool) -> None:
    """Add the options that say where the model and the graphs are."""
    weights = "the model's weights, saved from model.state_dict()"
    add("--model", type=Path, required=required, metavar="FILE", help=weights)
    add("--class", dest="class_name", metavar="MODULE:CLASS", help="the model's class")
    add("--arguments", metavar="JSON", help="arguments of the class: an object or a list (default: none)")
    data = "a .pt file with a list of graphs or as PyG's InMemoryDataset saves it, or a folder of the TU collection"
    add("--data", type=Path, required=required, metavar="PATH", help=data)
    add("--device", type=torch.device, default=torch.device("cpu"), help="cpu, cuda, ... (default: cpu)")
    trust = (
        "read files that have other objects than weights and graphs, such as a whole model saved with "
        "torch.save(model). This EXECUTES the code in the files: only for files whose source you trust"
    )
    add("--trust-pickle", action="store_true", help=trust)


def _add_nodes(add: Any) -> None:
    nodes = "explain these nodes of one graph, or all if none are given, of a model with a row of output per node"
    add("--nodes", type=int, nargs="*", metavar="NODE", help=nodes)
    add("--quiet", action="store_true", help="no progress bar")


def _target(text: str) -> str | int | None:
    """Read an option ``--target``: a name or a class; "none" means ``None``."""
    if text.isdecimal():
        return int(text)
    if text not in (*NAMES, "none"):
        raise argparse.ArgumentTypeError(f"expected {', '.join(NAMES)}, none or a class (got {text!r})")
    return None if text == "none" else text


def _check_device(device: torch.device) -> None:
    try:
        torch.zeros(1, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"Expected an available device for --device (got {device}: {reason}).") from error


def _load(options: argparse.Namespace) -> tuple[Module, Sequence[Data]]:
    """Load the model, in evaluation mode, and the graphs; both to the CPU."""
    model = load_model(options.model, options.class_name, options.arguments, trust_pickle=options.trust_pickle)
    return model, load_graphs(options.data, trust_pickle=options.trust_pickle)


def _only_graph(graphs: Sequence[Data], device: torch.device) -> Data:
    if len(graphs) != 1:
        raise ValueError(f"Expected one graph for --nodes (got {len(graphs)}).")
    return graphs[0].to(device)


def _check(options: argparse.Namespace) -> int:
    model, graphs = _load(options)
    if not 0 <= options.graph < len(graphs):
        raise ValueError(f"Expected --graph from 0 to {len(graphs) - 1} (got {options.graph}).")
    result = check(GOAtAttribution(model.to(options.device)), graphs[options.graph].to(options.device))
    print(result)
    return 0 if result.is_exact else 1


def _add_compare(add: Any) -> None:
    names = f"of {', '.join(EXPLAINERS)}; or your own as module:ClassName (default: {' '.join(DEFAULT)})"
    add("--explainers", nargs="+", default=list(DEFAULT), metavar="NAME", help=names)
    add("--limit", type=positive, default=100, metavar="N", help="graphs, or nodes, drawn at random (default: 100)")
    add("--target", type=_target, default="predicted", help="predicted, label or a class (default: predicted)")
    hops = "for --nodes, message passing layers; one more where degrees count (GCN)"
    add("--hops", dest="num_hops", type=int, metavar="N", help=hops)
    add("--sparsities", type=float, nargs="+", default=list(SPARSITIES), metavar="SHARE", help="of edges left out")
    add("--node-policy", choices=("stay", "leave"), default="stay", help="nodes without edges (default: stay)")
    add("--reference", default="goat", metavar="NAME", help="what the others are compared with (default: goat)")
    add("--budget", type=float, default=BUDGET, metavar="SECONDS", help="of each explainer (default: %(default)s)")
    add("--seed", type=int, default=0, help="seed of random numbers (default: 0)")
    add("--out", type=Path, metavar="DIR", help="folder for the table, as Markdown and CSV")
    _add_nodes(add)


def _compare(options: argparse.Namespace) -> int:
    for part in () if options.out is None else (options.out, *options.out.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(f"Expected a folder for --out (got {part}, which is a file).")
    explainers = [_explainer(name) for name in options.explainers]
    model, graphs = _load(options)
    chosen, nodes, labels = _drawn(options, graphs)
    if options.target in (None, "all"):
        raise ValueError("Expected predicted, label or a class for --target (compare takes one target per graph).")
    target = None if options.target == "predicted" else options.target
    if target == "label":
        target = [int(label) for label in labels if isinstance(label, Tensor) and label.numel() == 1]
        if len(target) < len(labels):
            raise ValueError("Expected one label y per graph, or node, for --target label (got none, or several).")
    names = ("num_hops", "sparsities", "node_policy", "reference", "budget", "seed")
    given: dict[str, Any] = {name: getattr(options, name) for name in names}
    given |= {"target": target, "nodes": nodes, "show_progress": not options.quiet}
    comparison = compare(model.to(options.device), chosen, explainers, **given)
    print(comparison)
    if options.out is not None:
        print(f"\nThe table is in {comparison.write(options.out)}.")
    return 0


def _explainer(name: str) -> Any:
    """Return the name of an explainer, a class of Captum, or an object of the user's own class."""
    if ":" not in name:
        return name
    try:
        own = find_class(name)
        return own if issubclass(own, Attribution) else own()
    except TypeError as error:
        raise ValueError(f"Expected {name} as a class that can be called without arguments (got: {error}).") from error


def _drawn(options: argparse.Namespace, graphs: Sequence[Data]) -> tuple[list[Data] | Data, Tensor | None, list[Any]]:
    """Draw graphs with edges, and no nodes; or return one graph, and nodes drawn from it; and their labels."""

    def shuffled(count: int) -> Tensor:
        return torch.randperm(count, generator=torch.Generator().manual_seed(options.seed))

    if options.nodes is None:
        drawn = (graphs[number] for number in shuffled(len(graphs)).tolist())
        chosen = list(islice((graph.to(options.device) for graph in drawn if graph.num_edges), options.limit))
        return chosen, None, [graph.y for graph in chosen]
    data = _only_graph(graphs, options.device)
    every = options.nodes or data.edge_index[1].unique()
    nodes = node_numbers(every, data.num_nodes, options.device).cpu()
    nodes = nodes[shuffled(len(nodes))[: options.limit]]
    return data, nodes, [None] * len(nodes) if data.y is None else list(data.y[nodes.to(data.y.device)])


def _add_explain(add: Any) -> None:
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
    target = f"what to explain: {', '.join(NAMES)}, none (one number per graph) or a class (default: predicted)"
    add("--target", type=_target, default="predicted", help=target)
    add("--undirected", action="store_true", help="give both directions of an edge their mean")
    columns = "attributes of the graphs for the file, such as y smiles"
    add("--columns", nargs="+", default=(), metavar="NAME", help=columns)
    add("--batch-size", type=positive, metavar="N", help=f"graphs explained together (default: {BATCH_SIZE})")
    add("--max-edges", type=positive, metavar="N", help=f"for --nodes, edges at once (default: {MAX_EDGES})")
    add("--restart", action="store_true", help="do not continue an interrupted run (--nodes never does)")
    _add_nodes(add)


def _explain(options: argparse.Namespace) -> int:
    with _joined(options.device) as device:
        check_format(options.out)  # before anything is loaded
        model, graphs = _load(options)
        method: EdgeMethod = GOAtAttribution(model.to(device), options.field, at=options.at, gates=options.gates)
        if options.method == "guided_shapley":
            method = GuidedShapley(model, n_samples=options.samples, at=options.at)
        elif options.method == "edge_set_search":
            method = EdgeSetSearch(model, options.passes, at=options.at)
        shared = {"target": options.target, "out": options.out, "show_progress": not options.quiet}
        start, ranks = time.perf_counter(), Ranks.current()
        if options.nodes is None:
            if options.max_edges is not None:
                raise ValueError("Expected --max-edges with --nodes (got it without). Pass --batch-size for graphs.")
            given = {"undirected": options.undirected, "batch_size": options.batch_size, "columns": options.columns}
            explain_dataset(method, graphs, device=device, resume=not options.restart, **given, **shared)
        else:
            of_graphs = ("undirected", "batch_size", "columns")
            wrong = [f"--{name.replace('_', '-')}" for name in of_graphs if getattr(options, name)]
            if wrong or ranks.count > 1:
                raise ValueError(
                    f"Expected --nodes in one process, without --undirected, --columns and --batch-size (got "
                    f"{wrong[0] if wrong else 'several'}). Pass --max-edges to limit memory."
                )
            data = _only_graph(graphs, device)
            explain_nodes(method, data, options.nodes or None, max_edges=options.max_edges or MAX_EDGES, **shared)
        seconds = time.perf_counter() - start
        if ranks.rank == 0:
            saved, unit = SavedAttributions(options.out), "graphs" if options.nodes is None else "nodes"
            error = f", largest completeness error {saved.meta['largest_error']:.1e}"
            print(
                f"{len(saved)} {unit} in {seconds:.1f} s ({len(saved) / seconds:.0f} {unit} per second)"
                f"{error if method.has_convergence_delta() else ''}: {options.out}"
            )
    return 0


@contextmanager
def _joined(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes if ``torchrun`` started this one; yield its device, for ``cuda`` a GPU of its own."""
    if "WORLD_SIZE" not in os.environ or dist.is_initialized():
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if device.index is None else device
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield device
    finally:
        dist.destroy_process_group()


def _add_report(add: Any) -> None:
    add("--attributions", type=Path, required=True, metavar="FILE", help="a file that captum-goat explain has written")
    add("--out", type=Path, required=True, metavar="FILE", help="the page to write, .html")
    add("--title", default="Which edges made the model say that?", help="the heading of the page")
    add("--class-names", nargs="+", metavar="NAME", help="names of the classes")
    add("--elements", nargs="+", metavar="SYMBOL", help="for molecules whose x is one-hot: the elements of its columns")
    add("--limit", type=positive, default=200, metavar="N", help="graphs on the page, the first ones (default: 200)")


def _report(options: argparse.Namespace) -> int:
    model, elements = None, options.elements
    if options.model is not None:
        model = load_model(options.model, options.class_name, options.arguments, trust_pickle=options.trust_pickle)
        model = model.to(options.device)
    if options.data is None and (model is not None or elements):
        raise ValueError("Expected --data, the graphs that were explained, with --model and --elements (got none).")
    path = write_report(
        options.out,
        load_attributions(options.attributions),
        model=model,
        title=options.title,
        class_names=options.class_names,
        atoms=None if elements is None else lambda graph: one_hot_atoms(graph.x, elements),
        graphs=None if options.data is None else load_graphs(options.data, trust_pickle=options.trust_pickle),
        limit=options.limit,
    )
    print(f"The page is in {path} ({path.stat().st_size / 1e3:.0f} kB). Open it in a browser.")
    return 0
