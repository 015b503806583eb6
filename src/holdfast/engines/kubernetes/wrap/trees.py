"""Reads and changes nested mappings and lists of a YAML document. Pure.

A node with an anchor is shared by all its aliases. It is copied before a change, so that nothing else
changes.
"""

import copy
from typing import Any

Document = dict[str, Any]
MAPPING, LIST = "mapping", "list"


class NotAsExpected(Exception):
    """Raised when a field of the document has another type than its kind has. The message names the field."""


def mapping(holder: Any, *path: str) -> Document:
    """Returns the mapping at a path; an empty one if there is none. Raises NotAsExpected."""
    return _typed(_at(holder, path), dict, ".".join(path)) or {}


def items(holder: Any, *path: str) -> list[Any]:
    """Returns the list at a path; an empty one if there is none. Raises NotAsExpected."""
    return _typed(_at(holder, path), list, ".".join(path)) or []


def text(holder: Any, *path: str) -> str:
    """Returns the string at a path; "" if there is none. Raises NotAsExpected."""
    return _typed(_at(holder, path), str, ".".join(path)) or ""


def number(holder: Any, *path: str) -> int | None:
    """Returns the integer at a path; None if there is none. Raises NotAsExpected."""
    found = _typed(_at(holder, path), int, ".".join(path))
    return None if found is None or isinstance(found, bool) else int(found)


def own_mapping(holder: Any, *path: str) -> Document:
    """Returns the mapping at a path for changes. It is created if missing, and copied if shared."""
    for key in path[:-1]:
        holder = own_mapping(holder, key)
    return _own(holder, path[-1], {}, dict)  # type: ignore[no-any-return]


def own_list(holder: Any, *path: str) -> list[Any]:
    """Returns the list at a path for changes. It is created if missing, and copied if shared."""
    for key in path[:-1]:
        holder = own_mapping(holder, key)
    return _own(holder, path[-1], [], list)  # type: ignore[no-any-return]


def own_item(holder: list[Any], index: int) -> Document:
    """Returns a mapping in a list, for changes."""
    holder[index] = _unshared(holder[index])
    return _typed(holder[index], dict, str(index))  # type: ignore[no-any-return]


def without(holder: Document, key: str) -> None:
    """Removes a key from a mapping, also if a merge key (`<<`) brings it in."""
    if key in holder:
        del holder[key]
    if key in holder:
        holder[key] = None


def _own(holder: Any, key: str, empty: Any, kind: type) -> Any:
    found = holder.get(key)
    if found is None:
        found = holder[key] = empty
    else:
        found = holder[key] = _unshared(found)
    return _typed(found, kind, key)


def _unshared(node: Any) -> Any:
    anchor = getattr(node, "anchor", None)
    if anchor is None or not anchor.value:
        return node
    copied = copy.deepcopy(node)
    copied.anchor.value = None
    return copied


def _at(holder: Any, path: tuple[str, ...]) -> Any:
    for number, key in enumerate(path):
        if holder is None:
            return None
        if not isinstance(holder, dict):
            raise NotAsExpected(f"{'.'.join(path[:number])} is not a mapping")
        holder = holder.get(key)
    return holder


def _typed(found: Any, kind: type, path: str) -> Any:
    if found is not None and not isinstance(found, kind):
        words = {dict: "a mapping", list: "a list", str: "a string", int: "a whole number"}
        raise NotAsExpected(f"{path} is not {words[kind]}")
    return found
