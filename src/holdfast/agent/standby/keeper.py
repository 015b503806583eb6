"""Decides when a standby for the next attempt is started, imports modules, is released or is discarded.

Never decides whether there will be a next attempt: it only prepares the processes.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from holdfast.agent.attempt import Attempt
from holdfast.agent.launch import LaunchSpec, Running, launch
from holdfast.agent.part import Part, unmet
from holdfast.agent.standby.held_command import are_reached, is_python, is_reached, own_rank_starts
from holdfast.agent.standby.rank_starts import (
    SEEN,
    RankStart,
    as_listing,
    rank_starts,
    starts_before,
    starts_beside,
)
from holdfast.agent.standby.start import (
    GATE,
    IMPORTS,
    OWNER,
    Standby,
    command_gated,
    gated,
    imports_to_repeat,
    launcher_gated,
    with_ranks_begun,
)
from holdfast.model.settings import RunSettings
from holdfast.parsers.commands import Launcher

HELD_S = 20.0  # a launcher that has begun and is not held by then is not reached by the shim
SETTLED_S = 1.0  # ranks that have made a step are found within fractions of a second
UNSEEN_S = 60.0  # a job whose log names no steps is taken to train after this long


def may_restart(settings: RunSettings) -> bool:
    """True if the next attempt is to be prepared: the policy allows one, and the person has not refused it."""
    policy = settings.policy
    restarts = policy.max_restarts is not None or policy.hang_restart or policy.replace_workers is not None
    return settings.standby and restarts and not policy.shadow


def is_worth_a_standby(settings: RunSettings, launcher: Launcher) -> bool:
    """Returns whether a standby can be used: a restart is allowed, and two copies of the command can run side
    by side.
    """
    possible = launcher.is_torchrun and not launcher.fixed_address and not launcher.restarts
    return may_restart(settings) and settings.shim and possible


def is_worth_a_zygote(settings: RunSettings) -> bool:
    """Returns whether a zygote can be used: a restart is allowed. A zygote needs no second copy of the
    command.
    """
    possible = settings.zygote and settings.shim and not settings.deterministic  # set while torch is imported
    return possible and may_restart(settings)


def may_hold(settings: RunSettings, launcher: Launcher, program: str) -> bool:
    """Returns whether the command itself can be held at a gate, where it cannot run twice side by side. `program`:
    its executable file.
    """
    return is_worth_a_zygote(settings) and not is_worth_a_standby(settings, launcher) and is_python(program)


class Forks(Protocol):
    """The zygote, from which a standby is forked. `is_possible`: it is ready, or may still become so. `has_begun`: its
    process runs. `is_doubted`: the next attempt is not to be forked.
    """

    @property
    def is_possible(self) -> bool: ...

    @property
    def has_begun(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_doubted(self) -> bool: ...

    def prepared(self, spec: LaunchSpec) -> LaunchSpec:
        """Returns how a standby is started: forked if the zygote is ready, else as usual. raises: OSError"""
        ...


class StandbyKeeper:
    """Keeps at most one standby. `spec`: returns the command of an attempt and the folder in which it runs.

    `is_wanted`: see is_worth_a_standby; if False nothing is prepared. `holds_launcher`: the launcher waits
    before its rendezvous; False on a single machine, where only the ranks wait. `holds_command`: the command itself waits
    before its first line, once it is forked from the zygote. `needs_proof`: ranks or command are known to wait at a gate
    only once an attempt has shown that the shim reaches them; else they would run a second training. `forks`: where there is a zygote, a standby beside a
    training is forked from it, and waits until it is ready.
    """

    def __init__(
        self,
        spec: Callable[[int, Part], LaunchSpec],
        clock: Callable[[], float],
        forks: Forks | None = None,
        *,
        is_wanted: bool,
        holds_launcher: bool = False,
        holds_command: bool = False,
        needs_proof: bool = False,
    ) -> None:
        self._holds_command = holds_command
        self._is_proven = not (holds_command or needs_proof)
        self.starts_of_command: tuple[RankStart, ...] = ()  # of its ranks
        self._living: Mapping[int, int] | None = None  # pids of a held command's ranks, by number
        self._living_s = 0.0  # since when they are these
        self._forks = forks
        self._is_forked = False  # the standby that was started last
        self._holds_launcher = holds_launcher
        self._starts: tuple[Part, tuple[RankStart, ...]] | None = None  # of the ranks that were seen last
        self.standby: Standby | None = None
        self._spec = spec
        self._clock = clock
        self._is_wanted = is_wanted
        self.part: Part | None = None  # which part of its attempt the standby is
        self._wish: tuple[int, Part] | None = None
        self._noted = 0  # the attempt whose ranks' starts are known
        self._prepared_s = 0.0
        self._may_begin = False  # beside the end of an attempt, once
        self._is_early = False  # the standby was started before the first step, as a zygote cannot be
        self._failed = False
        self._seen_training = 0  # the attempt, from the controller: not every worker's log has steps
        self._imports: Path | None = None

    def wish(self, number: int, part: Part) -> None:
        """Requests a standby for the next attempt, number `number`, to be started once the current attempt
        has made steps.

        A standby for another attempt or part is discarded first.
        """
        self._seen_training = number - 1
        if self.standby is not None:
            if (self.standby.number, self.part) == (number, part):
                return
            self._end()
        self._wish = number, part

    def trains(self, attempt: Attempt) -> bool:
        """Returns whether the attempt has made steps, or is taken to have made some."""
        seen = attempt.step is not None or self._seen_training == attempt.number
        return seen or self._clock() - attempt.started_s > UNSEEN_S

    def tend(self, attempt: Attempt) -> bool:
        """Starts, checks or drops the standby processes. Call it ten times a second.

        Returns True if the job trains, has no standby yet, and one can be prepared now.
        """
        standby = self.standby
        is_held = self._holds_launcher or self._holds_command
        if standby is not None and is_held and self._clock() - self._prepared_s > HELD_S:
            standby.broken = standby.broken or not standby.is_held
        is_taken = standby is not None and self._holds_launcher and not standby.is_in_place
        if self._forks is not None:
            is_taken = is_taken or self._forks.is_doubted or (self._is_early and self._forks.has_begun)
        if standby is not None and (standby.broken or standby.thrown_away or is_taken):
            if not (standby.thrown_away or is_taken):
                self._failed = not standby.was_killed  # what broke once would break at every attempt
            self._end()
            self.gone()
            return False
        # From the first step on, because most failures come early.
        trains = self.trains(attempt)
        if attempt.stopping or attempt.is_done:
            return False
        self._note_starts(attempt, trains=trains and standby is None)
        if trains and not self._is_proven:
            self._prove(attempt)
        if standby is None:
            if self._may_prepare:
                self._grant_wish()
            return trains and self.standby is None and self._may_prepare
        is_replaced = self._is_early and self._forks is not None and self._forks.is_possible
        if trains and not standby.imports and not is_replaced:
            self.note_imports(attempt)
            # A rank may print a step before rank 0, whose imports are noted, has made its own. A forked standby has
            # imported them already, and ranks that were forked themselves import little to be noted.
            is_listed = self._imports is not None or self._is_forked
            if is_listed or self._clock() - attempt.started_s > UNSEEN_S:
                standby.let_import(self._imports)
        return False

    @property
    def _may_prepare(self) -> bool:
        """A zygote that is not ready yet is waited for: beside a training, N ranks would import for nothing."""
        if self._holds_command:
            return self._is_proven and self._forks is not None and self._forks.is_ready
        if not self._is_proven:
            return False
        return self._forks is None or self._forks.is_ready or not self._forks.is_possible

    def _grant_wish(self) -> None:
        if self._wish is not None and (self._starts is not None or not self._holds_launcher):
            (number, part), self._wish = self._wish, None
            self.prepare(number, part)

    def hurry(self, attempt: Attempt) -> None:
        """Lets all ranks of the standby import at the same time, if all ranks of the failed attempt have
        ended.

        Starts a new standby if the launcher died together with the existing one.
        """
        is_gone = attempt.command_code != 0 and not attempt.living
        if not attempt.stopping:
            if self._holds_launcher and is_gone and attempt.command_code is not None:
                self._begin_late(attempt)
            return
        standby = self.standby
        if standby is not None and not standby.hurries and is_gone:
            self.note_imports(attempt)
            standby.hurry(self._imports)

    def _begin_late(self, attempt: Attempt) -> None:
        """Starts a standby after the command and its standby died, while the other workers are still
        stopping.
        """
        if self._starts is None or not self._may_begin:
            return
        if self.standby is not None and not self.standby.broken:
            return
        self._end()
        if not self.gone():
            return
        self._may_begin = False
        self.note_imports(attempt)
        self.prepare(attempt.number + 1, self._starts[0])
        if self.standby is not None:
            self.standby.hurry(self._imports)

    def begin(self, number: int, part: Part) -> None:
        """Starts ranks in the way that other workers started theirs, if their folders are visible here. No
        training runs, so all cores are available.
        """
        if self.standby is not None or not self._holds_launcher:
            return
        folder = self._spec(number, part).folder
        before = folder.parent.with_name(f"attempt-{number - 1:03d}")
        self._starts = part, starts_before(before, part.worker) or starts_beside(folder.parent, part.worker)
        seen = (imports_to_repeat(path.parent) for path in sorted(before.glob(f"worker-*/{IMPORTS}")))
        self._imports = next((listing for listing in seen if listing is not None), self._imports)
        self.prepare(number, part)
        if self.standby is not None:
            self.standby.hurry(self._imports)

    def _note_starts(self, attempt: Attempt, *, trains: bool) -> None:
        """Records once how the ranks were started, from /proc, as soon as all of them are running.

        An attempt that fails before its first step is restarted too.
        """
        if not self._holds_launcher or not self._is_wanted or self._noted == attempt.number:
            return
        living = {number: rank.pid for number, rank in sorted(attempt.ranks.items()) if not rank.gone}
        if not all((attempt.folder / f"rank-{number}.shim.json").exists() for number in living):
            return  # what the shim does not reach would run the script at once
        is_whole = len(living) == attempt.local_size
        if not (is_whole or trains):
            return
        starts = rank_starts(living.values()) if is_whole else ()
        self._noted = attempt.number if is_whole else 0
        self._starts = unmet(attempt.worker, attempt.workers), starts
        self._may_begin = True
        if starts:
            with suppress(OSError):  # for an agent that continues after this one
                (attempt.folder / SEEN).write_bytes(as_listing(starts))

    def _prove(self, attempt: Attempt) -> None:
        """Records that the shim reaches what is to wait at a gate, and how a command that is held starts its ranks."""
        living = {number: rank.pid for number, rank in sorted(attempt.ranks.items()) if not rank.gone}
        if not self._holds_command:
            if len(living) == (attempt.local_size or len(living)):
                self._is_proven = are_reached(attempt.folder, living)
        elif self._are_settled(attempt, living) and is_reached(attempt.folder):
            self._is_proven = True
            self.starts_of_command = own_rank_starts(attempt.folder, list(living.values()))

    def _are_settled(self, attempt: Attempt, living: Mapping[int, int]) -> bool:
        """Returns whether all ranks of the command are known: a line with a step can be read before the ranks that made it
        are found. Other launchers than torchrun do not say how many they start, and a plain command may start none.
        """
        size = attempt.world_size if attempt.workers == 1 else attempt.local_size
        if self._living != living:
            self._living, self._living_s = living, self._clock()
        return len(living) == size or self._clock() - self._living_s >= SETTLED_S

    def note_imports(self, attempt: Attempt) -> None:
        """Stores the imports of the last attempt that made steps; those of an attempt that died early may be
        incomplete.
        """
        if self._imports is None or attempt.step is not None:
            self._imports = imports_to_repeat(attempt.folder) or self._imports

    def prepare_early(self, number: int, part: Part) -> None:
        """Starts a standby with the attempt itself, for a fault before its first step. A zygote that is begun later
        replaces it; where one has begun with the job, none is needed.
        """
        if self._forks is None or not self._forks.has_begun:
            self.prepare(number, part)
            self._is_early = True

    def prepare(self, number: int, part: Part) -> None:
        """Starts the launcher and its ranks, which wait at the gate; the ranks import modules once the job
        trains.
        """
        self._is_early = False
        if self._failed or not self._is_wanted or not self._is_proven:
            return
        if self._holds_command and not self._may_prepare:
            return
        self._prepared_s = self._clock()
        spec = self._spec(number, part)
        wait, held = gated, None
        if self._holds_launcher:
            wait, held = launcher_gated, self._starts_of(part)
        elif self._holds_command:
            wait, held = command_gated, self.starts_of_command
        spec = replace(spec, env=wait(spec.env, spec.folder), gate=GATE, detach=False)
        try:
            if self._holds_launcher and spec.folder.exists():
                _move_aside(spec.folder)  # of an agent that was killed
            spec.folder.mkdir(parents=True, exist_ok=True)
            self.standby = Standby(number, spec, self._start, held=held)
            self.part = part
        except OSError:
            self._failed = self._forks is None  # a zygote that has ended is seen, and started again

    def _start(self, spec: LaunchSpec) -> Running:
        self._is_forked = self._forks is not None and self._forks.is_ready
        return launch(spec if self._forks is None else self._forks.prepared(spec))

    def _starts_of(self, part: Part) -> tuple[RankStart, ...]:
        """Returns the rank starts for a worker's part; empty if it was never observed, so that its
        launcher starts the ranks.
        """
        if self._starts is None or not _is_same_place(self._starts[0], part):
            return ()
        return self._starts[1]

    def not_ready(self, part: Part, spec: LaunchSpec) -> LaunchSpec:
        """Prepares the start of an attempt without a standby. If it is known how ranks are started, they
        start in parallel with their launcher.
        """
        if self._holds_launcher and (spec.folder / OWNER).exists():
            _move_aside(spec.folder)  # of the node that was to be this worker
        if self._failed or not (self._is_wanted and self._holds_launcher):
            return spec
        starts = self._starts_of(part) or starts_beside(spec.folder.parent, part.worker)
        if not starts:
            return spec
        try:
            return replace(spec, env=with_ranks_begun(spec.env, spec.folder, starts, self._imports))
        except OSError:
            return spec

    def release(self, number: int, part: Part | None) -> Standby | None:
        """Releases the standby of this attempt and returns it; None if there is no usable one.

        `part`: the part of the attempt that it is to run; None: the part for which it was started.
        """
        standby, self.standby = self.standby, None
        self._wish = None
        if standby is None:
            return None
        standby.read()
        fits = standby.number == number and (part is None or self._fits(part)) and standby.is_in_place
        if standby.is_usable and fits:
            return standby
        standby.throw_away()
        standby.running.bye()
        if standby.number == number and standby.is_in_place:
            _move_aside(standby.folder)
        return None

    def _fits(self, part: Part) -> bool:
        """Returns whether the standby can become this part.

        A held launcher gets the rendezvous address through the gate.
        """
        assert self.part is not None
        return _is_same_place(part, self.part) if self._holds_launcher else part == self.part

    def drop(self) -> None:
        """Ends the standby. Call it until `gone` is True."""
        self._may_begin = False
        self._end()

    def _end(self) -> None:
        self._wish = None
        if self.standby is not None:
            self.standby.throw_away()

    def gone(self) -> bool:
        if self.standby is None:
            return True
        self.standby.read()
        if not self.standby.over:
            return False
        self.standby.clear()
        self.standby = None
        return True


def _is_same_place(one: Part, other: Part) -> bool:
    return (one.worker, one.workers) == (other.worker, other.workers)


def _move_aside(folder: Path) -> None:
    """Moves an unused standby's folder away, for the attempt with that number."""
    aside = folder.parent.with_name(f".standby-{os.getpid()}-{folder.parent.name}-{folder.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        folder.rename(aside)
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)
