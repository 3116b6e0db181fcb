"""Explanations as one offline HTML page or as a widget; molecules from SMILES; what many explanations share."""

from captum_goat.report.page import show, write_report
from captum_goat.report.smiles import explain_smiles
from captum_goat.report.substructures import summarize

__all__ = ["explain_smiles", "show", "summarize", "write_report"]
