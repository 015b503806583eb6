"""Reads the data of `alert_rules/`: the table of device metrics, the quantities, and the rules.

[[rule]]
name = "GpuPowerZero"
expr = "$gpu_power == 0"
"""

import csv
from collections.abc import Mapping
from io import StringIO
from typing import TypeVar

import msgspec
from msgspec import Struct

from holdfast.model.monitoring.alert_rules import (
    AlertRule,
    Dashboard,
    DeviceMetric,
    RuleBook,
    RuleGroup,
    Series,
)

Kind = TypeVar("Kind")


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    rule: tuple[AlertRule, ...]


class _Dashboards(Struct, frozen=True, forbid_unknown_fields=True):
    dashboard: tuple[Dashboard, ...]


class AlertRulesBroken(ValueError):
    """Raised for an invalid file in `alert_rules/`; the message names the file and the error."""


def device_metrics(text: str) -> dict[str, DeviceMetric]:
    """Parses device_metrics.csv. Returns its rows by the newest name of the metric.

    raises: AlertRulesBroken
    """
    found = {}
    for row in csv.DictReader(StringIO(text)):
        try:
            found[row["name"]] = DeviceMetric(
                name=row["name"],
                group=row["group"],
                old_names=tuple(row["old_names"].split()),
                unit=row["unit"],
                meaning=row["meaning"],
                exporter_default=row["exporter_default"],
                pitfalls=row["pitfalls"],
                source=row["source"],
            )
        except (KeyError, AttributeError) as error:
            raise AlertRulesBroken(f"device_metrics.csv has no column {error}") from error
    return found


def rule_book(csv_text: str, series_text: str, rules: Mapping[str, str], dashboards_text: str) -> RuleBook:
    """Parses all files of `alert_rules/`. `rules`: the text of each file of rules, by name of its group.

    raises: AlertRulesBroken
    """
    return RuleBook(
        facts=device_metrics(csv_text),
        series=_decoded("series.toml", series_text, dict[str, Series]),
        groups=tuple(
            RuleGroup(name, _decoded(f"{name}.toml", text, _File).rule) for name, text in rules.items()
        ),
        dashboards=_decoded("dashboards.toml", dashboards_text, _Dashboards).dashboard,
    )


def _decoded(name: str, text: str, kind: type[Kind]) -> Kind:
    try:
        return msgspec.toml.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise AlertRulesBroken(f"{name}: {error}") from error
