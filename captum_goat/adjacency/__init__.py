"""Masks that count in degrees, means and attention: an edge masked to 0 is an edge deleted."""
