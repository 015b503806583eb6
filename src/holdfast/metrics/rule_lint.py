"""Reads from a Prometheus server what the alert rules need, for `holdfast rules lint`."""

from collections.abc import Callable, Sequence

from holdfast.core.metrics.lint import JOINS, Has, asked_names, asked_ranges
from holdfast.core.metrics.promql import expanded
from holdfast.metrics.prometheus import Prometheus
from holdfast.model.monitoring.alert_rules import RuleBook

SEEN_S = 86_400.0
BLANK = "9e18"  # DCGM's blank values are near 2^63
_MEET = (
    'count(label_replace(max by (node) (holdfast_agent_info), "Hostname", "$1", "node", "(.*)") '
    "and on (Hostname) $gpu_util)"
)


def read_has(prometheus: Prometheus, book: RuleBook, now_s: float) -> Has:
    """Queries which of the series that the alert rules need exist in a Prometheus server, with one query for
    each time range and a few more.

    raises: PrometheusUnavailable
    """
    names = asked_names(book)
    selector = '__name__=~"' + "|".join(names) + '"'
    there = prometheus.names(f"{{{selector}}}", now_s - SEEN_S, now_s) & set(names)
    if not there:
        return Has(
            names=frozenset(),
            with_numbers=frozenset(),
            labelled={},
            samples={},
            meets=None,
            loaded=prometheus.rules(),
        )
    seen = '__name__=~"' + "|".join(sorted(there)) + '"'
    return Has(
        names=frozenset(there),
        with_numbers=_counted(prometheus, f"{{{seen}}} < {BLANK}"),
        labelled={label: _counted(prometheus, f'{{{seen},{label}!=""}}') for label in JOINS},
        samples=_samples(prometheus, [one for one in asked_ranges(book) if one[0] in there]),
        meets=_meets(prometheus, book, lambda *words: any(name.startswith(words) for name in there)),
        loaded=prometheus.rules(),
    )


def _counted(prometheus: Prometheus, expression: str) -> frozenset[str]:
    found = prometheus.now(f"count by (__name__) ({expression})")
    return frozenset(one.labels.get("__name__", "") for one in found)


def _samples(prometheus: Prometheus, asked: Sequence[tuple[str, str]]) -> dict[tuple[str, str], int]:
    found = {}
    for name, span in asked:
        answer = prometheus.now(f"max(count_over_time({name}[{span}]))")
        if answer and answer[0].values:
            found[name, span] = int(answer[0].values[-1][1])
    return found


def _meets(prometheus: Prometheus, book: RuleBook, has: Callable[..., bool]) -> bool | None:
    if not (has("holdfast_agent_info") and has("DCGM_FI_DEV_GPU_UTIL")):
        return None
    return bool(prometheus.now(expanded(_MEET, book.series)))
