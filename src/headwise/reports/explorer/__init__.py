"""The report page: one offline HTML file in which two models can be looked at head by head."""

from headwise.reports.explorer.report_page import page

__all__ = ["page"]
