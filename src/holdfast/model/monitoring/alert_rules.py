"""Alert rules, and the series that they are written in, as the data of `alert_rules/` holds them. No behaviour."""

from typing import Literal

from msgspec import Struct, field

Severity = Literal["critical", "warning", "info"]


class DeviceMetric(Struct, frozen=True, kw_only=True):
    """One row of device_metrics.csv: a metric that an exporter has, its older names, and where that is known from."""

    name: str
    group: str
    old_names: tuple[str, ...]
    unit: str
    meaning: str
    exporter_default: str
    pitfalls: str
    source: str


class SeriesName(Struct, frozen=True, forbid_unknown_fields=True):
    """`scale`: from the unit of this name to that of the quantity."""

    name: str
    scale: float = 1.0


class Series(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quantity and the series that it may be found in, the newest name first.

    `counter`: it only grows. `off`: what to do where the exporter does not have it by default. `labels`: of a series in a
    test that names none.
    """

    names: tuple[SeriesName, ...]
    unit: str
    exporter: str
    labels: str
    off: str = ""
    counter: bool = False


class RuleCase(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Series for promtool, by name or `$quantity` with labels, one value every 30 s; when to look; how many alerts fire.

    `count`: -1: at least one. `labels`: only alerts with these count.
    """

    series: dict[str, str]
    at: str = "4m"
    count: int = 1
    labels: str = ""


class AlertRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`expr`: PromQL with quantities. `needs`: what must be there for it to fire, `a|b` where one of them will do."""

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
    """One file of rules."""

    name: str
    rules: tuple[AlertRule, ...]


class Target(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One expression of a panel. `legend`: with labels as Grafana writes them."""

    expr: str
    legend: str


class Panel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`unit`: a unit of Grafana's. `wide`: a row of its own."""

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
    """What the reader chooses: the values that `query` finds."""

    name: str
    label: str
    query: str


class Dashboard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uid: str
    title: str
    says: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()


class RuleBook(Struct, frozen=True, kw_only=True):
    """Everything of `alert_rules/`. `facts`: by the newest name."""

    facts: dict[str, DeviceMetric]
    series: dict[str, Series]
    groups: tuple[RuleGroup, ...]
    dashboards: tuple[Dashboard, ...] = ()
