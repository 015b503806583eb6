"""Patterns that are compiled when they are first used: what they give, and that all of the package are sound."""

import gc
import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import holdfast
from holdfast.late_pattern import LatePattern, late


def test_it_gives_what_a_compiled_one_gives():
    early, ours = re.compile(r"(?P<rank>\d+)x", re.IGNORECASE), late(r"(?P<rank>\d+)x", re.IGNORECASE)
    text = "rank 3X and 12x"
    assert ours.search(text)["rank"] == "3"
    assert ours.match(text) is None and ours.fullmatch("7X")["rank"] == "7"
    assert [one.span() for one in ours.finditer(text)] == [one.span() for one in early.finditer(text)]
    assert ours.findall(text) == early.findall(text)
    assert ours.sub("_", text) == early.sub("_", text) and ours.split(text) == early.split(text)
    assert (ours.pattern, ours.flags, ours.groups) == (early.pattern, early.flags, early.groups)
    assert dict(ours.groupindex) == {"rank": 1}


def test_of_bytes():
    assert late(rb"\d+").search(b"a17")[0] == b"17"


def test_it_is_compiled_once_and_not_before():
    broken = late("(")  # nothing yet
    with pytest.raises(re.error):
        broken.search("")
    ours = late("a+")
    first = ours.search
    assert ours.search == first


def test_what_no_pattern_has():
    with pytest.raises(AttributeError, match="serach"):
        late("a").serach("a")


def test_all_of_the_package_compile():
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if found.name.startswith(("holdfast.core", "holdfast.parsers")):
            importlib.import_module(found.name)
    gc.unfreeze()  # a process of checks that another test has copied from this one leaves all that was here frozen
    known = [one for one in gc.get_objects() if type(one) is LatePattern]
    assert len(known) > 200
    for one in known:
        one.search(b"" if isinstance(one._text, bytes) else "")


def test_an_agent_starts_without_what_reads_a_command_line_and_compiles_few_patterns():
    """Rather than a time, which another process may stretch. Every node pays for it beside its training."""
    look = """
import re, sys
made, compiled = [], re._compiler.compile
def counted(*given): made.append(given); return compiled(*given)
re._compiler.compile = counted
import holdfast.cli.agent_main
print([name for name in ("click", "typer", "rich", "pydantic", "matplotlib", "sqlite3", "asyncio", "yaml", "torch")
       if name in sys.modules])
print(len(made))
"""
    done = subprocess.run(
        [sys.executable, "-c", look], check=True, capture_output=True, text=True, timeout=200
    )
    heavy, count = done.stdout.splitlines()
    assert heavy == "[]"
    assert int(count) < 120, "they were 89, most of them of Python itself and of packages; once 400"
