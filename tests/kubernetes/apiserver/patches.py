"""Applies patches: JSON patch, JSON merge patch, strategic merge patch, and a small server-side apply.

source: RFC 6902, RFC 7386, https://github.com/kubernetes/community/blob/master/contributors/devel/sig-api-machinery/strategic-merge-patch.md
"""

import copy

from kubernetes.apiserver.answers import Failure

JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
# By the list's name: what identifies an entry. Of the Go types' `patchMergeKey` tags.
MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "ownerReferences": "uid",
    "taints": "key",
    "addresses": "type",
    "imagePullSecrets": "name",
}
PLAIN_LISTS = ("finalizers",)  # merged as sets


def patched(one, patch, kind):
    """A changed copy of the object. raises: Failure"""
    one = copy.deepcopy(one)
    if kind == JSON_PATCH:
        return json_patched(one, patch)
    if kind == STRATEGIC:
        return strategic(one, patch)
    return merged(one, patch)


def merged(one, patch):
    if not isinstance(patch, dict):
        return patch
    one = dict(one) if isinstance(one, dict) else {}
    for key, value in patch.items():
        if value is None:
            one.pop(key, None)
        else:
            one[key] = merged(one.get(key), value)
    return one


def strategic(one, patch):
    if not isinstance(patch, dict):
        return patch
    if patch.get("$patch") == "replace":
        return {key: value for key, value in patch.items() if key != "$patch"}
    one = dict(one) if isinstance(one, dict) else {}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            one.pop(key, None)
        elif isinstance(value, list):
            one[key] = _list(key, one.get(key) or [], value)
        else:
            one[key] = strategic(one.get(key), value)
    return one


def _list(name, old, new):
    if name in PLAIN_LISTS:
        return list(dict.fromkeys([*old, *new]))
    key = MERGE_KEYS.get(name)
    if key is None or any(not isinstance(item, dict) for item in new):
        return new
    found = {item.get(key): item for item in old}
    for item in new:
        if item.get("$patch") == "delete":
            found.pop(item.get(key), None)
        else:
            found[item.get(key)] = strategic(found.get(item.get(key)), item)
    return list(found.values())


def json_patched(one, operations):
    for step in operations:
        try:
            one = _step(one, step)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Failure(
                422, f"the server rejected our request due to an error in our request: {error}"
            ) from error
    return one


def _step(one, step):
    operation, keys = step["op"], _keys(step["path"])
    if operation == "test":
        if _get(one, keys) != step.get("value"):
            raise ValueError(f"testing path {step['path']} failed")
        return one
    if operation in ("move", "copy"):
        value = copy.deepcopy(_get(one, _keys(step["from"])))
        if operation == "move":
            _remove(one, _keys(step["from"]))
        return _add(one, keys, value)
    if operation == "remove":
        _remove(one, keys)
        return one
    if operation == "replace":
        _get(one, keys)
        if keys and isinstance(_get(one, keys[:-1]), list):
            _remove(one, keys)
    return _add(one, keys, step["value"])


def _keys(path):
    return [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]


def _get(one, keys):
    for key in keys:
        one = one[int(key)] if isinstance(one, list) else one[key]
    return one


def _remove(one, keys):
    holder = _get(one, keys[:-1])
    del holder[int(keys[-1]) if isinstance(holder, list) else keys[-1]]


def _add(one, keys, value):
    if not keys:
        return value
    holder = _get(one, keys[:-1])
    if isinstance(holder, list):
        holder.insert(len(holder) if keys[-1] == "-" else int(keys[-1]), value)
    else:
        holder[keys[-1]] = value
    return one
