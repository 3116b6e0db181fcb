"""Explanations for people: one offline HTML page, and the substructures that many explanations share."""

from captum_goat.report.page import write_report
from captum_goat.report.substructures import summarize

__all__ = ["summarize", "write_report"]
