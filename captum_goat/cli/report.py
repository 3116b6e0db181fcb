"""``captum-goat report``: attributions that were written to a file, as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from captum_goat.bulk.files import load_attributions
from captum_goat.cli.options import positive
from captum_goat.cli.saved_files import load_graphs, load_model
from captum_goat.plot import one_hot_atoms
from captum_goat.report import write_report

EPILOG = """example:
  captum-goat explain --model weights.pt --class my_models:GIN --data data/Mutagenicity --out attributions.pt
  captum-goat report --attributions attributions.pt --data data/Mutagenicity --out page.html \\
      --class-names mutagen nonmutagen --elements C O Cl H N F Br S P I Na K Li Ca

With --model (and --class, --arguments) the page also shows fid+ and fid-."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add = parser.add_argument
    add("--attributions", type=Path, required=True, metavar="FILE", help="a file that captum-goat explain has written")
    add("--out", type=Path, required=True, metavar="FILE", help="the page to write, .html")
    add("--title", default="Which edges made the model say that?", help="the heading of the page")
    add("--class-names", nargs="+", metavar="NAME", help="names of the classes")
    add("--elements", nargs="+", metavar="SYMBOL", help="for molecules whose x is one-hot: the elements of its columns")
    add("--limit", type=positive, default=200, metavar="N", help="graphs on the page, the first ones (default: 200)")


def run(options: argparse.Namespace) -> int:
    """Write the page, and print where it is."""
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
