"""Requeues the whole Slurm job on other nodes, without the two minutes that Slurm waits by default.

Slurm sets the new start time when the last process of the job has ended, so nothing inside the job can
request an earlier one. A tiny separate job does: it waits until the job is pending, names to Slurm the nodes
to avoid and to start it now, and ends. A `holdfast run` that follows the job does the same sooner, and needs
no core for it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.slurm.queries import job_in, job_words
from holdfast.engines.slurm.run_command import Answer, Commands, asked
from holdfast.model.nodes.workers import AnyNews, EndAsked, EngineNote, NoMoreNodes
from holdfast.parsers.slurm import nodes_of_columns
from holdfast.slurm_names import Allocation, folded

CODE = 143  # of a batch script that Slurm ends
NUDGE_NAME = "holdfast-nudge"
NUDGE_FILE = "slurm-nudge.sh"
PLAN_FILE = "slurm-move.json"  # in the job's folder: for a `holdfast run` that follows the job
NUDGE = """#!/bin/sh
# Starts Slurm job $1 as soon as it is pending again: not on the nodes $2, on $3 nodes, as $4 tasks; where there turn out to
# be too few, on $5, as $6. By Holdfast; ends by itself.
# Not in the second in which it was ended: its nodes would still refuse it, and then it is over.
tries=0; left=0; updated=0
while [ "$tries" -lt 600 ]; do
  state=$(squeue -h -j "$1" -o '%T %r' 2>/dev/null)
  case "$updated $state" in
    0\\ PENDING*)
      left=$((left + 1)); [ "$left" -gt 6 ] || { sleep 0.2; continue; }
      updated=1
      scontrol update JobId="$1" ${2:+ExcNodeList="$2"} ${3:+NumNodes="$3"} ${4:+NumTasks="$4"} StartTime=now || {
        [ -z "$2" ] || scontrol update JobId="$1" ExcNodeList="$2"
        [ -z "$3" ] || scontrol update JobId="$1" NumNodes="$3"
        [ -z "$4" ] || scontrol update JobId="$1" NumTasks="$4"
        scontrol update JobId="$1" StartTime=now || updated=0
      }
      [ -n "$6" ] || [ "$updated" -eq 0 ] || exit 0 ;;
    *\\ PENDING\\ BadConstraints*|*\\ PENDING\\ *DOWN*|*\\ PENDING\\ ReqNodeNotAvail*)
      scontrol update JobId="$1" NumNodes="$5" NumTasks="$6" StartTime=now && exit 0 ;;
    *\\ PENDING\\ None|*\\ PENDING\\ BeginTime) updated=$((updated + 1)); [ "$updated" -lt 40 ] || exit 0 ;;
    [1-9]*\\ PENDING*) exit 0 ;;
    *RUNNING*) [ "$left" -eq 0 ] || exit 0 ;;
    *COMPLETING*) left=$((left + 1)) ;;
  esac
  tries=$((tries + 1)); sleep 0.2
done
exit 1
"""
MARGIN_S = 2.0
PUT_BACK_S = 5.0
# If Slurm does not answer, the engine asks again: the job has too few nodes, so it can only wait.
AGAIN_S, ASKED_S_MAX = 1.0, 600.0
# Time to mark lost nodes down before the controller ends: otherwise Slurm starts a requeued job only after SlurmdTimeout,
# when it takes the job's processes there as over.
MARKED_S_MAX = 30.0


class Plan(Struct, frozen=True, kw_only=True):
    """How a requeued job must start again. `restarts`: how often it was requeued before.

    `least`, `least_tasks`: the minimum if Slurm does not have that many nodes.
    """

    job: str
    restarts: int
    without: str
    nodes: str
    tasks: str = ""
    least: str = ""
    least_tasks: str = ""

    def fewer_words(self) -> list[str]:
        """Returns the scontrol command for a job that waits for missing nodes; empty if it cannot run with
        fewer.
        """
        if not self.least_tasks:
            return []
        some = [f"NumNodes={self.least}", f"NumTasks={self.least_tasks}", "StartTime=now"]
        return ["scontrol", "update", f"JobId={self.job}", *some]

    def words(self) -> list[list[str]]:
        """Returns the scontrol commands for the pending job: all changes at once, then one by one in case
        that is rejected.
        """
        each = [f"ExcNodeList={self.without}"] if self.without else []
        each += [f"NumNodes={self.nodes}"] if self.nodes else []
        each += [f"NumTasks={self.tasks}"] if self.tasks else []
        each += ["StartTime=now"]
        return [
            ["scontrol", "update", f"JobId={self.job}", *some] for some in (each, *([one] for one in each))
        ]


def lacks_nodes(reason: str) -> bool:
    """Returns True if this reason means that a pending job waits for nodes that Slurm does not have."""
    return reason == "BadConstraints" or "DOWN" in reason or reason.startswith("ReqNodeNotAvail")


def plan_in(folder: Path) -> Plan | None:
    """Returns the last move of the job with this folder; None if there was none, or it cannot be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=Plan)
    return None


