"""A slow, dense GOAt by the definitions: every gate entry, edge, feature and edge attribute is a leaf of its own.

It evaluates the data of a case, never the real model, of which it only takes the parameters.

- An activation f is out = f(0) + P * in, with the gate P = (f(in) - f(0)) / in, 0 where in = 0.
- Norms, maxima and attention are frozen factors: out = S * in, a sum of W * competitor, a sum of coefficient * message.
- What is divided by, and exponentials that are factors, are frozen in the same way.
- Edges, gates (and features, and edge attributes) are variables. With all variables scaled by t, the share of a
  variable v is the integral of v * dF/dv over t from 0 to 1. A gate that nothing attributed reaches is a constant.
- Products without variables are shared among their frozen factors in the same way.
- What lands on a gate or frozen factor is shared equally among the elements of its field.
- The same without edges (with x = 0 where features are attributed, and so for edge attributes) is subtracted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .case import MESSAGES, WITH_ATTRIBUTES, Case, Op, overwritten, shapes
from .fields import Entry, Fields, messages

Key = tuple[int, str]  # the number of an operation and the name of one of its factors
# ("edge", e), ("feature", node, column) or ("attribute", e, column)
Element = tuple[str, int] | tuple[str, int, int]

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda h: torch.where(h > 0, h, 0 * h),
    "leaky_relu": lambda h: torch.where(h > 0, h, 0.1 * h),
    "elu": lambda h: torch.where(h > 0, h, torch.expm1(h.clamp(max=0))),
    "tanh": torch.tanh,
    "sigmoid": lambda h: 1 / (1 + torch.exp(-h)),
    "softplus": lambda h: torch.where(h > 20, h, torch.log1p(torch.exp(h.clamp(max=20)))),  # as torch computes it
    "gelu": lambda h: h * (1 + torch.erf(h / math.sqrt(2))) / 2,
    "silu": lambda h: h / (1 + torch.exp(-h)),
}
KINKED = ("relu", "leaky_relu", "elu")


class Undecided(Exception):  # noqa: N818 - not an error
    """Rounding decides a gate or a maximum, so that two correct programs may differ."""


class Network:
    """The dense model: evaluates the operations with leaves for edges, features, attributes, gates and frozen factors.

    Values have the shape [T, rows, channels], with T values of the scale t at once.
    """

    def __init__(self, case: Case, parameters: Mapping[str, Tensor]) -> None:
        self.case, self.parameters = case, parameters
        self.widths = [shape.width for shape in shapes(case)]
        self.replaced = {number: value for value, number in overwritten(case).items()}
        graphs = torch.tensor(case.graph_of)
        self.divided_zeros = False  # whether a row of zeros was divided by its norm, for which 1e-12 is taken
        self.member = (graphs == torch.arange(case.num_graphs).view(-1, 1)).double()  # [G, N]

        self.steps = {n: k for k, n in enumerate(n for n, op in enumerate(case.ops, 1) if op.kind in MESSAGES)}

    def record(self, x: Tensor, mask: Tensor, attributes: Tensor) -> tuple[Tensor, dict[Key, Tensor]]:
        """Return the output, and the value of every factor."""
        self.factors: dict[Key, Tensor] = {}
        self.recording = True
        output = self.run(x.unsqueeze(0), mask.unsqueeze(0), attributes.unsqueeze(0))[0]
        return output, {key: value[0] for key, value in self.factors.items()}

    def replay(self, x: Tensor, mask: Tensor, attributes: Tensor, factors: Mapping[Key, Tensor]) -> Tensor:
        """Return the output for given factors."""
        self.factors, self.recording = dict(factors), False
        return self.run(x, mask, attributes)

    def run(self, x: Tensor, mask: Tensor, attributes: Tensor) -> Tensor:
        self.mask, self.attributes = mask, attributes
        values = [x]
        for number, op in enumerate(self.case.ops, start=1):
            self.number = number
            values.append(self.apply(op, [values[k] for k in op.inputs]))
            if number in self.replaced:
                values[self.replaced[number]] = values[number]
        return values[-1]

    def factor(self, name: str, compute: Callable[[], Tensor]) -> Tensor:
        """Return a factor: computed and kept in the recording, as it is given in a replay."""
        if self.recording:
            self.factors[self.number, name] = compute()
        return self.factors[self.number, name]

    def parameter(self, op: Op, name: str) -> Tensor:
        return self.parameters[f"layer{op.layer}{name}"]

    def gate(self, function: str, h: Tensor, name: str = "gate") -> Tensor:
        """Return f(0) + P * h."""
        at_zero = FUNCTIONS[function](torch.zeros((), dtype=torch.float64))

        def pattern() -> Tensor:
            sizes = h.abs()[h != 0]
            if sizes.numel() and float(sizes.min()) < (1e-10 if float(at_zero) == 0 else 1e-4):
                raise Undecided("the input of a gate is 0 up to rounding")
            return torch.where(h == 0, 0 * h, (FUNCTIONS[function](h) - at_zero) / torch.where(h == 0, 1 + h, h))

        return at_zero + self.factor(name, pattern) * h

    def maximum(self, rivals: Tensor, places: Tensor) -> Tensor:
        """Return the largest rivals [T, M, C] at each place, by ``places`` [P, M]; 0 at a place without any.

        W is 1 for the winner; winners that are equal share the place.
        """

        def winners() -> Tensor:
            result = torch.zeros_like(rivals)
            for place in places:
                (own,) = torch.nonzero(place, as_tuple=True)
                if own.numel():
                    behind = rivals[:, own].amax(dim=1, keepdim=True) - rivals[:, own]
                    if ((behind > 0) & (behind < 1e-10)).any():
                        raise Undecided("rivals of a maximum are equal up to rounding")
                    wins = (behind == 0).double()
                    result[:, own] = wins / wins.sum(dim=1, keepdim=True)
            return result

        return places @ (self.factor("frozen", winners) * rivals)

    def norm(self, name: str, h: Tensor, size: Callable[[], Tensor]) -> Tensor:
        return h * self.factor(name, lambda: 1 / size())

    def normalize(self, name: str, h: Tensor) -> Tensor:
        """Return h / |h|."""

        def size() -> Tensor:
            result = (h * h).sum(dim=-1, keepdim=True).sqrt()
            self.divided_zeros |= bool((result == 0).any())
            if ((result > 0) & (result < 1e-6)).any():
                raise Undecided("the norm of a row is 0 up to rounding")
            return result.clamp(min=1e-12)

        return self.norm(name, h, size)

    def linear(self, op: Op, h: Tensor, name: str = "", *, bias: bool = True) -> Tensor:
        out = h @ self.parameter(op, f"{name}.weight").t()
        return out + self.parameter(op, f"{name}.bias") if bias else out

    def apply(self, op: Op, inputs: list[Tensor]) -> Tensor:
        """Return an operation's result."""
        h = inputs[0]
        if op.kind == "linear":
            return self.linear(op, h, bias=op.options["bias"])
        if op.kind == "bias":
            return h + self.parameter(op, "")
        if op.kind == "batch_norm":
            scale = self.parameter(op, ".weight") / (self.parameter(op, ".running_var") + 1e-5).sqrt()
            return (h - self.parameter(op, ".running_mean")) * scale + self.parameter(op, ".bias")
        if op.kind == "dropout":
            return h
        if op.kind == "activation":
            return self.gate(op.options["function"], h)
        if op.kind == "layer_norm":
            centred = h - h.mean(dim=-1, keepdim=True)
            scaled = self.norm("frozen", centred, lambda: ((centred**2).mean(dim=-1, keepdim=True) + 1e-5).sqrt())
            return scaled * self.parameter(op, ".weight") + self.parameter(op, ".bias")
        if op.kind == "normalize":
            return self.normalize("frozen", h)
        if op.kind == "add":
            return h + inputs[1]
        if op.kind == "mul":
            return h * inputs[1]
        if op.kind == "div":
            return h * self.factor("frozen", lambda: 1 / (1 + inputs[1] * inputs[1]))
        if op.kind == "weigh":
            return h * self.factor("frozen", lambda: torch.exp(-inputs[1] * inputs[1]))
        if op.kind == "gru":
            return self.gru(op, *inputs)
        if op.kind == "cat":
            return torch.cat(inputs, dim=-1)
        if op.kind == "maximum":
            return self.maximum(torch.cat(inputs, dim=1), torch.eye(h.shape[1]).repeat(1, 2).double())
        if op.kind == "pool":
            if op.options["aggr"] == "max":
                return self.maximum(h, self.member)
            total = self.member @ h
            return total / self.member.sum(dim=1).view(-1, 1) if op.options["aggr"] == "mean" else total
        if op.kind == "broadcast":
            return self.member.t() @ h
        return self.conv(op, h)

    def gru(self, op: Op, h: Tensor, state: Tensor) -> Tensor:
        """Return (1 - z) * n + z * state, with n = tanh(W h + r * (U state)) and the sigmoids r and z."""
        read, kept = (
            (value @ self.parameter(op, f".weight_{which}").t() + self.parameter(op, f".bias_{which}")).chunk(3, dim=-1)
            for value, which in ((h, "ih"), (state, "hh"))
        )
        reset = self.gate("sigmoid", read[0] + kept[0], "gate reset")
        update = self.gate("sigmoid", read[1] + kept[1], "gate update")
        new = self.gate("tanh", read[2] + reset * kept[2], "gate new")
        return (1 - update) * new + update * state

    def conv(self, op: Op, h: Tensor) -> Tensor:
        """Send messages along the edges, each multiplied by its edge's mask, and aggregate them."""
        sent = messages(self.case, op)
        nodes = torch.arange(len(self.case.x))
        sources, targets = (torch.tensor([m[k] for m in sent], dtype=torch.long) for k in (0, 1))
        reads = (sources.view(-1, 1) == nodes).double()  # [M, N]
        receives = (nodes.view(-1, 1) == targets).double()  # [N, M]
        degrees = receives.sum(dim=1)
        constant = torch.ones(len(self.mask), 1, dtype=torch.float64)
        mask = self.mask[:, self.steps[self.number]]
        masks = [constant if m.edge is None else mask[:, m.edge : m.edge + 1] for m in sent]
        edges = torch.cat([*masks, constant[:, :0]], dim=1).unsqueeze(-1)  # [T, M, 1]
        values = self.linear(op, h, ".lin", bias=False) if op.kind in ("gcn", "gat") else h
        rows = reads @ values
        if op.kind == "own":
            if op.options["kind"] == "difference":
                rows = rows - receives.t() @ h
            elif op.options["kind"] == "product":
                rows = rows * (receives.t() @ h)
            elif op.options["kind"] == "relu":
                rows = self.gate("relu", rows)
        if op.kind in WITH_ATTRIBUTES:
            which = torch.tensor([m.edge for m in sent], dtype=torch.long)
            offers = self.linear(op, self.attributes[:, which], ".lin")
            rows = rows * offers if op.options.get("kind") == "product" else rows + offers
            rows = self.gate("relu", rows, "message gate") if op.kind == "gine" else rows
        if op.kind == "gcn" and op.options["normalize"]:
            roots = torch.where(degrees > 0, degrees, 1).sqrt()
            inverse = torch.where(degrees > 0, 1 / roots, 0 * roots)
            rows = rows * (inverse[sources] * inverse[targets]).view(-1, 1)
        if op.kind == "gat":
            rows = self.attend(op, values, rows, reads, receives)
        rows = rows * edges
        aggregation = op.options.get("aggr", "sum")
        if aggregation == "max":
            out = self.maximum(rows, receives)
        elif aggregation == "std":
            out = self.deviation(rows, receives / degrees.clamp(min=1).view(-1, 1))
        else:
            out = receives @ rows
            if aggregation == "mean":
                out = out / degrees.clamp(min=1).view(-1, 1)
        return self.update(op, h, out)

    def deviation(self, rows: Tensor, means: Tensor) -> Tensor:
        """Return the root of max(variance, 1e-5), where that is not 1e-5: a gate, the root's ratio, and a choice."""
        variance = means @ (rows * rows) - (means @ rows) * (means @ rows)

        def pattern() -> Tensor:
            if ((variance - 1e-5).abs() < 1e-9).any():
                raise Undecided("a variance is 1e-5 up to rounding")
            return torch.where(variance > 1e-5, 1 - 1e-5 / variance, 0 * variance)

        bounded = 1e-5 + self.factor("gate clamp", pattern) * variance
        root = bounded * self.factor("ratio", lambda: 1 / bounded.sqrt())
        return root * self.factor("kept", lambda: (bounded > 1e-5).double())

    def attend(self, op: Op, values: Tensor, rows: Tensor, reads: Tensor, receives: Tensor) -> Tensor:
        """Multiply messages by the attention coefficients of their heads."""
        heads = op.options["heads"]
        split = values.unflatten(-1, (heads, -1))

        def coefficients() -> Tensor:
            source, target = ((split * self.parameter(op, name)[0]).sum(dim=-1) for name in (".att_src", ".att_dst"))
            logits = reads @ source + receives.t() @ target
            logits = torch.where(logits > 0, logits, 0.2 * logits)
            rivals = (receives.t() @ receives > 0).unsqueeze(-1)  # [M, M, 1]: messages to the same node
            ahead = logits.unsqueeze(1) - logits.unsqueeze(2)
            return 1 / torch.where(rivals, torch.exp(ahead), torch.zeros_like(ahead)).sum(dim=2)

        attention = self.factor("frozen", coefficients)
        return (rows.unflatten(-1, (heads, -1)) * attention.unsqueeze(-1)).flatten(-2)

    def update(self, op: Op, h: Tensor, out: Tensor) -> Tensor:
        """Make a layer's output of what a node has received and of its own row."""
        if op.kind == "gcn":
            return out + self.parameter(op, ".bias") if op.options["bias"] else out
        if op.kind == "sage":
            out = self.linear(op, out, ".lin_l")
            if op.options["root_weight"]:
                out = out + self.linear(op, h, ".lin_r", bias=False)
            return self.normalize("norm", out) if op.options["normalize"] else out
        if op.kind == "graph_conv":
            return self.linear(op, out, ".lin_rel") + self.linear(op, h, ".lin_root", bias=False)
        if op.kind in ("gin", "gine"):
            hidden = self.linear(op, out + (1 + self.parameter(op, ".eps")) * h, ".nn.0")
            return self.linear(op, self.gate("relu", hidden), ".nn.2")
        if op.kind == "gat":
            if not op.options["concat"]:
                out = out.unflatten(-1, (op.options["heads"], -1)).mean(dim=-2)
            return out + self.parameter(op, ".bias")
        return out


