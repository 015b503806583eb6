"""Notices for tests: from the events of a job, or made by hand."""

from holdfast.core.job.decide import decide
from holdfast.core.notify.happenings import happenings
from holdfast.model.documents.notices import Notice
from holdfast.model.documents.parts import Sentence
from holdfast.model.events import (
    AttemptStarted,
    JobSubmitted,
    Placed,
    RankStarted,
    StepReached,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.signatures import Words
from holdfast.model.state import State
from holdfast.model.verdicts import Verdict

POLICY = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)
BUG = Verdict(category="python_exception", class_="training", title="KeyError: 'x'", confidence=0.9)
START = (
    JobSubmitted(at_s=0.0, job="llama", workers=1, command=("train",)),
    WorkersPlaced(at_s=1.0, attempt=1, placed=(Placed(0, "n0"),)),
    AttemptStarted(at_s=2.0, attempt=1),
    RankStarted(at_s=3.0, attempt=1, worker=0, rank=0, pid=41),
    StepReached(at_s=9.0, attempt=1, step=100),
)


def said(*events, policy=POLICY, state=None):
    """What these events mean for people."""
    state, found = state or State(), []
    for event in events:
        decision = decide(state, event, policy)
        found += happenings(state, event, decision, policy)
        state = decision.state
    return found


def made(name="llama/incident-1", version=1, **fields):
    """A notice."""
    known = {
        "event": "incident",
        "severity": "warning",
        "at_s": 1_000.0,
        "job": "llama",
        "title": Words(en="llama: incident", zh="llama：故障"),
        "sentence": Sentence(text=Words(en="rank 1 was killed.", zh="rank 1 被杀死。"), tone="trouble"),
    }
    return Notice(id=name, version=version, **{**known, **fields})
