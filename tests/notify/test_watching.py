"""From a real record of a job to notices: the journal, and what lies outside of it."""

import os
from datetime import UTC

import msgspec
import pytest

from holdfast.core.job.decide import decide
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable, Row
from holdfast.journal.store import Store
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    FindingNoted,
    Placed,
    RankExited,
    StepReached,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.steps import StepNow
from holdfast.notify.watching import JobWatch, Settings
from holdfast.observe.logs.step_file import StepFile, StepFileWriter
from notices_kit import BUG, POLICY, START

KILLED = RankExited(at_s=10.0, attempt=1, worker=0, rank=0, code=-9)
VERDICT = VerdictReached(at_s=11.0, incident=1, verdict=BUG)
RESTARTED = (
    AttemptStopped(at_s=12.0, attempt=1),
    WorkersPlaced(at_s=13.0, attempt=2, placed=(Placed(0, "n0"),)),
    AttemptStarted(at_s=14.0, attempt=2),
    StepReached(at_s=20.0, attempt=2, step=90),
)


class Job:
    """A job whose journal the test writes. Times are its own: 2,000 is now."""

    def __init__(self, root, policy=POLICY, name="llama"):
        self.dir = JobDir(root / "jobs" / name)
        self.dir.path.mkdir(parents=True)
        self.store = Store.open(self.dir.journal_path)
        self.store.set_meta("policy", msgspec.json.encode(policy))
        self.store.set_meta("job", msgspec.json.encode({"command": ["train"]}))
        self.policy, self.state, self.now_s = policy, State(), 2_000.0

    def write(self, *events):
        for event in events:
            decision = decide(self.state, event, self.policy)
            self.state = decision.state
            kind = str(type(event).__struct_config__.tag)
            self.store.append(
                [
                    Row(
                        event.at_s,
                        kind,
                        msgspec.json.encode(event),
                        msgspec.json.encode(decision.orders),
                        decision.why,
                    )
                ]
            )

    def watch(self, **settings):
        return JobWatch(self.dir, Settings(zone=UTC, **settings), lambda: self.now_s)

    def output(self, at_s):
        folder = self.dir.worker(1, 0)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stdout").write_text("x")
        os.utime(folder / "stdout", (at_s, at_s))


@pytest.fixture
def job(tmp_path):
    one = Job(tmp_path)
    yield one
    one.store.close()


def told(notices, *events):
    found = [(one.event, one.version, one.is_over) for one in notices]
    return [one for one in found if not events or one[0] in events]


def test_an_incident_in_both_languages(job):
    watch = job.watch(page="https://hf.example.org", labels={"team": "vision"})
    job.write(*START, KILLED, VERDICT)
    notices = [one for one in watch.news() if one.incident]
    opened, known = notices[0], notices[-1]
    assert opened.id == known.id == "llama-0/incident-1" and known.version == len(notices)
    assert opened.title.en == "llama: incident" and opened.title.zh == "llama：故障"
    assert known.link == "https://hf.example.org/jobs/llama/incidents/1"
    assert known.labels == {"team": "vision"} and known.category == "python_exception"
    facts = {name.en: (text.en, text.zh) for name, text in known.facts}
    assert facts["cause"][0] == "KeyError: 'x' (python_exception, 90% sure)"
    assert "置信度 90%" in facts["cause"][1]
    assert known.sentence.text.en and known.sentence.text.zh != known.sentence.text.en
    job.write(*RESTARTED)
    end = list(watch.news())[-1]
    assert (end.event, end.severity, end.is_over, end.title.en) == (
        "recovered",
        "info",
        True,
        "llama: recovered",
    )
    watch.close()


def test_secrets_of_a_log_are_masked(job):
    token = "hf_abcdefghijklmnopqrstuvwxyz012345"
    verdict = msgspec.structs.replace(
        BUG, title=f"HTTPError: token={token} is refused", advice=f"api_key={token}"
    )
    watch = job.watch()
    finding = FindingNoted(at_s=11.5, finding="loss-spike", text=f"password={token}", attempt=1)
    job.write(*START, KILLED, VerdictReached(at_s=11.0, incident=1, verdict=verdict), finding)
    assert token not in msgspec.json.encode(list(watch.news())).decode()
    watch.close()


def test_the_same_journal_gives_the_same_notices(job):
    first, growing = job.watch(), []
    for event in (*START, KILLED, VERDICT, *RESTARTED):
        job.write(event)
        growing += first.news()
    again = job.watch()
    assert list(again.news()) == growing
    assert list(again.news()) == []
    first.close()
    again.close()


