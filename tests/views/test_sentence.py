"""The one sentence: its examples, and that it is short and clean whatever a log, a node or a person wrote."""

import unicodedata
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job.spent import Part
from holdfast.core.job.story import IncidentStory
from holdfast.core.job.story_parts import RungTaken
from holdfast.core.verdict.categories import ACTIONS, KINDS
from holdfast.model.documents.parts import JOB_STATES
from holdfast.model.state import Device, DeviceFault, ExitFault, HangFault, NodeFault, StartFault
from holdfast.model.verdicts import Culprit, Evidence, Verdict
from holdfast.views.sentence import CHARACTERS_MAX, About, clean, incident_sentence
from holdfast.views.sentence_words import AFTER_RECOVERY, DID, TO_DO
from holdfast.views.state_sentence import StateFacts, state_sentence

FOUND_S = 1_767_280_327.0  # 2026-01-01 15:12:07 UTC


def verdict(category="gpu_oom", **more):
    class_, action = KINDS.get(category, ("hardware", "isolate_node"))
    fields = {"class_": class_, "title": "rank 2 failed", "confidence": 0.97, "action": action}
    return Verdict(category=category, **(fields | more))


def incident(**more):
    fields = {"number": 1, "attempt": 1, "found_at_s": FOUND_S, "found": "rank 2 failed"}
    return IncidentStory(**(fields | more))


def rung(name="reschedule-unconditional", **more):
    return RungTaken(**({"at_s": FOUND_S + 1, "rung": name, "why": "x, because y", "restarts": 1} | more))


def said(one, state="training", workers=8, **more):
    return incident_sentence(one, About(state=state, workers=workers, **more), UTC)


def test_a_device_is_lost_and_the_job_goes_on_elsewhere():
    lost = verdict(
        "xid_79", class_="hardware", culprits=(Culprit(rank=5, worker=5, host="gpu-03", device="5"),)
    )
    told = said(
        incident(
            verdict=lost,
            rungs=(rung("replace-worker", isolate=("gpu-03",)),),
            nodes={5: "gpu-03"},
            nodes_after={5: "gpu-11"},
            over=True,
            took_s=41.2,
            steps_lost=38,
        )
    )
    assert told.text.en == (
        "Rank 5 (gpu-03, GPU 5) fell off the bus at 15:12:07; node isolated, training again after 41 s on gpu-11; "
        "38 steps repeated. Nothing to do."
    )
    assert told.text.zh == (
        "15:12:07 rank 5（gpu-03，GPU 5）掉卡；已隔离节点，41 秒后在 gpu-11 恢复训练；重算 38 步。无需处理。"
    )
    assert (told.tone, told.to_do) == ("recovered", False)


def test_a_rank_that_the_others_wait_for():
    missing = verdict(
        "collective_missing_rank",
        title="rank 2 waits at data.py:88 in load; 7 ranks wait for it in all_reduce #8121 of group default_pg",
        action="unknown",
        culprits=(Culprit(rank=2, worker=2, host="gpu-07"),),
    )
    told = said(
        incident(
            verdict=missing,
            faults=(HangFault("quiet", (2,), "it stands"),),
            rungs=(rung("hang-restart"),),
            spent=(Part("detection", 30.0), Part("diagnosis", 1.0)),
        ),
        state="recovering",
    )
    assert told.text.en == (
        "Rank 2 (gpu-07) has not entered all_reduce #8121 in data.py:88 since 15:11:37; restarting."
    )
    assert (
        told.text.zh == "15:11:37 起 rank 2（gpu-07）未进入 all_reduce #8121（位于 data.py:88）；正在重启。"
    )
    assert told.tone == "trouble"


def test_the_same_error_twice_fails_the_job():
    error = verdict(
        "python_exception",
        raised="builtins.ValueError at data.py:41: bad record #",
        culprits=(Culprit(rank=1, worker=0),),
    )
    why = "rank 1 raised ValueError: the same error twice at data.py:41, at step 1200, and the checks found nothing"
    told = said(
        incident(verdict=error, rungs=(rung(), rung("fail", why=why)), ended=True, step_before=1200),
        state="failed",
        workers=1,
    )
    assert told.text.en == (
        "Rank 1 raised ValueError in data.py:41 at 15:12:07; the job failed, the same error twice; its last step was 1,200. "
        "Fix the code, then start again."
    )
    assert told.text.zh == (
        "15:12:07 rank 1 抛出 ValueError（位于 data.py:41）；作业失败，同一错误两次；最后一步为 1,200。修复代码后再启动。"
    )
    assert (told.tone, told.to_do) == ("lost", True)


