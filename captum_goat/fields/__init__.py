"""Receptive fields: which edges and inputs reach which rows, as sets that are stored once."""
