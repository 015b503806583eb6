"""Defines metrics for Prometheus: their descriptions and their values at one moment."""

from typing import Literal

from msgspec import Struct

MetricType = Literal["counter", "gauge", "histogram", "info"]
# The exporters: the controller of a job, the agent of each node, the server.
Exporter = Literal["controller", "agent", "server"]

Labels = tuple[tuple[str, str], ...]


class Metric(Struct, frozen=True, kw_only=True):
    """The description of one metric.

    `name`: in the Prometheus text format, including `_total` (counter) or `_info` (info).

    `unit`: as in the name; empty for a count or a state. `source`: where the value comes from. `buckets`:
    ascending upper limits of a histogram, without infinity.
    """

    name: str
    type: MetricType
    help: str
    source: str
    exported_by: tuple[Exporter, ...]
    labels: tuple[str, ...] = ()
    unit: str = ""
    buckets: tuple[float, ...] = ()


class Exemplar(Struct, frozen=True):
    """The exemplar of a counter or bucket: its latest example, only in the OpenMetrics format."""

    labels: Labels
    value: float
    at_s: float | None = None


class Sample(Struct, frozen=True, gc=False):
    """One value of a Prometheus metric. `labels`: label values in the metric's order."""

    metric: str
    labels: tuple[str, ...]
    value: float
    exemplar: Exemplar | None = None


class Distribution(Struct, frozen=True):
    """The values of one histogram. `counts`: per bucket, not cumulative, one more than limits.

    `exemplars`: the last of each bucket.
    """

    metric: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    sum: float
    exemplars: tuple[Exemplar | None, ...] = ()


AnySample = Sample | Distribution
