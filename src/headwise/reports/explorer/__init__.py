"""The report page: one offline HTML file in which two models can be looked at head by head."""

from headwise.reports.explorer.page import page

__all__ = ["page"]
