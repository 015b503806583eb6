"""Writes a chart of benchmark results to a file: HTML or PNG, by the suffix of the file name."""

import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.model.checks import Baseline, NodeChecks
from holdfast.views.checks.chart import BenchFileUnreadable, chart, nodes_of
from holdfast.views.checks.page import html_page
from holdfast.views.checks.png import write_png
from holdfast.views.steps.png import PlotUnavailable


class NotDrawn(Exception):
    """Raised when the chart could not be written. The message says why and what to do."""


def draw(path: Path, nodes: Sequence[NodeChecks], known: Baseline | None = None) -> None:
    """Writes the chart of benchmark results to a file. Raises NotDrawn.

    `known`: the baseline of this node; None if the results are of several nodes.
    """
    drawn = chart(nodes, known)
    title = f"Benchmarks of {nodes[0].node}" if len(nodes) == 1 else f"Benchmarks of {len(nodes)} nodes"
    silent = [node.node for node in nodes if node.why_not]
    said = [time.strftime("%Y-%m-%d %H:%M", time.localtime(node.at_s)) for node in nodes[:1] if node.at_s]
    said += [f"no result from {', '.join(silent[:8])}"] if silent else []
    try:
        if path.suffix.lower() == ".png":
            write_png(path, drawn, title, said)
        else:
            path.write_text(html_page(drawn, title, said), encoding="utf-8")
    except PlotUnavailable as error:
        raise NotDrawn(str(error)) from error
    except OSError as error:
        raise NotDrawn(f"{path} cannot be written: {error.strerror or error}") from error


def read_nodes(paths: Sequence[Path]) -> tuple[NodeChecks, ...]:
    """Reads outputs of `holdfast check --suite bench --json`, and returns the nodes with their values.

    Raises NotDrawn.
    """
    nodes: list[NodeChecks] = []
    for path in paths:
        try:
            nodes += nodes_of(path.read_bytes(), str(path))
        except BenchFileUnreadable as error:
            raise NotDrawn(str(error)) from error
        except OSError as error:
            raise NotDrawn(f"{path} cannot be read: {error.strerror or error}") from error
    return tuple(nodes)
