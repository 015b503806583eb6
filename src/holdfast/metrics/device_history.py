"""Asks Prometheus for the device metrics of some nodes around a moment: few questions, bounded in time and size."""

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.metrics.device_evidence import BEFORE_S, Reading
from holdfast.core.metrics.promql import expanded
from holdfast.metrics.prometheus import Found, Prometheus, PrometheusUnavailable
from holdfast.model.monitoring.alert_rules import RuleBook
from holdfast.model.signatures import Words

STEP_S, LARGE_STEP_S = 15.0, 30.0
LARGE_NODES = 512
AFTER_S = 60.0
TOTAL_S = 8.0  # for all questions together
NODES_MAX = 2_048
SERIES_MAX = 32_768  # of one question: 16,384 ranks, and half as many ports
WITHOUT_NODES_MAX = 512  # GPUs, where it is not known which nodes are meant
# By the label that names the node. Rates over two minutes: an exporter is scraped at least once in one.
QUESTIONS = {
    "gpu_util": ("Hostname", "$gpu_util{}"),
    "gpu_sm": ("Hostname", "$gpu_sm{}"),
    "gpu_tensor": ("Hostname", "$gpu_tensor{}"),
    "gpu_power": ("Hostname", "$gpu_power{}"),
    "gpu_xid": ("Hostname", "$gpu_xid{}"),
    "cnp_handled": ("instance", "$rate(cnp_handled, 2m){}"),
}


class History(NamedTuple):
    """`note`: why there is nothing, or not all; None: all is there."""

    readings: list[Reading]
    note: Words | None


def device_history(prometheus: Prometheus, book: RuleBook, nodes: Sequence[str], at_s: float) -> History:
    """`nodes`: names; none: all that Prometheus has, if they are few. raises: nothing; `note` says what went wrong"""
    until_s = time.monotonic() + TOTAL_S
    step_s = LARGE_STEP_S if len(nodes) > LARGE_NODES else STEP_S
    readings: list[Reading] = []
    try:
        if not nodes and (found := prometheus.now(expanded("count($gpu_util)", book.series), at_s=at_s)):
            count = found[0].values[-1][1]
            if count > WITHOUT_NODES_MAX:
                return History(
                    [], _note(f"it has {count:.0f} GPUs, and which nodes are meant is not known: name them")
                )
        for quantity, (label, template) in QUESTIONS.items():
            if time.monotonic() > until_s:
                return History(readings, _note(f"not all was asked within {TOTAL_S:.0f} s"))
            query = expanded(template.replace("{}", _selector(label, nodes)), book.series)
            series = prometheus.over(query, at_s - BEFORE_S, at_s + AFTER_S, step_s)
            if len(series) > SERIES_MAX:
                return History(readings, _note(f"it has more than {SERIES_MAX} series of {quantity}"))
            readings += [_reading(quantity, label, one) for one in series]
    except PrometheusUnavailable as error:
        return History(readings, _note(str(error)))
    if not readings:
        return History([], _note("it has no device metrics of these nodes at that time"))
    return History(readings, None)


def _selector(label: str, nodes: Sequence[str]) -> str:
    """Nodes by their short or full names, with a port behind them or not."""
    if not nodes:
        return ""
    names = "|".join(re.escape(name.partition(".")[0]).replace("\\", "\\\\") for name in nodes[:NODES_MAX])
    return f'{{{label}=~"(?:{names})(?:[.].*)?(?::[0-9]+)?"}}'


def _reading(quantity: str, label: str, one: Found) -> Reading:
    node = one.labels.get(label, "").partition(":")[0]
    device = one.labels.get("gpu") or one.labels.get("device", "")
    return Reading(quantity=quantity, node=node, device=device, values=one.values)


def _note(why: str) -> Words:
    return Words(
        en=f"Device metrics are not read from Prometheus: {why}", zh=f"未能从 Prometheus 读取设备指标：{why}"
    )
