"""Follows a submitted Slurm job: prints its output, and returns its exit code at the end.

The job does not need a follower. A follower restarts it at once after a requeue, without Slurm's default two
minutes, and also when the node of its controller is lost.
"""

import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

import msgspec

from holdfast.controller.loop import replay
from holdfast.engines.slurm.move import Plan, lacks_nodes, plan_in
from holdfast.engines.slurm.run_command import Answer, Commands, plain_environment
from holdfast.journal.jobdir import JobDir, JobInUse, StateDir, StateUnwritable
from holdfast.journal.store import JournalUnusable, NewerJournal
from holdfast.model.state import Ended
from holdfast.parsers.slurm import SlurmJob, jobs_of_lines
from holdfast.supervise.slurm.submission import Submission
from holdfast.supervise.start import recorded
from holdfast.views.console import Console

POLL_S = 2.0
MOVES_POLL_S, MOVES_S_MAX = 0.25, 120.0  # while the job is being put back
LOOK_S = 0.1
# After the job has left its nodes. In the second in which it was ended they still refuse it (its credential counts as
# revoked), and Slurm then takes the job for failed.
REFUSED_S = 1.2
LOST_POLLS = 10
GONE_MAX = 3  # answers in a row that do not know the job any more
BLOCK_BYTES = 1 << 16
LEFT = 0  # what --detach exits with
INTERRUPTED = 128


