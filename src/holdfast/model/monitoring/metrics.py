"""What is exported for Prometheus: the description of a metric, and its values at one moment."""

from typing import Literal

from msgspec import Struct

MetricType = Literal["counter", "gauge", "histogram", "info"]
# Who exports it: the process that decides for a job, the one on each node, the server over many jobs.
Exporter = Literal["controller", "agent", "server"]

Labels = tuple[tuple[str, str], ...]


class Metric(Struct, frozen=True, kw_only=True):
    """One metric. `name`: the whole one in Prometheus' text format, so with `_total` for a counter and `_info` for an info.

    `unit`: as the name says it; empty: a count or a state. `source`: where its value comes from. `buckets`: upper limits of
    a histogram's, ascending, without infinity.
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
    """An example that a counter or bucket was last raised by. OpenMetrics only."""

    labels: Labels
    value: float
    at_s: float | None = None


class Sample(Struct, frozen=True, gc=False):
    """One value of the metric of that name. `labels`: in the order of the metric's."""

    metric: str
    labels: tuple[str, ...]
    value: float
    exemplar: Exemplar | None = None


class Distribution(Struct, frozen=True):
    """One histogram. `counts`: in each bucket alone, one more than there are limits. `exemplars`: the last of each bucket."""

    metric: str
    labels: tuple[str, ...]
    counts: tuple[int, ...]
    sum: float
    exemplars: tuple[Exemplar | None, ...] = ()


AnySample = Sample | Distribution
