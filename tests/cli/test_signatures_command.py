"""`holdfast signatures`: the list, one in full, and the proof of a folder."""

import json
import re
from pathlib import Path

import pytest

from holdfast.cli.signatures import problems
from known import PACKAGE

PAGE = Path(__file__).parents[2] / "docs" / "diagnosis.md"
OWN = """
[[signature]]
id = "{id}"
category = "{category}"
pattern = '''lakefs: quota of project (?P<name>\\S+) exceeded'''
title = {{ en = "the quota of {{name}} is used up", zh = "{{name}} 的配额已用尽" }}
explanation = {{ en = "LakeFS refuses to write.", zh = "LakeFS 拒绝写入。" }}
advice = {{ en = "Ask for more.", zh = "请扩容。" }}
source = "lakefs client"
matches = ['''{line}''']
"""
LINE = "lakefs: quota of project llm exceeded"


@pytest.fixture
def folder(place):
    (place / "mine").mkdir()
    return place / "mine"


def write(folder, *, id="lake-quota", category="disk_full", line=LINE, file="lake.toml"):
    (folder / file).write_text(OWN.format(id=id, category=category, line=line))


def test_the_list_has_every_signature_of_the_package(holdfast):
    code, out, err = holdfast("signatures", "list")
    assert (code, err) == (0, "")
    ids = [line.split()[0] for line in out.splitlines()]
    assert ids == [one.id for one in PACKAGE]


def test_the_list_can_be_narrowed(holdfast, folder):
    write(folder)
    code, out, _ = holdfast("signatures", "list", "--signatures", "mine", "--category", "disk_full", "--json")
    found = {one["id"]: one for one in json.loads(out)}
    assert found["lake-quota"]["title"] == "the quota of {name} is used up"
    assert {one["category"] for one in found.values()} == {"disk_full"}
    _, by_class, _ = holdfast(
        "signatures", "list", "--signatures", "mine", "--category", "environment", "--json"
    )
    assert set(found) < {one["id"] for one in json.loads(by_class)}
    _, by_area, _ = holdfast("signatures", "list", "--area", "kernel", "--json")
    assert {one["area"] for one in json.loads(by_area)} <= {"kernel"}
    none = holdfast("signatures", "list", "--category", "no_such")
    assert none == (0, "", "holdfast: no signature matches\n")


def test_one_in_full_in_either_language(holdfast, folder, monkeypatch):
    write(folder)
    monkeypatch.setenv("HOLDFAST_SIGNATURES", "mine")
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    code, out, _ = holdfast("signatures", "show", "lake-quota")
    assert code == 0
    assert re.search(r"^title +the quota of \{name\} is used up$", out, re.MULTILINE)
    assert f"matches      {LINE}\n" in out
    assert "的配额已用尽" in holdfast("signatures", "show", "lake-quota", "--lang", "zh")[1]
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert "的配额已用尽" in holdfast("signatures", "show", "lake-quota")[1]
    assert json.loads(holdfast("signatures", "show", "lake-quota", "--json")[1])["title"]["zh"]
    code, out, err = holdfast("signatures", "show", "lake-qouta")
    assert (code, out) == (2, "")
    assert "did you mean lake-quota" in err


def test_those_of_the_package_are_tested_when_no_folder_is_named(holdfast):
    package = PACKAGE
    wrong = problems(package, package)
    code, out, err = holdfast("signatures", "test")
    assert (code, err) == (1 if wrong else 0, "")
    assert out.splitlines()[:-1] == wrong
    assert out.splitlines()[-1].startswith(f"{len(package)} signatures, ")


def test_a_folder_that_holds(holdfast, folder):
    write(folder)
    assert holdfast("signatures", "test", "mine") == (0, "1 signature, no complaints\n", "")


def test_each_complaint_is_a_line(holdfast, folder):
    write(folder, line="something else", category="no_such")
    code, out, _ = holdfast("signatures", "test", "mine")
    assert code == 1
    assert out.splitlines() == [
        "lake-quota: the pattern does not match 'something else'",
        "lake-quota: the category 'no_such' is not in the taxonomy",
        "1 signature, 2 complaints",
    ]
    code, out, _ = holdfast("signatures", "test", "mine", "--json")
    assert (code, len(json.loads(out)["complaints"])) == (1, 2)


