"""Builds Grafana dashboards from their data. Pure.

source: grafana.com/docs, dashboard JSON model (classic), schemaVersion 39 (Grafana 10.4 and newer migrate it)
"""

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.core.metrics.promql import expanded
from holdfast.model.monitoring.alert_rules import Dashboard, Panel, Series, Variable

SCHEMA = 39
COLUMNS = 24
STAT_WIDTH, STAT_HEIGHT = 6, 4
WIDTH, HEIGHT = 12, 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

Document = dict[str, Any]


def grafana(dashboard: Dashboard, series: Mapping[str, Series]) -> Document:
    """Returns the document that Grafana imports. The user selects the data source."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.says,
        "tags": ["holdfast"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), *map(_variable, dashboard.variables)]},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_panels(dashboard, series)),
    }


def expressions(dashboard: Dashboard, series: Mapping[str, Series]) -> list[str]:
    """Returns the PromQL of all panels, including Grafana's variables."""
    return [expanded(target.expr, series) for panel in dashboard.panels for target in panel.targets]


def _datasource() -> Document:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def _variable(one: Variable) -> Document:
    return {
        "name": one.name,
        "label": one.label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": one.query,
        "refresh": 2,
        "sort": 1,
        "hide": 0,
        "multi": False,
        "includeAll": False,
    }


def _panels(dashboard: Dashboard, series: Mapping[str, Series]) -> Iterator[Document]:
    x = y = height = 0
    for number, panel in enumerate(dashboard.panels, 1):
        width, tall = (STAT_WIDTH, STAT_HEIGHT) if panel.kind == "stat" else (WIDTH, HEIGHT)
        width = COLUMNS if panel.wide else width
        if x + width > COLUMNS or (height and tall != height and x):
            x, y = 0, y + height
        place = {"x": x, "y": y, "w": width, "h": tall}
        x, height = x + width, tall
        if x >= COLUMNS:
            x, y, height = 0, y + tall, 0
        yield _panel(number, panel, place, series)


def _panel(number: int, panel: Panel, place: Document, series: Mapping[str, Series]) -> Document:
    found: Document = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "gridPos": place,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + place_),
                "datasource": _DATASOURCE,
                "expr": expanded(target.expr, series),
                "legendFormat": target.legend,
                "instant": panel.kind != "timeseries",
                "range": panel.kind == "timeseries",
                "exemplar": panel.exemplars,
                "format": "table" if panel.kind == "table" else "time_series",
            }
            for place_, target in enumerate(panel.targets)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
    }
    return {**found, "description": panel.says} if panel.says else found


def _defaults(panel: Panel) -> Document:
    found: Document = {"unit": panel.unit}
    if panel.max is not None:
        found |= {"min": 0, "max": panel.max}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal", "group": "A"} if panel.stack else {"mode": "none", "group": "A"}
        found["custom"] = {
            "fillOpacity": 20 if panel.stack else 0,
            "showPoints": "never",
            "stacking": stacking,
        }
    return found


def _options(panel: Panel) -> Document:
    if panel.kind == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "none",
        }
    if panel.kind == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