class _Tail:
    """Copies what is appended to a file to the console."""

    def __init__(self, path: Path, to: BinaryIO, *, from_end: bool) -> None:
        self._path, self._to = path, to
        self._offset = path.stat().st_size if from_end and path.exists() else 0

    def turn(self) -> bool:
        """Copies a block. Returns True if there may be more."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                block = file.read(BLOCK_BYTES)
        except OSError:
            return False
        if block:
            self._offset += len(block)
            with suppress(OSError):
                self._to.write(block)
                self._to.flush()
        return len(block) == BLOCK_BYTES


class Follower:
    """Follower of one Slurm job."""

    def __init__(
        self,
        one: Submission,
        state_dir: str,
        console: Console,
        env: Mapping[str, str],
        *,
        from_end: bool = False,
    ) -> None:
        self._one, self._state_dir, self._console = one, state_dir, console
        self._commands = Commands(plain_environment(env))
        self._tails = [
            _Tail(one.out, sys.stdout.buffer, from_end=from_end),
            _Tail(one.errors, sys.stderr.buffer, from_end=from_end),
        ]
        self._asked_s = 0.0
        self._open = False
        self._plan: Plan | None = None
        self._lowered: Plan | None = None
        self._plan_s = 0.0  # when it was first seen
        self._gone = 0
        self._left_s: float | None = (
            None  # when it was first seen to have left its nodes, or to be leaving them
        )
        self._restarts: int | None = None
        self._runs = 0  # the restarts of the run that was last seen
        self._said = ""
        self._over: SlurmJob | None = None
        self._cancelled = 0
        self._lost_batch = 0

    def follow(self) -> int:
        """Follows the job until it has ended. Returns the training's exit code."""
        before = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            while self._over is None and self._gone < GONE_MAX:
                self._turn(time.monotonic())
                time.sleep(LOOK_S)
            while any([tail.turn() for tail in self._tails]):
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._commands.drop()
        return self._code()

    def _turn(self, now_s: float) -> None:
        for tail in self._tails:
            tail.turn()
        self._commands.turn()
        if not self._open and now_s - self._asked_s >= self._poll_s(now_s):
            self._open, self._asked_s = True, now_s
            words = ["scontrol", "--oneliner", "show", "job", self._one.slurm_job]
            self._commands.ask(words, self._heard)

    def _poll_s(self, now_s: float) -> float:
        """Returns the interval of queries in seconds; shorter while the job is requeued, so that it starts
        sooner.
        """
        plan = None
        with suppress(LookupError, ValueError):
            plan = plan_in(StateDir(Path(self._state_dir)).job(self._one.name).path)
        if plan != self._plan:
            self._plan, self._plan_s = plan, now_s
        if self._left_s is not None and now_s - self._left_s < MOVES_S_MAX:
            return MOVES_POLL_S
        waits = plan is not None and plan.job == self._one.slurm_job and plan.restarts >= self._runs
        return MOVES_POLL_S if waits and now_s - self._plan_s < MOVES_S_MAX else POLL_S

    def _heard(self, answer: Answer) -> None:
        self._open = False
        found = [job for job in jobs_of_lines(answer.text) if job.job == self._one.slurm_job]
        if not found:
            unknown = not answer.is_sick and "invalid job id" in answer.why.lower()
            self._gone = self._gone + 1 if unknown else 0
            self._say(f"Slurm does not respond: {answer.why}" if not unknown else "")
            return
        self._gone = 0
        job = found[0]
        if job.is_over and not job.completing:
            self._over = job
            return
        self._say(
            f"waiting for nodes ({job.reason})" if job.state == "PENDING" and job.reason != "None" else ""
        )
        self._care(job)

    def _care(self, job: SlurmJob) -> None:
        """Does the work that only a process outside the job can do."""
        restarted = self._restarts is not None and (job.restarts or 0) > self._restarts
        if job.state == "RUNNING":
            self._runs, self._left_s = job.restarts or 0, None
        elif self._left_s is None and (job.completing or (job.restarts or 0) > 0):
            self._left_s = time.monotonic()
        if job.state == "PENDING" and (job.restarts or 0) > 0 and job.reason == "BeginTime":
            if self._left_s is not None and time.monotonic() - self._left_s >= REFUSED_S:
                self._start_now(job)
        elif job.state == "PENDING" and (job.restarts or 0) > 0 and lacks_nodes(job.reason):
            self._with_fewer(job)
        elif job.state == "RUNNING" and job.batch_host and job.batch_host not in job.nodes:
            self._lost_batch = self._lost_batch + 1 if self._is_alone() else 0
            if self._lost_batch == LOST_POLLS:  # its standby has not taken it up
                self._do(
                    f"node {job.batch_host}, on which the controller ran, is lost: requeued",
                    "requeue",
                    job.job,
                )
        else:
            self._lost_batch = 0
        if restarted:
            self._said = ""
        self._restarts = job.restarts

    def _start_now(self, job: SlurmJob) -> None:
        """Starts a requeued job without Slurm's two minutes; on other nodes, if the controller has planned
        so.
        """
        plan = self._plan
        if plan is None or plan.job != job.job or plan.restarts + 1 != job.restarts:
            plan = Plan(job=job.job, restarts=job.restarts or 0, without="", nodes="")
        whole, *parts = plan.words()

        def heard(answer: Answer) -> None:
            for words in parts if not answer.is_good else ():
                self._commands.ask(words, lambda answer: self._say(answer.why))

        self._say("requeued: starting it now")
        self._commands.ask(whole, heard)

    def _with_fewer(self, job: SlurmJob) -> None:
        """Lets a requeued job start on fewer nodes, because a node may have been lost after the
        controller's plan.
        """
        plan = self._plan
        words = plan.fewer_words() if plan is not None and plan.job == job.job else []
        if words and plan != self._lowered:
            self._lowered = plan
            self._say("fewer nodes are left than requested: the job starts on these, with fewer spares")
            self._commands.ask(words, lambda answer: self._say(answer.why))

    def _is_alone(self) -> bool:
        """Returns True if no process holds the job's lock."""
        try:
            with StateDir(Path(self._state_dir)).job(self._one.name).lock():
                return True
        except (JobInUse, StateUnwritable, LookupError, ValueError):
            return False

    def _do(self, why: str, *words: str) -> None:
        self._console.tell(f"Slurm job {self._one.slurm_job}: {why}")
        self._commands.ask(["scontrol", *words], lambda answer: self._say(answer.why))

    def _say(self, text: str) -> None:
        """Prints a message once, until it changes."""
        if text and text != self._said:
            self._console.tell(f"Slurm job {self._one.slurm_job}: {text}")
        self._said = text or self._said

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._cancelled += 1
        if self._cancelled > 1:
            os._exit(INTERRUPTED + number)
        self._console.tell(
            f"{signal.Signals(number).name}: cancelling Slurm job {self._one.slurm_job}; send the signal again to leave the job running"
        )
        self._commands.ask(["scancel", self._one.slurm_job], lambda answer: self._say(answer.why))

    def _code(self) -> int:
        """Returns the training's exit code from the job's journal, or else that of the batch script from
        Slurm.
        """
        code = ended_code(StateDir(Path(self._state_dir)), self._one.name)
        if code is not None:
            return code
        found = self._over.exit_code if self._over is not None else None
        state = self._over.state.lower() if self._over is not None else "forgotten"
        self._console.tell(
            f"Slurm job {self._one.slurm_job} has ended ({state}), and its record has no result"
        )
        if found is None:
            return 1
        return 128 - found if found < 0 else found or (1 if state != "completed" else 0)


def ended_code(jobs: StateDir, name: str) -> int | None:
    """Returns the job's exit code from its journal; None if it has not ended, or is unknown."""
    try:
        job: JobDir = jobs.job(name)
        settings, _, rows = recorded(job)
        phase = replay(rows, settings.policy).phase
    except (LookupError, ValueError, OSError, NewerJournal, JournalUnusable, msgspec.MsgspecError):
        return None
    return phase.code if isinstance(phase, Ended) else None
