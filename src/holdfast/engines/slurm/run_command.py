"""Runs Slurm's commands, each in a child process with a deadline, without blocking.

It returns a command's result, or that it failed, and does not judge what that means for the job.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

AT_ONCE = 8
WITHIN_S = 15.0
OUTPUT_BYTES_MAX = 64 << 20
SAID_MAX = 300
NOT_FOUND = 127  # a shell's code for it
# sbatch and srun read these as flags. They belong to another job, or to the user's own steps.
_FLAGS_OF_OTHERS = ("SBATCH_", "SRUN_", "SALLOC_")
_SHAPES = (
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_TASKS_PER_NODE",
    "SLURM_CPUS_PER_",
    "SLURM_MEM_PER_",
    "SLURM_GPUS",
    "SLURM_TRES_",
    "SLURM_DISTRIBUTION",
    "SLURM_THREADS_PER_CORE",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_OVERLAP",
    "SLURM_NNODES",
    "SLURM_JOB_NUM_NODES",
    "SLURM_CPU_BIND",
    "SLURM_MEM_BIND",
    "SLURM_HINT",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_WAIT",
    "SLURM_STEP_",
    "SLURM_SRUN_",
    "SLURM_HET_SIZE",
)


class Answer(Struct, frozen=True, kw_only=True):
    """The result of a Slurm command. `why`: the reason of a failure.

    `code`: exit code; None if the command timed out or could not be started, NOT_FOUND if it does not exist.
    """

    words: tuple[str, ...]
    code: int | None
    out: bytes = b""
    why: str = ""

    @property
    def is_good(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        return self.out.decode(errors="replace")

    @property
    def is_sick(self) -> bool:
        """Returns whether Slurm did not respond, as opposed to a rejection."""
        sick = (
            "unable to contact",
            "timed out",
            "connection refused",
            "socket",
            "communication",
            "try again",
        )
        return self.code is None or (not self.is_good and any(word in self.why.lower() for word in sick))

    @property
    def is_refused(self) -> bool:
        """Returns True if Slurm rejected the command because this user lacks the right."""
        no = ("invalid user id", "access/permission denied", "operation not permitted", "permission denied")
        return not self.is_good and any(word in self.why.lower() for word in no)


Heard = Callable[[Answer], None]


class _Call:
    """A running command."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], until_s: float, heard: Heard) -> None:
        self.words, self.until_s, self.heard = tuple(words), until_s, heard
        self._out = os.memfd_create("out", os.MFD_CLOEXEC)
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        self._why, self._missing = "", False
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.process = subprocess.Popen(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._errors,
                env=dict(env),
                cwd=tempfile.gettempdir(),  # scontrol leaves files where it resizes a job
                start_new_session=True,
            )
        except OSError as error:
            self._why = f"{self.words[0]} cannot be started: {error.strerror}"
            self._missing = isinstance(error, FileNotFoundError)

    def is_over(self, now_s: float) -> bool:
        if self.process is None:
            return True
        if self.process.poll() is None and now_s >= self.until_s:
            self._why = f"{self.words[0]} did not finish in time"
            with suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            return True
        return self.process.returncode is not None

    def answer(self) -> Answer:
        out = os.pread(self._out, OUTPUT_BYTES_MAX, 0)
        said = " ".join(os.pread(self._errors, OUTPUT_BYTES_MAX, 0).decode(errors="replace").split())
        os.close(self._out)
        os.close(self._errors)
        code = None if self._why or self.process is None else self.process.returncode
        code = NOT_FOUND if self._missing else code  # not a silence of Slurm: asking again would not help
        why = "" if code == 0 else self._why or said[-SAID_MAX:] or f"it ended with exit code {code}"
        return Answer(words=self.words, code=code, out=out, why=why)


class Commands:
    """Slurm commands that run or wait to be run. `env`: their environment."""

    def __init__(self, env: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self._env = env
        self._clock = clock
        self._waiting: deque[tuple[tuple[str, ...], float, Heard]] = deque()
        self._running: list[_Call] = []
        self.answered_s = float("-inf")  # when Slurm last answered anything
        self._dying: list[subprocess.Popen[bytes]] = []

    def ask(
        self, words: Sequence[str], heard: Heard, within_s: float = WITHIN_S, *, first: bool = False
    ) -> None:
        """Queues a command; a later `turn` calls `heard` with the result.

        `first`: ahead of the waiting ones.
        """
        one = (tuple(words), within_s, heard)
        self._waiting.appendleft(one) if first else self._waiting.append(one)
        self._start()

    def turn(self) -> None:
        now_s = self._clock()
        for call in [one for one in self._running if one.is_over(now_s)]:
            self._running.remove(call)
            if call.process is not None and call.process.returncode is None:
                self._dying.append(call.process)
            answer = call.answer()
            if answer.words[0] != "sleep" and not answer.is_sick:
                self.answered_s = now_s
            call.heard(answer)
        self._dying = [one for one in self._dying if one.poll() is None]
        self._start()

    def is_busy(self) -> bool:
        return bool(self._running or self._waiting)

    def drop(self) -> None:
        """Ends all commands without a result."""
        self._waiting.clear()
        for call in self._running:
            call.is_over(float("inf"))
            call.answer()
            if call.process is not None:
                call.process.wait()
        self._running.clear()

    def _start(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            words, within_s, heard = self._waiting.popleft()
            self._running.append(_Call(words, self._env, self._clock() + within_s, heard))


def asked(words: Sequence[str], env: Mapping[str, str], within_s: float = WITHIN_S) -> Answer:
    """Runs one command and waits for it; only for use before a job begins, or after it."""
    found: list[Answer] = []
    commands = Commands(env)
    commands.ask(words, found.append, within_s)
    while not found:
        time.sleep(0.01)
        commands.turn()
    return found[0]


def plain_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without variables that sbatch and srun read as flags, and without those that srun sets
    in a step.
    """
    return {
        key: value
        for key, value in env.items()
        if not key.startswith(_FLAGS_OF_OTHERS) and not key.startswith(_SHAPES)
    }


def with_plain_times(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment with a setting by which Slurm's commands print seconds since 1970 instead of a local
    time without zone.
    """
    return {**env, "SLURM_TIME_FORMAT": "%s"}
