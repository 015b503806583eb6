"""Reads the annotations on a job's object by which platforms configure fault tolerance. Pure.

The names are those of ModelArts, as in its preset (`core/job/presets`); each annotation is accepted or
rejected by itself.

source: https://support.huaweicloud.com/intl/en-us/usermanual-standard-modelarts/ (fault tolerance of training
jobs)
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core.job.presets.preset import BadPreset
from holdfast.core.job.presets.translate import translate
from holdfast.model.nodes.workers import PolicyAsked
from holdfast.model.policy import Policy, PolicyFields

PREFIX = "fault-tolerance/"
FIELDS = {
    "fault-tolerance/job-retry-num": "max_restarts",
    "fault-tolerance/job-unconditional-retry": "unconditional_restart",
    "fault-tolerance/hang-retry": "hang_restart",
    "fault-tolerance/pod-retry-num": "replace_workers",
}


def of_platform(annotations: Mapping[str, str]) -> dict[str, str]:
    """Returns the annotations that configure fault tolerance."""
    return {key: value for key, value in annotations.items() if key.startswith(PREFIX)}


def checked(annotations: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns a line for each annotation that is refused, and for each that is unknown."""
    _, _, lines = _read(annotations)
    refused = tuple(line for line in lines if " is refused: " in line)
    return refused, tuple(line for line in lines if " is unknown and ignored" in line)


def applied(annotations: Mapping[str, str], policy: Policy) -> tuple[Policy, tuple[str, ...]]:
    """Returns the policy with the annotations applied, and a line for each that was accepted or rejected."""
    values, _, lines = _read(annotations)
    return replace(policy, **values), lines


def asked(annotations: Mapping[str, str], by: str) -> PolicyAsked:
    """Returns the policy that the annotations of a running job request. `by`: the object that has them."""
    values, refused, lines = _read(annotations)
    fields = PolicyFields(**{name: UNSET if value is None else value for name, value in values.items()})
    text = "; ".join(lines) or "no annotation of fault tolerance any more"
    return PolicyAsked(fields=fields, refused=refused, text=text, by=by)


def _read(annotations: Mapping[str, str]) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Values by field of the policy, fields whose annotation is refused, and a line for each annotation."""
    values: dict[str, Any] = {}
    refused, lines = [], []
    for key, value in sorted(of_platform(annotations).items()):
        field = FIELDS.get(key)
        if field is None:
            lines.append(f"annotation {key} is unknown and ignored; known: {', '.join(FIELDS)}")
            continue
        try:
            found = getattr(translate(f"modelarts:{key}={value.replace(',', ';')}").policy, field)
        except BadPreset as error:
            lines.append(f"annotation {key} is refused: {error}")
            refused.append(field)
            continue
        values[field] = found
        lines.append(f"annotation {key}: {value}")
    return values, tuple(refused), tuple(lines)
