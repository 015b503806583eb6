"""Adds values to the baseline of a node and its devices, by serial number, from a boot check that passed. Pure."""

from collections.abc import Iterable

from holdfast.model.checks import FAIL, Baseline, Fact, Outcome

SAMPLES_MAX = 1 << 16  # facts per node


def learned(before: Baseline, outcomes: Iterable[Outcome], at_s: float) -> Baseline:
    """Returns the baseline with new facts added.

    Facts in the baseline stay until `reset`, so that a lost part is noticed. A failed check adds no facts; the other
    checks of the same suite do, because each reads something different.
    """
    facts = {device: dict(values) for device, values in before.facts.items()}
    since = dict(before.at_s)
    for fact in _to_learn(outcomes):
        known = facts.setdefault(fact.device, {})
        since.setdefault(fact.device, at_s)
        known.setdefault(fact.name, fact.value)
    return Baseline(facts=facts, at_s=since)


def forgotten(before: Baseline, devices: Iterable[str] = ()) -> Baseline:
    """Returns the baseline without these devices; an empty baseline if none is named."""
    gone = set(devices) or set(before.facts)
    return Baseline(
        facts={device: values for device, values in before.facts.items() if device not in gone},
        at_s={device: at_s for device, at_s in before.at_s.items() if device not in gone},
    )


def _to_learn(outcomes: Iterable[Outcome]) -> Iterable[Fact]:
    return [fact for outcome in outcomes if outcome.status != FAIL for fact in outcome.facts if fact.learn][
        :SAMPLES_MAX
    ]
