"""One explanation: record, share, spread, calibrate, check."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from captum_goat.adjacency.mask_entry import ENTRIES, AtAdjacency, AtMessages, Entry, check_base
from captum_goat.fields.small_fields import Owners, spread_by_step
from captum_goat.inputs.copies import copies_agree, fallback_to_single_runs
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.request import Request
from captum_goat.inputs.targets import Choice, Target, find_target
from captum_goat.method.record import KnownModel, record
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.method.share import Contributions, Shares, contributions, is_exact, share_in_replicas
from captum_goat.method.spread import (
    Attributions,
    Fields,
    SharedEdgesError,
    Spreading,
    find_fields,
    flat,
    owners_of,
    sums,
)
from captum_goat.rules.quadrature import EXACT_POINTS, quadrature
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.program import ProgramStore

_logger = logging.getLogger(__name__)

# The numbers of points that are tried, if the replay is not a polynomial, until the attributions add up.
SMOOTH_POINTS = (8, 16, 32, 64, 128)


class GraphExplanation:
    """The explanation of one or several outputs per graph. Call :meth:`record` first."""

    pattern: ActivationPattern
    targets: list[Target]  # each selects one number per graph
    points: int = 0  # how many points of integrals, one forward and one backward pass each, the attributions took

    def __init__(
        self,
        graph: GraphInputs,  # the graph or batch of graphs, or inputs without a graph
        choice: Callable[[Tensor], Sequence[Any]],  # returns the targets, given the model's output
        *,
        mask: Tensor | None = None,  # ``[E]``; ``None`` if edges are not attributed
        features: Sequence[Tensor] = (),  # the first arguments of the model, if they are attributed
        finish: Callable[[Any], Any] | None = None,  # applied to the model's output
        copies: int | None = None,  # the number of copies of one graph in ``graph``; ``None`` if it is the user's graph
        repeated: bool = False,  # whether receptive fields list an edge once per hop
        proportional: bool = False,  # whether gates are shared in proportion to own shares, else equally
        entry: Entry = AtMessages,  # how the mask enters
        programs: ProgramStore[KnownModel] | None = None,  # the known programs of the model
    ) -> None:
        edge_sets = () if mask is None else graph.edge_sets
        mask = features[0].new_empty(0) if mask is None else mask
        of_nodes = features[: len(features) - (graph.attributes is not None)] if edge_sets else ()
        of_model = Subject(graph.model, graph.output_rows, tuple(features), edge_sets, mask, finish, entry)
        own_rows, offsets = sum(map(len, of_nodes)), graph.offsets(of_nodes)
        of_model = of_model._replace(own_rows=own_rows, offsets=offsets, by_node=repeated or own_rows > 0)
        self._subject = of_model
        self._graph, self._choice, self._copies = graph, choice, copies
        self._repeated, self._proportional = repeated, proportional
        self._programs = programs if entry.can_batch and not features and finish is None else None
        self._fields: Fields
        self._owners: list[Tensor] = []
        self._start: tuple[ActivationPattern, Fields] | None = None  # the pattern without edges, if it has its own rows

    def record(self) -> GraphExplanation:
        """Run the model, and find the targets and the edges and gates that reach them."""
        graph = self._graph if self._subject.entry.can_batch else None
        self.pattern = record(self._subject, graph, self._programs)
        if self._copies is not None and self.output.size(0) % self._copies:
            rows = self.output.size(0)
            raise SharedEdgesError(f"Expected {self._copies} times the rows of one graph (got {rows} rows).")
        self.targets = [find_target(self.output, target, self._copies) for target in self._choice(self.output)]
        of_rows: list[Owners | None] = []
        for number, target in enumerate(self.targets):
            if number == 0 or not torch.equal(self.targets[number - 1].rows, target.rows):
                owner, owners = self._find_owners(target)
                of_rows.append(owners)
            self._owners.append(owner)
        owners = of_rows[0] if len(of_rows) == 1 else None
        self._fields = find_fields(self.pattern, owners, repeated=self._repeated)
        if self._subject.features:
            self.pattern = self.pattern.with_constants(self._fields.row_weights(self.pattern.gate_blocks))
        return self

    @property
    def output(self) -> Tensor:
        """The model's output."""
        return self.pattern.output

    def values(self, number: int = 0) -> Tensor:
        """Return the explained numbers of one of the targets, one per graph."""
        return self.targets[number](self.output)

    def sums(self, edges: Tensor, features: Sequence[Tensor] = ()) -> Tensor:
        """Return the sum of the scores of each graph's own edges and features, for the first target."""
        return sums(self._owners[0], self.targets[0], flat(edges, features).view(1, -1))[0]

    def attribute(self) -> list[Attributions]:
        """Return the attributions for each target, with the completeness error of each graph."""
        if self.pattern.tape is not None:
            try:
                return self._attribute()
            except UnsupportedModelError as error:  # a tape may lack what torch does not see: then the model runs again
                _logger.debug("The tape of %s did not serve: %r", type(self._subject.model).__name__, error)
            self.pattern = replace(self.pattern, tape=None)
        return self._attribute()

    def _attribute(self) -> list[Attributions]:
        """Share and spread, with as many points as are exact, or as it takes until the attributions add up."""
        pattern, polynomial = self.pattern, self.pattern.sites.is_polynomial
        self.points = 0
        if polynomial and is_exact(pattern.rows):
            self._count_points(EXACT_POINTS, None)
            return self._spread(share_in_replicas(pattern, self.targets) or self._share(pattern, self._base()))
        base, pattern = self._base(), pattern if polynomial else pattern.with_starts()
        for count in SMOOTH_POINTS:
            smooth = None if polynomial else count
            self._count_points(count, smooth)
            shares = self._share(pattern, base, most=count, smooth=smooth)
            with suppress(UnsupportedModelError):
                return self._spread(shares, strictness=0.75)
        return self._spread(shares)

    def _share(self, pattern: ActivationPattern, base: ActivationPattern, **points: Any) -> Shares:
        """Return the shares by one replay after the other."""
        own = contributions(pattern, self.targets, **points)
        calibrations = contributions(base, self.targets, inputs=False, **points | {"smooth": None})
        return Shares(self.output, base.output, own, [shares.rows for shares in calibrations])

    def _count_points(self, most: int, smooth: int | None) -> None:
        if (rows := self.pattern.rows) is not None:
            self.points += len(quadrature(rows.degree, rows.frozen, smooth, most))
            self.points += len(quadrature(rows.gates, rows.frozen, most=most))

    def attribute_steps(self) -> list[Tensor]:
        """Return the attributions for each target by message passing step, ``[steps, E]``."""
        pattern, base, whole = self.pattern, self._base(), self.attribute()
        if self._start is not None:
            raise UnsupportedModelError(
                "The model selects rows, and may select other ones without edges, where its steps are not the same."
            )
        mask, sites = pattern.subject.mask, pattern.sites.sites
        # Every step gets a mask of its own: the steps' edges are numbered one after the other.
        moved = [site.edges.where(site.edges < 0, site.edges + k * mask.numel()) for k, site in enumerate(sites)]
        sites = tuple(site._replace(edges=edges) for site, edges in zip(sites, moved, strict=True))
        apart = pattern.subject._replace(mask=mask.repeat(len(sites)))
        pattern = replace(pattern, subject=apart, sites=replace(pattern.sites, sites=sites))
        most = EXACT_POINTS if is_exact(pattern.rows) else SMOOTH_POINTS[-1]
        _, _, own, calibrations = self._share(pattern, base, most=most)
        return [self._steps(*parts) for parts in zip(own, calibrations, whole, strict=True)]

    def _steps(self, shares: Contributions, calibration: Tensor, whole: Attributions) -> Tensor:
        """Return the attributions of one target by step."""
        shape = len(self.pattern.sites.sites), whole.edges.numel()
        steps, weights = shares.edges.view(shape), torch.ones_like(whole.edges)
        if self._proportional:
            weights = steps.sum(dim=0).abs() + math.sqrt(torch.finfo(shares.rows.dtype).tiny)
        rows = (shares.rows - calibration).to(torch.float64)
        steps = steps + spread_by_step(self.pattern.graph, rows, weights.to(torch.float64)).to(steps.dtype)
        added = (whole.edges, shares.rows, calibration)  # numbers that cancel leave their rounding
        near = self.pattern.eps**0.5 * max(float(numbers.abs().sum()) for numbers in added)
        if not torch.allclose(steps.sum(dim=0), whole.edges, rtol=0.0, atol=near):
            raise UnsupportedModelError("The shares of steps do not add up to the attributions.")
        return steps

    def _spread(self, shares: Shares, strictness: float = 0.5) -> list[Attributions]:
        """Give the gates' shares, minus their shares without edges, to edges and features."""
        if not self.pattern.chooses:
            self.pattern = replace(self.pattern, output=shares.output)
        spread = Spreading(self._graph, self.pattern, self._fields, self._proportional, self._start)
        parts = zip(self.targets, self._owners, shares.contributions, shares.calibrations, strict=True)
        return [spread(*part, shares.base, strictness) for part in parts]

    def _base(self) -> ActivationPattern:
        """Return the pattern without edges, after a check that it is that of the graph without edges."""
        base = self._recorded_at_zero() if self.pattern.chooses else self.pattern.at_zero()
        if base.subject.entry is AtAdjacency:
            subject = base.subject._replace(features=(), edge_sets=())

            def output_of(graph: GraphInputs) -> Tensor:
                return record(subject._replace(forward=graph.output_rows)).output

            check_base(self._graph.with_leading(base.subject.features), base.output, self.output, output_of)
        return base

    def _recorded_at_zero(self) -> ActivationPattern:
        """Return the pattern without edges of a model that chooses rows: it may choose other ones."""
        subject = self._subject
        features = tuple(torch.zeros_like(feature) for feature in subject.features)
        base = record(subject._replace(mask=torch.zeros_like(subject.mask), features=features))
        fields = find_fields(replace(base, subject=subject), repeated=self._repeated)
        for number, target in enumerate(self.targets):  # edges may reach an output without edges alone
            own, others = (
                owners_of(pattern, target, self._copies, reaching=True)[0]
                for pattern in (self.pattern, replace(base, subject=subject))
            )
            reached, owner = own.where(own >= 0, others), self._owners[number]
            # Edges may change what is chosen where none of them reaches what is: then all of the graph's share that.
            self._owners[number] = reached.where((owner < 0) | torch.isin(owner, reached), owner)
        if features:
            base = base.with_constants(fields.row_weights(base.gate_blocks))
        self._start = base, fields
        return base

    def _find_owners(self, target: Target) -> tuple[Tensor, Owners | None]:
        return owners_of(self.pattern, target, self._copies)


