r"""Shapley values from the values of coalitions: exactly from all of them, by a guided regression from some.

A pair of coalitions, S and its complement, tells by :math:`u_S = (v(S) - v(\bar S) + v(N) - v(\emptyset)) / 2` what the
players in S have together; what is left out, :math:`v(S) + v(\bar S)`, does not depend on Shapley values. The
regression looks for values :math:`\varphi = r + F a`, F being the guides, with the smallest

.. math:: \sum_S 2 w_S \big(u_S - \sum_{i \in S} \varphi_i\big)^2 + \lambda \, |r|^2 + \frac{\lambda}{100} \, |a|^2

subject to :math:`\sum_i \varphi_i = v(N) - v(\emptyset)`. It is solved as what it is to a Bayesian: the mean of
:math:`\varphi` given the :math:`u_S`, if :math:`\varphi` has the covariance :math:`C = I + 100\,F F^T` before, and the
sum as given beforehand. The equations are as many as pairs, however many players there are.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from captum_goat.shapley.coalitions import Coalitions

_GUIDE_VARIANCE = 100.0  # of the coefficients of guides, relative to that of a player's own part


class Solution(NamedTuple):
    """Shapley values of G games with the same number of players, their parts, and standard errors."""

    values: Tensor  # the values, ``[G, M]``
    own: Tensor  # the part r of each value that guides do not explain, ``[G, M]``
    coefficients: Tensor  # those of the guides, ``[G, K]``
    errors: Tensor  # the standard errors of the values, ``[G, M]``


def exact_values(coalitions: Coalitions, differences: Tensor, totals: Tensor) -> Tensor:
    """Return the Shapley values ``[G, M]``, given all coalitions; the other arguments as in :func:`guided_values`."""
    members, num_players = coalitions.members.to(differences.device), coalitions.members.size(1)
    sizes = members.sum(dim=1, keepdim=True).double()
    others = torch.where(members, sizes - 1, sizes)  # in a set that the player joins
    last = torch.tensor(float(num_players), dtype=torch.double, device=members.device)
    weights = torch.exp(torch.lgamma(others + 1) + torch.lgamma(last - others) - torch.lgamma(last + 1))
    return differences @ torch.where(members, weights, -weights) + (totals / num_players).unsqueeze(1)


def guided_values(
    coalitions: Coalitions, differences: Tensor, totals: Tensor, guides: Tensor, regularization: float
) -> Solution:
    """Return estimated Shapley values, given the values of some coalitions.

    Args:
        coalitions: The pairs of coalitions.
        differences: v(S) minus v of the complement, ``[G, pairs]``.
        totals: v(all players) minus v(no players), ``[G]``.
        guides: The guides, each of norm 1 or 0, ``[G, M, K]``.
        regularization: Lambda.
    """
    members = coalitions.members.to(differences)
    weights = coalitions.weights.to(differences)
    sums = _GUIDE_VARIANCE * guides.sum(dim=1, keepdim=True)  # [G, 1, K]
    to_total = 1.0 + (guides * sums).sum(dim=2)  # the covariance of each value with the total, [G, M]
    share = to_total / to_total.sum(dim=1, keepdim=True)
    prior = share * totals.unsqueeze(1)
    of_guides = members @ guides  # [G, pairs, K]
    to_pairs = members.t() + _GUIDE_VARIANCE * guides @ of_guides.transpose(1, 2)  # with each u_S, [G, M, pairs]
    to_pairs = to_pairs - share.unsqueeze(2) * to_pairs.sum(dim=1, keepdim=True)  # given the total
    matrix = members @ to_pairs + torch.diag(regularization / (2.0 * weights))
    root = torch.linalg.cholesky(matrix)
    surprise = (differences + totals.unsqueeze(1)) / 2.0 - prior @ members.t()
    solved = torch.cholesky_solve(surprise.unsqueeze(2), root)  # [G, pairs, 1]
    values = prior + (to_pairs @ solved).squeeze(2)
    values = values + (totals - values.sum(dim=1)).unsqueeze(1) / values.size(1)  # rounding
    # What of a value is due to guides: their coefficients given the same observations.
    multiplier = (totals - (solved * (members @ to_total.unsqueeze(2))).sum(dim=(1, 2))) / to_total.sum(dim=1)
    gains = of_guides.transpose(1, 2) @ solved + sums.transpose(1, 2) / _GUIDE_VARIANCE * multiplier.view(-1, 1, 1)
    coefficients = _GUIDE_VARIANCE * gains.squeeze(2)
    own = values - (guides @ coefficients.unsqueeze(2)).squeeze(2)
    free = max(1, members.size(0) - guides.size(2))  # the coefficients of guides are nearly unpenalised
    scale = (surprise * solved.squeeze(2)).sum(dim=1, keepdim=True) / free
    before = 1.0 + _GUIDE_VARIANCE * guides.square().sum(dim=2) - share * to_total
    known = torch.linalg.solve_triangular(root, to_pairs.transpose(1, 2), upper=False).square().sum(dim=1)
    return Solution(values, own, coefficients, (scale * (before - known)).clamp(min=0.0).sqrt())
