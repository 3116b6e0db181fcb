"""Explanations as one offline HTML page."""

from captum_goat.report.page import write_report

__all__ = ["write_report"]