def degree(case: Case) -> int:
    """Return a bound of the number of factors in a scalar product."""
    degrees = [1]
    for op in case.ops:
        inputs = [degrees[k] for k in op.inputs]
        own = {"gin": 2, "gat": 2, "sage": 3, "own": 3, "gcn": 1, "graph_conv": 2, "gine": 4, "attributed": 3}.get(
            op.kind, 0
        )
        own += op.kind in ("activation", "layer_norm", "normalize", "maximum", "pool")
        doubled = op.kind == "own" and (op.options["kind"] == "product") + 2 * (op.options["aggr"] == "std")
        own += 3 * (op.kind == "gru")
        times = 3 if op.kind == "gru" else 1 + doubled
        degrees.append((sum(inputs) if op.kind == "mul" else max(inputs) * times) + own)
        # A value changed in place has the higher degree from then on; taking it for all readers is safe.
        if op.options.get("inplace"):
            degrees[op.inputs[0]] = degrees[-1]
    return degrees[-1]


@dataclass
class Verdict:
    """What the referee says.

    Attributes:
        outputs: The output for each mask.
        differences: For each target f(G) - f(without what is attributed).
        features: The attributions of x, [masks, N, F]; zeros unless features are attributed.
        steps: The attributions of the edges by call of a layer, [masks, steps, E].
        attributes: The attributions of the edge attributes, [masks, E, D].
        scale: The size of the numbers that were added up, for relative tolerances.
        divided_zeros: Whether a row of zeros was divided by its norm. If it is 0 because numbers cancel, these are now
            1e12 times as large, and so are their rounding errors.
    """

    outputs: Tensor
    differences: list[float]
    features: Tensor
    steps: Tensor
    attributes: Tensor
    scale: float
    divided_zeros: bool

    def parts(self, case: Case) -> list[Tensor]:
        """Return the attributions of what a case attributes, in the order of ``attribute``."""
        by_name = {"node": self.features, "edge": self.steps.sum(dim=1), "edge_attr": self.attributes}
        return [by_name[name] for name in case.attributed]


