"""What an exception is known as when its type was not passed on; with both engines."""

import re

import pytest

from holdfast.observe.logs.untyped import Untyped
from holdfast.observe.search.automaton import engine
from observe.knowing import signature

MODULE = signature("no-module", r"ModuleNotFoundError: No module named '(?P<module>[^']+)'")
FILE = signature("no-file", r"FileNotFoundError: (?P<message>.+)")
KEY = signature("no-key", r"KeyError: '(?P<name>\w+)'")
FAMILY = signature("of-files", r"Error: .*file", role="context")
TALK = signature("no-talk", r"DistNetworkError: (?P<reason>Socket Timeout)")
ANY = signature("any", r"RuntimeError: (?P<message>.+)")
ALL = (MODULE, FILE, KEY, FAMILY, TALK, ANY)


@pytest.fixture(params=["plain", "fast"])
def known_as(request, tmp_path):
    untyped = Untyped(
        engine(ALL, tmp_path if request.param == "fast" else None, is_small=request.param == "plain"),
        ALL,
        lambda number: re.compile(ALL[number].pattern, re.ASCII),
    )

    def ask(line: str) -> tuple[str, dict[str, str]] | None:
        found = untyped.known_as(line)
        return found and (found.signature, dict(found.captures))

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("12:00:01 - ERROR - run failed: No module named 'fastk'", ("no-module", {"module": "fastk"})),
        ("worker: error: 'lr_max'", ("no-key", {"name": "lr_max"})),
        ("could not begin: Socket Timeout", ("no-talk", {"reason": "Socket Timeout"})),
        # the name at the message's end is quoted, and is no key
        (
            "Error: [Errno 2] No such file or directory: '/a/b.bin'",
            ("no-file", {"message": "[Errno 2] No such file or directory: '/a/b.bin'"}),
        ),
        # a signature that takes any words after its type knows none of them
        ("Error: the plan has no axis", None),
        ("nothing is said here", None),
        ("Error: ", None),
    ],
)
def test_known_as(known_as, line, expected):
    assert known_as(line) == expected
