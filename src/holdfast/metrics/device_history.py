"""Queries Prometheus for device metrics of nodes around a moment, with limits on queries, time and size."""

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
TOTAL_S = 8.0  # for all queries together
NODES_MAX = 2_048
SERIES_MAX = 32_768  # per query: 16,384 ranks, and half as many ports
APART_S = 10.0
WITHOUT = Words(en="Device metrics could not be read from Prometheus", zh="未能从 Prometheus 读取设备指标")
WITH = Words(en="Device metrics were read from Prometheus", zh="已从 Prometheus 读取设备指标")
WITHOUT_NODES_MAX = 512  # GPUs, if the nodes are unknown
# By the label that names the node. Rates cover two minutes, because exporters are scraped at least once a
# minute.
QUESTIONS = {
    "gpu_util": ("Hostname", "$gpu_util{}"),
    "gpu_sm": ("Hostname", "$gpu_sm{}"),
    "gpu_tensor": ("Hostname", "$gpu_tensor{}"),
    "gpu_power": ("Hostname", "$gpu_power{}"),
    "gpu_xid": ("Hostname", "$gpu_xid{}"),
    "cnp_handled": ("instance", "$rate(cnp_handled, 2m){}"),
}


class History(NamedTuple):
    """Device metrics of nodes from Prometheus. `note`: why some or all are missing; None if they are
    complete.
    """

    readings: list[Reading]
    note: Words | None


def device_history(prometheus: Prometheus, book: RuleBook, nodes: Sequence[str], at_s: float) -> History:
    """Returns the device metrics of nodes around `at_s`. Never raises: an error is in the result's `note`.

    `nodes`: node names; empty means all nodes, if they are few.
    """
    until_s = time.monotonic() + TOTAL_S
    apart_s = 0.0
    step_s = LARGE_STEP_S if len(nodes) > LARGE_NODES else STEP_S
    readings: list[Reading] = []
    try:
        apart_s = _apart_s(prometheus)
        if not nodes and (
            found := prometheus.now(expanded("count($gpu_util)", book.series), at_s=at_s + apart_s)
        ):
            count = found[0].values[-1][1]
            if count > WITHOUT_NODES_MAX:
                return History(
                    [], _note(f"it has {count:.0f} GPUs and the job's nodes are unknown: name the nodes")
                )
        for quantity, (label, template) in QUESTIONS.items():
            if time.monotonic() > until_s:
                return History(readings, _note(f"the queries did not finish within {TOTAL_S:.0f} s"))
            query = expanded(template.replace("{}", _selector(label, nodes)), book.series)
            from_s, to_s = at_s + apart_s - BEFORE_S, at_s + apart_s + AFTER_S
            series = prometheus.over(query, from_s, to_s, step_s)
            if len(series) > SERIES_MAX:
                return History(readings, _note(f"it has more than {SERIES_MAX} series of {quantity}"))
            readings += [_reading(quantity, label, one, apart_s) for one in series]
    except PrometheusUnavailable as error:
        return History(readings, _note(str(error)))
    if not readings:
        return History([], _note("it has no device metrics of these nodes at that time"))
    if apart_s:
        words = f"its clock differs by {apart_s:+.0f} s; the times are corrected"
        return History(readings, _note(words, WITH))
    return History(readings, None)


def _apart_s(prometheus: Prometheus) -> float:
    """Returns by how many seconds the clock of Prometheus is ahead; 0 if it is within the duration of a
    query.
    """
    begun_s = time.time()
    found = prometheus.now("vector(time())")
    apart_s = found[0].values[-1][1] - (begun_s + time.time()) / 2 if found else 0.0
    return apart_s if abs(apart_s) > APART_S else 0.0


def _selector(label: str, nodes: Sequence[str]) -> str:
    """Returns a PromQL selector of nodes by short or full name, with or without a port."""
    if not nodes:
        return ""
    names = "|".join(re.escape(name.partition(".")[0]).replace("\\", "\\\\") for name in nodes[:NODES_MAX])
    return f'{{{label}=~"(?:{names})(?:[.].*)?(?::[0-9]+)?"}}'


def _reading(quantity: str, label: str, one: Found, apart_s: float) -> Reading:
    """Converts the times of a series to this machine's clock."""
    node = one.labels.get(label, "").partition(":")[0]
    device = one.labels.get("gpu") or one.labels.get("device", "")
    values = tuple((at_s - apart_s, value) for at_s, value in one.values) if apart_s else one.values
    return Reading(quantity=quantity, node=node, device=device, values=values)


def _note(why: str, begin: Words = WITHOUT) -> Words:
    return Words(en=f"{begin.en}: {why}", zh=f"{begin.zh}：{why}")