class Referee:
    """The definitions of GOAt, applied to one case."""

    def __init__(self, case: Case, parameters: Mapping[str, Tensor]) -> None:
        self.case = case
        self.network = Network(case, parameters)
        self.x = torch.tensor(case.x, dtype=torch.float64)
        self.attributes = torch.tensor(case.attributes, dtype=torch.float64).view(
            len(case.edges), -1 if case.edges else 0
        )
        self.with_x, self.with_edges, self.with_attributes = (
            name in case.attributed for name in ("node", "edge", "edge_attr")
        )
        points, weights = np.polynomial.legendre.leggauss(max(16, degree(case) // 2 + 1))
        self.points = torch.from_numpy((points + 1) / 2)
        self.weights = torch.from_numpy(weights / 2)
        fields = Fields(case).factors
        self.sharers = {key: [self.sharers_of(entry) for entry in entries] for key, entries in fields.items()}
        self.last_steps = {key: [self.last_steps_of(entry) for entry in entries] for key, entries in fields.items()}
        self.scale = 1e-3

    def sharers_of(self, entry: Entry) -> Counter[Element]:
        """Count the elements that share what lands on a gate: the edges and non-zero features in its field."""
        result: Counter[Element] = Counter()
        if self.with_edges:
            result.update(("edge", item[2]) for item in entry if item[0] == "edge")
            if self.case.field == "distinct":
                result = Counter(dict.fromkeys(result, 1))
        if self.with_x and (result or any(item[0] == "row" for item in entry)):
            kind = "own" if self.with_edges else "row"
            for node in (item[1] for item in entry if item[0] == kind):
                result.update(("feature", node, c) for c, number in enumerate(self.case.x[node]) if number != 0)
        reached = [int(item[2]) for item in entry if item[0] == "attribute"]
        # As edges, attributes are counted once for every hop, and as features once where edges are no variables.
        for edge in reached if self.with_edges and self.case.field == "repeated" else set(reached):
            numbers = self.case.attributes[edge]
            result.update(("attribute", edge, c) for c, number in enumerate(numbers) if number != 0)
        return result

    def last_steps_of(self, entry: Entry) -> dict[int, int]:
        """Return for each edge that reaches a gate the last step in which a message over the edge does."""
        steps: dict[int, int] = {}
        for item in entry:
            if item[0] == "step":
                edge, step = int(item[2]), self.network.steps[int(item[1])]
                steps[edge] = max(step, steps.get(edge, 0))
        return steps

    def judge(self) -> Verdict:
        """Return attributions and outputs for all masks."""
        case = self.case
        level, width = shapes(case)[-1]
        rows = len(case.x) if level == "node" else case.num_graphs
        outputs, differences, features, edges, attributes = [], [], [], [], []
        for number, numbers in enumerate(case.masks):
            mask = torch.tensor(numbers, dtype=torch.float64).repeat(len(self.network.steps), 1)
            targets = case.targets[number : number + 1] if case.many or level == "node" else case.targets
            places = [
                (row % rows if level == "node" else graph, column % width)
                for graph, (row, column) in enumerate(targets)
            ]
            explained = self.shares(self.x, mask, self.attributes, places)
            baseline = self.shares(
                self.x * (not self.with_x),
                mask * (not self.with_edges),
                self.attributes * (not self.with_attributes),
                places,
            )
            outputs.append(explained[0])
            differences += [float(explained[0][place] - baseline[0][place]) for place in places]
            features.append(explained[1] - baseline[1])
            edges.append(explained[2] - baseline[2])
            attributes.append(explained[3] - baseline[3])
        stacked = [torch.stack(tensors) for tensors in (features, edges, attributes)]
        return Verdict(torch.stack(outputs), differences, *stacked, self.scale, self.network.divided_zeros)

    def shares(
        self, x: Tensor, mask: Tensor, attributes: Tensor, places: list[tuple[int, int]]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the output, and what features, edges and attributes are given: own shares and those of gates."""
        output, factors = self.network.record(x, mask, attributes)
        spread: Counter[Element] = Counter()
        inputs = (x, mask, attributes)
        own, landed = self.integrate(inputs, factors, places, "gate")
        _, landed_on_frozen = self.integrate(inputs, factors, places, "frozen")
        for key, contributions in [*landed.items(), *landed_on_frozen.items()]:
            entries = zip(self.sharers[key], self.last_steps[key], contributions.flatten().tolist(), strict=True)
            for sharers, last, contribution in entries:
                for element, count in sharers.items():
                    place = ("edge", last.get(element[1], 0), element[1]) if element[0] == "edge" else element
                    spread[place] += contribution * count / sharers.total()
        for element, number in spread.items():
            own[("feature", "edge", "attribute").index(element[0])][element[1:]] += number
        for tensor in (output, *own, *landed.values()):
            self.scale = max(self.scale, float(tensor.abs().max())) if tensor.numel() else self.scale
        return output, own[0], own[1], own[2]

    def integrate(
        self,
        inputs: tuple[Tensor, ...],
        factors: Mapping[Key, Tensor],
        places: list[tuple[int, int]],
        kind: str,
    ) -> tuple[list[Tensor], dict[Key, Tensor]]:
        """Share the scalar products among inputs and gates; or, those without any, among frozen factors.

        ``kind`` is "gate" or "frozen". In the second case the variables are 0, which leaves the products without any.
        """
        t = self.points
        by_kind = {"gate": t, "frozen": torch.ones_like(t)} if kind == "gate" else {"gate": 0 * t, "frozen": t}

        def leaf(value: Tensor, scale: Tensor, scaled: Tensor) -> Tensor:
            """Return [T, ...] copies of a value; where it is a variable, each with its scale."""
            scale = scale.view(-1, *[1] * value.dim())
            return torch.where(scaled, scale * value, torch.ones_like(scale) * value).requires_grad_()

        variable = (self.with_x, self.with_edges, self.with_attributes)
        own_leaves = [
            leaf(value, by_kind["gate"], torch.tensor(scaled)) for value, scaled in zip(inputs, variable, strict=True)
        ]
        leaves = {}
        for key, value in factors.items():
            reached = torch.tensor([bool(sharers) for sharers in self.sharers[key]], dtype=torch.bool)
            leaves[key] = leaf(value, by_kind["gate" if "gate" in key[1] else "frozen"], reached.view(value.shape))
        output = self.network.replay(*own_leaves, leaves)
        total = torch.stack([output[:, row, column].sum() for row, column in places]).sum()
        wanted = [*own_leaves, *leaves.values()]
        gradients = torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)
        values = [*inputs, *factors.values()]
        shares = [
            value * torch.tensordot(self.weights, gradient, dims=1)
            for value, gradient in zip(values, gradients, strict=True)
        ]
        landed = {
            key: share
            for key, share in zip(factors, shares[len(inputs) :], strict=True)
            if ("gate" in key[1]) == (kind == "gate")
        }
        return [share * scaled for share, scaled in zip(shares, variable, strict=False)], landed
