"""Finds out whether, when and why Slurm ends the job: when the controller gets SIGTERM, and at intervals."""

import signal
import time
from collections.abc import Callable

from holdfast.engines.slurm.queries import job_in, job_words
from holdfast.engines.slurm.run_command import Answer, Commands
from holdfast.model.nodes.workers import AnyNews, EndAsked, JobGoesOn
from holdfast.parsers.slurm import SlurmJob
from holdfast.slurm_names import Allocation

ANSWER_WITHIN_S = 2.5
MARGIN_S = 2.0  # of KillWait, for what Holdfast itself still has to write
WARN_S = 600.0


class JobWatch:
    """Queries Slurm whether it ends the job, and why."""

    def __init__(
        self,
        allocation: Allocation,
        commands: Commands,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._allocation, self._commands, self._note, self._clock = allocation, commands, note, clock
        self.version = (0, 0)
        self._number = 0
        self._asked_s = 0.0
        self._kill_wait_s = 30.0
        self.is_reported = False  # EndAsked was sent
        # By Holdfast: Slurm requeues a job only while something of it is left to be ended.
        self.is_to_be_put_back = False
        self._wonders = False  # the caller waits to hear whether Slurm ends the job
        self._warned = False
        self._news: list[AnyNews] = []

    def news(self) -> list[AnyNews]:
        news, self._news = self._news, []
        return news

    def look(self) -> None:
        """Queries the job: Slurm may have requeued it, or be ending it, without a signal to this process."""
        self._commands.ask(job_words(self._allocation.target, self.version), self._heard, ANSWER_WITHIN_S)

    def signalled(self, number: int, kill_wait_s: float) -> None:
        self._number, self._asked_s, self._kill_wait_s = number, self._clock(), kill_wait_s
        self.is_reported = False
        self.look()

    def wonder(self) -> None:
        """Queries Slurm why a process of the job got a signal to end on another node."""
        self._wonders = True
        self.look()

    def turn(self, now_s: float) -> None:
        if self._number and not self.is_reported and now_s - self._asked_s > ANSWER_WITHIN_S + 0.3:
            self._end(f"{_name(self._number)}, without a reason from Slurm", comes_back=False)

    def _heard(self, answer: Answer) -> None:
        job = job_in(answer, self._allocation.job)
        if job is None:
            return  # `turn` answers when it is time
        restarted = job.restarts is not None and job.restarts > self._allocation.restarts
        if restarted:
            # Also if a job of higher priority takes the nodes at once: Slurm does not distinguish the two.
            self._end("Slurm requeues the job", comes_back=True, for_others=True)
        elif job.preempted:
            # During the grace time. If everything ends before it is over, so does the job, unless it is requeued.
            self.is_to_be_put_back = bool(job.requeue) and not (job.is_over or job.completing)
            why = "Slurm preempts the job for one of higher priority"
            self._end(why, comes_back=bool(job.requeue) and not job.is_over, for_others=True)
        elif job.reason == "TimeLimit" or job.state == "TIMEOUT":
            self._end("the time limit of the Slurm job is reached", comes_back=False)
        elif job.completing or job.is_over:
            self._end(f"the Slurm job was cancelled ({job.state.lower()})", comes_back=False)
        elif self._number:
            self._end(f"{_name(self._number)} was sent to Holdfast", comes_back=False)
        else:
            self._warn(job)
            if self._wonders:
                self._news.append(JobGoesOn())
        self._wonders = False

    def _warn(self, job: SlurmJob) -> None:
        left_s = None if job.end_s is None else job.end_s - time.time()
        if left_s is not None and left_s < WARN_S and not self._warned:
            self._warned = True
            self._note(f"Slurm job {job.job} reaches its time limit in {max(left_s, 0.0) / 60:.0f} min")

    def _end(self, reason: str, *, comes_back: bool, for_others: bool = False) -> None:
        if self.is_reported:
            return
        self.is_reported = True
        code = 128 + (self._number or signal.SIGTERM)
        finish_s = max(1.0, self._kill_wait_s - MARGIN_S)
        self._news.append(
            EndAsked(
                reason=reason, code=code, finish_s=finish_s, comes_back=comes_back, for_others=for_others
            )
        )


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
