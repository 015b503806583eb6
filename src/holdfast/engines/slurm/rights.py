"""Changes the state of nodes in Slurm, as far as permitted: drain, mark down, resume.

A missing right is reported once, and worked around: a node that cannot be drained is excluded when the job
moves; one that cannot be marked down is removed from the job, which every user may do with their own job.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from holdfast.engines.slurm.agent_steps import AgentStep
from holdfast.engines.slurm.run_command import Answer, Commands
from holdfast.model.nodes.workers import AnyNews, SetAside
from holdfast.slurm_names import Allocation, folded

BY = "holdfast"
# If Slurm does not answer, Holdfast asks again for as long as the job runs. scontrol itself retries for some seconds, so
# a call is nearly always under way when Slurm comes back.
AGAIN_S, AGAIN_S_MAX = 0.5, 15.0
WITHIN_S = 10.0
DOWN_S = 120.0  # how long to try to mark a lost node down: later it may have booted again
KILL_S = 5.0


class _Again(Struct):
    """A request to which Slurm did not respond. `failed_s`: when that was known."""

    do: Callable[[int], None]  # takes the number of tries so far
    tried: int
    failed_s: float
    due_s: float


class Rights:
    """Requests that change the state of nodes in Slurm."""

    def __init__(
        self,
        allocation: Allocation,
        commands: Commands,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._job = allocation.target
        self._commands, self._note, self._clock = commands, note, clock
        self.settings: Mapping[str, str] = {}
        self.excluded: list[str] = []
        self._given_back: set[str] = set()
        self._marking: set[str] = set()
        self._may_update_nodes: bool | None = None
        self._again: list[_Again] = []
        self._ending: list[tuple[float, AgentStep]] = []
        self._news: list[AnyNews] = []

    def news(self) -> list[AnyNews]:
        news, self._news = self._news, []
        return news

    def has_marked(self) -> bool:
        """Returns True if no attempt to mark a lost node down is in progress."""
        return not self._marking

    def turn(self, now_s: float) -> None:
        back_s = self._commands.answered_s
        due = [one for one in self._again if now_s >= one.due_s or back_s > one.failed_s]
        self._again = [one for one in self._again if one not in due]
        for one in due:
            one.do(one.tried + 1)
        for until_s, step in self._ending:
            if step.code() is None and now_s >= until_s:
                with suppress(ProcessLookupError):
                    os.kill(step.process.pid, signal.SIGKILL)
        self._ending = [one for one in self._ending if one[1].code() is None]

    def leave_to_end(self, step: AgentStep) -> None:
        """Gives the srun of a lost node some seconds to end, then kills it."""
        self._ending.append((self._clock() + KILL_S, step))

    def _later(self, do: Callable[[int], None], tried: int) -> None:
        now_s = self._clock()
        wait_s = min(AGAIN_S * 2.0 ** min(tried, 10), AGAIN_S_MAX)
        self._again.append(_Again(do, tried, now_s, now_s + wait_s))

    def _ask(self, words: Sequence[str], heard: Callable[[Answer], None]) -> None:
        self._commands.ask(words, heard, WITHIN_S, first=True)

    # Isolate ----------------------------------------------------------------------------------------------------

    def isolate(self, node: str, reason: str) -> None:
        if node not in self.excluded:
            self.excluded.append(node)
        if self._may_update_nodes is False:
            self._news.append(SetAside(node=node, says=self._only_excluded(node)))
            return
        self._drain(node, reason, 0)

    def _drain(self, node: str, reason: str, tried: int) -> None:
        words = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={BY}: {_one_line(reason)}"]
        self._ask(words, lambda answer: self._drained(node, reason, tried, answer))

    def _drained(self, node: str, reason: str, tried: int, answer: Answer) -> None:
        if answer.is_good:
            self._may_update_nodes = True
            says = f"drained in Slurm; back with: scontrol update NodeName={node} State=RESUME"
            self._news.append(SetAside(node=node, says=says))
        elif answer.is_sick:
            if tried == 0:
                says = f"{self._only_excluded(node)}; {answer.why}; Holdfast will try again"
                self._news.append(SetAside(node=node, says=says))
            self._later(lambda again: self._drain(node, reason, again), tried)
        else:
            self._may_update_nodes = False if answer.is_refused else self._may_update_nodes
            self._news.append(SetAside(node=node, says=f"{self._only_excluded(node)} ({answer.why})"))

    def _only_excluded(self, node: str) -> str:
        return f"not drained in Slurm: this job avoids {node}, but Slurm may place other jobs there"

    # A lost node ------------------------------------------------------------------------------------------------

    def crashed(self, node: str, reason: str, remaining: Sequence[str], *, no_kill: bool) -> None:
        """Marks a crashed node down; Slurm would wait for SlurmdTimeout, then end a job submitted without
        --no-kill.
        """
        if not no_kill:
            self.give_back(node, remaining)
        if self._may_update_nodes is False:
            return
        self._marking.add(node)
        self._mark_down(node, reason, self._clock() + DOWN_S, 0)

    def _mark_down(self, node: str, reason: str, until_s: float, tried: int) -> None:
        words = ["scontrol", "update", f"NodeName={node}", "State=DOWN", f"Reason={BY}: {_one_line(reason)}"]

        def heard(answer: Answer) -> None:
            if not answer.is_sick or self._clock() >= until_s:
                self._marked(node, answer)
                return
            if tried == 0:
                self._note(f"{node} could not be marked down in Slurm, Holdfast will try again: {answer.why}")
            self._later(lambda again: self._mark_down(node, reason, until_s, again), tried)

        self._ask(words, heard)

    def _marked(self, node: str, answer: Answer) -> None:
        self._marking.discard(node)
        if answer.is_good:
            self._may_update_nodes = True
            self._note(
                f"{node} is marked down in Slurm, also after it boots again; to resume it: "
                f"scontrol update NodeName={node} State=RESUME"
            )
        elif answer.is_refused:
            self._may_update_nodes = False
            limit = self.settings.get("SlurmdTimeout", "its SlurmdTimeout")
            self._note(
                f"no permission to mark {node} down in Slurm, which detects it by itself after {limit}"
            )
        else:
            self._note(f"{node} could not be marked down in Slurm: {answer.why}")

    def give_back(self, node: str, remaining: Sequence[str]) -> None:
        """Removes a node from the job, so that Slurm does not end the job with it."""
        if node in self._given_back or not remaining:
            return
        self._given_back.add(node)
        self._give_back(node, folded(remaining), 0)

    def _give_back(self, node: str, remaining: str, tried: int) -> None:
        words = ["scontrol", "update", f"JobId={self._job}", f"NodeList={remaining}"]

        def heard(answer: Answer) -> None:
            if answer.is_sick:
                self._later(lambda again: self._give_back(node, remaining, again), tried)
            if not answer.is_sick or tried == 0:
                self._gave_back(node, answer)

        self._ask(words, heard)

    def _gave_back(self, node: str, answer: Answer) -> None:
        if answer.is_good:
            self._note(
                f"{node} was removed from Slurm job {self._job}, so that its loss does not end the job"
            )
            return
        self._note(
            f"{node} could not be taken out of job {self._job} ({answer.why}): when Slurm gives the node up, it ends "
            "the whole job; submit with --no-kill to avoid that"
        )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
