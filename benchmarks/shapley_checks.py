"""Whether guided Shapley values keep what they promise: ``python -m benchmarks shapley_checks``.

Standard errors against exact values, guides that are wrong on purpose, and the cost beside other methods.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from benchmarks.cost import NUM_FEATURES, measure, molecule_batch
from benchmarks.explainers import EXPLAINERS
from benchmarks.shapley_gains import markdown
from captum_goat import EdgeMaskedModel, EdgeSetSearch, GOAtAttribution, GuidedShapley
from captum_goat.models import GraphClassifier

CONVS = ("gcn", "sage", "gin")
SAMPLES = (32, 64, 128, 256)


def small_graphs(count: int, num_edges: int = 12) -> Batch:
    """Return random connected graphs with a given number of undirected edges, in double precision."""
    graphs = []
    for seed in range(count):
        generator = torch.Generator().manual_seed(seed)
        edges = {(int(torch.randint(0, node, (1,), generator=generator)), node) for node in range(1, 9)}
        while len(edges) < num_edges:
            one, other = sorted(torch.randperm(9, generator=generator)[:2].tolist())
            edges.add((one, other))
        edge_index = torch.tensor(sorted(edges)).t()
        x = torch.randn(9, NUM_FEATURES, generator=generator, dtype=torch.double)
        graphs.append(Data(x=x, edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1)))
    return Batch.from_data_list(graphs)


def model_of(conv: str, seed: int = 0) -> GraphClassifier:
    """Return a model with random weights, in double precision."""
    torch.manual_seed(seed)
    made: GraphClassifier = GraphClassifier(conv, NUM_FEATURES, 32, 2).double().eval()  # type: ignore[arg-type]
    return made


def attributed(method: GuidedShapley, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the values of undirected edges in a batch of small graphs, and their standard errors."""
    mask = torch.ones(batch.num_edges, dtype=batch.x.dtype)
    arguments = (batch.x, batch.edge_index, batch.batch)
    values, errors = method.attribute(mask, 1, arguments, return_standard_errors=True)
    return values, errors


def coverage_table(batch: Batch, seeds: int) -> str:
    """Return how often exact values lie within two standard errors."""
    lines = []
    for conv in CONVS:
        model = model_of(conv)
        exact, _ = attributed(GuidedShapley(model, n_samples=2**13), batch)
        cells = []
        for samples in SAMPLES:
            inside = []
            for seed in range(seeds):
                values, errors = attributed(GuidedShapley(model, n_samples=samples, random_state=seed), batch)
                inside.append(((values - exact).abs() <= 2 * errors).double().mean())
            cells.append(f"{float(torch.stack(inside).mean()):.1%}")
        lines.append([conv, *cells])
    return markdown(["within two standard errors", *(f"n = {samples}" for samples in SAMPLES)], lines)


def guide_table(batch: Batch, seeds: int) -> str:
    """Return the relative error of the values with right and wrong guides."""
    lines = []
    mask, arguments = torch.ones(batch.num_edges, dtype=torch.double), (batch.x, batch.edge_index, batch.batch)
    for conv in CONVS:
        model = model_of(conv)
        exact, _ = attributed(GuidedShapley(model, n_samples=2**13), batch)
        goat = GOAtAttribution(model).attribute(mask, 1, arguments)
        random = torch.randn(len(mask), generator=torch.Generator().manual_seed(0), dtype=torch.double)
        kinds = {"default": None, "no guides": (), "random scores": (random,), "GOAt, sign turned": (-goat,)}
        for name, guides in kinds.items():
            cells = []
            for samples in (64, 256):
                methods = [GuidedShapley(model, guides, samples, random_state=seed) for seed in range(seeds)]
                errors = [(attributed(method, batch)[0] - exact).norm() / exact.norm() for method in methods]
                cells.append(f"{float(torch.stack(errors).mean()):.3f}")
            lines.append([conv, name, *cells])
    return markdown(["model", "guides", "error at n = 64", "error at n = 256"], lines)


def cost_table(num_graphs: int, repeats: int) -> str:
    """Return the cost in units of one forward and backward pass over the batch, all taken in turn in one run."""
    x, edge_index, batch = molecule_batch(num_graphs)
    data = Batch(x=x, edge_index=edge_index, batch=batch, _num_graphs=num_graphs)
    mask, target = torch.ones(edge_index.size(1)), torch.ones(num_graphs, dtype=torch.long)
    lines = []
    for conv in CONVS:
        torch.manual_seed(0)
        model = GraphClassifier(conv, NUM_FEATURES, 64, 2).eval()  # type: ignore[arg-type]
        masked, leaf = EdgeMaskedModel(model), mask.clone().requires_grad_()

        def unit(masked: EdgeMaskedModel = masked, leaf: Tensor = leaf) -> object:
            return torch.autograd.grad(masked(leaf, x, edge_index, batch)[:, 1].sum(), leaf)

        calls: dict[str, Callable[[], object]] = {"unit": unit}
        goat = GOAtAttribution(model)
        calls["goat"] = partial(goat.attribute, mask, 1, (x, edge_index, batch))
        for samples in (32, 64, 128):
            method = GuidedShapley(model, n_samples=samples)
            calls[f"guided, n = {samples}"] = partial(method.attribute, mask, 1, (x, edge_index, batch))
        calls["search, 30 passes"] = partial(EdgeSetSearch(model).attribute, mask, 1, (x, edge_index, batch))
        calls["occlusion"] = partial(EXPLAINERS["occlusion"](), model, data, target)
        times = measure(calls, repeats)
        lines.append(
            [conv, f"{1e3 * times['unit']:.0f} ms", *(f"{times[name] / times['unit']:.1f}" for name in list(calls)[1:])]
        )
    return markdown(["model", "unit", *list(calls)[1:]], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks shapley_checks", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=10, help="small graphs (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=100, help="seeds of the coalitions (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="graphs of the cost's batch (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of the cost, of which the median counts")
    given = parser.parse_args(arguments)
    batch = small_graphs(given.graphs)
    print(cost_table(given.batch, given.repeats), flush=True)
    print(coverage_table(batch, given.seeds), flush=True)
    print(guide_table(batch, max(1, given.seeds // 10)), flush=True)


if __name__ == "__main__":
    main()
