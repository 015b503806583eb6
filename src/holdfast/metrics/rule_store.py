"""Loads the alert rules that are part of the package."""

from importlib.resources import files

from holdfast.model.monitoring.alert_rules import RuleBook
from holdfast.parsers.alert_rules import rule_book

FOLDER = "alert_rules"
FACTS, SERIES, DASHBOARDS = "device_metrics.csv", "series.toml", "dashboards.toml"
GROUPS = ("jobs", "gpu", "network", "host", "holdfast")


def package_rules() -> RuleBook:
    folder = files("holdfast").joinpath(FOLDER)
    return rule_book(
        folder.joinpath(FACTS).read_text(encoding="utf-8"),
        folder.joinpath(SERIES).read_text(encoding="utf-8"),
        {name: folder.joinpath(f"{name}.toml").read_text(encoding="utf-8") for name in GROUPS},
        folder.joinpath(DASHBOARDS).read_text(encoding="utf-8"),
    )
