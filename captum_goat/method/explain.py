"""One explanation: record, share, spread, calibrate, check."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from captum_goat.adjacency.mask_entry import ENTRIES, AtMessages, Entry
from captum_goat.fields.small_fields import Owners, SmallFields, spread_by_step
from captum_goat.inputs.copies import copies_agree, fallback_to_single_runs
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.request import Request
from captum_goat.inputs.targets import Choice, Target, find_target
from captum_goat.method.known_models import KnownModel, record_by_program
from captum_goat.method.record import record
from captum_goat.method.replay import ActivationPattern, Subject
from captum_goat.method.share import (
    EXACT_POINTS,
    FAILURES,
    Contributions,
    Shares,
    contributions,
    is_exact,
    quadrature,
    share_in_replicas,
)
from captum_goat.method.spread import Attributions, Fields, SharedEdgesError, Spreading, find_fields, owners_of, sums
from captum_goat.rules.registry import version as rules_version
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.program import OtherProgramError, ProgramStore

_logger = logging.getLogger(__name__)

# The numbers of points that are tried, if the replay is not a polynomial, until the attributions add up.
SMOOTH_POINTS = (8, 16, 32, 64, 128)


class GraphExplanation:
    """The explanation of one or several outputs per graph. Call :meth:`record` first.

    Args:
        graph: The graph or batch of graphs, or inputs without a graph.
        choice: Returns the targets, given the model's output.
        mask: The edge mask, ``[E]``; ``None`` if edges are not attributed.
        features: The first arguments of the model, if they are attributed.
        finish: Applied to the model's output.
        copies: The number of copies of one graph in ``graph``; ``None`` if it is the user's graph.
        repeated: Whether receptive fields list an edge once per hop.
        proportional: Whether gates are shared in proportion to the own shares of edges and features, else equally.
        entry: How the mask enters.
        programs: The known programs of the model.
    """

    pattern: ActivationPattern
    targets: list[Target]  # each selects one number per graph
    points: int = 0  # how many points of integrals, one forward and one backward pass each, the attributions took

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
        entry: Entry = AtMessages,
        programs: ProgramStore[KnownModel] | None = None,
    ) -> None:
        edge_sets = () if mask is None else graph.edge_sets
        mask = features[0].new_empty(0) if mask is None else mask
        of_nodes = features[: len(features) - (graph.attributes is not None)] if edge_sets else ()
        of_model = Subject(graph.model, graph.output_rows, tuple(features), edge_sets, mask, finish, entry)
        self._subject = of_model._replace(own_rows=sum(map(len, of_nodes)), offsets=graph.offsets(of_nodes))
        self._graph, self._choice, self._copies = graph, choice, copies
        self._repeated, self._proportional = repeated, proportional
        self._programs = programs if entry.can_batch and not features and finish is None else None
        self._fields: Fields
        self._owners: list[Tensor] = []
        self._start: tuple[ActivationPattern, Fields] | None = None  # the pattern without edges, if it has its own rows

    def record(self) -> GraphExplanation:
        """Run the model, and find the targets and the edges and gates that reach them.

        Raises:
            SharedEdgesError: If an edge reaches several of the explained outputs.
        """
        self.pattern = self._record()
        self.targets = self._choose(self.output)
        rows: list[Owners | None] = []
        for number, target in enumerate(self.targets):
            if number == 0 or not torch.equal(self.targets[number - 1].rows, target.rows):
                owner, of_rows = self._find_owners(target)
                rows.append(of_rows)
            self._owners.append(owner)
        self._fields = self._find_fields(rows[0] if len(rows) == 1 else None)
        if self._subject.features:
            self._freeze_constants()
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
        return sums(self._owners[0], self.targets[0], edges, features)

    def attribute(self) -> list[Attributions]:
        """Return the attributions for each target, with the completeness error of each graph.

        Raises:
            UnsupportedModelError: If the attributions do not add up.
        """
        if self.pattern.tape is not None:
            with suppress(UnsupportedModelError):  # a tape may lack what torch does not see: then the model runs again
                return self._attribute()
            self.pattern = replace(self.pattern, tape=None)
        return self._attribute()

    def _attribute(self) -> list[Attributions]:
        self.points = 0
        if not self.pattern.sites.is_polynomial or not is_exact(self.pattern.rows):
            return self._attribute_smoothly()
        self.points = self._count_points()
        return self._spread(share_in_replicas(self.pattern, self.targets) or self._share())

    def _share(self) -> Shares:
        """Return the shares by one replay after the other."""
        base = self._base()
        own, calibrations = contributions(self.pattern, self.targets), contributions(base, self.targets, inputs=False)
        return Shares(self.output, base.output, self.targets, own, calibrations)

    def attribute_steps(self) -> list[Tensor]:
        """Return the attributions for each target by message passing step, ``[steps, E]``.

        Raises:
            UnsupportedModelError: If the model selects rows, or if the shares of steps do not add up.
        """
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
        own = contributions(pattern, self.targets, most=most)
        calibrations = contributions(base, self.targets, inputs=False, most=most)
        return [self._steps(*parts) for parts in zip(own, calibrations, whole, strict=True)]

    def _steps(self, shares: Contributions, calibration: Contributions, whole: Attributions) -> Tensor:
        """Return the attributions of one target by step."""
        steps, weights = shares.edges.view(-1, whole.edges.numel()), torch.ones_like(whole.edges)
        if self._proportional:
            weights = steps.sum(dim=0).abs() + math.sqrt(torch.finfo(shares.rows.dtype).tiny)
        rows = (shares.rows - calibration.rows).to(torch.float64)
        steps = steps + spread_by_step(self.pattern.graph, rows, weights.to(torch.float64)).to(steps.dtype)
        near = self.pattern.eps**0.5 * float(whole.edges.abs().sum())
        if not torch.allclose(steps.sum(dim=0), whole.edges, rtol=0.0, atol=near):
            raise UnsupportedModelError("The shares of steps do not add up to the attributions.")
        return steps

    def _attribute_smoothly(self) -> list[Attributions]:
        """Attribute with as many points as it takes until the attributions add up."""
        base, polynomial = self._base(), self.pattern.sites.is_polynomial
        pattern = self.pattern if polynomial else self.pattern.with_starts()
        for count in SMOOTH_POINTS:
            calibrations = contributions(base, self.targets, inputs=False, most=count)
            own = contributions(pattern, self.targets, smooth=None if polynomial else count, most=count)
            shares = Shares(self.output, base.output, self.targets, own, calibrations)
            self.points += self._count_points(None if polynomial else count, count)
            with suppress(UnsupportedModelError):
                return self._spread(shares, strictness=0.75)
        return self._spread(shares)

    def _count_points(self, smooth: int | None = None, most: int = EXACT_POINTS) -> int:
        """Return the number of points of the integrals with and without edges."""
        if (rows := self.pattern.rows) is None:
            return 0
        own, base = quadrature(rows, inputs=True, smooth=smooth, most=most), quadrature(rows, inputs=False, most=most)
        return len(own) + len(base)

    def _spread(self, shares: Shares, strictness: float = 0.5) -> list[Attributions]:
        """Give the gates' shares, minus their shares without edges, to edges and features."""
        if not self.pattern.chooses:
            self.pattern = replace(self.pattern, output=shares.output)
        spread = Spreading(self._graph, self.pattern, self._fields, self._proportional, self._start)
        parts = zip(self.targets, self._owners, shares.contributions, shares.calibrations, strict=True)
        return [spread(*part, shares.base, strictness) for part in parts]

    def _base(self) -> ActivationPattern:
        """Return the pattern without edges.

        Raises:
            UnsupportedModelError: If masks count in degrees, and the output is not that of the graph without edges.
        """
        base = self._recorded_at_zero() if self.pattern.chooses else self.pattern.at_zero()
        subject = base.subject._replace(features=(), edge_sets=())

        def output_of(graph: GraphInputs) -> Tensor:
            return record(subject._replace(forward=graph.output_rows)).output

        graph = self._graph.with_leading(base.subject.features)
        subject.entry.check_base(graph, base.output, self.output, output_of)
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
            weights = fields.row_weights(base.gate_blocks)
            base = base.with_variable(lambda gates: gates.variable & (weights[gates.rows.ids] > 0))
        self._start = base, fields
        return base

    def _choose(self, output: Tensor) -> list[Target]:
        copies = self._copies
        if copies is not None and output.size(0) % copies:
            raise SharedEdgesError(f"Expected {copies} times the rows of one graph (got {output.size(0)} rows).")
        return [find_target(output, target, copies) for target in self._choice(output)]

    def _find_fields(self, owners: Owners | None) -> Fields:
        known = {} if self.pattern.known is None or owners is not None else self.pattern.known
        fields: Fields = known.get(self._repeated) or find_fields(self.pattern, owners, repeated=self._repeated)
        if isinstance(fields, SmallFields):  # which never change
            known[self._repeated] = fields
        return fields

    def _find_owners(self, target: Target) -> tuple[Tensor, Owners | None]:
        return owners_of(self.pattern, target, self._copies)

    def _freeze_constants(self) -> None:
        """Make gates constants if their field has no edge and no feature that is not zero."""
        weights = self._fields.row_weights(self.pattern.gate_blocks)
        self.pattern = self.pattern.with_variable(lambda gates: gates.variable & (weights[gates.rows.ids] > 0))

    @property
    def _key(self) -> Hashable:
        """What graphs must have in common to follow the same program."""
        return rules_version(), self._graph.kinds, self._subject.mask.dtype

    def _record(self) -> ActivationPattern:
        """Record the pattern by a program of the model if one fits, else the pattern and the model's program."""
        if not self._subject.entry.can_batch:
            return record(self._subject)
        arguments = self._graph.tensors
        if self._programs is None:
            return record(self._subject, arguments)
        for known in self._programs.of(self._key):
            try:
                pattern = record_by_program(known, self._subject, arguments)
            except (OtherProgramError, *FAILURES) as error:  # an error of the model itself is raised again below
                _logger.debug("A program of %s did not fit: %r", type(self._subject.model).__name__, error)
                continue
            _logger.debug("A program of %s was followed", type(self._subject.model).__name__)
            self._programs.hit()
            return pattern
        pattern = record(self._subject, arguments)
        self._programs.add(self._key, KnownModel.of(pattern))
        return pattern


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
