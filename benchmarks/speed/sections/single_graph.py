"""One small graph at a time, beside integrated gradients: the overhead of a call, and completeness."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.cost import NUM_NODES
from benchmarks.paper.tables import GNN_TITLES
from benchmarks.speed.graphs import explained, graph_model, molecule, with_features
from benchmarks.speed.methods import GOAT, INTEGRATED_PYG, METHODS, STEPS, UNIT, Explain
from benchmarks.speed.options import Options
from benchmarks.speed.results import Check, Row, Section
from benchmarks.speed.rounds import in_turn
from benchmarks.speed.tables import seconds, table
from captum_goat import EdgeMaskedModel
from captum_goat.compare.explainers.graphs import Graphs

LEAST_SPEED_UP, LEAST_EXACTNESS = 15.0, 1000.0
COMPARED = (GOAT, INTEGRATED_PYG)


def measure(options: Options) -> Section:
    """Measure graphs of 30 nodes: one with other features in every call, and others in every call."""
    graphs = [explained(molecule(options.seed + number)) for number in range(options.alone + 1)]
    again = [explained(with_features(molecule(options.seed), number)) for number in range(options.alone + 1)]
    rows, checks, lines = list[Row](), list[Check](), list[list[str]]()
    for gnn in options.gnns:
        model = graph_model(gnn, options.hidden, options.seed)
        explain = {name: METHODS[name].prepare(model) for name in (*COMPARED, UNIT)}
        times = in_turn(explain, graphs.__getitem__, options.alone)
        times_again = in_turn(explain, again.__getitem__, options.alone)
        masked = EdgeMaskedModel(model)
        errors = {name: _errors(masked, explain[name], graphs[1:]) for name in COMPARED}
        for name in explain:
            rows.append(Row("alone", "molecule", gnn, 0, name, "seconds", times.median(name)))
        for name, graph_errors in errors.items():
            rows.append(Row("alone", "molecule", gnn, 0, name, "mean_completeness_error", float(graph_errors.mean())))
            rows.append(Row("alone", "molecule", gnn, 0, name, "largest_completeness_error", float(graph_errors.max())))
        rows.append(Row("alone", "molecule_again", gnn, 0, GOAT, "seconds", times_again.median(GOAT)))
        speed_up, speed_up_again = (round_times.ratio(INTEGRATED_PYG, GOAT) for round_times in (times, times_again))
        exactness = float(errors[INTEGRATED_PYG].mean() / errors[GOAT].mean())
        title = GNN_TITLES[gnn]
        note = f"explained before with other features; new graphs: {speed_up:.1f}"
        what = f"speed-up over IntegratedGradients, {title}, one graph"
        checks.append(Check(what, speed_up_again, LEAST_SPEED_UP, False, note=note))
        checks.append(
            Check(f"ratio of completeness errors, {title}, one graph", exactness, LEAST_EXACTNESS, False, note="means")
        )
        lines.append([title, *(seconds(times.median(name)) for name in (UNIT, *COMPARED)), f"{speed_up:.1f}"])
        lines[-1] += [seconds(times_again.median(GOAT)), f"{speed_up_again:.1f}"]
        lines[-1] += [f"{float(errors[name].mean()):.1e}" for name in COMPARED]
    header = ["model", "unit", *(METHODS[name].title for name in COMPARED), "speed-up"]
    header += ["GOAt, graph known", "speed-up", "GOAt's error", "the other's"]
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
        "that was there before; then one graph as often, with other features each time, which GOAt knows after the "
        "first call (as it does under NoiseTunnel and in metrics). IntegratedGradients takes "
        f"{STEPS} steps through PyG's `to_captum_model`. The speed-up is the median of the graphs' own ratios. The "
        "completeness error is what the sum of the attributions misses of f(graph) - f(graph without edges); means "
        "over the graphs."
    )