def recorded_explanations(
    request: Request,
    choice: Choice,
    *,
    repeated: bool = False,
    proportional: bool = False,
    programs: ProgramStore[KnownModel] | None = None,
) -> list[GraphExplanation]:
    """Record the model: once for the inputs or for copies side by side, else once per mask."""
    spreading: dict[str, Any] = {"repeated": repeated, "proportional": proportional}
    entry: dict[str, Any] = {"finish": request.finish, "entry": ENTRIES[request.at]}

    def explanation(graph: GraphInputs, choice: Choice, part: Any, **options: Any) -> GraphExplanation:
        mask, features = part
        graph = graph.with_leading(features)
        return GraphExplanation(graph, choice, mask=mask, features=features, **entry, **options).record()

    count = request.count
    if count is None:
        return [explanation(request.graph, choice, request.whole, programs=programs, **spreading)]
    singles, choices = request.singles, [choice.of_mask(number, count) for number in range(count)]
    if count > 1 and request.finish is None:
        last = explanation(request.graph, choices[-1], singles[-1], copies=1)
        with fallback_to_single_runs():
            graph = request.graph.with_leading(singles[-1][1]).copies(count)
            together = explanation(graph, choice, request.whole, copies=count, **spreading)
            if copies_agree(together.output, last.output, count):
                return [together]
    parts = zip(choices, singles, strict=True)
    return [explanation(request.graph, single, part, copies=1, **spreading) for single, part in parts]
