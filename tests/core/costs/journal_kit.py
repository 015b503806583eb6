"""Journals for the tests of costs and replay: small ones by hand, and random ones of any order."""

from hypothesis import strategies as st

from holdfast.model import events as ev
from holdfast.model.verdicts import UNKNOWN

waits = st.floats(0, 500).map(lambda seconds: round(seconds, 3))
KINDS = (
    "step", "kill", "hang", "start", "stop", "resume", "restart", "node", "device", "healed", "isolated", "tick",
)  # fmt: skip
happenings = st.lists(st.tuples(st.sampled_from(KINDS), waits, st.integers(0, 50)), max_size=40)


def submitted():
    return [ev.JobSubmitted(at_s=0.0, job="j", workers=1), *start(5, 1)]


def start(at_s, attempt, node="n0"):
    return [
        ev.WorkersPlaced(at_s=at_s, attempt=attempt, placed=(ev.Placed(0, node),)),
        ev.AttemptStarted(at_s=at_s + 1, attempt=attempt),
    ]


def steps(at_s, attempt, first, last):
    return [
        ev.StepReached(at_s=at_s + number, attempt=attempt, step=step)
        for number, step in enumerate(range(first, last + 1))
    ]


def killed(at_s, attempt, number=1):
    return [
        ev.RankExited(at_s=at_s, attempt=attempt, worker=0, rank=0, code=-9),
        ev.VerdictReached(at_s=at_s + 2, incident=number, verdict=UNKNOWN),
        ev.AttemptStopped(at_s=at_s + 6, attempt=attempt),
    ]


def journal_of(happened):
    """Events in any order, also such that make no sense where they come."""
    at_s, attempt, incident = 6.0, 1, 0
    events = submitted()
    for what, wait_s, step in happened:
        at_s += wait_s
        if what in ("kill", "hang", "node", "device"):
            incident += 1
        if what == "start":
            attempt += 1
        events += _events(what, at_s, attempt, incident, step)
    return events


def _events(what, at_s, attempt, incident, step):
    node = f"n{step % 3}"
    verdict = ev.VerdictReached(at_s=at_s, incident=incident, verdict=UNKNOWN)
    match what:
        case "step":
            return [ev.StepReached(at_s=at_s, attempt=attempt, step=step)]
        case "kill":
            return [ev.RankExited(at_s=at_s, attempt=attempt, worker=0, rank=0, code=1), verdict]
        case "hang":
            hang = ev.HangFound(at_s=at_s, attempt=attempt, hang="quiet", culprits=(), reason="it stands")
            return [hang, verdict]
        case "node":
            return [ev.NodeLost(at_s=at_s, node=node, reason="it is silent"), verdict]
        case "device":
            return [ev.DeviceFaulted(at_s=at_s, node=node, device="0", code="80E01801"), verdict]
        case "healed":
            return [ev.DeviceHealed(at_s=at_s, node=node, device="0", healed=bool(step % 2))]
        case "isolated":
            return [ev.NodeIsolated(at_s=at_s, node=node)]
        case "start":
            return [ev.AttemptStopped(at_s=at_s, attempt=attempt - 1), *start(at_s, attempt, node)]
        case "stop":
            return [ev.AttemptStopped(at_s=at_s, attempt=attempt)]
        case "restart":
            return [ev.RestartRequested(at_s=at_s, attempt=attempt, by="anna")]
        case "resume":
            return [ev.ControllerResumed(at_s=at_s)]
        case _:
            return [ev.Tick(at_s=at_s)]