def test_an_exception_is_named_where_the_category_says_what_it_meant():
    error = verdict(
        "data_error", raised="ValueError at train.py:14: bad record #", culprits=(Culprit(rank=3),)
    )
    told = said(incident(verdict=error, over=True, took_s=9.0))
    assert told.text.en == (
        "Rank 3 read missing or damaged data (ValueError, train.py:14) at 15:12:07; training continued after 9 s. "
        "The failure may recur: repair the data."
    )


def test_before_there_is_a_verdict_the_fault_is_named():
    told = said(incident(faults=(ExitFault(worker=0, code=-9, rank=3),)), state="recovering")
    assert told.text.en == "Rank 3 was ended by signal 9 at 15:12:07; diagnosis is running."


def test_several_ranks_have_and_were():
    killed = verdict("host_oom", culprits=tuple(Culprit(rank=rank) for rank in range(6)))
    assert said(incident(verdict=killed)).text.en.startswith(
        "Ranks 0-5 were killed: the host ran out of memory at"
    )


def test_shadow_and_notify_ask_for_a_person():
    for one in (rung(shadow=True), rung("notify")):
        told = said(incident(verdict=verdict(), rungs=(one,)))
        assert told.to_do
        assert told.text.en.endswith("Action needed: Holdfast does nothing more.")


def test_every_category_has_its_words():
    assert set(KINDS) <= set(DID)
    assert len(KINDS) == 94
    for told in DID.values():
        for left in (told.en, told.zh):
            known = left
            for field in ("{has}", "{was}", "{op}", "{error}", "{code}"):
                known = known.replace(field, "")
            assert "{" not in known
    assert set(TO_DO) == ACTIONS
    assert set(AFTER_RECOVERY) <= ACTIONS


@pytest.mark.parametrize("category", sorted(KINDS))
def test_every_category_makes_a_sentence_with_its_own_words(category):
    told = said(incident(verdict=verdict(category, culprits=(Culprit(rank=1, worker=1, host="n1"),))))
    assert "{" not in told.text.en + told.text.zh
    if category != "unknown":
        words = DID[category].en.replace("{has} ", "").replace("{was} ", "").partition("{")[0]
        assert words.strip() in told.text.en


def test_a_dead_job():
    told = state_sentence(
        StateFacts(name="llama-70b", state="dead", since_s=FOUND_S, step=1200, ranks=8), UTC
    )
    assert told.text.en == (
        "Dead: its supervisor and its ranks have ended since 15:12:07; the last step was 1,200. "
        "Start it again: holdfast attach llama-70b."
    )
    assert told.text.zh == (
        "已中断：15:12:07 起监管进程与所有 rank 均已退出；最后一步为 1,200。重新启动：holdfast attach llama-70b。"
    )
    assert (told.tone, told.to_do) == ("lost", True)


def test_a_job_that_waits_for_a_node():
    told = state_sentence(
        StateFacts(name="sft", state="waiting", since_s=FOUND_S, missing=(2,), isolated=2), UTC
    )
    assert told.text.en == (
        "No healthy node for worker 2 since 15:12:07 (2 isolated). Release or add a node: holdfast nodes."
    )


def test_text_from_a_log_is_shortened_in_its_middle():
    assert clean("a\x1b[31mb\u202ec\nd", 20) == "a [31mb c d"
    assert clean("x" * 100, 20) == "x" * 12 + "…" + "x" * 7


# Whatever it is made of ------------------------------------------------------------------------------------

