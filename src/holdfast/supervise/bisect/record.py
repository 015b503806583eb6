"""Records a bisection in a job's journal: each run is an attempt, each judgement a finding."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from holdfast import __version__
from holdfast.controller.loop import Controller, replay
from holdfast.core.bisect.condition import Judged, Judgement
from holdfast.journal.jobdir import JobDir, JobLock, StateDir
from holdfast.journal.recorder import Recorder
from holdfast.journal.store import open_reader
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    ControllerResumed,
    FindingNoted,
    JobSubmitted,
    Numbers,
    Placed,
    RestartRequested,
    StopRequested,
    WorkersPlaced,
)
from holdfast.model.orders import AnyOrder, PlaceWorkers, StartAttempt, StopAttempt
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, State
from holdfast.observe.clock import JobClock

RUN, FOUND = "bisect-run", "bisect-found"  # kinds of findings
BY = "holdfast bisect"


class OtherPlan(Exception):
    """Raised when the job exists, but its bisection is a different one or has ended. The message says which."""


class Run(Struct, frozen=True):
    """One judged test run of a bisection. `place`: what was tested: the commit, or comma-separated nodes or
    variables.
    """

    place: str
    judgement: Judgement
    why: str


class BisectRecord:
    """The open journal of one bisection. `runs`: all judged runs, including those before an interruption."""

    def __init__(
        self, job: JobDir, lock: JobLock, plan: Mapping[str, object], command: Sequence[str]
    ) -> None:
        """Opens the journal for a new or interrupted bisection. Raises OtherPlan."""
        self.job = job
        self._lock = lock
        self._clock = JobClock()
        self._policy = Policy(boot_check="off")
        self.runs: list[Run] = []
        self._judged_attempt = 0
        state = self._earlier(plan)
        self._recorder = Recorder(job.journal_path, self._clock, lambda text: None)
        self._controller = Controller(self._policy, self._recorder, self, state=state)
        if state is None:
            self._write_facts(plan, command)
            self._controller.handle(
                JobSubmitted(at_s=self._clock(), job=job.name, workers=1, command=tuple(command))
            )
        else:
            self._controller.handle(ControllerResumed(at_s=self._clock()))
        self._recorder.flush()

    def begin(self) -> Path:
        """Begins an attempt for the next run, and returns the folder for its output."""
        attempt = self._controller.state.job.attempt
        if attempt == self._judged_attempt:
            reason = "the next run"
            self._handle(RestartRequested(at_s=self._clock(), attempt=attempt, by=BY, reason=reason))
        return self.job.worker(self._controller.state.job.attempt, 0)

    def judged(self, place: str, name: str, judged: Judged, seconds: float) -> None:
        """Records the judgement on the current run. `name`: the tested commit, nodes or variables, as shown to
        users.
        """
        attempt = self._judged_attempt = self._controller.state.job.attempt
        self.runs.append(Run(place, judged.judgement, judged.why))
        numbers: Numbers = {
            "place": place,
            "judgement": judged.judgement,
            "why": judged.why,
            "seconds": round(seconds, 3),
        }
        text = f"run {len(self.runs)}, {name}: {judged.judgement}: {judged.why}"
        self._handle(
            FindingNoted(at_s=self._clock(), finding=RUN, text=text, attempt=attempt, numbers=numbers)
        )

    def end(self, text: str, code: int) -> None:
        """Records the result, and ends the job."""
        self._handle(FindingNoted(at_s=self._clock(), finding=FOUND, text=text))
        self._handle(StopRequested(at_s=self._clock(), reason=text, code=code, by=BY))
        self.close()

    def close(self) -> None:
        """Closes the journal; a bisection that has not ended can be resumed."""
        self._recorder.close()
        self._lock.release()

    def carry_out(self, order: AnyOrder) -> None:
        """Confirms orders of the controller at once, because the bisection itself starts and ends the runs."""
        now, host = self._clock(), socket.gethostname()
        match order:
            case PlaceWorkers():
                self._controller.handle(
                    WorkersPlaced(at_s=now, attempt=order.attempt, placed=(Placed(0, host),))
                )
            case StartAttempt():
                self._controller.handle(AttemptStarted(at_s=now, attempt=order.attempt))
            case StopAttempt():
                self._controller.handle(AttemptStopped(at_s=now, attempt=order.attempt))
            case _:
                pass

    def _handle(self, event: AnyEvent) -> None:
        self._controller.handle(event)
        self._recorder.flush()

    def _earlier(self, plan: Mapping[str, object]) -> State | None:
        """Returns the state of an interrupted bisection with the same plan; None for a new job.

        Raises OtherPlan.
        """
        if not self.job.journal_path.exists():
            return None
        reader = open_reader(self.job.journal_path)
        try:
            facts = msgspec.json.decode(reader.meta("job") or b"{}")
            rows = list(reader.read_raw())
        finally:
            reader.close()
        if facts.get("bisect") != msgspec.json.decode(msgspec.json.encode(plan)):
            raise OtherPlan(
                f"job {self.job.name} exists and is another one: give the same revisions, condition and command to resume "
                "it, or another --job"
            )
        state = replay(rows, self._policy)
        if isinstance(state.phase, Ended):
            raise OtherPlan(
                f"job {self.job.name} has ended: {state.phase.reason}; give another --job to begin anew"
            )
        for row in rows:
            if row[1] == "finding-noted":
                event = msgspec.json.decode(row[2], type=FindingNoted)
                if event.finding == RUN:
                    said = event.numbers
                    self._judged_attempt = event.attempt or 0
                    judgement = cast(Judgement, str(said["judgement"]))
                    self.runs.append(Run(str(said["place"]), judgement, str(said["why"])))
        return state

    def _write_facts(self, plan: Mapping[str, object], command: Sequence[str]) -> None:
        self._recorder.set_meta("policy", msgspec.json.encode(self._policy))
        facts = {
            "name": self.job.name,
            "command": list(command),
            "cwd": os.getcwd(),
            "host": socket.gethostname(),
            "version": __version__,
            "pid": os.getpid(),
            "detach": False,
            "bisect": dict(plan),
        }
        self._recorder.set_meta("job", msgspec.json.encode(facts))


def opened(root: Path, name: str | None, plan: Mapping[str, object], command: Sequence[str]) -> BisectRecord:
    """Opens a new job, or the interrupted job of this name.

    Raises OtherPlan, JobInUse, BadJobName, StateUnwritable.
    """
    state = StateDir(root)
    job = state.job(name) if name and (root / "jobs" / name / "journal.db").exists() else None
    job = job or state.create(name, JobClock()())
    lock = job.lock()
    try:
        return BisectRecord(job, lock, plan, command)
    except OtherPlan:
        lock.release()
        raise
