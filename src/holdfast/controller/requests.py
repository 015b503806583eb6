"""Carries out requests of users about a job. Each request becomes an event of the job.

Requests are to stop, to restart, to record a remark on an incident, and to record alerts.
"""

import signal
from collections.abc import Callable
from typing import Protocol

from holdfast.controller.alert_notes import KEY, KEY_CHARACTERS_MAX, AlertNotes
from holdfast.controller.loop import Controller
from holdfast.core.job import policy_change
from holdfast.core.job.story_lines import ALERT
from holdfast.core.plurals import counted
from holdfast.model.calls import NOTES_MAX, AlertNote, AnyRequest, AskNotes, AskRemark, AskRestart, AskStop
from holdfast.model.events import (
    FindingNoted,
    IncidentAcknowledged,
    RestartRequested,
    StopRequested,
    VerdictCorrected,
)
from holdfast.model.nodes.workers import PolicyAsked
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, Finishing, Holding, Running

BY_CHARACTERS_MAX = 100
TEXT_CHARACTERS_MAX = 2_000


class Asking(Protocol):
    """The part of a multi-node engine by which a platform requests other recovery limits, such as by an
    annotation.
    """

    policy_asked: PolicyAsked | None

    def note(self, finding: str, text: str, key: str = "") -> None: ...


class Requests:
    """Handler of requests about a job.

    `pass_on`: sends a signal to the training command. `grace_s`: time for the command to end by itself after
    it. `notes`: the alerts that the journal already contains.
    """

    def __init__(
        self,
        controller: Controller,
        clock: Callable[[], float],
        grace_s: float,
        pass_on: Callable[[int], None],
        notes: AlertNotes | None = None,
    ) -> None:
        self._controller, self._clock = controller, clock
        self.notes = notes or AlertNotes()
        self._grace_s, self._pass_on = grace_s, pass_on

    def carry_out(self, word: AnyRequest) -> tuple[bool, str]:
        """Carries out a request. Returns whether it changed something, and one line about the result.

        raises: ValueError with the reason, if the request is refused
        """
        by = plain(word.by, BY_CHARACTERS_MAX)
        if not by:
            raise ValueError("the request does not name its sender")
        match word:
            case AskStop():
                return self._stop(by, plain(word.reason), force=word.force)
            case AskRestart():
                return self._restart(by, plain(word.reason))
            case AskRemark():
                return self._remark(by, word)
            case AskNotes():
                return self._note(by, word)

    def heed_platform(self, machine: Asking, policy: Policy) -> None:
        """Changes the recovery limits as the job's platform requests, such as by an annotation.

        `policy`: the limits with which the job was started.
        """
        asked, machine.policy_asked = machine.policy_asked, None
        if asked is None:
            return
        if asked.refused:
            machine.note("policy", f"{asked.by}: {asked.text}", key=asked.text)
        changed = policy_change.wanted(self._controller.state.job, policy, asked, self._clock())
        if changed is not None:
            self._controller.handle(changed)

    def _stop(self, by: str, reason: str, *, force: bool) -> tuple[bool, str]:
        before = self._controller.state
        name = before.job.name
        if isinstance(before.phase, Ended):
            raise ValueError(f"job {name} has ended ({before.phase.outcome}): there is nothing to stop")
        is_running = isinstance(before.phase, Running)
        if is_running and not force:
            self._pass_on(signal.SIGTERM)
        event = StopRequested(
            at_s=self._clock(),
            reason=f"requested by {by}" + (f": {reason}" if reason else ""),
            force=force,
            code=128 + signal.SIGTERM,
            finish_s=self._grace_s if is_running and not force else 0.0,
        )
        self._controller.handle(event)
        if self._controller.state == before:
            return False, f"job {name} is already being stopped"
        return True, f"job {name} is being stopped{' at once' if force else ''}"

    def _restart(self, by: str, reason: str) -> tuple[bool, str]:
        before = self._controller.state
        name, phase = before.job.name, before.phase
        if isinstance(phase, Ended | Finishing):
            raise ValueError(f"job {name} is ending or has ended: start it again with holdfast run")
        if not isinstance(phase, Running | Holding):
            return False, f"job {name} has no running attempt to restart: Holdfast starts a new one by itself"
        event = RestartRequested(at_s=self._clock(), attempt=before.job.attempt, by=by, reason=reason)
        self._controller.handle(event)
        return True, f"attempt {before.job.attempt} of job {name} is stopped, and the next one starts"

    def _remark(self, by: str, word: AskRemark) -> tuple[bool, str]:
        if not 0 < word.incident <= self._controller.state.job.incidents:
            raise ValueError(f"job {self._controller.state.job.name} has no incident {word.incident}")
        self._controller.handle(remark(word, by, self._clock()))
        return True, remark_done(word)

    def _note(self, by: str, word: AskNotes) -> tuple[bool, str]:
        state = self._controller.state
        if isinstance(state.phase, Ended):
            raise ValueError(
                f"job {state.job.name} has ended ({state.phase.outcome}): alerts are not recorded"
            )
        if len(word.notes) > NOTES_MAX:
            raise ValueError(f"{len(word.notes)} alerts are too many for one request: at most {NOTES_MAX}")
        at_s = self._clock()
        by_key = {one.key[:KEY_CHARACTERS_MAX]: one for one in word.notes}
        new, refused = self.notes.new(by_key, at_s)
        for key, one in by_key.items():
            if key in new:
                event = noted(one, by, at_s)
                self._controller.handle(event)
                self.notes.remember(event)
        text = f"{counted(len(new), 'new alert')} recorded in job {state.job.name}"
        if refused:
            text += f"; {refused} are not recorded, because the limit of alerts per hour is reached"
        return bool(new), text


def noted(note: AlertNote, by: str, at_s: float) -> FindingNoted:
    """Returns the event that records an alert in the journal. `by`: who sent it."""
    more: dict[str, float | int | str | list[float]] = {
        KEY: note.key[:KEY_CHARACTERS_MAX],
        "node": plain(note.node, BY_CHARACTERS_MAX),
        "status": plain(note.status, BY_CHARACTERS_MAX),
        "by": by,
    }
    if note.since_s is not None:
        more["since_s"] = note.since_s
    return FindingNoted(at_s=at_s, finding=ALERT, text=plain(note.text), numbers=more)


def remark(word: AskRemark, by: str, at_s: float) -> IncidentAcknowledged | VerdictCorrected:
    """Returns the event that records a user's remark on an incident: an acknowledgement, or a corrected
    verdict.
    """
    text = plain(word.text)
    if word.category:
        category = plain(word.category, BY_CHARACTERS_MAX)
        return VerdictCorrected(at_s=at_s, incident=word.incident, by=by, category=category, text=text)
    return IncidentAcknowledged(at_s=at_s, incident=word.incident, by=by, text=text)


def remark_done(word: AskRemark) -> str:
    if word.category:
        return f"incident {word.incident}: the correction is recorded; the verdict is kept"
    return f"incident {word.incident} is acknowledged"


def plain(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """Returns a text as one line without control characters, shortened to `characters_max`, for the log."""
    shown = (one if one.isprintable() else " " for one in text[:characters_max])
    return " ".join("".join(shown).split())