hostile = st.one_of(
    st.text(max_size=300),
    st.sampled_from(
        ["<script>alert(1)</script>", "\x1b[2J" * 40, "\u202e" * 50, "名" * 200, "{op}{has}", ""]
    ),
)
numbers = st.one_of(st.none(), st.integers(0, 10**6))
times = st.one_of(st.floats(0, 4e9), st.floats(allow_nan=False, allow_infinity=False))
culprits = st.builds(
    Culprit,
    rank=numbers,
    worker=numbers,
    host=st.one_of(st.none(), hostile),
    device=st.one_of(st.none(), hostile),
)
verdicts = st.one_of(
    st.none(),
    st.builds(
        Verdict,
        category=st.one_of(st.sampled_from([*DID, "xid_999999999999999999"]), hostile),
        class_=hostile,
        title=hostile,
        confidence=st.floats(0, 1),
        action=st.one_of(st.sampled_from(sorted(ACTIONS)), hostile),
        culprits=st.lists(culprits, max_size=5).map(tuple),
        raised=st.one_of(hostile, st.just(f"{'very.long' * 20}.Error at {'x' * 90}.py:12345: text")),
        evidence=st.lists(st.builds(Evidence, text=hostile), max_size=3).map(tuple),
    ),
)
faults = st.one_of(
    st.builds(ExitFault, worker=st.integers(0, 9), code=st.integers(-64, 255), rank=numbers),
    st.builds(HangFault, hang=hostile, culprits=st.lists(st.integers(0, 9**6)).map(tuple), reason=hostile),
    st.builds(NodeFault, node=hostile, reason=hostile),
    st.builds(
        DeviceFault,
        device=st.builds(Device, node=hostile, device=hostile, code=hostile),
        steps_up=st.booleans(),
    ),
    st.builds(StartFault, worker=st.integers(0, 9), code=st.integers(0, 255), reason=hostile),
)
rungs = st.builds(
    RungTaken,
    at_s=times,
    rung=st.sampled_from(
        ["in-place", "hang-restart", "replace-worker", "wait-for-node", "fail", "notify", "?"]
    ),
    why=hostile,
    shadow=st.booleans(),
    isolate=st.lists(hostile, max_size=2).map(tuple),
    restarts=st.integers(0, 128),
)
nodes = st.dictionaries(st.integers(0, 9), hostile, max_size=3)
incidents = st.builds(
    IncidentStory,
    number=st.integers(1, 99),
    attempt=st.integers(1, 99),
    found_at_s=times,
    found=hostile,
    verdict=verdicts,
    faults=st.lists(faults, max_size=3).map(tuple),
    rungs=st.lists(rungs, max_size=3).map(tuple),
    over=st.booleans(),
    ended=st.booleans(),
    took_s=st.one_of(st.none(), st.floats(0, 1e9)),
    step_before=numbers,
    steps_lost=numbers,
    nodes=nodes,
    nodes_after=nodes,
)
states = st.sampled_from(JOB_STATES)


def is_clean(text):
    """One line that no terminal or page would obey, and whole characters only."""
    return not any(
        unicodedata.category(letter) in ("Cc", "Cs") or letter in "\u202a\u202b\u202e" for letter in text
    )


@given(incidents, states, st.integers(1, 4096), st.one_of(st.none(), st.integers(1, 128)))
def test_it_is_never_longer_than_160_characters_nor_unclean(one, state, workers, max_restarts):
    told = incident_sentence(one, About(state=state, workers=workers, max_restarts=max_restarts), UTC)
    for text in (told.text.en, told.text.zh):
        assert 0 < len(text) <= CHARACTERS_MAX
        assert is_clean(text), ascii(text)


@given(
    st.builds(
        StateFacts,
        name=hostile,
        state=states,
        since_s=st.one_of(st.none(), times),
        step=st.one_of(st.none(), st.integers(-(10**18), 10**18)),
        restarts=st.integers(0, 10**6),
        reason=hostile,
        by=hostile,
        phase_words=hostile,
        missing=st.lists(st.integers(0, 10**6), max_size=9).map(tuple),
        isolated=st.integers(0, 10**6),
        host=hostile,
        ranks=numbers,
        is_being_ended=st.booleans(),
    )
)
def test_the_sentence_of_a_state_is_never_longer_nor_unclean(told):
    made = state_sentence(told, UTC)
    for text in (made.text.en, made.text.zh):
        assert 0 < len(text) <= CHARACTERS_MAX
        assert is_clean(text), ascii(text)
