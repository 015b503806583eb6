"""Writes metric samples in the Prometheus text format or in the OpenMetrics format. Pure.

Importing prometheus-client costs an agent 2.3 MiB, more than the limit for all of its metrics, so this module
replaces it (docs/decisions/0026-the-metrics-text-is-written-here.md). Tests parse both formats with
prometheus-client and promtool.

source: prometheus.io/docs/instrumenting/exposition_formats; OpenMetrics 1.0.0
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from holdfast.core.metrics.table import BY_NAME
from holdfast.model.monitoring.metrics import AnySample, Distribution, Exemplar, Metric, Sample

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SERIES_MAX = 2_000  # per exporter, whatever the size of its job
EXEMPLAR_CHARS_MAX = 128  # OpenMetrics 1.0.0: all names and values of its labels together
ACCEPT_PARTS_MAX = 32


def wants_open_metrics(accept: str) -> bool:
    """Returns whether the `Accept` header of a scraper prefers OpenMetrics to the older text format."""
    quality = {"open": 0.0, "text": 0.0}
    for part in accept.split(",")[:ACCEPT_PARTS_MAX]:
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        if kind == "application/openmetrics-text":
            version = _parameter(parameters, "version")
            if version in ("", "1.0.0", "0.0.1"):
                quality["open"] = max(quality["open"], _quality(parameters))
        elif kind in ("text/plain", "text/*", "*/*"):
            quality["text"] = max(quality["text"], _quality(parameters))
    return quality["open"] > 0.0 and quality["open"] >= quality["text"]


def written(samples: Iterable[AnySample], *, open_metrics: bool) -> bytes:
    """Returns the complete response body, with samples grouped by metric.

    raises: KeyError, for a metric not in the table
    """
    by_metric: dict[str, list[AnySample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    lines: list[str] = []
    for name, of_metric in by_metric.items():
        lines += _family(BY_NAME[name], of_metric, open_metrics=open_metrics)
    if open_metrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def bounded(samples: Sequence[AnySample], series_max: int = SERIES_MAX) -> tuple[tuple[AnySample, ...], int]:
    """Returns at most `series_max` samples and the number dropped. Drops ranks, devices and ports first."""
    total = sum(map(_series, samples))
    if total <= series_max:
        return tuple(samples), 0
    order = sorted(range(len(samples)), key=lambda place: (_is_detail(samples[place]), place))
    kept: set[int] = set()
    room = series_max
    for place in order:
        room -= _series(samples[place])
        if room < 0:
            break
        kept.add(place)
    found = tuple(samples[place] for place in sorted(kept))
    return found, total - sum(map(_series, found))


def _series(sample: AnySample) -> int:
    return len(sample.counts) + 2 if isinstance(sample, Distribution) else 1


def _is_detail(sample: AnySample) -> bool:
    return bool({"rank", "device", "port"} & set(BY_NAME[sample.metric].labels))


# A family ------------------------------------------------------------------------------------------------


def _family(metric: Metric, samples: Iterable[AnySample], *, open_metrics: bool) -> Iterator[str]:
    name = metric.name
    if open_metrics:
        name = name.removesuffix({"counter": "_total", "info": "_info"}.get(metric.type, ""))
    kind = "gauge" if metric.type == "info" and not open_metrics else metric.type
    yield f"# HELP {name} {_help(metric.help, quotes=open_metrics)}"
    yield f"# TYPE {name} {kind}"
    if open_metrics and metric.unit and name.endswith(f"_{metric.unit}"):
        yield f"# UNIT {name} {metric.unit}"
    exemplar = _exemplar if open_metrics else _no_exemplar
    for sample in samples:
        if isinstance(sample, Distribution):
            yield from _histogram(metric, sample, exemplar)
        else:
            yield _line(metric.name, _pairs(metric, sample.labels), sample, exemplar)


def _line(name: str, labels: str, sample: Sample, exemplar: Callable[[Exemplar | None], str]) -> str:
    braces = f"{{{labels}}}" if labels else ""
    return f"{name}{braces} {number(sample.value)}{exemplar(sample.exemplar)}"


def _histogram(
    metric: Metric, one: Distribution, exemplar: Callable[[Exemplar | None], str]
) -> Iterator[str]:
    labels = _pairs(metric, one.labels)
    before = f"{labels}," if labels else ""
    braces = f"{{{labels}}}" if labels else ""
    examples = one.exemplars or (None,) * len(one.counts)
    total = 0
    for limit, count, example in zip((*metric.buckets, math.inf), one.counts, examples, strict=True):
        total += count
        yield f'{metric.name}_bucket{{{before}le="{number(limit)}"}} {total}{exemplar(example)}'
    yield f"{metric.name}_count{braces} {total}"
    yield f"{metric.name}_sum{braces} {number(one.sum)}"


def _pairs(metric: Metric, values: Sequence[str]) -> str:
    return ",".join(f'{name}="{_value(value)}"' for name, value in zip(metric.labels, values, strict=True))


def number(value: float) -> str:
    """Returns a value as the text formats write it: "NaN", "+Inf", "-Inf", or a decimal number."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def _value(text: str) -> str:
    if text.isalnum():  # true for nearly all texts
        return text
    plain = text.encode("utf-8", "replace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _help(text: str, *, quotes: bool) -> str:
    plain = text.replace("\\", "\\\\").replace("\n", "\\n")
    return plain.replace('"', '\\"') if quotes else plain


def _exemplar(one: Exemplar | None) -> str:
    if one is None or sum(len(name) + len(value) for name, value in one.labels) > EXEMPLAR_CHARS_MAX:
        return ""
    labels = ",".join(f'{name}="{_value(value)}"' for name, value in one.labels)
    stamp = "" if one.at_s is None else f" {one.at_s:.3f}"
    return f" # {{{labels}}} {number(one.value)}{stamp}"


def _no_exemplar(one: Exemplar | None) -> str:
    return ""


# What a scraper accepts ----------------------------------------------------------------------------------


def _parameter(parameters: Iterable[str], name: str) -> str:
    pairs: Mapping[str, str] = dict(
        (key.strip(), value.strip().strip('"'))
        for key, _, value in (one.partition("=") for one in parameters)
    )
    return pairs.get(name, "")


def _quality(parameters: Iterable[str]) -> float:
    text = _parameter(parameters, "q")
    try:
        return min(1.0, max(0.0, float(text))) if text else 1.0
    except ValueError:
        return 0.0
