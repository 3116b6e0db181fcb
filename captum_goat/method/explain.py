"""One recorded forward pass, what is to be explained of it, and the explanation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captum_goat.adjacency.masked_output import check_same, running_without_edges, with_edges
from captum_goat.fields.receptive_field import Elements, ReceptiveFields
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import Target, find_target
from captum_goat.method.graph_cache import Memory
from captum_goat.method.record import record
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.method.replicas import Replicated, fits, replicated
from captum_goat.method.share import Contributions, contributions
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.call_trace import Steps

# The numbers of points that are tried for a replay that is no polynomial, until the attributions add up.
SMOOTH_POINTS = (8, 16, 32, 64, 128)


class SharedEdgesError(ValueError):
    """Some edge reaches several of the explained numbers, so it has no graph of its own."""


class Attributions(NamedTuple):
    """What each edge and each feature has to do with the output.

    Attributes:
        edges: ``[E]``; empty if edges were not attributed.
        features: Of the shapes of the attributed inputs.
        delta: The completeness error of each explained number.
    """

    edges: Tensor
    features: list[Tensor]
    delta: Tensor


class GraphExplanation:
    """The explanation of one number per graph, or of several, one after the other.

    Args:
        graph: The graph or batch of graphs; or inputs without a graph.
        choice: What to explain, given the model's output.
        mask: The edge mask, ``[E]``; ``None`` if edges are not attributed.
        features: The first arguments of the model, if they are attributed.
        finish: Applied to the model's output.
        copies: How many copies of one graph ``graph`` is made of; ``None`` for a graph as the user has it.
        repeated: Whether receptive fields list an edge once per hop.
        proportional: Whether gates are shared in proportion to the own shares of edges and features, else equally.
        adjacency: Whether the mask is the presence of the edges, else a factor of their messages.
        memory: What is known of graphs that were explained before.

    Attributes:
        pattern: What was recorded.
        targets: What is explained: one or several targets, each of one number per graph.

    Raises:
        SharedEdgesError: If some edge reaches several of the explained numbers.
    """

    def __init__(
        self,
        graph: GraphInputs,
        choice: Callable[[Tensor], Sequence[Any]],
        *,
        mask: Tensor | None = None,
        features: Sequence[Tensor] = (),
        finish: Callable[[Any], Any] | None = None,
        copies: int | None = None,
        repeated: bool = False,
        proportional: bool = False,
        adjacency: bool = False,
        memory: Memory | None = None,
    ) -> None:
        self._graph = graph
        edge_sets = () if mask is None else graph.edge_sets
        mask = features[0].new_empty(0) if mask is None else mask
        subject = Subject(graph.model, _forward_of(graph), tuple(features), edge_sets, mask, finish, adjacency)
        self._proportional = proportional
        self._found: Replicated | None = None

        def choose(output: Tensor) -> list[Target]:
            if copies is not None and output.size(0) % copies:
                raise SharedEdgesError(f"Expected {copies} times the rows of one graph (got {output.size(0)} rows).")
            return [find_target(output, each, copies) for each in choice(output)]

        known = None if memory is None else memory.recall(graph, subject, repeated)
        if known is not None and known.pattern.steps is not None:
            self._found = replicated(known.pattern, choose, known.pattern.steps.again(graph.tensors), known.plan)
        if known is not None and self._found is not None:
            self.pattern, self.targets = replace(known.pattern, output=self._found.output), self._found.targets
            self._fields, reach = known.fields, [known.fields]
        else:
            self.pattern = record(subject, None if memory is None else Steps(graph.tensors))
            self.targets = choose(self.output)
            reach = self._find_fields(repeated)
        self._owners: list[Tensor] = []
        for number, target in enumerate(self.targets):
            last = self.targets[number - 1].rows if number else None
            same = last is not None and torch.equal(last, target.rows)
            self._owners.append(self._owners[-1] if same else self._find_owners(target, reach, copies))
        if features:
            self.pattern = self._with_constants()
        if memory is not None and self._found is None:
            memory.keep(graph, self.pattern, self._fields, repeated)

    def _find_fields(self, repeated: bool) -> list[ReceptiveFields]:
        """Find the fields of gates, and return those by which edges and inputs belong to rows of the output."""
        mask, features, rows = self.pattern.subject.mask, self.pattern.subject.features, self.pattern.graph
        weights = torch.cat([torch.ones_like(mask, dtype=torch.long), *(_row_sums(each != 0) for each in features)])
        elements = Elements(mask.numel(), weights)
        both = bool(features) and bool(self.pattern.subject.edge_sets)
        wanted = self.pattern.gate_blocks | (
            self.pattern.rows.sources if self.pattern.rows is not None else frozenset()
        )
        self._fields = ReceptiveFields(rows, elements, wanted=wanted, repeated=repeated, own_features=both)
        return [ReceptiveFields(rows, elements, wanted=wanted), self._fields] if both else [self._fields]

    @property
    def output(self) -> Tensor:
        """The model's output."""
        return self.pattern.output

    def values(self, number: int = 0) -> Tensor:
        """The explained numbers of one of the targets, one per graph."""
        return self.targets[number](self.output)

    def attribute(self) -> list[Attributions]:
        """Return the attributions for each target, with the completeness error of each graph.

        Raises:
            UnsupportedModelError: If the attributions do not add up.
        """
        if not self.pattern.is_polynomial:
            return self._attribute_smoothly()
        if self._found is None and fits(self.pattern):
            self._found = replicated(self.pattern, lambda _: self.targets)
        found = self._found or self._one_after_the_other()
        self.pattern = replace(self.pattern, output=found.output)
        return self._all_spread(found)

    def _base(self) -> ActivationPattern:
        """Return the pattern without edges.

        Raises:
            UnsupportedModelError: If masks stand for the presence of edges, and the model is not the same without them.
        """
        base = self.pattern.at_zero()
        if self.pattern.subject.adjacency:
            graph = self._graph.with_leading(base.subject.features)
            graph = with_edges(graph, torch.zeros_like(base.subject.mask, dtype=torch.bool))
            with running_without_edges(graph):
                deleted = record(base.subject._replace(forward=_forward_of(graph), features=(), edge_sets=()))
            check_same(graph, base.output, deleted.output, self.output)
        return base

    def _one_after_the_other(self) -> Replicated:
        base = self._base()
        shares = contributions(self.pattern, self.targets)
        calibrations = contributions(base, self.targets, inputs=False)
        return Replicated(self.output, base.output, self.targets, shares, calibrations)

    def _attribute_smoothly(self) -> list[Attributions]:
        """Attribute with as many points as the sums need."""
        pattern, base = self.pattern.with_starts(), self._base()
        calibrations = contributions(base, self.targets, inputs=False)
        for count in SMOOTH_POINTS:
            shares = contributions(pattern, self.targets, smooth=count)
            found = Replicated(self.output, base.output, self.targets, shares, calibrations)
            with suppress(UnsupportedModelError):
                return self._all_spread(found, strictness=0.75)
        return self._all_spread(found)

    def _all_spread(self, found: Replicated, strictness: float = 0.5) -> list[Attributions]:
        shares = zip(self.targets, found.shares, found.calibrations, strict=True)
        return [
            self._spread(number, share, calibration, target(found.base), strictness)
            for number, (target, share, calibration) in enumerate(shares)
        ]

    def _spread(
        self, number: int, shares: Contributions, calibration: Contributions, base: Tensor, strictness: float
    ) -> Attributions:
        """Give the gates' shares to the edges and features, and check the sums."""
        subject = self.pattern.subject
        sizes = [(each != 0).to(share.dtype) for each, share in zip(subject.features, shares.features, strict=True)]
        weights, num_edges = None, shares.edges.numel()
        if self._proportional:
            least = math.sqrt(torch.finfo(shares.rows.dtype).tiny)  # among edges without a share of their own: equally
            sizes = [share.abs() + least * size for share, size in zip(shares.features, sizes, strict=True)]
            weights = torch.cat([shares.edges.abs() + least, *map(_row_sums, sizes)]).to(shares.rows.dtype)
        spread = self._fields.spread(shares.rows - calibration.rows, self.pattern.gate_blocks, weights)
        edges = shares.edges + spread[:num_edges].to(shares.edges.dtype)
        features = _with_gates(shares.features, sizes, spread[num_edges:])
        value, base = self.values(number).to(edges.dtype), base.to(edges.dtype)
        delta = self.sums(edges, features, number) - (value - base)
        magnitude = self.sums(edges.abs(), [each.abs() for each in features], number)
        rounding = shares.rows.abs().sum() + calibration.rows.abs().sum()
        eps = self.pattern.eps
        # Sums over very many rows are off in the model itself: over a million of them by 1e-3 in single precision. What
        # that would be in half precision, where sums of shares are not half as coarse, would allow anything.
        most = eps**0.5 if torch.finfo(self.output.dtype).bits < 32 else math.inf
        many = min(eps * (64 + 32 * math.sqrt(shares.edges.numel() + shares.rows.numel())), most)
        size = (value.abs() + base.abs()) * many + eps**strictness * magnitude
        self._check(delta, size + min(100 * eps, most) * rounding + 16 * eps)
        return Attributions(edges, features, delta)

    def sums(self, edges: Tensor, features: Sequence[Tensor] = (), number: int = 0) -> Tensor:
        """Return the sum of the scores of each graph's own edges and features, for one of the targets."""
        scores = torch.cat([edges, *(_row_sums(each) for each in features)])
        owner = self._owners[number][: scores.numel()]
        owned = owner >= 0
        return scores.new_zeros(self.targets[number].rows.numel()).index_add(0, owner[owned], scores[owned])

    def _with_constants(self) -> ActivationPattern:
        """Make gates constants whose field has neither an edge nor a feature that is not zero."""
        weights = self._fields.row_weights(self.pattern.gate_blocks)
        return self.pattern.with_variable(lambda each: each.variable & (weights[each.rows.ids] > 0))

    def _find_owners(self, target: Target, fields: Sequence[ReceptiveFields], copies: int | None) -> Tensor:
        """Return the position of the one explained number to which each edge and input row belongs (-1: none).

        Args:
            target: The explained numbers.
            fields: Receptive fields of the output; an element may be in a field by reaching the row or by belonging
                to the node or graph that the row stands for.
            copies: How many copies of one graph there are.
        """
        rows, subject = self.pattern.rows, self.pattern.subject
        sizes = [*(each.size(1) for each in subject.edge_sets), *(len(each) for each in subject.features)]
        owner = torch.full((sum(sizes),), -1, dtype=torch.long, device=target.rows.device)
        if rows is None:
            return owner
        if target.rows.numel() == 1:
            return torch.zeros_like(owner)
        wanted = rows.ids.expand(self.output.shape)[target.index]
        for each in fields:
            found = each.owners(wanted, rows.sources)
            if found is None or ((owner >= 0) & (found >= 0) & (owner != found)).any():
                raise SharedEdgesError(
                    f"Expected a target such as (node, class): the model's output {list(self.output.shape)} has rows "
                    f"that share edges or inputs, as rows of nodes do, so one of them must be chosen."
                )
            owner = owner.where(owner >= 0, found[: owner.numel()])
        if subject.adjacency and len(subject.edge_sets) == 1:
            owner = _with_neighbours(owner, subject.edge_sets[0])
        if copies is not None:
            number = torch.cat([torch.arange(size, device=owner.device) * copies // max(size, 1) for size in sizes])
            if ((owner >= 0) & (owner != number)).any():
                raise SharedEdgesError("Expected copies of a graph that do not reach each other.")
            return number
        return owner

    def _check(self, delta: Tensor, rounding: Tensor) -> None:
        """Raise if the attributions miss the output by more than what rounding explains."""
        if (delta.abs() <= rounding).all():
            return
        cause = "the model has a state that changes, or code that cannot be seen"
        if not delta.isfinite().all():
            self._graph.check_finite(**{"the edge mask": self.pattern.subject.mask})
            cause = f"the model computes numbers that are infinite or nan in {self.output.dtype}"
        elif self.pattern.suspects:
            known = " or ".join(dict.fromkeys(self.pattern.suspects))
            cause = f"{known} takes values out of torch, and what becomes of them cannot be seen"
        elif not self.pattern.is_polynomial:
            cause = "degrees have to do with more than the weights of messages. Use at='message'"
        raise UnsupportedModelError(
            f"The attributions do not add up to the output (the sum is off by {float(delta.abs().max()):.2g}): {cause}."
        )


def _forward_of(graph: GraphInputs) -> Callable[[Sequence[Tensor]], Any]:
    """Return a function that calls a model with its first arguments; an output of one number is one row."""

    def forward(leading: Sequence[Tensor]) -> Any:
        output = graph(leading)
        return output.view(1) if isinstance(output, Tensor) and output.dim() == 0 else output

    return forward


def _with_neighbours(owner: Tensor, edge_index: Tensor) -> Tensor:
    """Give edges that reach no explained number by messages, but may by degrees, to that of their neighbours."""
    edges, count = owner[: edge_index.size(1)].clone(), edge_index.size(1)
    of_node = torch.full((int(edge_index.max()) + 1,), -1, device=owner.device) if count else edges
    for _ in range(count):
        known = of_node.scatter_reduce(0, edge_index.reshape(-1), edges.repeat(2), "amax")
        edges = edges.where(edges >= 0, known[edge_index].amax(dim=0))
        if torch.equal(known, of_node):
            break
        of_node = known
    return torch.cat([edges, owner[count:]])


def _with_gates(shares: list[Tensor], sizes: list[Tensor], spread: Tensor) -> list[Tensor]:
    """Add to each feature its part, by its size, of what the gates gave to its row."""
    found = []
    for share, size in zip(shares, sizes, strict=True):
        part, spread = spread[: len(share)], spread[len(share) :]
        total = _row_sums(size)
        each = torch.where(total > 0, part / total, 0.0).to(share.dtype)
        found.append(share + each.view([-1] + [1] * (share.dim() - 1)) * size)
    return found


def _row_sums(values: Tensor) -> Tensor:
    """Return the sum over everything in each row."""
    return values.flatten(1).sum(dim=1) if values.dim() > 1 else values.unsqueeze(1).sum(dim=1)
