"""Peeling: attribute, remove the most important edges, attribute what is left."""

from captum_goat.peeling.peeling import Peeling, UpperHalfGradients

__all__ = ["Peeling", "UpperHalfGradients"]
