"""GOAt with other ways to share what lands on gates."""

from __future__ import annotations

from torch.nn import Module

from captum_goat import GOAtAttribution
from captum_goat.compare.explainers import GOAt


class RepeatedGOAt(GOAt):
    """GOAt, as in the authors' code: an edge counts once for every hop in which it reaches a gate."""

    name = "goat_repeated"

    def method(self, model: Module) -> GOAtAttribution:
        """Return GOAt with repeated receptive fields."""
        return GOAtAttribution(model, "repeated")


class ProportionalGOAt(GOAt):
    """GOAt that shares a gate in proportion to what its edges have already, not equally."""

    name = "goat_proportional"

    def method(self, model: Module) -> GOAtAttribution:
        """Return GOAt with proportional shares of gates."""
        return GOAtAttribution(model, gates="proportional")
