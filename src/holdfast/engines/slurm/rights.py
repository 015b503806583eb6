"""What the engine does to Slurm's nodes, as far as it has the right: drain, mark down, give a node back.

A right that is missing is said once. What cannot be had is replaced: a node that cannot be drained is excluded when the
job is moved; one that cannot be marked down is taken out of the job, which every user may do with a job of their own.
"""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from holdfast.engines.slurm.commands import Answer, Commands
from holdfast.engines.slurm.steps import AgentStep
from holdfast.model.nodes import AnyNews, SetAside
from holdfast.parsers.slurm_names import Allocation, folded

BY = "holdfast"
AGAIN_S = 10.0
TRIES_MAX = 30
KILL_S = 5.0


class Rights:
    def __init__(
        self,
        allocation: Allocation,
        commands: Commands,
        note: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._job = allocation.job
        self._commands, self._note, self._clock = commands, note, clock
        self.settings: Mapping[str, str] = {}
        self.excluded: list[str] = []
        self._given_back: set[str] = set()
        self._may_update_nodes: bool | None = None
        self._again: list[tuple[float, str, str, int]] = []  # due, node, reason, try
        self._ending: list[tuple[float, AgentStep]] = []
        self._news: list[AnyNews] = []

    def news(self) -> list[AnyNews]:
        news, self._news = self._news, []
        return news

    def turn(self, now_s: float) -> None:
        due = [one for one in self._again if now_s >= one[0]]
        self._again = [one for one in self._again if now_s < one[0]]
        for _, node, reason, tried in due:
            self._drain(node, reason, tried)
        for until_s, step in self._ending:
            if step.code() is None and now_s >= until_s:
                with suppress(ProcessLookupError):
                    os.kill(step.process.pid, signal.SIGKILL)
        self._ending = [one for one in self._ending if one[1].code() is None]

    def leave_to_end(self, step: AgentStep) -> None:
        """Its node is gone: srun is given a while, and collected."""
        self._ending.append((self._clock() + KILL_S, step))

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
        self._commands.ask(words, lambda answer: self._drained(node, reason, tried, answer))

    def _drained(self, node: str, reason: str, tried: int, answer: Answer) -> None:
        if answer.is_good:
            self._may_update_nodes = True
            says = f"drained in Slurm; back with: scontrol update NodeName={node} State=RESUME"
            self._news.append(SetAside(node=node, says=says))
        elif answer.is_sick and tried < TRIES_MAX:
            if tried == 0:
                self._news.append(SetAside(node=node, says=f"{self._only_excluded(node)}; {answer.why}"))
            self._again.append((self._clock() + AGAIN_S, node, reason, tried + 1))
        else:
            self._may_update_nodes = False if answer.is_refused else self._may_update_nodes
            self._news.append(SetAside(node=node, says=f"{self._only_excluded(node)} ({answer.why})"))

    def _only_excluded(self, node: str) -> str:
        return f"not drained in Slurm: this job keeps off {node}, other jobs may still be placed there"

    # A node that is gone ----------------------------------------------------------------------------------------

    def crashed(self, node: str, reason: str, remaining: Sequence[str], *, no_kill: bool) -> None:
        """Slurm would keep it for SlurmdTimeout, and would then end a job that was not submitted with --no-kill."""
        if not no_kill:
            self.give_back(node, remaining)
        if self._may_update_nodes is False:
            return
        words = ["scontrol", "update", f"NodeName={node}", "State=DOWN", f"Reason={BY}: {_one_line(reason)}"]
        self._commands.ask(words, lambda answer: self._marked(node, answer))

    def _marked(self, node: str, answer: Answer) -> None:
        if answer.is_good:
            self._may_update_nodes = True
            self._note(
                f"{node} is marked down in Slurm, and stays so when it is up again, until: "
                f"scontrol update NodeName={node} State=RESUME"
            )
        elif answer.is_refused:
            self._may_update_nodes = False
            limit = self.settings.get("SlurmdTimeout", "its SlurmdTimeout")
            self._note(f"no right to mark {node} down in Slurm, which finds out by itself after {limit}")
        else:
            self._note(f"{node} could not be marked down in Slurm: {answer.why}")

    def give_back(self, node: str, remaining: Sequence[str]) -> None:
        """Takes the node out of the job, so that its end is not the job's."""
        if node in self._given_back or not remaining:
            return
        self._given_back.add(node)
        words = ["scontrol", "update", f"JobId={self._job}", f"NodeList={folded(remaining)}"]
        self._commands.ask(words, lambda answer: self._gave_back(node, answer))

    def _gave_back(self, node: str, answer: Answer) -> None:
        if answer.is_good:
            self._note(
                f"{node} was taken out of Slurm's job {self._job}, which does not end with it any more"
            )
            return
        self._note(
            f"{node} could not be taken out of job {self._job} ({answer.why}): when Slurm gives the node up, it ends "
            "the whole job; submit with --no-kill to avoid that"
        )
        if answer.is_sick:
            self._given_back.discard(node)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]
