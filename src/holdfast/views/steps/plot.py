"""Writes a chart of step times to a file: a page for a browser, or a picture, by the file name's suffix."""

from holdfast.views.steps.page import html_page
from holdfast.views.steps.png import PlotUnavailable, write_png

__all__ = ["PlotUnavailable", "html_page", "write_png"]
