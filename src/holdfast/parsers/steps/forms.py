"""Parses TOML files of step forms (formats of step lines), lists their errors, and makes a step form from a user's
pattern. Pure.
"""

import math
import re
import tomllib

import msgspec
from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.step_forms import GROUPS, SPECIFIC, MarkForm, Proof, SettingForm, StepForm, StepFormFile
from holdfast.parsers.steps.reading import FormReader, compiled

ID = late(r"[a-z0-9]+(?:-[a-z0-9]+)*")
MARK_WORDS = (
    "heckpoint",
    "valuat",
    "alidat",
    "ompil",
    "rofil",
    "chedul",
    "rampup",
    "urricul",
    "armup",
    "atch size",
    "equence len",
    "esizing",
)  # every line that announces a pause or more work contains one of them
PROOFS = "\n[[proof]]"  # all forms of a file stand before it
USER_ID = "own-pattern"
USER_PATTERN_MAX = 2000
PROVED = (
    ("step", "number"),
    ("total", "total"),
    ("epoch", "epoch"),
    ("elapsed", "elapsed_s"),
    ("rate", "rate"),
    ("loss", "loss"),
    ("batch", "batch"),
    ("sequence", "sequence"),
    ("data", "data_s"),
    ("rank", "rank"),
    ("stamp", "stamp_s"),
)
SAMPLE = "step 120/5000 | loss 2.31 | time 415.2 ms"
EXAMPLE = r"step (?P<step>\d+)/(?P<total>\d+) \| loss (?P<loss>\S+) \| time (?P<time>[\d.]+) (?P<unit>ms|s)"
NESTED_REPEAT = late(r"\((?:\?:|\?P<\w+>)?(?:[^()\\]|\\.)*[+*](?:[^()\\]|\\.)*\)(?:[+*]|\{\d*,)(?!\+)")


class StepFormError(ValueError):
    """Raised for an invalid step form; the message names file or pattern, position and error."""


def parse(text: str, name: str) -> tuple[StepForm, ...]:
    """Parses the forms in one TOML file, with their test lines, and checks them.

    `name`: the file's. raises: StepFormError
    """
    file = _file(text, name)
    ids = {form.id for form in file.form}
    for of in {*(proof.of for proof in file.proof), *(miss.of for miss in file.miss)} - ids:
        raise StepFormError(f"{name}: there are test lines of the form {of!r}, which does not exist")
    forms = tuple(
        replace(
            form,
            matches=(*form.matches, *(proof for proof in file.proof if proof.of == form.id)),
            misses=(*form.misses, *(miss for miss in file.miss if miss.of == form.id)),
        )
        for form in file.form
    )
    for form in forms:
        wrong = _wrong_patterns(form)
        if wrong:
            raise StepFormError(f"{name}: {form.id}: {wrong[0]}")
    return forms


def parse_unproved(text: str, name: str) -> tuple[StepForm, ...]:
    """Parses the forms in one TOML file without checks and test lines, if it was checked before.

    raises: StepFormError
    """
    return _file(text.partition(PROOFS)[0], name).form


