"""Writes a chart of step times to a file: HTML or PNG, by the suffix of the file name."""

from holdfast.views.steps.page import html_page
from holdfast.views.steps.png import PlotUnavailable, write_png

__all__ = ["PlotUnavailable", "html_page", "write_png"]