def test_what_begins_again_after_it_was_over_is_another_notice(job):
    watch = job.watch()
    names = ("slowdown", "slowdown-over", "slowdown", "slowdown", "slowdown-over", "slowdown-over")
    findings = [
        FindingNoted(at_s=30.0 + number, finding=name, text="13 % slower", attempt=1)
        for number, name in enumerate(names)
    ]
    job.write(*START, *findings)
    found = [
        (one.id.rpartition("/")[2], one.version, one.is_over)
        for one in watch.news()
        if one.event == "slowdown"
    ]
    assert found == [
        ("slowdown-1", 1, False),
        ("slowdown-1", 2, True),
        ("slowdown-1-again-2", 1, False),
        ("slowdown-1-again-2", 2, False),
        ("slowdown-1-again-2", 3, True),
    ]
    watch.close()


# Outside of the journal -------------------------------------------------------------------------------


def looked(watch, *events):
    list(watch.news())
    return [one for one in watch.look() if one.event in events]


def test_a_supervisor_that_is_gone_is_said_once_and_again_after_it_was_back(job):
    job.write(*START)
    watch = job.watch()
    (lost,) = looked(watch, "unsupervised")
    assert (lost.severity, lost.version) == ("critical", 1)
    assert looked(watch, "unsupervised") == []
    other = job.watch()  # a new process finds the same
    assert [one.id for one in looked(other, "unsupervised")] == [lost.id]
    with job.dir.lock():
        (back,) = looked(watch, "unsupervised")
        assert (back.id, back.version, back.is_over) == (lost.id, 2, True)
        job.write(StepReached(at_s=30.0, attempt=1, step=120))
    (again,) = looked(watch, "unsupervised")
    assert again.id != lost.id and again.version == 1
    watch.close()
    other.close()


def test_log_silence_begins_and_ends_and_a_restart_says_it_no_second_time(job):
    job.write(*START)
    job.output(at_s=1_650.0)
    with job.dir.lock():
        watch = job.watch(silence_s=300.0)
        (silent,) = looked(watch, "log-silence")
        assert silent.id == "llama-0/silence-1650" and silent.version == 1
        assert silent.sentence.text.en == "no output for 5min50s"
        assert "没有输出" in silent.sentence.text.zh
        other = job.watch(silence_s=300.0)
        assert [(one.id, one.version) for one in looked(other, "log-silence")] == [(silent.id, 1)]
        job.output(at_s=1_990.0)
        (over,) = looked(watch, "log-silence")
        assert (over.id, over.version, over.is_over, over.severity) == (silent.id, 2, True, "info")
        assert looked(watch, "log-silence") == []
        job.now_s = 3_000.0
        assert [one.id for one in looked(watch, "log-silence")] == ["llama-0/silence-1990"]
        watch.close()
        other.close()


def test_nobody_waits_for_output_of_a_job_that_does_not_train(job):
    job.write(*START, KILLED)
    job.output(at_s=1_000.0)
    with job.dir.lock():
        watch = job.watch(silence_s=300.0)
        assert looked(watch, "log-silence") == []
        quiet = job.watch(silence_s=0.0)
        assert looked(quiet, "log-silence") == []
        watch.close()
        quiet.close()


def test_a_checkpoint_that_is_too_old_is_said_until_the_next_one(job):
    job.write(*START)
    folder = job.dir.worker(1, 0)
    folder.mkdir(parents=True)
    writer = StepFileWriter(folder)
    with job.dir.lock():
        watch = job.watch(checkpoint_age_s=600.0)
        (never,) = looked(watch, "checkpoint-old")  # 2,000 s after its start it has named none
        assert "since the start, without a checkpoint" in never.sentence.text.en
        writer.write(StepFile(at_s=1_900.0, attempt=1, now=StepNow(checkpoint_at_s=1_900.0)))
        assert told(looked(watch, "checkpoint-old")) == [("checkpoint-old", 2, True)]
        job.now_s = 2_600.0
        (old,) = looked(watch, "checkpoint-old")
        assert "11min40s since the last checkpoint" in old.sentence.text.en
        assert "上一个检查点" in old.sentence.text.zh
        assert looked(watch, "checkpoint-old") == []
        off = job.watch()
        assert looked(off, "checkpoint-old") == []
        watch.close()
        off.close()


def test_a_job_that_has_ended_is_not_looked_at(tmp_path):
    job = Job(tmp_path, Policy())
    job.write(*START, KILLED, VERDICT, AttemptStopped(at_s=12.0, attempt=1))
    watch = job.watch(silence_s=1.0)
    assert list(watch.news())[-1].event == "failed"
    assert watch.has_ended and list(watch.look()) == []
    watch.close()
    job.store.close()


def test_a_job_without_a_journal(tmp_path):
    folder = tmp_path / "jobs" / "x"
    folder.mkdir(parents=True)
    with pytest.raises(JournalUnusable):
        JobWatch(JobDir(folder), Settings())
