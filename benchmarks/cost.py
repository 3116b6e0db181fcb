"""What an attribution costs, in units of one forward and backward pass: ``python -m benchmarks.cost``.

The unit is one pass of the same model over the same batch, through :class:`~captum_goat.EdgeMaskedModel`, with the
gradient with respect to the edge mask. Integrated gradients cost 50 of them at Captum's default. All times are taken
in turn in one run, so that the ratios hold on a noisy machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from captum_goat import EdgeMaskedModel, GOAtAttribution
from captum_goat.models import GraphClassifier

NUM_NODES, NUM_FEATURES = 30, 14  # as an average Mutagenicity molecule has
NUM_RINGS = 3


def molecule_batch(num_graphs: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return a batch of undirected graphs of a molecule's size and sparsity: random trees with a few rings.

    Args:
        num_graphs: How many graphs.
        seed: For the random numbers.

    Returns:
        ``x``, ``edge_index`` and ``batch``.
    """
    generator = torch.Generator().manual_seed(seed)
    child = torch.arange(1, NUM_NODES).repeat(num_graphs, 1)
    # A new atom is bound to one of the four before it, so that degrees stay low.
    back = 1 + torch.randint(0, 4, child.shape, generator=generator)
    parent = (child - back).clamp(min=0)
    start = torch.randint(0, NUM_NODES - 5, (num_graphs, NUM_RINGS), generator=generator)
    first = torch.arange(num_graphs).view(-1, 1) * NUM_NODES
    source = (torch.cat([parent, start], dim=1) + first).view(-1)
    target = (torch.cat([child, start + 5], dim=1) + first).view(-1)
    edge_index = torch.stack([torch.cat([source, target]), torch.cat([target, source])])
    x = torch.randn(num_graphs * NUM_NODES, NUM_FEATURES, generator=generator)
    return x, edge_index, torch.arange(num_graphs).repeat_interleave(NUM_NODES)


def measure(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median time of each call in seconds, the calls taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if repeat:  # the first round only warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def main() -> None:
    """Print the cost of an attribution for the paper's three models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=128, help="graphs in the batch (default: 128)")
    parser.add_argument("--hidden", type=int, default=64, help="hidden channels (default: 64)")
    parser.add_argument("--repeats", type=int, default=20, help="rounds, of which the median counts (default: 20)")
    options = parser.parse_args()
    x, edge_index, batch = molecule_batch(options.graphs)
    mask = torch.ones(edge_index.size(1))
    print(f"{options.graphs} graphs, {len(x)} nodes, {len(mask)} edges, {torch.get_num_threads()} threads")
    print(f"{'model':8}{'unit':>10}{'attribute':>12}{'units':>8}{'largest |delta|':>18}")
    for conv in ("gcn", "sage", "gin"):
        torch.manual_seed(0)
        model = GraphClassifier(conv, NUM_FEATURES, options.hidden, 2).eval()
        masked, goat = EdgeMaskedModel(model), GOAtAttribution(model)
        leaf = mask.clone().requires_grad_()

        def unit(masked: EdgeMaskedModel = masked, leaf: Tensor = leaf) -> object:
            return torch.autograd.grad(masked(leaf, x, edge_index, batch)[:, 1].sum(), leaf)

        def attribute(goat: GOAtAttribution = goat) -> tuple[Tensor, Tensor]:
            result: tuple[Tensor, Tensor] = goat.attribute(
                mask, target=1, additional_forward_args=(x, edge_index, batch), return_convergence_delta=True
            )
            return result

        times = measure({"unit": unit, "attribute": attribute}, options.repeats)
        delta = float(attribute()[1].abs().max())
        ratio = times["attribute"] / times["unit"]
        print(f"{conv:8}{1e3 * times['unit']:7.1f} ms{1e3 * times['attribute']:9.1f} ms{ratio:8.1f}{delta:18.1e}")


if __name__ == "__main__":
    main()