def _file(text: str, name: str) -> StepFormFile:
    try:
        return msgspec.convert(tomllib.loads(text), StepFormFile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise StepFormError(f"{name}: {error}") from error


def prove(form: StepForm) -> list[str]:
    """Returns the failed tests of a form, each in one sentence; empty if all its test lines pass."""
    wrong = _wrong_patterns(form)
    if wrong:
        return wrong
    problems = (
        [] if ID.fullmatch(form.id) else ["the id is not made of small letters, digits and single hyphens"]
    )
    if not form.matches:
        problems.append("there is no example line that the form must parse")
    reader = FormReader(form)
    for proof in form.matches:
        problems += _unproved(form, reader, proof)
    for miss in form.misses:
        text = miss.line.encode()
        if reader.literal in text and reader.read(text) is not None:
            problems.append(f"the form parses {miss.line!r}, which it must not parse")
    return problems + _wrong_lines(form)


def from_pattern(pattern: str) -> StepForm:
    """Returns the step form of a user's regular expression; its printed value counts as the time of one step.

    raises: StepFormError, which says what is wrong and shows an example line with its pattern
    """
    why = _wrong_user_pattern(pattern)
    if why:
        raise StepFormError(f"the step pattern {pattern!r} cannot be used: {why}. {_example()}")
    meaning = "step" if "time" in compiled(pattern).groupindex else "none"
    return msgspec.convert(
        {
            "id": USER_ID,
            "framework": "own pattern",
            "literal": "",
            "pattern": pattern,
            "time": meaning,
            "rate_unit": "steps/s",
            "trust": SPECIFIC + 1,
        },
        StepForm,
    )


def _example() -> str:
    return f"For the line {SAMPLE!r} it would be {EXAMPLE!r}"


def _wrong_user_pattern(pattern: str) -> str:
    if len(pattern) > USER_PATTERN_MAX:
        return f"it is longer than {USER_PATTERN_MAX} characters"
    try:
        groups = compiled(pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        return f"it is no regular expression ({error})"
    unknown = sorted(set(groups) - GROUPS)
    if unknown:
        return f"the group {unknown[0]!r} is unknown; known are {', '.join(sorted(GROUPS))}"
    if "step" not in groups:
        return "it has no group (?P<step>...)"
    if not {"time", "rate", "elapsed"} & set(groups):
        return "it has none of the groups (?P<time>...), (?P<rate>...) and (?P<elapsed>...)"
    if NESTED_REPEAT.search(pattern):
        return "a repeated group contains a repetition: matching can take exponential time on other lines"
    return ""


def _wrong_patterns(form: StepForm) -> list[str]:
    problems = []
    for pattern in (form.pattern, *form.fields, *form.before, form.begins):
        try:
            unknown = sorted(set(compiled(pattern).groupindex) - GROUPS)
        except re.error as error:
            problems.append(f"the pattern {pattern!r} cannot be compiled: {error}")
            continue
        if unknown:
            problems.append(f"the group {unknown[0]!r} is unknown; known are {', '.join(sorted(GROUPS))}")
    for pattern in (*(mark.pattern for mark in form.marks), *(one.pattern for one in form.settings)):
        try:
            re.compile(pattern.encode())
        except re.error as error:
            problems.append(f"the pattern {pattern!r} cannot be compiled: {error}")
    return problems


def _unproved(form: StepForm, reader: FormReader, proof: Proof) -> list[str]:
    text = proof.line.encode()
    if reader.literal not in text:
        return [f"{form.literal!r} is not in {proof.line!r}"]
    found = reader.read(text)
    if found is None:
        return [f"the form does not parse {proof.line!r}"]
    problems = []
    window = found.window or 1
    time_s = found.time_s / window if found.time_s is not None and form.time == "window" else found.time_s
    for name, expected, got in (
        ("time", proof.time, time_s),
        *((name, getattr(proof, name), getattr(found, field)) for name, field in PROVED),
    ):
        if not _same(expected, got):
            problems.append(f"{name} is {got}, and must be {expected}, in {proof.line!r}")
    return problems


def _same(expected: float | None, got: float | None) -> bool:
    if expected is None or got is None:
        return expected is got
    return math.isclose(expected, got, rel_tol=1e-9) or (math.isnan(expected) and math.isnan(got))


def _wrong_lines(form: StepForm) -> list[str]:
    problems = []
    for mark in form.marks:
        if not any(word in mark.literal for word in MARK_WORDS):
            problems.append(f"the mark {mark.literal!r} has none of {', '.join(MARK_WORDS)}")
    lines: list[tuple[str, MarkForm | SettingForm]] = []
    lines += [("mark", one) for one in form.marks]
    lines += [("setting", one) for one in form.settings]
    for kind, one in lines:
        pattern = re.compile(one.pattern.encode())
        for line in one.matches:
            if one.literal not in line or not pattern.search(line.encode()):
                problems.append(f"the {kind} {one.literal!r} does not match {line!r}")
        for line in one.misses:
            if one.literal in line and pattern.search(line.encode()):
                problems.append(f"the {kind} {one.literal!r} matches {line!r}, which it must not match")
    return problems
