"""Runs the processes that copy checkpoints into memory and compare the disk with the copy, and holds a start meanwhile.

Its own failure never holds one: each wait has a limit, and without an answer the attempt starts as usual.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.agent.attempt import Attempt
from holdfast.agent.checkpoints.messages import Job, Note, Result, Word
from holdfast.agent.checkpoints.store import SHM, Owner, Store, leftovers
from holdfast.agent.standby.page_cache import checkpoint_paths, has_failed
from holdfast.core.checkpoints.words import KIND, checkpoint_words
from holdfast.link.messages import UNREADABLE
from holdfast.model.events import AnyEvent, FindingNoted, Numbers
from holdfast.model.settings import RunSettings

COMPARE_WAIT_S = 15.0  # for the comparison, which gives up after 10 s itself, and for its process to begin
RESTORE_WAIT_S = 90.0  # in all; the controller of many nodes waits 120 s for a start
COPIERS_MAX = 4  # one that is killed is started again
OFFERED = "HOLDFAST_RAM_CHECKPOINT"
_OFFERS = ("gone", "failed", "slow")
_READ_BYTES = 1 << 16


class HeldStart(Struct, kw_only=True):
    """An order to start an attempt that waits until the checkpoint and its copy are compared. `since_s`: when it was ordered."""

    number: int
    begin: Callable[[Mapping[str, str]], None]
    since_s: float


class RamCheckpoints:
    """The copies of one worker's checkpoints. `emit`: receives lines for the job's log. Without the setting
    ram-checkpoints nothing is started, and nothing is held. `is_shared`: other workers write to the same checkpoints.
    """

    def __init__(
        self,
        settings: RunSettings,
        job: str,
        node: str,
        job_folder: Path,
        cwd: str,
        env: Mapping[str, str],
        clock: Callable[[], float],
        emit: Callable[[AnyEvent], None],
        *,
        is_shared: bool,
        shm: str = SHM,
    ) -> None:
        owner = Owner(
            job=job, state_dir=str(Path(settings.state_dir)), node=node, created=_created(job_folder)
        )
        limit = settings.ram_checkpoints_bytes
        self._is_wanted = bool(limit) and not settings.policy.shadow
        self._store = Store(owner, shm)
        self._job = Job(
            owner=owner,
            folders=_named_folders(settings, cwd, env) if self._is_wanted else (),
            others=_other_folders(settings, cwd) if self._is_wanted else (),
            left_out=(settings.state_dir,),
            since_ns=time.time_ns(),
            limit_bytes=limit or 0,
            detach=settings.detach,
            is_shared=is_shared,
            shm=shm,
        )
        self._clock = clock
        self._emit = emit
        self._copier: _Process | None = None
        self._copiers = 0
        self._restorer: _Process | None = None
        self._held: HeldStart | None = None
        self._phase = ""  # what the restorer is doing
        self._attempt = 0
        self._said: Word | None = None
        self._copy_noted = 0  # the attempt in which a copy was noted
        self._swept = False

    def channels(self) -> list[int]:
        """Returns what to wait for: the answer that a start is held for."""
        return [self._restorer.fileno()] if self._restorer is not None and self._held is not None else []

    # While an attempt runs --------------------------------------------------------------------------------

    def tend(self, attempt: Attempt) -> None:
        """Passes on what the copier needs to know, and reads what it says. Call it ten times a second."""
        self._sweep()
        if not self._is_wanted or self._held is not None:
            return
        self._attempt = attempt.number
        self._run_copier()
        if attempt.stopping or attempt.over or has_failed(attempt):
            self._say(Word(kind="failed"))
            if self._restorer is None:  # beside the end of the attempt, it has time to begin
                self._begin_restorer()
        else:
            living = (rank.pid for rank in attempt.ranks.values() if not rank.gone)
            self._say(Word(kind="runs", pids=tuple(sorted(living))))
        self._hear_copier()

    def _sweep(self) -> None:
        """Removes what killed supervisors left behind, in a process of its own: it may be much."""
        if self._swept:
            return
        self._swept = True
        shm = self._job.shm
        if not self._is_wanted and next(leftovers(shm), None) is not None:
            with suppress(OSError):
                _start(["-m", "holdfast.agent.checkpoints.store", shm], with_output=False)

    def _run_copier(self) -> None:
        if self._copier is not None and self._copier.process.poll() is not None:
            self._copier.close()
            self._copier, self._said = None, None
            if self._copiers == COPIERS_MAX:
                self._tell(
                    "copy-failed", {"text": "the process that copies checkpoints was killed too often"}
                )
        if self._copier is None and self._copiers < COPIERS_MAX:
            self._copiers += 1
            try:
                self._copier = _Process("copier", msgspec.json.encode(self._job).decode())
            except OSError as error:
                self._tell(
                    "copy-failed", {"text": f"the process that copies checkpoints cannot start: {error}"}
                )

    def _say(self, word: Word) -> None:
        if self._copier is not None and word != self._said and self._copier.say(msgspec.json.encode(word)):
            self._said = word

    def _hear_copier(self) -> None:
        for line in self._copier.read() if self._copier is not None else ():
            with suppress(*UNREADABLE):
                self._heard(msgspec.json.decode(line, type=Note))

    def _heard(self, note: Note) -> None:
        if note.kind == "copied":
            if self._copy_noted == self._attempt:
                return  # one line for each attempt, not for each checkpoint
            self._copy_noted = self._attempt
        kind = "copy-failed" if note.kind == "failed" else note.kind
        numbers: Numbers = {
            "path": note.path,
            "copy": note.copy,
            "bytes": note.size_bytes,
            "files": note.files,
            "took_s": round(note.took_s, 3),
            "text": note.text,
        }
        self._tell(kind, numbers)

    # Before a start ---------------------------------------------------------------------------------------

    def hold(self, number: int, begin: Callable[[Mapping[str, str]], None]) -> bool:
        """Holds the start of an attempt until the disk's checkpoint has been compared with its copy.

        False: there is no copy, and nothing to wait for. `begin`: is called later, with variables for the command.
        """
        if self._held is not None:
            self._held.number, self._held.begin = number, begin
            return True
        if not self._is_wanted or self._store.newest() is None:
            return False
        self._say(Word(kind="failed"))
        if self._restorer is None:
            self._begin_restorer()
        if self._restorer is None or not self._restorer.say(b"go"):
            self._end_restorer()
            return False
        self._phase = "comparing"
        self._held = HeldStart(number=number, begin=begin, since_s=self._clock())
        return True

    def holds(self, number: int) -> bool:
        """Returns whether the start of this attempt is held."""
        return self._held is not None and self._held.number == number

    def cancel(self) -> None:
        """Discards a held start, because an order has stopped it."""
        self._held = None
        self._end_restorer()

    def release(self) -> None:
        """Begins the held start once there is an answer, or the wait is over. Takes little time."""
        held, restorer = self._held, self._restorer
        if held is None:
            return
        answer: Result | None = None
        for line in restorer.read() if restorer is not None else ():
            with suppress(*UNREADABLE):
                answer = msgspec.json.decode(line, type=Result)
                self._phase = answer.outcome
        waited_s = self._clock() - held.since_s
        if answer is None or answer.outcome in ("comparing", "restoring"):
            limit_s = RESTORE_WAIT_S if self._phase == "restoring" else COMPARE_WAIT_S
            is_alive = restorer is not None and restorer.process.poll() is None
            if is_alive and waited_s < limit_s:
                return
            answer = self._no_answer(waited_s, is_alive=is_alive)
        self._held = None
        self._end_restorer()
        self._attempt = held.number
        held.begin(self._recorded(answer))

    def _no_answer(self, waited_s: float, *, is_alive: bool) -> Result:
        manifest = self._store.newest()
        if manifest is None:
            return Result(outcome="none")
        why = f"no answer in {waited_s:.0f} s" if is_alive else "the process that compares it was killed"
        return Result(
            outcome="failed" if self._phase == "restoring" or not is_alive else "slow",
            path=manifest.path,
            copy=self._store.copy_path(manifest),
            text=why,
        )

    def _recorded(self, result: Result) -> dict[str, str]:
        """Records a result. Returns the variables for the command."""
        if result.outcome == "none":
            return {}
        numbers: Numbers = {
            "path": result.path,
            "copy": result.copy,
            "bytes": result.size_bytes,
            "files": result.files,
            "missing": result.missing,
            "damaged": result.damaged,
            "took_s": round(result.took_s, 3),
            "text": result.text,
            "aside": ", ".join(result.kept[:3]) + (", ..." if len(result.kept) > 3 else ""),
            "beside": result.beside,
        }
        self._tell(result.outcome, numbers)
        return {OFFERED: result.copy} if result.outcome in _OFFERS else {}

    def _tell(self, outcome: str, numbers: Numbers) -> None:
        numbers = {"outcome": outcome, **{key: value for key, value in numbers.items() if value}}
        text = checkpoint_words(numbers).en
        noted = FindingNoted(
            at_s=self._clock(), finding=KIND, text=text, attempt=self._attempt or None, numbers=numbers
        )
        self._emit(noted)

    def _begin_restorer(self) -> None:
        if self._store.newest() is None:
            return
        owner = msgspec.json.encode(self._job.owner).decode()
        with suppress(OSError):  # then nothing is compared
            self._restorer = _Process("restore", owner, self._job.shm)

    def _end_restorer(self) -> None:
        if self._restorer is not None:
            self._restorer.end()
            self._restorer = None

    def close(self, *, goes_on: bool) -> None:
        """Ends the processes without waiting for them. `goes_on`: the training does; the copies stay until it ends."""
        self._end_restorer()
        copier, self._copier = self._copier, None
        if copier is None:
            if self._is_wanted and not goes_on and self._copiers:
                self._store.remove()
            return
        if not goes_on and not copier.say(msgspec.json.encode(Word(kind="end"))):
            self._store.remove()
        copier.close()


class _Process:
    """A process of this folder that reads lines and writes lines."""

    def __init__(self, module: str, *words: str) -> None:
        name = f"holdfast.agent.checkpoints.{module}"
        self.process = _start(["-m", name, *words], with_output=True)
        assert self.process.stdin is not None and self.process.stdout is not None, "both are pipes"
        self._in, self._out = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        self._begun = b""

    def fileno(self) -> int:
        return self._out

    def say(self, line: bytes) -> bool:
        """Writes a line. False: the process has ended, or does not read."""
        try:
            return os.write(self._in, line + b"\n") == len(line) + 1
        except OSError:
            return False

    def read(self) -> list[bytes]:
        """Returns the lines that have arrived. Never blocks."""
        data = self._begun
        with suppress(OSError):
            while more := os.read(self._out, _READ_BYTES):
                data += more
        *lines, self._begun = data.split(b"\n")
        return lines

    def end(self) -> None:
        """Ends the process; it may hang in a file system, and is not waited for."""
        with suppress(OSError):
            self.process.terminate()
        self.close()

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _start(words: list[str], *, with_output: bool) -> subprocess.Popen[bytes]:
    """raises: OSError"""
    return subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE if with_output else subprocess.DEVNULL,
        stdout=subprocess.PIPE if with_output else subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        bufsize=0,
        start_new_session=True,  # Ctrl-C is for the training
    )


def _created(job_folder: Path) -> str:
    """Returns when the job was created: another one of the same name must not take its copies for its own."""
    with suppress(OSError):
        return (job_folder / "created").read_text().strip()
    return ""


def _named_folders(settings: RunSettings, cwd: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the folders in which the command says that it saves checkpoints, or from which it resumes."""
    paths = checkpoint_paths(settings.command, cwd, env)
    return tuple(dict.fromkeys(path if not os.path.isfile(path) else os.path.dirname(path) for path in paths))


def _other_folders(settings: RunSettings, cwd: str) -> tuple[str, ...]:
    """Returns the working folder and all folders that the command's words name: scripts name options as they like."""
    found = [cwd]
    for word in settings.command:
        text = word.rpartition("=")[2]
        path = os.path.join(cwd, os.path.expanduser(text)) if text else ""
        if path and "\0" not in path:
            found += [one for one in (path, os.path.dirname(path)) if os.path.isdir(one)]
    return tuple(dict.fromkeys(map(os.path.normpath, found)))
