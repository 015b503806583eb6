"""Defines alert rules and their series, as the data files in `alert_rules/` contain them. No behaviour."""

from typing import Literal

from msgspec import Struct, field

Severity = Literal["critical", "warning", "info"]


class DeviceMetric(Struct, frozen=True, kw_only=True):
    """One row of device_metrics.csv: a metric of an exporter, its older names and its source."""

    name: str
    group: str
    old_names: tuple[str, ...]
    unit: str
    meaning: str
    exporter_default: str
    pitfalls: str
    source: str


class SeriesName(Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a series. `scale`: factor from its unit to the quantity's unit."""

    name: str
    scale: float = 1.0


class Series(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quantity, and the names of series that can contain it, newest first.

    `counter`: it only increases. `off`: what to do if the exporter does not enable it by default. `labels`:
    default labels of the series in a test.
    """

    names: tuple[SeriesName, ...]
    unit: str
    exporter: str
    labels: str
    off: str = ""
    counter: bool = False


class RuleCase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A promtool test case of a rule: series by name or `$quantity` with labels, one value per 30 s, and the
    time of the test.

    `count`: number of firing alerts; -1: at least one. `labels`: count only alerts with these labels.
    """

    series: dict[str, str]
    at: str = "4m"
    count: int = 1
    labels: str = ""


class AlertRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An alert rule. `expr`: PromQL with quantities. `needs`: series it requires, `a|b` for alternatives."""

    name: str
    says: str
    advice: str
    expr: str
    severity: Severity
    needs: tuple[str, ...]
    source: str
    fires: tuple[RuleCase, ...]
    quiet: tuple[RuleCase, ...]
    for_: str = field(name="for", default="0s")


class RuleGroup(Struct, frozen=True):
    """The alert rules of one rule file."""

    name: str
    rules: tuple[AlertRule, ...]


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One expression of a dashboard panel. `legend`: in Grafana's label syntax."""

    expr: str
    legend: str


class Panel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A panel of a dashboard. `unit`: as in Grafana. `wide`: it takes a whole row."""

    title: str
    unit: str
    targets: tuple[Target, ...]
    kind: Literal["timeseries", "stat", "table"] = "timeseries"
    says: str = ""
    max: float | None = None
    stack: bool = False
    wide: bool = False
    exemplars: bool = False


class Variable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable of a Grafana dashboard: its values are the results of `query`."""

    name: str
    label: str
    query: str


class Dashboard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Grafana dashboard with its panels."""

    uid: str
    title: str
    says: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


class RuleBook(Struct, frozen=True, kw_only=True):
    """All alert rules, series and dashboards in `alert_rules/`. `facts`: by newest metric name."""

    facts: dict[str, DeviceMetric]
    series: dict[str, Series]
    groups: tuple[RuleGroup, ...]
    dashboards: tuple[Dashboard, ...] = ()
