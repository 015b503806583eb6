"""Plots of step times into a file: a page for a browser, or a picture without one. The name's end decides."""

from holdfast.views.steps.page import html_page
from holdfast.views.steps.png import PlotUnavailable, write_png

__all__ = ["PlotUnavailable", "html_page", "write_png"]