class _Later(Struct, frozen=True):
    """A command to be run at a later time."""

    due_s: float
    words: Sequence[str]
    heard: Callable[[Answer], None]


class Move:
    """One move of a job. `workers`: minimum number of nodes.

    `is_over`: it has an outcome; `is_moved`: it succeeded.

    `bad`: returns the nodes to avoid, called once Slurm responds. `is_marked`: returns True if Slurm has the mark of
    every lost node.
    """

    def __init__(
        self,
        allocation: Allocation,
        commands: Commands,
        folder: Path,
        workers: int,
        bad: Callable[[], Sequence[str]],
        kill_wait_s: float,
        is_marked: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._allocation, self._commands, self._folder = allocation, commands, folder
        self._workers, self._kill_wait_s = workers, kill_wait_s
        self._bad, self._is_marked, self._clock = bad, is_marked, clock
        self._without: Sequence[str] = ()
        self.is_over = self.is_moved = False
        self._begun_s = clock()
        self._planned_s: float | None = None  # since when it only waits for `is_marked`
        self._later: _Later | None = None
        self._said = False
        self._nudge = ""
        self._news: list[AnyNews] = []
        self._ask(job_words(allocation.target), self._job_heard)

    def turn(self, now_s: float) -> None:
        later, planned_s = self._later, self._planned_s
        if later is not None and now_s >= later.due_s:
            self._later = None
            self._ask(later.words, later.heard)
        if planned_s is not None and (self._is_marked() or now_s - planned_s >= MARKED_S_MAX):
            self._planned_s = None
            self._requeue(self._requeued)

    def _ask(self, words: Sequence[str], heard: Callable[[Answer], None]) -> None:
        """Repeats a command until Slurm responds, or for `ASKED_S_MAX` seconds."""

        def answered(answer: Answer) -> None:
            now_s = self._clock()
            if not answer.is_sick or now_s - self._begun_s >= ASKED_S_MAX:
                heard(answer)
                return
            if not self._said:
                self._said = True
                said = "Slurm does not respond, Holdfast will try again until the job is moved to other nodes"
                self._news.append(EngineNote(text=f"{said}: {answer.why}"))
            self._later = _Later(now_s + AGAIN_S, words, heard)

        self._commands.ask(words, answered)

    def news(self) -> list[AnyNews]:
        news, self._news = self._news, []
        return news

    def _job_heard(self, answer: Answer) -> None:
        job = job_in(answer, self._allocation.job)
        self._without = self._bad()
        avoided = (*(job.excluded if job is not None else ()), *self._without)
        most = len(self._allocation.nodes)
        if job is None or not job.tasks_per_node or self._workers >= most:
            self._plan(avoided, f"{self._workers}-{most}" if self._workers < most else str(self._workers), 0)
            return
        each = job.tasks_per_node

        def heard(answer: Answer) -> None:
            count = self._to_be_had(answer, avoided)
            self._plan(avoided, str(count), each)

        partition = ["-p", self._allocation.partition] if self._allocation.partition else []
        self._ask(["sinfo", "-h", "-N", *partition, "-o", "%N|%T|%E"], heard)

    def _to_be_had(self, answer: Answer, avoided: Sequence[str]) -> int:
        """Returns how many nodes to request; a job with a number of tasks for each node gets all of them or
        does not start.

        Counts its own good nodes and idle ones, spares included, up to the current number, and at least its
        workers.
        """
        own, most = set(self._allocation.nodes), len(self._allocation.nodes)
        if not answer.is_good:
            return most
        there = [node for node in nodes_of_columns(answer.text) if not node.is_set_aside and node.answers]
        free = {node.name for node in there if node.state == "IDLE" or node.name in own} - set(avoided)
        return max(self._workers, min(most, len(free)))

    def _plan(self, avoided: Sequence[str], count: str, each: int) -> None:
        target, least = self._allocation, self._workers
        plan = Plan(job=target.job, restarts=target.restarts, without=folded(avoided), nodes=count)
        if each:
            tasks, fewest = str(int(count) * each), str(least * each)
            plan = replace(plan, tasks=tasks, least=str(least), least_tasks=fewest)
        try:
            (self._folder / NUDGE_FILE).write_text(NUDGE)
            part = self._folder / f".{PLAN_FILE}.new"
            part.write_bytes(msgspec.json.encode(plan))
            part.replace(self._folder / PLAN_FILE)
        except OSError as error:
            self._nudged(Answer(words=(), code=None, why=f"{self._folder} cannot be written: {error}"))
            return
        self._ask(_nudge_words(target, self._folder, plan), self._nudged)

    def _nudged(self, answer: Answer) -> None:
        if answer.is_good:
            self._nudge = answer.text.strip().partition(";")[0]
        else:
            said = (
                "Slurm restarts the job only after two minutes, unless `holdfast run` is still following it"
            )
            self._news.append(EngineNote(text=f"{said}: {answer.why}"))
        self._planned_s = self._clock()

    def _requeue(self, heard: Callable[[Answer], None]) -> None:
        self._ask(["scontrol", "requeue", self._allocation.target], heard)

    def _requeued(self, answer: Answer) -> None:
        if answer.is_good:
            self._moved()
        else:  # the job may have been submitted with --no-requeue, which its owner can change
            allow = ["scontrol", "update", f"JobId={self._allocation.target}", "Requeue=1"]
            self._ask(allow, lambda _: self._requeue(self._requeued_at_last))

    def _requeued_at_last(self, answer: Answer) -> None:
        if answer.is_good:
            self._moved()
            return
        if self._nudge:
            self._commands.ask(["scancel", self._nudge], lambda _: None)
        self.is_over = True
        reason = f"Slurm does not requeue job {self._allocation.job}: {answer.why}"
        self._news.append(NoMoreNodes(reason=reason))

    def _moved(self) -> None:
        self.is_over = self.is_moved = True
        without = f", without {folded(self._without)}" if self._without else ""
        reason = f"Slurm restarts the job on other nodes{without}"
        finish_s = max(1.0, self._kill_wait_s - MARGIN_S)
        self._news.append(EndAsked(reason=reason, code=CODE, finish_s=finish_s, comes_back=True))


def put_back(allocation: Allocation, env: Mapping[str, str], folder: Path) -> None:
    """Requeues the job, to start on any nodes as soon as possible. Waits a few seconds for Slurm."""
    with suppress(OSError):  # without it the job starts two minutes later
        (folder / NUDGE_FILE).write_text(NUDGE)
        asked(_nudge_words(allocation, folder), env, PUT_BACK_S)
    asked(["scontrol", "requeue", allocation.target], env, PUT_BACK_S)


def _nudge_words(allocation: Allocation, folder: Path, plan: Plan | None = None) -> list[str]:
    words = ["sbatch", "--parsable", f"--job-name={NUDGE_NAME}", "--nodes=1", "--ntasks=1", "--mem=16"]
    words += ["--time=5", "--output=/dev/null", "--no-requeue"]
    named = {"partition": allocation.partition, "account": allocation.account, "qos": allocation.qos}
    words += [f"--{flag}={value}" for flag, value in named.items() if value]
    if plan is None:
        return [*words, str(folder / NUDGE_FILE), allocation.target]
    words += [f"--exclude={plan.without}"] if plan.without else []
    how = (plan.without, plan.nodes, plan.tasks, plan.least, plan.least_tasks)
    return [*words, str(folder / NUDGE_FILE), allocation.target, *how]
