"""The loose search: n-grams, the index of phrases, codes, and concepts."""

import pytest

from holdfast.core.phrases.codes import codes_in
from holdfast.core.phrases.grams import grams
from holdfast.core.phrases.index import made, near
from holdfast.core.phrases.meanings import meanings_of
from holdfast.model.code_facts import CodeTables
from holdfast.model.phrases import CodeEntry, CodeForm, Concept, Phrase
from holdfast.model.signatures import Signature, Words

NO_TABLES = CodeTables()


def meaning(id_, category="gpu_oom", role="cause"):
    words = Words(en=id_, zh=id_)
    return Signature(
        id=id_,
        category=category,
        pattern="(?!)",
        role=role,
        title=words,
        explanation=words,
        advice=words,
        source="",
        matches=(),
    )


KNOWN = {
    one.id: one for one in (meaning("oom"), meaning("bus", "gpu_missing"), meaning("port", "port_in_use"))
}
KILLED = meaning("code-signal-9", "process_killed")
PHRASES = [
    Phrase("CUDA out of memory. Tried to allocate 3.25 GiB", "oom"),
    Phrase("GPU has fallen off the bus", "bus"),
    Phrase("端口被占用", "port"),
    Phrase("the weather report of the village", "calm"),
]
INDEX = made(
    PHRASES,
    {KILLED.id: KILLED},
    [CodeEntry(kind="signal", code="9", names=("SIGKILL",), meaning=KILLED)],
    [CodeForm(kind="exit", pattern=r"exit code (?P<code>-?\d+)")],
    [Concept(signature="bus", thing="gpu|卡", trouble="lost|掉")],
)
EVERY = {**KNOWN, **INDEX.own, "calm": meaning("calm", "none")}


@pytest.mark.parametrize(
    "other",
    [
        "Out Of Memory",
        "out  of\tmemory",
        "'out' of `memory`",
        "Out-of-Memory",
        "out of xxx memory",
        "out of memory 42",
        "ｏｕｔ of ｍｅｍｏｒｙ",
    ],
)
def test_case_quotes_numbers_and_full_width_marks_do_not_count(other):
    assert grams(other) == grams("out of memory")


def test_a_text_without_letters_has_no_grams():
    assert grams("") == grams("42 !?") == grams("^C") == frozenset()


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("fallen off the bus", "bus"),
        ("gpu has fallen of the bus", "bus"),
        ("node7: kernel: GPU has fallen off the bus, rebooting soon", "bus"),
        ("端口被占用了怎么办", "port"),
        ("tried to alocate GiB, CUDA out of memory", "oom"),
    ],
)
def test_the_nearest_phrase(text, signature):
    assert near(INDEX, text)[0].signature == signature


def test_what_is_like_nothing_is_near_to_nothing():
    assert near(INDEX, "zzyzx qwrtp") == []


@pytest.mark.parametrize("text", ["exit code 137", "exit code -9", "SIGKILL", "sigkill"])
def test_an_exit_code_above_128_is_a_signal(text):
    assert [one.signature for one in codes_in(INDEX, text, NO_TABLES)] == [KILLED.id]


def test_an_exit_code_that_nobody_knows_is_none():
    assert codes_in(INDEX, "exit code 77", NO_TABLES) == []


def test_a_code_comes_before_a_phrase_and_a_phrase_before_words_in_any_order():
    found = meanings_of(["SIGKILL"], INDEX, EVERY, NO_TABLES)
    assert (found[0].by, found[0].score) == ("code", 1.0)
    assert meanings_of(["gpu has fallen off the bus"], INDEX, EVERY, NO_TABLES)[0].by == "phrase"
    assert meanings_of(["8 卡只剩 7 张,掉了"], INDEX, EVERY, NO_TABLES)[0].by == "concept"


def test_blank_lines_mean_nothing():
    assert meanings_of(["", "  "], INDEX, EVERY, NO_TABLES) == []
