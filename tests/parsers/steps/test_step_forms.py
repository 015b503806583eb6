"""Step forms: each proves itself, none takes another's lines, and a user's own pattern is refused with reasons."""

import functools
import math
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import holdfast
from holdfast.model.step_forms import StepForm
from holdfast.observe.search.step_form_store import all_forms, package_forms
from holdfast.parsers.steps.forms import EXAMPLE, SAMPLE, StepFormError, from_pattern, parse, prove
from holdfast.parsers.steps.lines import StepLines

FOLDER = Path(holdfast.__file__).parent / "step_forms"
FORMS = (
    package_forms()
)  # without their proofs: to read those compiles all patterns, which each process of xdist would do
TABLES = [tomllib.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.toml"))]
PROOFS = Counter(proof["of"] for table in TABLES for proof in table["proof"])  # of each form


@functools.cache
def with_proofs() -> dict[str, StepForm]:
    paths = sorted(FOLDER.glob("*.toml"))
    return {form.id: form for path in paths for form in parse(path.read_text("utf-8"), path.name)}


@pytest.mark.parametrize("form", [form.id for form in FORMS])
def test_each_form_reads_the_lines_that_prove_it(form: str):
    assert prove(with_proofs()[form]) == []


def test_each_proof_is_of_a_form():
    assert {name: len(form.matches) for name, form in with_proofs().items() if form.matches} == dict(PROOFS)


@pytest.mark.parametrize(
    ("form", "number"), [(form, number) for form, count in PROOFS.items() for number in range(count)]
)
def test_no_other_form_takes_the_line(form, number):
    form, proof = with_proofs()[form], with_proofs()[form].matches[number]
    follower = StepLines(tuple(with_proofs().values()))
    follower.feed([proof.line.encode()] * 2)
    follower.finish()
    assert (follower.framework, follower.first.step) == (form.framework, proof.step)


def test_ids_are_unique_and_the_package_has_them_all():
    assert len({form.id for form in FORMS}) == len(FORMS)
    assert list(with_proofs()) == [form.id for form in FORMS]


def test_a_file_of_ones_own_adds_and_replaces(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(
        "[[form]]\nid = 'megatron'\nframework = 'ours'\nliteral = 'pas'\npattern = 'pas (?P<step>INT)'\n"
        "[[proof]]\nof = 'megatron'\nline = 'pas 3'\nstep = 3\n"
    )
    forms = all_forms(path)
    assert [form.framework for form in forms if form.id == "megatron"] == ["ours"]
    assert len(forms) == len(FORMS)
    assert all_forms(tmp_path) == forms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[form]\n", "own.toml"),
        ("[[form]]\nid = 'a'\n", "framework"),
        ("[[form]]\nid='a'\nframework='a'\nliteral=''\npattern='('\n", "cannot be compiled"),
        ("[[form]]\nid='a'\nframework='a'\nliteral=''\npattern='(?P<stp>INT)'\n", "'stp' is unknown"),
        ("[[proof]]\nof = 'nobody'\nline = 'x'\n", "nobody"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_cause(tmp_path, text, why):
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(StepFormError, match=why):
        all_forms(path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StepFormError, match="absent.toml"):
        all_forms(tmp_path / "absent.toml")


def test_what_is_wrong_with_a_form_is_reported():
    text = (
        "[[form]]\nid = 'Own Form'\nframework = 'x'\nliteral = 'pas '\npattern = 'pas (?P<step>INT) (?P<time>NUM)'\n"
        "time = 'step'\n[[form.marks]]\nkind = 'checkpoint'\nliteral = 'saved'\nmatches = ['kept']\n"
        "[[proof]]\nof = 'Own Form'\nline = 'pas 3 4.5'\nstep = 3\ntime = 5.0\n"
        "[[miss]]\nof = 'Own Form'\nline = 'pas 3 4.5'\n"
    )
    (form,) = parse(text, "own.toml")
    told = "\n".join(prove(form))
    for part in (
        "the id",
        "time is 4.5, and must be 5.0",
        "must not",
        "has none of",
        "does not match 'kept'",
    ):
        assert part in told


def test_a_pattern_of_ones_own_reads_its_lines():
    forms = (from_pattern(r"pas (?P<step>\d+) : (?P<time>[\d.]+) ms perte (?P<loss>\S+)"), *FORMS)
    follower = StepLines(forms)
    records = follower.feed([b"pas 1 : 250.5 ms perte 3.5", b"step 9 loss 1", b"pas 2 : 251.5 ms perte nan"])
    assert follower.framework == "own pattern"
    assert [(record.step, record.loss is not None and not math.isnan(record.loss)) for record in records] == [
        (1, True),
        (2, False),
    ]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "no regular expression"),
        (r"step (\d+) time (?P<time>\d+)", "no group"),
        (r"step (?P<step>\d+)", "none of the groups"),
        (r"step (?P<step>\d+) (?P<tiem>\d+) (?P<time>\d+)", "'tiem' is unknown"),
        (r"(?P<step>(\d+)+) (?P<time>\d+)", "repeated"),
        (r"(?P<step>\d+)(.*a)* (?P<time>\d+)", "repeated"),
        ("(?P<step>a)(?P<time>b)" + "x" * 3000, "longer"),
    ],
)
def test_a_wrong_pattern_is_refused_with_the_cause_and_a_line_that_would_do(pattern, why):
    with pytest.raises(StepFormError, match=r"step 120/5000") as caught:
        from_pattern(pattern)
    assert why in str(caught.value)


def test_the_line_and_the_pattern_shown_with_a_refusal_fit_each_other():
    (record,) = StepLines([from_pattern(EXAMPLE)]).feed([SAMPLE.encode()])
    assert (record.step, record.total, record.time_s, record.loss) == (120, 5000, 0.4152, 2.31)
    with pytest.raises(StepFormError) as caught:
        from_pattern("(")
    assert repr(SAMPLE) in str(caught.value) and repr(EXAMPLE) in str(caught.value)
