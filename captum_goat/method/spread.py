"""From the shares of gates to the edges and features of their receptive fields (Eq. 11 of GOAt), and the check of sums.

What lands on a gate is shared among the distinct edges that can reach it, and, where features are attributed, among the
features that are not zero. What the gates contribute without any edge (the calibration, Eq. 13) is subtracted first, so
that attributions add up to the output minus the output without edges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.adjacency.mask_entry import AtAdjacency, owners_by_degrees
from captum_goat.fields.receptive_field import Elements, ReceptiveFields
from captum_goat.fields.small_fields import Owners, SmallFields, find_owners, owners_by_reach
from captum_goat.inputs.graph_inputs import GraphInputs
from captum_goat.inputs.targets import Target
from captum_goat.method.replay import ActivationPattern
from captum_goat.method.share import Contributions
from captum_goat.tracking import UnsupportedModelError
from captum_goat.tracking.sparse import num_edges

Fields = ReceptiveFields | SmallFields


class SharedEdgesError(ValueError):
    """An edge reaches several of the explained outputs, so it does not belong to one graph."""


class Attributions(NamedTuple):
    """The attribution of each edge and each feature for one target."""

    edges: Tensor  # ``[E]``; empty if edges were not attributed
    features: list[Tensor]  # of the shapes of the attributed inputs
    delta: Tensor  # the completeness error of each explained number


def find_fields(pattern: ActivationPattern, owners: Owners | None = None, *, repeated: bool) -> Fields:
    """Return the receptive fields of gates; ``owners`` may say which of several explained numbers each row reaches."""
    subject, rows = pattern.subject, pattern.rows
    counts = (_row_sums(feature != 0) for feature in subject.features)
    elements = Elements(subject.mask.numel(), torch.cat([torch.ones_like(subject.mask, dtype=torch.long), *counts]))
    both = subject.own_rows > 0
    if pattern.graph.renumbered and (both or repeated):
        raise UnsupportedModelError(
            "The model gives its nodes new numbers, as pooling that selects nodes does, so it is not known which node "
            "a gate belongs to. Use field='distinct', and mask_type 'edge' or 'node'."
        )
    if not repeated and not both and SmallFields.fits(pattern.graph, elements.weights, owners):
        return SmallFields(pattern.graph, elements.weights, owners, pattern.gate_blocks)
    wanted = pattern.gate_blocks | (frozenset() if rows is None else rows.sources)
    return ReceptiveFields(pattern.graph, elements, wanted=wanted, repeated=repeated, own_rows=subject.own_rows)


def owners_of(
    pattern: ActivationPattern, target: Target, copies: int | None, *, reaching: bool = False
) -> tuple[Tensor, Owners | None]:
    """Return the explained number, by position, of each edge and input row (-1: none), and of rows if it is not one.

    A single number, or that of a copy, is also that of edges that do not reach it, unless ``reaching``.
    """
    rows, subject = pattern.rows, pattern.subject
    sizes = [*map(num_edges, subject.edge_sets), *(len(feature) for feature in subject.features)]
    owner = torch.full((sum(sizes),), -1, dtype=torch.long, device=target.rows.device)
    if rows is None:
        return owner, None
    if target.rows.numel() == 1 and not reaching:
        return torch.zeros_like(owner), None
    first = subject.mask.numel()
    nodes = range(first, first + subject.own_rows)
    explained, owners = rows.ids.expand(pattern.output.shape)[target.index], None
    if pattern.graph.reach is not None:
        of_elements = owners_by_reach(pattern.graph.reach, explained)
    else:
        owners = find_owners(pattern.graph, explained, owner.numel(), nodes)
        of_elements = owners and owners.elements
    if of_elements is None:
        raise SharedEdgesError(
            f"Expected a target such as (node, class): rows of the model's output {list(pattern.output.shape)} "
            f"share edges or inputs, as rows of nodes do. Choose one of them."
        )
    owner = of_elements
    if subject.entry is AtAdjacency:
        owner = owners_by_degrees(owner, subject.edge_sets)
    if copies is None:
        return owner, owners
    number = torch.cat([torch.arange(size, device=owner.device) * copies // max(size, 1) for size in sizes])
    if ((owner >= 0) & (owner != number)).any():
        raise SharedEdgesError("Expected copies of a graph that do not reach each other.")
    return owner if reaching else number, owners


@dataclass(frozen=True)
class Spreading:
    """Gives the shares of gates to edges and features."""

    graph: GraphInputs  # the model's arguments
    pattern: ActivationPattern  # what was recorded
    fields: Fields  # the receptive fields of gates
    proportional: bool  # whether gates are shared in proportion to the own shares of edges and features, else equally
    start: tuple[ActivationPattern, Fields] | None = None  # what was recorded without edges, if it has its own rows

    def __call__(
        self,
        target: Target,
        owner: Tensor,
        shares: Contributions,
        calibration: Tensor,
        base: Tensor,
        strictness: float = 0.5,
    ) -> Attributions:
        """Return the attributions for one target, after a check of their sums."""
        pairs = zip(self.pattern.subject.features, shares.features, strict=True)
        sizes = [(feature != 0).to(share.dtype) for feature, share in pairs]
        weights, num_edges = None, shares.edges.numel()
        if self.proportional:
            least = math.sqrt(torch.finfo(shares.rows.dtype).tiny)  # among edges without a share of their own: equally
            sizes = [share.abs() + least * size for share, size in zip(shares.features, sizes, strict=True)]
            weights = torch.cat([shares.edges.abs() + least, *map(_row_sums, sizes)]).to(shares.rows.dtype)
        if self.start is None:
            spread = self.fields.spread(shares.rows - calibration, self.pattern.gate_blocks, weights)
        else:
            pattern, fields = self.start
            spread = self.fields.spread(shares.rows, self.pattern.gate_blocks, weights)
            spread = spread - fields.spread(calibration, pattern.gate_blocks, weights)
            spread = spread + self._of_constants(target, owner, pattern, sizes, num_edges)
        edges = shares.edges + spread[:num_edges].to(shares.edges.dtype)
        features = _with_gates(shares.features, sizes, spread[num_edges:])
        ends = torch.stack([target(self.pattern.output), target(base)], dim=1).to(edges.dtype)  # with and without edges
        scores = torch.stack([flat(edges, features), flat(edges.abs(), [feature.abs() for feature in features])])
        total, magnitude = sums(owner, target, scores)
        delta = total - (ends[:, 0] - ends[:, 1])
        rounding = sum(torch.linalg.vector_norm(part, 1) for part in (shares.rows, calibration))
        eps = self.pattern.eps
        # Sums over many rows are imprecise in the model itself, over a million rows by 1e-3 in single precision. In
        # half precision the same formula would allow any error, though shares are summed more precisely: hence a limit.
        most = eps**0.5 if torch.finfo(self.pattern.output.dtype).bits < 32 else math.inf
        many = min(eps * (64 + 32 * math.sqrt(shares.edges.numel() + shares.rows.numel())), most)
        size = torch.linalg.vector_norm(ends, 1, dim=1) * many + eps**strictness * magnitude
        self._check(delta, size + min(100 * eps, most) * rounding + 16 * eps)
        return Attributions(edges, features, delta)

    def _of_constants(
        self, target: Target, owner: Tensor, start: ActivationPattern, sizes: list[Tensor], num_edges: int
    ) -> Tensor:
        """Return the shares in what rows that no edge reaches contribute by being chosen, or not, with the edges.

        All edges and features that reach the explained number share in that equally.
        """
        change = target(self.pattern.constants()) - target(start.constants())
        weights = torch.cat([change.new_ones(num_edges), *(_row_sums(size).to(change.dtype) for size in sizes)])
        weights, owner = weights * (owner >= 0), owner.clamp(min=0)
        total = change.new_zeros(change.numel()).index_add_(0, owner, weights)
        return weights * torch.where(total > 0, change / total, 0.0)[owner]

    def _check(self, delta: Tensor, rounding: Tensor) -> None:
        """Raise UnsupportedModelError if the attributions miss the output by more than what rounding explains."""
        if (delta.abs() <= rounding).all():
            return
        cause = "the model has a state that changes, or computes something outside of torch"
        if not delta.isfinite().all():
            self.graph.check_finite(**{"the edge mask": self.pattern.subject.mask})
            cause = f"the model computes values that are infinite or nan in {self.pattern.output.dtype}"
        elif self.pattern.suspects:
            known = " or ".join(dict.fromkeys(self.pattern.suspects))
            cause = f"{known} takes values out of torch, where they cannot be tracked"
        elif not self.pattern.sites.is_polynomial:
            cause = "degrees change more than the weights of messages. Use at='message'"
        raise UnsupportedModelError(
            f"The attributions do not add up to the output (the sum is off by {float(delta.abs().max()):.2g}): {cause}."
        )


def sums(owner: Tensor, target: Target, scores: Tensor) -> Tensor:
    """Return the sums of several scores, ``[S, elements]``, for each explained number, ``[S, numbers]``."""
    count, owned = target.rows.numel(), owner[: scores.size(1)] >= 0
    if count == 1:
        return scores.where(owned, 0.0).sum(dim=1, keepdim=True)
    kept = torch.nonzero(owned).view(-1)
    return scores.new_zeros(len(scores), count).index_add_(1, owner[kept], scores[:, kept])


def flat(edges: Tensor, features: Sequence[Tensor]) -> Tensor:
    """Return the score of each edge, and the sum of each row of features."""
    return torch.cat([edges, *map(_row_sums, features)]) if features else edges


def _with_gates(shares: list[Tensor], sizes: list[Tensor], spread: Tensor) -> list[Tensor]:
    """Add to the share of each feature its part of the gates' shares of its row, in proportion to its size."""
    attributions = []
    for share, size in zip(shares, sizes, strict=True):
        part, spread = spread[: len(share)], spread[len(share) :]
        total = _row_sums(size)
        per_size = torch.where(total > 0, part / total, 0.0).to(share.dtype)
        attributions.append(share + per_size.view([-1] + [1] * (share.dim() - 1)) * size)
    return attributions


def _row_sums(values: Tensor) -> Tensor:
    """Return the sum of each row over all other dimensions."""
    return values.flatten(1).sum(dim=1) if values.dim() > 1 else values.unsqueeze(1).sum(dim=1)
