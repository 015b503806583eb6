"""Texts of notices: every event, in both languages, short, and without secrets."""

from datetime import UTC

import pytest

from holdfast.core.job.decide import decide
from holdfast.core.job.story import Story
from holdfast.core.notify.happenings import Happening
from holdfast.model.documents.notices import NOTICE_EVENTS
from holdfast.model.events import RankExited, VerdictReached
from holdfast.model.state import State
from holdfast.model.verdicts import Culprit, Verdict
from holdfast.views.jobs.seen import Seen
from holdfast.views.notices import HAVE_AN_END, TITLES, notice
from notices_kit import POLICY, START

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz012345"
VERDICT = Verdict(
    category="python_exception",
    class_="training",
    title="rank 0 raised KeyError: 'x' at train.py:7",
    confidence=0.9,
    culprits=(Culprit(rank=0, worker=0, host="gpu-3"),),
    advice=f"Look at the line. api_key={TOKEN}",
)
LONG = 40 * "very long "


def summary(*events):
    story, state = Story(POLICY), State()
    for event in (*START, *events):
        decision = decide(state, event, POLICY)
        state = decision.state
        story.hear(event, decision)
    return story.summary()


FAILED = summary(
    RankExited(at_s=10.0, attempt=1, worker=0, rank=0, code=1),
    VerdictReached(at_s=11.0, incident=1, verdict=VERDICT),
)


def made(event, *, text="", incident=None, name="llama", severity="warning", **more):
    happening = Happening(
        key="x", event=event, severity=severity, at_s=12.0, text=text, incident=incident, **more
    )
    seen = Seen(id=name, name=name, state="recovering", state_since_s=10.0)
    return notice(happening, 1, FAILED, seen, link="https://hf.example.org/x", zone=UTC)


@pytest.mark.parametrize("event", NOTICE_EVENTS)
@pytest.mark.parametrize("text", ["", "steps 140-190 were 13 % slower"])
def test_every_event_has_words_in_both_languages(event, text):
    incident = 1 if event in ("incident", "hang", "verdict", "recovered", "failed") else None
    found = made(event, text=text, incident=incident)
    assert found.title.en == f"llama: {TITLES[event].en}" and found.title.zh == f"llama：{TITLES[event].zh}"
    for words in (found.sentence.text.en, found.sentence.text.zh):
        assert words.strip() and len(words) <= 160
    assert (found.id, found.at_s, found.link) == ("llama-0/x", 12.0, "https://hf.example.org/x")


def test_the_title_says_that_something_is_over():
    for event in NOTICE_EVENTS:
        found = made(event, severity="info", is_over=True)
        assert found.title.en.endswith(": over") == (event in HAVE_AN_END)


def test_the_facts_of_an_incident():
    facts = {name.en: text for name, text in made("verdict", incident=1).facts}
    assert facts["cause"].en == "rank 0 raised KeyError: 'x' at train.py:7 (python_exception, 90% sure)"
    assert facts["cause"].zh == "rank 0 抛出 KeyError: 'x'，位于 train.py:7（python_exception，置信度 90%）"
    assert "rank 0" in facts["who"].en and "gpu-3" in facts["who"].en
    assert facts["action"].en and facts["advice"].en.startswith("Look at the line.")
    assert TOKEN not in facts["advice"].en and TOKEN not in facts["advice"].zh


def test_secrets_and_control_characters_of_a_log_do_not_come_through():
    found = made("loss", text=f"\x1b[2Jpassword={TOKEN}\nnext", text_zh=f"密码 token={TOKEN}")
    for words in (found.sentence.text.en, found.sentence.text.zh):
        assert TOKEN not in words and "\x1b" not in words and "\n" not in words


def test_long_words_and_names_are_cut():
    found = made("loss", text=LONG, name="j" * 200)
    assert len(found.sentence.text.en) <= 150 and len(found.title.en) < 100
    assert found.job == "j" * 200


def test_words_of_our_own_are_in_chinese():
    assert (
        made("log-silence", text="no output for 6min", text_zh="6min 没有输出").sentence.text.zh
        == "6min 没有输出"
    )
    assert made("isolation", text="gpu-3").sentence.text.zh == "gpu-3 已隔离，不再放置任务。"
    assert made("budget-low", text="7 of 8").sentence.text.zh == "重启次数已用 7/8。"
    assert made("budget-low", text="7 of 8").sentence.text.en == "7 of 8 restarts used."


def test_what_a_person_has_to_do_is_marked():
    assert made("no-spare", text="none", severity="critical").sentence.to_do
    assert not made("straggler", text="x").sentence.to_do
