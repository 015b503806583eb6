"""Alerts for a job's journal: each once per state, bounded in an hour, remembered by a replay."""

import pytest

from holdfast.controller.alert_notes import KNOWN_MAX, PER_HOUR_MAX, AlertNotes
from holdfast.controller.loop import Controller, decisions
from holdfast.controller.requests import Requests
from holdfast.core.job.story import Story
from holdfast.model.calls import NOTES_MAX, AlertNote, AskNotes
from holdfast.model.events import JobSubmitted, StopRequested
from holdfast.model.policy import Policy


class Job:
    """A controller whose rows are kept in a list."""

    def __init__(self):
        self.rows, self.now_s = [], 100.0
        self.controller = Controller(Policy(), self, self)
        self.controller.handle(JobSubmitted(at_s=1.0, job="llama", workers=1))
        self.requests = Requests(self.controller, lambda: self.now_s, 1.0, lambda number: None)

    def record(self, row):
        self.rows.append((row.at_s, row.kind, row.event))

    def flush(self):
        return True

    def carry_out(self, order):
        pass

    def ask(self, *keys, **more):
        return self.requests.carry_out(AskNotes(call="c", by="am", notes=tuple(map(note, keys)), **more))

    def noted(self):
        return [row for row in self.rows if row[1] == "finding-noted"]


def note(key):
    return AlertNote(key=key, node="n0", status="firing", text=f"alert {key}\x1b[31m fires", since_s=99.0)


def test_an_alert_is_recorded_once():
    job = Job()
    assert job.ask("a", "b", "a") == (True, "2 new alerts recorded in job llama")
    assert job.ask("b") == (False, "0 new alerts recorded in job llama")
    story = Story(Policy())
    lines = [
        line for event, decision in decisions(job.rows, Policy()) for line in story.hear(event, decision)
    ]
    found = [line for line in lines if line.finding == "alert"]
    assert [line.text for line in found] == ["alert a [31m fires", "alert b [31m fires"]
    assert found[0].numbers == {"alert": "a", "node": "n0", "status": "firing", "by": "am", "since_s": 99.0}


def test_a_resumed_controller_has_the_keys_of_its_journal():
    job = Job()
    job.ask("a")
    again = AlertNotes()
    for event, _ in decisions(job.rows, Policy()):
        again.remember(event)
    assert again.new(["a", "b"], job.now_s) == ({"b"}, 0)


def test_an_hour_has_a_limit():
    job = Job()
    for begin in range(0, PER_HOUR_MAX + 50, 50):
        job.now_s += 1.0
        done, text = job.ask(*(f"k{number}" for number in range(begin, begin + 50)))
    assert not done and "50 are not recorded, because the limit" in text
    assert len(job.noted()) == PER_HOUR_MAX
    job.now_s += 3_600.0
    assert job.ask(f"k{PER_HOUR_MAX}")[0]


def test_known_keys_are_bounded():
    notes = AlertNotes()
    job = Job()
    job.ask("a")
    (event,) = (
        event for event, _ in decisions(job.rows, Policy()) if event.__class__.__name__ == "FindingNoted"
    )
    from_replay = [
        type(event)(at_s=1.0, finding="alert", text="", numbers={"alert": str(n)})
        for n in range(KNOWN_MAX + 1)
    ]
    for one in from_replay:
        notes.remember(one)
    assert notes.new(["0"], 9e9) == ({"0"}, 0)
    assert notes.new(["1"], 9e9) == (set(), 0)


def test_what_cannot_be_recorded_is_refused():
    job = Job()
    with pytest.raises(ValueError, match="too many"):
        job.ask(*(str(number) for number in range(NOTES_MAX + 1)))
    with pytest.raises(ValueError, match="does not name its sender"):
        job.requests.carry_out(AskNotes(call="c", by=" ", notes=()))
    job.controller.handle(StopRequested(at_s=101.0, reason="enough", force=True))
    with pytest.raises(ValueError, match="has ended"):
        job.ask("a")
