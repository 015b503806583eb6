"""Every rule that comes with Holdfast proves itself, and is used."""

import ast
import functools
import re
from pathlib import Path

import pytest

import holdfast
from holdfast.core.verdict.categories import ACTIONS, KINDS
from holdfast.observe.search.rule_store import package_rules
from holdfast.parsers.rule_files import complaints, parse, unknown_tags
from holdfast.parsers.signature_files import SignatureError
from known import PACKAGE

RULES = package_rules(as_built=False)
ASKED = {
    "tag": {"has", "is_of", "tagged"},
    "wording": {"says", "found", "is_whole"},
    "reading": {"read"},
    "text": {"text"},
}
DEFINED = {
    "tag": {one.id for one in RULES.tag},
    "wording": {one.id for one in RULES.wording},
    "reading": {one.table for one in RULES.reading},
    "text": {one.id for one in RULES.text},
}


def test_each_is_well_formed_and_matches_its_texts():
    assert complaints(RULES, {one.id for one in PACKAGE}, KINDS, ACTIONS) == []
    assert unknown_tags(((one.id, one.tags) for one in PACKAGE), DEFINED["tag"]) == []


@functools.cache
def _asked_by_code():
    """The names by which the code asks for rules, by kind: the first argument of a call, as a literal."""
    found = {kind: set() for kind in ASKED}
    names = "|".join(name for calls in ASKED.values() for name in calls)
    call = re.compile(rf"\.(?:{names})\s*\((?:\s|\(|#.*\n)*[A-Za-z]{{0,2}}[\"']")
    texts = map(Path.read_text, Path(holdfast.__file__).parent.rglob("*.py"))
    for text in filter(call.search, texts):  # parsing takes seconds, for all of them
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                for kind, calls in ASKED.items():
                    found[kind] |= {first.value} if node.func.attr in calls else set()
    return found


@pytest.mark.parametrize("kind", ASKED)
def test_what_the_code_asks_for_is_defined_and_what_is_defined_is_asked_for(kind):
    inner = {name for one in (*RULES.tag, *RULES.weight) for name in one.tags} if kind == "tag" else set()
    assert DEFINED[kind] - _asked_by_code()[kind] - inner == set()
    assert kind == "text" or _asked_by_code()[kind] - DEFINED[kind] == set()


def test_parts_stand_in_patterns_and_in_parts_below_them():
    rows = 'wording = [{ id = "late", means = "m", pattern = "^(?&late) s$", matches = ["9 s"] }]\n'
    file = rows + "[parts]\nnumber = '''\\d|ten'''\nlate = '(?&number)+'"
    (wording,) = parse(file, "a.toml").wording
    assert wording.pattern == r"^(?:(?:\d|ten)+) s$"


@pytest.mark.parametrize("parts", ["late = 3", "", "lates = 'x'"])
def test_a_part_that_is_not_there_is_named(parts):
    file = f'reading = [{{ table = "t", pattern = "(?&late)" }}]\n[parts]\n{parts}'
    with pytest.raises(SignatureError, match=r"a\.toml: .*part"):
        parse(file, "a.toml")


DIAGNOSIS = Path(holdfast.__file__).parent / "core" / "diagnosis"


@pytest.mark.parametrize("path", sorted(DIAGNOSIS.rglob("*.py")), ids=lambda path: path.stem)
def test_the_rules_of_the_diagnosis_name_no_signature(path):
    """They ask for tags: which signatures have one stands in the files of rules."""
    asked = {name for names in ASKED.values() for name in names}
    ids = {one.id for one in PACKAGE if "-" in one.id}
    tree = ast.parse(path.read_text())
    given = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in asked
        for argument in node.args
    }
    named = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in ids and id(node) not in given
    }
    assert named == set()
