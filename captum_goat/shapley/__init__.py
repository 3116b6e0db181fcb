"""Shapley values of edges: guided by cheap attributions, or by shapiq's methods on a game of edges."""

from captum_goat.shapley.guided import EdgeGame, GuidedShapley

__all__ = ["EdgeGame", "GuidedShapley"]
