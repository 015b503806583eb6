"""Decides when a zygote is started and with which imports, and whether the next attempt is forked from it.

If the imports of the command are known from an earlier run, the zygote starts with the job, otherwise at the
first step. It is kept for all attempts. If anything is in doubt, an attempt starts without the zygote, and
the reason is logged once.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from holdfast.agent.attempt import Attempt
from holdfast.agent.launch import LaunchSpec
from holdfast.agent.standby.held_command import are_reached
from holdfast.agent.standby.imports_known import (
    Known,
    LeftOut,
    decoded,
    encoded,
    file_of,
    learned,
    learned_by_import,
    learned_bytes,
    learned_of_launcher,
    load,
    merged,
    store,
)
from holdfast.agent.standby.keeper import is_worth_a_zygote
from holdfast.agent.standby.room import MEMORY_BYTES, Left, limit_kib, why_no_room
from holdfast.agent.standby.room import left as room_left
from holdfast.agent.standby.zygote import MEMORY_KIB_MAX, SOCKET, Report, Zygote
from holdfast.model.events import AnyEvent, FindingNoted
from holdfast.model.settings import RunSettings

BROKEN_MAX = 6  # modules that are left out one after the other, before it is given up
REFUSED = "not-forked"  # in a worker's folder: which starts were not forked, and why; written by the shim
REFUSED_BYTES = 1 << 14
YOUNG_S = 1.0
QUIET_S = 0.3  # without a further import
LATE_S = 20.0  # a training whose ranks report no imports by then never will
ROOM_S = 5.0  # how often it is looked for room, where there was none
READ_S = 1.0  # how often a node without a worker looks for what the workers have stored
# Variables by which ranks and attempts differ; others must be the same in the zygote.
PLACE = re.compile("HOLDFAST|RANK|SIZE|ROLE|MASTER|TORCHELASTIC|PET_|MA_|NODE|DEBUG|SLURM|SHLVL|^_$|LOCALID")
SPAWNED = "--multiprocessing-fork"


class ZygoteKeeper:
    """Keeps the zygote of a job. `emit`: receives lines for the job's log. If no restart is allowed, no
    zygote is started. `room`: returns what is left on this node. `ready`: is called with what is known of the imports, for other nodes, each time they are made.
    """

    def __init__(
        self,
        settings: RunSettings,
        cwd: str,
        base_env: Mapping[str, str],
        clock: Callable[[], float],
        emit: Callable[[AnyEvent], None],
        room: Callable[[], Left] = room_left,
    ) -> None:
        self._room = room
        self.zygote: Zygote | None = None
        self.ready: Callable[[bytes], None] | None = None
        self._cwd = cwd
        self._base_env = base_env
        self._clock = clock
        self._emit = emit
        self._attempt = 0
        self._is_wanted = is_worth_a_zygote(settings)
        self._folder = Path(settings.state_dir)
        self._path = file_of(self._folder, settings.command, cwd)
        self._known = load(self._path) if self._is_wanted else Known()
        self._broken = 0
        self._learned = 0  # the attempt whose imports are known
        self._refused = 0  # the attempt of which it has been noted
        self._is_ordinary = False  # the next attempt starts as usual
        self._bytes_seen, self._bytes_s = -1, 0.0
        self._is_stale = False  # it refuses processes: it is made anew, as ranks are started now
        self._begun = "", ""  # the interpreter and the program that it was started with
        self._env: dict[str, str] = {}
        self._started_s: dict[int, float] = {}  # ranks of the attempt, by pid
        self._noted: set[str] = set()
        self._read_s = float("-inf")
        self._trains_s: float | None = None  # since when a zygote could be made
        self._room_bytes = MEMORY_BYTES  # of memory that is to be left
        self._memory_kib_max = MEMORY_KIB_MAX  # of this zygote
        self._no_room_s = float("-inf")  # when there was none

    def _begin(self, env: Mapping[str, str]) -> None:
        """At the job's start: with what an earlier run has left. `env`: of the command."""
        if self._known.argv and self.zygote is None:
            self._start({**self._known.own_env, **env})

    def stand_by(self, env: Callable[[], Mapping[str, str]]) -> None:
        """On a node without a worker: starts the zygote with what the job's workers have stored, so that a worker
        that is moved here is forked, too. Call it ten times a second. `env`: returns that of the command.
        """
        if not self._is_wanted or self._clock() - self._read_s < READ_S:
            return
        self._read_s = self._clock()
        if self.zygote is not None:
            self._hear()
            return
        known = load(self._path)
        if known.argv and (self._broken == 0 or known != self._known):
            self._known = known
            self._start({**known.own_env, **env()})

    def take(self, content: bytes) -> None:
        """Stores what another node has found out about the imports (see `ready`), for `stand_by`. Unreadable: ignored."""
        known = decoded(content)
        if self._is_wanted and known.argv and known != load(self._path):
            store(self._path, known)

    def tell(self) -> None:
        """Tells other nodes what is known of the imports, if a zygote has made them."""
        if self.ready is not None and self.zygote is not None and self.zygote.is_ready:
            self.ready(encoded(self._known))

    def tend(self, attempt: Attempt, *, trains: bool) -> None:
        """Starts, checks or drops the zygote. Call it ten times a second. `trains`: the job has made steps."""
        if not self._is_wanted:
            return
        if attempt.is_done:  # dropped while the launcher ends, it does not delay the job's end
            self.drop()
            return
        self._hear()
        self._watch_crashes(attempt)
        self._hear_refusals(attempt)
        if attempt.stopping or not trains or self._learned == attempt.number:
            return
        if self._clock() - self._no_room_s < ROOM_S:
            return
        size = learned_bytes(attempt.folder)
        if not self._is_complete(size, is_forked=(attempt.folder / SOCKET).exists()):
            if not size:
                self._give_up_late()
            return
        start = _start_of(attempt)
        if start is None:  # on a busy machine the first step may be seen before the first rank
            self._give_up_late()
            return
        self._learned = attempt.number
        self._learn(attempt, *start)

    def _give_up_late(self) -> None:
        """Leaves the next attempt to a standby, if what a zygote is made of is still missing long after the first step."""
        self._trains_s = self._clock() if self._trains_s is None else self._trains_s
        if self.zygote is None and self._clock() - self._trains_s > LATE_S:
            why = "no rank is a Python process that has loaded Holdfast's shim"
            self._say(f"no zygote is made: {why}. The next attempt is prepared without one")
            self._is_wanted = False

    def _is_complete(self, size: int, *, is_forked: bool) -> bool:
        """A rank may print a step while the first one, whose imports are recorded, still makes them."""
        if size != self._bytes_seen:
            self._bytes_seen, self._bytes_s = size, self._clock()
        return (is_forked or size > 0) and self._clock() - self._bytes_s >= QUIET_S

    def _learn(self, attempt: Attempt, argv: tuple[str, ...], env: Mapping[str, str]) -> None:
        lines, launcher = learned(attempt.folder), learned_of_launcher(attempt.folder)
        added = (name for name in learned_by_import(attempt.folder) if name in env)
        by_import = merged(self._known.by_import, added)
        is_forked = (attempt.folder / SOCKET).exists()
        if is_forked:
            lines, launcher = merged(self._known.lines, lines), merged(self._known.launcher, launcher)
        self._known = replace(self._known, argv=argv, lines=lines, launcher=launcher, by_import=by_import)
        env = self._without_imports(env)
        own = {key: value for key, value in env.items() if self._base_env.get(key) != value}
        own = {key: value for key, value in own.items() if not key.startswith("HOLDFAST_")}
        self._known = replace(self._known, own_env=own)
        store(self._path, self._known)
        if self.zygote is not None and (self._is_stale or self._differs(argv, env)):
            self._is_stale = False
            self._again(env)
        elif self.zygote is None:
            self._start(env)

    def _without_imports(self, env: Mapping[str, str]) -> dict[str, str]:
        """Returns a rank's environment without the variables that an import of its launcher has added: a launcher that is
        forked has these imports from the zygote, and the variables with them.
        """
        known = self._known
        added = {*known.by_import} - {*known.not_by_import} - {*self._base_env}
        return {key: value for key, value in env.items() if key not in added}

    def _differs(self, argv: tuple[str, ...], env: Mapping[str, str]) -> bool:
        """True if ranks are started otherwise than the zygote was, by what an earlier run has left."""
        if (argv[0], _program_of(argv)) != self._begun:
            return True
        keys = {key for key in {*env, *self._env} if not PLACE.search(key)}
        return any(env.get(key) != self._env.get(key) for key in keys)

    def _start(self, env: Mapping[str, str]) -> None:
        if self._broken > BROKEN_MAX:
            return
        room = self._room()
        if why := why_no_room(room, self._room_bytes):
            self._wait_for_room(why)
            return
        self._env = dict(env)
        self._begun = self._known.argv[0], _program_of(self._known.argv)
        most = self._memory_kib_max = limit_kib(room, MEMORY_KIB_MAX)
        try:
            self.zygote = Zygote(self._known.argv, env, self._cwd, self._known, self._folder, most)
        except OSError as error:
            self._say(f"the zygote cannot be started: {error}")
            self._broken += 1

    def _wait_for_room(self, why: str) -> None:
        """The next attempt starts as usual, and no standby is made, which needs more memory. It is said once: what is left
        changes.
        """
        if self._no_room_s == float("-inf"):
            self._say(f"no zygote is made until there is room for it: {why}")
        self._learned, self._no_room_s = 0, self._clock()

    def _hear(self) -> None:
        zygote = self.zygote
        if zygote is None:
            return
        for report in zygote.read():
            self._heard(report)
        if zygote.over and zygote is self.zygote:
            self.zygote = None
            self._broken += 1
            self._learned = 0  # the next look at the attempt starts another

    def _heard(self, report: Report) -> None:
        match report.kind:
            case "ready":
                self._known = replace(self._known, cost_s=report.cost)
                store(self._path, self._known)
                if report.not_set:
                    self._keep(report.not_set)
                    return
                self.tell()
                if report.stopped_at:
                    self._say(
                        f"modules that are imported after the script sets {report.stopped_at} are not preloaded"
                    )
            case "broken" if report.memory_kib and self._memory_kib_max < MEMORY_KIB_MAX:
                if self.zygote is not None:
                    self.zygote.end()
                self.zygote = None
                self._broken += 1
                self._room_bytes = 4 * report.memory_kib << 10
                self._wait_for_room(report.why)
            case "broken" if report.name:
                left_out = self._known.left_out | {report.name: LeftOut(report.version, report.why)}
                self._known = replace(self._known, left_out=left_out)
                store(self._path, self._known)
                module = f"{report.name} {report.version}".strip()
                self._say(f"{module} is not preloaded: {report.why}")
                self._again(self._env)
            case _:
                self._say(f"the next attempt starts as usual: {report.why}")
                self._is_wanted = False

    def _keep(self, names: tuple[str, ...]) -> None:
        """Has the zygote made anew at the next look at the attempt, with these variables in its environment."""
        self._known = replace(self._known, not_by_import=merged(self._known.not_by_import, names))
        store(self._path, self._known)
        self._is_stale = True
        self._learned = 0

    def _again(self, env: Mapping[str, str]) -> None:
        if self.zygote is not None:
            self.zygote.end()
        self.zygote = None
        self._broken += 1
        self._start(env)

    def _watch_crashes(self, attempt: Attempt) -> None:
        """A rank that was forked and dies at once: the next attempt does without."""
        if self._is_ordinary or not (attempt.folder / SOCKET).exists():
            return
        for rank in attempt.ranks.values():
            since_s = self._started_s.setdefault(rank.pid, self._clock())
            if rank.gone and rank.code and self._clock() - since_s < YOUNG_S and attempt.step is None:
                self._is_ordinary = True
                self._say("a forked rank ended within a second: the next attempt starts as usual")
                return

    def _hear_refusals(self, attempt: Attempt) -> None:
        if self._refused == attempt.number:
            return
        try:
            with (attempt.folder / REFUSED).open("rb") as file:
                lines = file.read(REFUSED_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return
        if lines:
            self._refused = attempt.number
            self._is_stale = True
            why = lines[0].partition(" ")[2]
            self._say(f"a process was not forked and started as usual: {why}")

    @property
    def is_possible(self) -> bool:
        """Returns whether attempts are forked from the zygote, now or once it is ready."""
        return self._is_wanted and self._broken <= BROKEN_MAX

    @property
    def has_begun(self) -> bool:
        """Returns whether the zygote's process runs. It may still make its imports."""
        return self.zygote is not None and not self.zygote.over

    @property
    def is_ready(self) -> bool:
        """Returns whether the next attempt can be forked at once."""
        is_there = self.zygote is not None and self.zygote.is_ready and not self.zygote.over
        return is_there and self.is_possible and not self._is_ordinary

    @property
    def is_doubted(self) -> bool:
        """Returns whether the next attempt is to start as usual, because a forked rank ended within a second."""
        return self._is_ordinary

    def begun(self, number: int) -> None:
        """Notes that attempt `number` runs now: forked, from a standby, or started as usual."""
        self._attempt = number
        self._is_ordinary = False
        self._started_s.clear()

    def offered(self, number: int, spec: LaunchSpec) -> LaunchSpec:
        """Returns how attempt `number` is started: forked from the zygote if that is ready, else `spec`
        unchanged. The first attempt is never forked.
        """
        self._attempt = number
        if not self._is_wanted:
            return spec
        self._hear()
        if number == 1:
            self._begin(spec.env)
        if self.zygote is None or self._is_ordinary or number == 1:
            return _learning(spec)
        try:
            return self._forked(spec)
        except OSError as error:
            self._say(f"the attempt starts as usual: {error}")
            return _learning(spec)

    def prepared(self, spec: LaunchSpec) -> LaunchSpec:
        """Returns how a standby is started: forked if the zygote is ready, else as usual.

        raises: OSError, if the zygote has ended
        """
        return self._forked(spec) if self.is_ready else _learning(spec)

    def _forked(self, spec: LaunchSpec) -> LaunchSpec:
        """Returns `spec` with the connection to a fork server, which the zygote forks for it.

        raises: OSError, if the zygote has ended
        """
        if self.zygote is None:
            raise OSError("there is no zygote")
        marks = {key: value for key, value in spec.env.items() if key.startswith("HOLDFAST_")}
        spec.folder.mkdir(parents=True, exist_ok=True)
        channel = self.zygote.serve(spec.folder, marks)
        program = _program_of(self._known.argv)
        env = {"HOLDFAST_FORK_SERVER": str(spec.folder / SOCKET), "HOLDFAST_FORK_PROGRAM": program}
        return replace(_learning(spec), env={**_learning(spec).env, **env}, forks_fd=channel)

    def drop(self) -> None:
        """Ends the zygote; processes that were forked from it keep running."""
        if self.zygote is not None:
            self.zygote.end()
            self.zygote = None
        self._is_wanted = False

    def _say(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            noted = FindingNoted(at_s=self._clock(), finding="zygote", text=text, attempt=self._attempt)
            self._emit(noted)


def _learning(spec: LaunchSpec) -> LaunchSpec:
    """Has the shim note what the attempt imports."""
    return replace(spec, env={**spec.env, "HOLDFAST_LEARNS": "1"})


def _start_of(attempt: Attempt) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """The command line and the environment of the first rank, as it was started; of one that the shim has reached, since
    a zygote without the shim would run the script.
    """
    living = {number: rank.pid for number, rank in sorted(attempt.ranks.items()) if not rank.gone}
    for number, pid in living.items():
        if not are_reached(attempt.folder, {number: pid}):
            continue
        argv = _words(pid, "cmdline")
        if SPAWNED in argv:  # by multiprocessing: the script is its parent's
            argv = _words(_parent(pid), "cmdline")
        env = dict(word.split("=", 1) for word in _words(pid, "environ") if "=" in word)
        if argv and env and os.path.basename(argv[0]).startswith("python"):
            return tuple(argv), env
    return None


def _words(pid: int, name: str) -> list[str]:
    with suppress(OSError):
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")[:-1]]
    return []


def _parent(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    return 0


def _program_of(argv: tuple[str, ...]) -> str:
    """What a command line of Python runs: the script, or the word after -m."""
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "-m" or word in ("-W", "-X"):
            following = words.pop(0) if words else ""
            if word == "-m":
                return following
        elif not word.startswith("-"):
            return word
    return ""
