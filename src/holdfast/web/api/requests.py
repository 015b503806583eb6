"""Parses and validates requests: path, query and body, each against its type."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar, get_origin, get_type_hints

import msgspec
from starlette.requests import HTTPConnection

from holdfast.web.api.openapi import PATH_PARTS
from holdfast.web.api.queries import Query
from holdfast.web.refusals import Refusal, bad_request, not_there

PARAMETERS_MAX = 200
Asked = TypeVar("Asked", bound=msgspec.Struct)
_PATTERNS = {name: re.compile(part["pattern"]) for name, part in PATH_PARTS.items() if "pattern" in part}


def path_parts(values: Mapping[str, str]) -> dict[str, Any]:
    """Parses the parameters in a URL path. Raises Refusal if one is invalid."""
    found: dict[str, Any] = {}
    for name, text in values.items():
        if PATH_PARTS[name]["type"] == "integer":
            found[name] = _number(name, text)
        elif _PATTERNS[name].fullmatch(text) and text.isprintable():
            found[name] = text
        else:
            raise not_there(f"there is no {name} {shown(text)}: the name is not valid")
    return found


def query(kind: type[Query], request: HTTPConnection) -> Any:
    """Parses query parameters. Raises Refusal; for an unknown parameter, its message contains the nearest valid
    name.
    """
    kinds = get_type_hints(kind)
    given: dict[str, Any] = {}
    pairs = request.query_params.multi_items()
    if len(pairs) > PARAMETERS_MAX:
        raise bad_request(f"there are {len(pairs)} parameters, at most {PARAMETERS_MAX} are read")
    for name, value in pairs:
        if name not in kinds:
            raise bad_request(
                f"there is no parameter {shown(name)}", get_close_matches(name, kinds, n=1) or kinds
            )
        if get_origin(kinds[name]) is tuple:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise bad_request(f"the parameter {name} is given twice")
        elif value or kinds[name] is str:
            given[name] = value
    return _converted(lambda: msgspec.convert(given, kind, strict=False))


def decoded(raw: bytes, kind: type[Asked], content_type: str) -> Asked:
    """Parses a JSON body. Raises Refusal.

    Other content types than JSON are rejected, because forms of other sites can send them.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise bad_request("the body must be JSON, with Content-Type: application/json")
    found: Asked = _converted(lambda: msgspec.json.decode(raw or b"{}", type=kind))
    return found


def shown(text: str) -> str:
    """Returns the beginning of a text from a request for use in an error message."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text[:80])
    return repr(plain)


def _number(name: str, text: str) -> int:
    part = PATH_PARTS[name]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= part["maximum"]):
        raise not_there(f"there is no {name} {shown(text)}: it must be a whole number")
    return int(text)


def _converted(convert: Any) -> Any:
    try:
        return convert()
    except msgspec.ValidationError as error:
        text = str(error).replace("`", "").replace(" - at $.", " at ").replace(" - at $", "")
        raise bad_request(f"the request is invalid: {text[:500]}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise bad_request(f"the request is invalid: {str(error)[:500]}") from error


def too_large(limit: int) -> Refusal:
    return Refusal(413, "too-large", f"the request is larger than {limit} bytes")