def test_an_id_given_twice_in_one_folder_is_a_complaint(folder):
    write(folder)
    own = PACKAGE
    assert problems([own[0], own[0]], own) == [f"{own[0].id}: the id is defined 2 times"]
    assert problems([own[0]], own) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[signature]]\nid = 3", "lake.toml"),
        ("[[signatur]]", "no key 'signatur'; did you mean 'signature'?"),
        ("\udcff", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(holdfast, folder, text, says):
    (folder / "lake.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    code, out, err = holdfast("signatures", "test", "mine")
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    code, out, err = holdfast("signatures", "list", "--signatures", "mine")
    assert (code, says in err) == (0, True)
    assert "gpu-out-of-memory" in out


def test_where_a_signature_comes_from(holdfast, folder):
    assert holdfast("signatures", "show", "gpu-out-of-memory")[1].splitlines()[-1].split() == [
        "from",
        "Holdfast",
    ]
    write(folder)
    text = (folder / "lake.toml").read_text()
    (folder / "lake.toml").write_text(text.replace("lake-quota", "gpu-out-of-memory"))
    out = holdfast("signatures", "show", "gpu-out-of-memory", "--signatures", "mine")[1]
    assert "lake.toml, in place of Holdfast's" in out.splitlines()[-1]


def test_a_folder_that_is_empty_or_gone_is_refused(holdfast, folder):
    assert holdfast("signatures", "test", "mine")[0] == 2
    assert holdfast("signatures", "test", "gone")[0] == 2


def test_the_example_of_the_page_holds(holdfast, folder):
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example
    (folder / "lake.toml").write_text(example[1])
    assert holdfast("signatures", "test", "mine") == (0, "1 signature, no complaints\n", "")


RULES = """
[[tag]]
id = "shell-complaint"
means = "our wrapper complains, and goes on"
signatures = ["{id}"]

[[wording]]
id = "tries-again"
means = "the lakefs client tries again"
pattern = '''lakefs: attempt \\d+'''
matches = ["{line}"]
"""


def write_rules(folder, *, id="lake-quota", line="lakefs: attempt 2 of 5", more=""):
    (folder / "rules").mkdir()
    (folder / "rules" / "own.toml").write_text(RULES.format(id=id, line=line) + more)


def test_rules_of_a_site_are_proven_as_well(holdfast, folder):
    write(folder)
    write_rules(folder)
    assert holdfast("signatures", "test", "mine") == (0, "1 signature, 2 rules, no complaints\n", "")


def test_each_complaint_about_a_rule_is_a_line(holdfast, folder):
    write(folder)
    write_rules(folder, id="lake-qota", line="lakefs: gave up")
    code, out, _ = holdfast("signatures", "test", "mine")
    assert (code, out.splitlines()[:2]) == (
        1,
        [
            "tag shell-complaint: there is no signature 'lake-qota'; did you mean 'lake-quota'?",
            "wording tries-again: the pattern does not match 'lakefs: gave up'",
        ],
    )


def test_a_rule_of_an_unknown_kind_or_key_is_refused_with_the_nearest(holdfast, folder):
    write_rules(folder, more="[[wordng]]\nid = 'x'\n")
    code, _, err = holdfast("signatures", "test", "mine")
    assert code == 2
    assert "there is no table 'wordng'; did you mean 'wording'?" in err


def test_rules_that_cannot_be_used_are_left_out_of_a_diagnosis_with_a_line(holdfast, folder, place):
    write_rules(folder, id="lake-qota")
    (place / "job.log").write_text("step 1 loss 2.0\n")
    code, out, err = holdfast("diagnose", "job.log", "--signatures", "mine")
    assert code == 0
    assert "there is no signature 'lake-qota'" in err


def test_a_tag_of_a_signature_that_nobody_defines_is_a_complaint(holdfast, folder):
    write(folder)
    path = folder / "lake.toml"
    path.write_text(path.read_text() + "tags = ['shell-complaints']\n")
    code, out, _ = holdfast("signatures", "test", "mine")
    assert (code, out.splitlines()[0]) == (
        1,
        "lake-quota: there is no tag 'shell-complaints'; did you mean 'shell-complaint'?",
    )
