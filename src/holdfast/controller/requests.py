"""Carries out what people ask of a job itself: a stop, a restart, a remark on an incident. Each becomes an event.

The core decides what comes of it, and the journal keeps who asked.
"""

import signal
from collections.abc import Callable

from holdfast.controller.loop import Controller
from holdfast.model.calls import AnyRequest, AskRemark, AskRestart, AskStop
from holdfast.model.events import IncidentAcknowledged, RestartRequested, StopRequested, VerdictCorrected
from holdfast.model.state import Ended, Finishing, Holding, Running

BY_CHARACTERS_MAX = 100
TEXT_CHARACTERS_MAX = 2_000


class Requests:
    """`pass_on`: sends a signal to the command. `grace_s`: how long it may then take to end by itself."""

    def __init__(
        self,
        controller: Controller,
        clock: Callable[[], float],
        grace_s: float,
        pass_on: Callable[[int], None],
    ) -> None:
        self._controller, self._clock = controller, clock
        self._grace_s, self._pass_on = grace_s, pass_on

    def carry_out(self, word: AnyRequest) -> tuple[bool, str]:
        """Whether it changed something, and one line about it. raises: ValueError, with the reason why not"""
        by = plain(word.by, BY_CHARACTERS_MAX)
        if not by:
            raise ValueError("the request does not say who asks")
        match word:
            case AskStop():
                return self._stop(by, plain(word.reason), force=word.force)
            case AskRestart():
                return self._restart(by, plain(word.reason))
            case AskRemark():
                return self._remark(by, word)

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
            reason=f"{by} asks for it" + (f": {reason}" if reason else ""),
            force=force,
            code=128 + signal.SIGTERM,
            finish_s=self._grace_s if is_running and not force else 0.0,
        )
        self._controller.handle(event)
        if self._controller.state == before:
            return False, f"job {name} is being stopped already"
        return True, f"job {name} is being stopped{' at once' if force else ''}"

    def _restart(self, by: str, reason: str) -> tuple[bool, str]:
        before = self._controller.state
        name, phase = before.job.name, before.phase
        if isinstance(phase, Ended | Finishing):
            raise ValueError(f"job {name} ends or has ended: start it anew with holdfast run")
        if not isinstance(phase, Running | Holding):
            return False, f"job {name} is not running now: what it does leads to a new attempt by itself"
        event = RestartRequested(at_s=self._clock(), attempt=before.job.attempt, by=by, reason=reason)
        self._controller.handle(event)
        return True, f"attempt {before.job.attempt} of job {name} ends, and the next one starts"

    def _remark(self, by: str, word: AskRemark) -> tuple[bool, str]:
        if not 0 < word.incident <= self._controller.state.job.incidents:
            raise ValueError(f"job {self._controller.state.job.name} has no incident {word.incident}")
        self._controller.handle(remark(word, by, self._clock()))
        return True, remark_done(word)


def remark(word: AskRemark, by: str, at_s: float) -> IncidentAcknowledged | VerdictCorrected:
    """The event that keeps it."""
    text = plain(word.text)
    if word.category:
        category = plain(word.category, BY_CHARACTERS_MAX)
        return VerdictCorrected(at_s=at_s, incident=word.incident, by=by, category=category, text=text)
    return IncidentAcknowledged(at_s=at_s, incident=word.incident, by=by, text=text)


def remark_done(word: AskRemark) -> str:
    if word.category:
        return f"incident {word.incident}: the correction is kept beside the verdict"
    return f"incident {word.incident} is acknowledged"


def plain(text: str, characters_max: int = TEXT_CHARACTERS_MAX) -> str:
    """In one line, without control characters: it goes to the log as it is."""
    shown = (one if one.isprintable() else " " for one in text[:characters_max])
    return " ".join("".join(shown).split())
