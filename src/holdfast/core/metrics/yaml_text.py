"""Writes plain data as readable YAML that promtool accepts, with strings quoted as in JSON. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence

INDENT = 2


def yaml_text(value: object) -> str:
    """Returns nested mappings, lists and scalars as YAML."""
    return "\n".join(_lines(value, 0)) + "\n"


def _lines(value: object, depth: int) -> Iterator[str]:
    pad = " " * (INDENT * depth)
    match value:
        case Mapping() if value:
            for key, inner in value.items():
                if _is_short(inner):
                    yield f"{pad}{_key(key)}: {_scalar(inner)}"
                else:
                    yield f"{pad}{_key(key)}:"
                    yield from _lines(inner, depth + 1)
        case list() | tuple() if value:
            for inner in value:
                if _is_short(inner):
                    yield f"{pad}- {_scalar(inner)}"
                else:
                    first, *rest = _lines(inner, depth + 1)
                    yield f"{pad}- {first.lstrip()}"
                    yield from rest
        case _:
            yield f"{pad}{_scalar(value)}"


def _is_short(value: object) -> bool:
    return not isinstance(value, Mapping | list | tuple) or not value


def _key(key: object) -> str:
    text = str(key)
    return (
        text
        if text.replace("_", "").replace("-", "").isalnum() and not text[0].isdigit()
        else json.dumps(text)
    )


def _scalar(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[]"
    if isinstance(value, Mapping):
        return "{}"
    return json.dumps(value, ensure_ascii=False)
