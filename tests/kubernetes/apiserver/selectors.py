"""Matches objects by label selectors and field selectors.

source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api,
https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/
"""

import re

_SET = re.compile(r"([^\s!,()]+)\s+(in|notin)\s+\(([^)]*)\)")


def matcher(labels="", fields=""):
    """A function object -> bool."""
    tests = [*_labels(labels or ""), *_fields(fields or "")]
    return lambda one: all(test(one) for test in tests)


def _labels(text):
    def of(one):
        return one["metadata"].get("labels") or {}

    for key, word, values in _SET.findall(text):
        among = {value.strip() for value in values.split(",")}
        if word == "in":
            yield lambda one, key=key, among=among: of(one).get(key) in among
        else:
            yield lambda one, key=key, among=among: of(one).get(key) not in among
    for part in filter(None, (part.strip() for part in _SET.sub("", text).split(","))):
        if "!=" in part:
            key, value = map(str.strip, part.split("!=", 1))
            yield lambda one, key=key, value=value: of(one).get(key) != value
        elif "=" in part:
            key, value = map(str.strip, re.split("==?", part, maxsplit=1))
            yield lambda one, key=key, value=value: of(one).get(key) == value
        elif part.startswith("!"):
            yield lambda one, key=part[1:]: key not in of(one)
        else:
            yield lambda one, key=part: key in of(one)


def _fields(text):
    for part in filter(None, (part.strip() for part in text.split(","))):
        differs = "!=" in part
        path, value = map(str.strip, re.split("!=|==?", part, maxsplit=1))
        keys = path.split(".")
        yield (lambda one, keys=keys, value=value, differs=differs: (_at(one, keys) == value) != differs)


def _at(one, keys):
    for key in keys:
        one = (one or {}).get(key) if isinstance(one, dict) else None
    return "" if one is None else str(one)


def matches_labels(selector, labels):
    """A LabelSelector of a spec against labels."""
    labels = labels or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for need in selector.get("matchExpressions") or ():
        here, among = labels.get(need["key"]), need.get("values") or ()
        good = {
            "In": here in among,
            "NotIn": here not in among,
            "Exists": need["key"] in labels,
            "DoesNotExist": need["key"] not in labels,
        }
        if not good[need["operator"]]:
            return False
    return True
