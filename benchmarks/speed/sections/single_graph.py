"""One small graph at a time, beside integrated gradients: the overhead of a call, and completeness."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cost import NUM_NODES
from benchmarks.paper.tables import GNN_TITLES
from benchmarks.speed.graphs import explained, graph_model, molecule, with_features
from benchmarks.speed.methods import CHEAP_UNIT, GOAT, INTEGRATED_PYG, METHODS, STEPS, UNIT, Explain
from benchmarks.speed.options import Options
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.rounds import in_turn
from benchmarks.speed.tables import seconds, table
from captum_goat import EdgeMaskedModel
from captum_goat.compare.graphs import Graphs

INTEGRATED = "integrated_gradients"
LEAST_SPEED_UP, LEAST_SPEED_UP_AGAIN, LEAST_SPEED_UP_MASKED = 10.0, 15.0, 3.0
MOST_MASKED, LEAST_EXACTNESS = 1.5, 1000.0
COMPARED = (GOAT, INTEGRATED_PYG)
TIMED = (GOAT, INTEGRATED_PYG, INTEGRATED, UNIT, CHEAP_UNIT, "saliency", "gnn_explainer")


def measure(options: Options) -> Section:
    """Measure graphs of 30 nodes: others in every call, and one with other features in every call."""
    graphs = [explained(molecule(options.seed + number)) for number in range(options.alone + 1)]
    again = [explained(with_features(molecule(options.seed), number)) for number in range(options.alone + 1)]
    rows, checks, lines = list[Row](), list[Check](), list[list[str]]()
    for gnn in options.gnns:
        model, title = graph_model(gnn, options.hidden, options.seed), GNN_TITLES[gnn]
        explain = {name: METHODS[name].prepare(model) for name in TIMED}
        times = in_turn(explain, graphs.__getitem__, options.alone)
        times_again = in_turn({name: explain[name] for name in COMPARED}, again.__getitem__, options.alone)
        masked = EdgeMaskedModel(model)
        errors = {name: _errors(masked, explain[name], graphs[1:]) for name in COMPARED}
        rows += [Row("alone", "molecule", gnn, 0, name, "seconds", times.median(name)) for name in TIMED]
        rows.append(Row("alone", "molecule_again", gnn, 0, GOAT, "seconds", times_again.median(GOAT)))
        for name, graph_errors in errors.items():
            rows.append(Row("alone", "molecule", gnn, 0, name, "mean_completeness_error", float(graph_errors.mean())))
            rows.append(Row("alone", "molecule", gnn, 0, name, "largest_completeness_error", float(graph_errors.max())))
        speed_up, masked_speed_up = times.ratio(INTEGRATED_PYG, GOAT), times.ratio(INTEGRATED, GOAT)
        speed_up_again, overhead = times_again.ratio(INTEGRATED_PYG, GOAT), times.ratio(UNIT, CHEAP_UNIT)
        exactness = float(errors[INTEGRATED_PYG].mean() / errors[GOAT].mean())
        checks += [
            Check(f"speed-up over IntegratedGradients, {title}, a new graph", speed_up, LEAST_SPEED_UP, False),
            Check(f"the same through EdgeMaskedModel, {title}", masked_speed_up, LEAST_SPEED_UP_MASKED, False),
            Check(f"speed-up, {title}, the same graph again", speed_up_again, LEAST_SPEED_UP_AGAIN, False),
            Check(f"EdgeMaskedModel against PyG's own mask, {title}", overhead, MOST_MASKED, True),
            Check(f"ratio of completeness errors, {title}, one graph", exactness, LEAST_EXACTNESS, False, note="means"),
        ]
        lines.append([title, *(seconds(times.median(name)) for name in TIMED), f"{speed_up:.1f}"])
        lines[-1] += [seconds(times_again.median(GOAT)), f"{speed_up_again:.1f}"]
        lines[-1] += [f"{float(errors[name].mean()):.1e}" for name in COMPARED]
    header = ["model", *(METHODS[name].title for name in TIMED), "speed-up"]
    header += ["GOAt, same graph again", "speed-up", "GOAt's error", "IntegratedGradients' error"]
    return Section(
        f"One graph of {NUM_NODES} nodes", f"{_introduction(options)}\n\n{table(header, lines)}", rows, checks
    )


def _errors(masked: EdgeMaskedModel, explain: Explain, graphs: list[Graphs]) -> Tensor:
    """Return by how much the scores of each graph miss what its edges change in the output."""
    errors = []
    for graph in graphs:
        mask = torch.ones(graph.num_edges)
        with torch.no_grad():
            ends = [graph.of_target(masked(mask * t, *graph.inputs)).double().sum() for t in (0.0, 1.0)]
        errors.append((explain(graph).detach().double().sum() - (ends[1] - ends[0])).abs())
    return torch.stack(errors)


def _introduction(options: Options) -> str:
    return (
        f"{options.alone} random graphs, each explained once by each method in turn, so that no call meets a graph "
        "that was there before, but every method has met the model; then one graph as often, with other features each "
        f"time. IntegratedGradients takes {STEPS} steps, through PyG's `to_captum_model` or through EdgeMaskedModel. "
        "The speed-up is that over PyG's way, the median of the graphs' own ratios. The completeness error is what the "
        "sum of the attributions misses of f(graph) - f(graph without edges); means over the graphs."
    )
