"""Simulates a training: processes that make steps, write checkpoints, hang and die.

It reports what agents would: ends of ranks and commands, steps, hangs. A hang is detected after the real
detector's limit. Steps are not simulated one by one where no difference is visible.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from msgspec import Struct

from holdfast.core.hang.detect import Learned, Settings, quiet_limit_s
from holdfast.model.events import (
    AnyEvent,
    DeviceFaulted,
    HangFound,
    RankExited,
    StepReached,
    WorkerExited,
)
from holdfast.model.orders import StartAttempt
from holdfast.sim.scenario import Scenario
from holdfast.sim.world import World

EXIT_FOUND_S = 0.1  # from a rank's end until its agent reports it
COMMAND_ENDS_S = 0.6  # the launcher ends the rank's siblings first
OTHERS_END_S = 1.6  # the other workers' launchers learn of it through the rendezvous
DEVICE_FOUND_S = 0.2
LAUNCHER_CODE = 1  # torchrun's, whatever its rank died of


class NodeLike(Protocol):
    """Interface of a node, as far as a training needs it."""

    up: bool

    @property
    def broken(self) -> Mapping[str, "BrokenLike"]: ...


class BrokenLike(Protocol):
    """Interface of a faulty device, as far as a training needs it."""

    @property
    def code(self) -> str: ...


class Trouble(Struct, frozen=True, kw_only=True):
    """The fault of an attempt, as input of the diagnosis: a rank that ended (`code`), a device, or a node; if none of
    these is set, a hang.
    """

    at_s: float
    worker: int
    rank: int
    code: int | None = None
    error: str = ""
    device: str = ""
    node: str = ""


class Training:
    """The simulated training. `alive`: workers with running processes of `attempt`.

    `best_step`: the highest step that any attempt reached.
    """

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        nodes: Mapping[str, NodeLike],
        tell: Callable[[AnyEvent], None],
    ) -> None:
        self.attempt = 0
        self.alive: set[int] = set()
        self.nodes: tuple[str, ...] = ()
        self.best_step = 0
        self.steps_made = 0  # reported, repeated ones included
        self.moving = False
        self.troubles: list[Trouble] = []
        self.on_empty: Callable[[], None] = lambda: None
        self.next_fault_step: Callable[[int], int | None] = lambda after: None
        self.strike_at: Callable[[int], None] = lambda step: None
        self._world = world
        self._scenario = scenario
        self._cluster_nodes = nodes
        self._tell = tell
        self._limits = Settings(hang_timeout_s=scenario.policy.hang_timeout_s)
        self._quickest_s = self._limits.hang_timeout_s or self._limits.floor_s  # no limit is shorter
        self._stride = max(1, math.floor(1.0 / scenario.step_s + 1e-9))  # StepReached: at most one a second
        self._learned = False  # an attempt before was long enough to learn from
        self._checkpoint = 0
        self._base = 0  # the checkpoint that this attempt went on from
        self._made = 0
        self._first_s = 0.0  # when this attempt makes its first step
        self._marked_s = 0.0  # the last sign of life
        self._turn = 0  # whatever was planned in an earlier turn does not happen
        self._step_max = scenario.total_steps
        self._hang = "quiet"
        self._hang_reported: tuple[int, float] | None = None
        self._over = False

    def start(self, order: StartAttempt) -> None:
        now_s = self._world.now_s
        self._learned = self._learned or self._made - self._base >= self._limits.marks_min
        self.attempt = order.attempt
        self.nodes = tuple(start.node for start in order.workers)
        self.alive = {worker for worker, name in enumerate(self.nodes) if self._cluster_nodes[name].up}
        self.troubles = []
        self._base = self._made = self._checkpoint
        self._first_s, self._marked_s = now_s + self._scenario.start_s, now_s
        self._hang, self._over = "quiet", False
        self._turn += 1
        broken = self._broken_devices()
        self.moving = len(self.alive) == len(self.nodes) and not broken
        for node, device, code in broken:
            self._later(DEVICE_FOUND_S, partial(self._tell_device, node, device, code))
        if self.moving:
            self._plan_step()
        else:
            self._plan_hang()

    def kill(self, but: int | None = None) -> None:
        """Ends all processes of the training, except those of worker `but`, which cannot be killed yet."""
        self._stand()
        self.alive &= {but}

    def node_down(self, name: str) -> None:
        """Fails a node: its processes end without notice; the others wait for them."""
        if name not in self.nodes:
            return
        worker = self.nodes.index(name)
        if worker not in self.alive:
            return
        self.alive.discard(worker)
        self._note(worker, node=name)
        self._stall()
        if not self.alive:
            self.on_empty()

    def device_broke(self, name: str, device: str, code: str) -> None:
        if name in self.nodes and self.nodes.index(name) in self.alive:
            worker = self.nodes.index(name)
            self._note(worker, device=device, error=code)
            self._stall()
        self._tell(DeviceFaulted(at_s=self._world.now_s, node=name, device=device, code=code))

    def hang(self, worker: int, rank: int | None) -> None:
        if worker in self.alive and not self._over:
            self._note(worker, rank)
            self._stall()

    def exit(self, worker: int, rank: int | None, code: int, error: str) -> None:
        """Ends a rank; its launcher ends soon after, then the other launchers."""
        if worker not in self.alive or self._over:
            return
        rank = self._rank(worker, rank)
        if code == 0:  # it ended well, and the others wait for it for ever
            self._hang = "exit-hang"
            self.hang(worker, rank)
            return
        self._note(worker, rank, code, error)
        self._stall()
        self._later(EXIT_FOUND_S, lambda: self._tell_rank_exit(worker, rank, code, error))
        for other in sorted(self.alive):
            after_s = COMMAND_ENDS_S if other == worker else OTHERS_END_S
            self._later(after_s, partial(self._end_command, other, LAUNCHER_CODE))

    # --- steps

    def _plan_step(self) -> None:
        step = min(self._made + (self._stride if self._made > self._base else 1), self._step_max)
        due = self.next_fault_step(self._made)
        step = min(step, due) if due is not None else step
        at_s = self._first_s + (step - self._base - 1) * self._scenario.step_s
        if at_s - self._marked_s > self._quickest_s and at_s - self._marked_s > self._hang_limit_s():
            self._plan_hang()  # a detector with so short a limit takes this for a hang
        turn = self._turn
        self._world.at(at_s, lambda: self._reach(step, turn))

    def _reach(self, step: int, turn: int) -> None:
        if turn != self._turn:
            return
        if step == self.next_fault_step(self._made):
            self._step_max = step - 1
            self.strike_at(step)
            self._step_max = self._scenario.total_steps
            if not self.moving:
                return
        self._made = step
        self.steps_made += 1
        self._marked_s = self._world.now_s
        self._note_made()
        self._tell(StepReached(at_s=self._marked_s, attempt=self.attempt, step=step))
        if turn != self._turn:
            return
        if step >= self._scenario.total_steps:
            self._finish()
        else:
            self._plan_step()

    def _finish(self) -> None:
        self.moving, self._over = False, True
        self._turn += 1
        for worker in sorted(self.alive):
            self._later(EXIT_FOUND_S, partial(self._end_command, worker, 0))

    def _note_made(self) -> None:
        self.best_step = max(self.best_step, self._made)
        every = self._scenario.checkpoint_every_steps
        if every:
            self._checkpoint = max(self._checkpoint, self._made // every * every)

    # --- standing still

    def _stall(self) -> None:
        """Stops making steps while the processes continue to run."""
        self._stand()
        self._plan_hang()

    def _stand(self) -> None:
        if self.moving and self._world.now_s >= self._first_s:
            steps = math.floor((self._world.now_s - self._first_s) / self._scenario.step_s + 1e-9)
            self._made = max(self._made, min(self._base + 1 + steps, self._step_max))
            self._note_made()
        self.moving = False
        self._turn += 1

    def _plan_hang(self) -> None:
        seen = (self.attempt, self._marked_s)
        self._world.at(self._marked_s + self._hang_limit_s(), lambda: self._find_hang(seen))

    def _find_hang(self, seen: tuple[int, float]) -> None:
        if (
            seen != (self.attempt, self._marked_s)
            or seen == self._hang_reported
            or not self.alive
            or self._over
        ):
            return
        self._hang_reported = seen
        quiet_s = self._world.now_s - self._marked_s
        culprits = tuple(one.rank for one in self.troubles if one.code is None and not one.device)
        self._tell(
            HangFound(
                at_s=self._world.now_s,
                attempt=self.attempt,
                hang=self._hang,
                culprits=culprits,
                reason=f"no step for {quiet_s:.0f} s",
            )
        )

    def _hang_limit_s(self) -> float:
        marks = self._made - self._base
        learned = Learned(
            marks=marks,
            calls=marks,
            has_steps=True,
            from_before=self._learned,
            waiting_s=self._scenario.step_s,
        )
        limit_s = quiet_limit_s(learned, self._limits)
        if self._hang == "exit-hang" and self._limits.hang_timeout_s is None:
            return self._limits.exit_hang_s
        return limit_s

    # --- reports

    def _later(self, delay_s: float, do: Callable[[], None]) -> None:
        attempt = self.attempt
        self._world.after(delay_s, lambda: do() if attempt == self.attempt and self.alive else None)

    def _tell_rank_exit(self, worker: int, rank: int, code: int, error: str) -> None:
        if worker in self.alive:
            now_s = self._world.now_s
            self._tell(
                RankExited(
                    at_s=now_s, attempt=self.attempt, worker=worker, rank=rank, code=code, reason=error
                )
            )

    def _end_command(self, worker: int, code: int) -> None:
        if worker not in self.alive:
            return
        self.alive.discard(worker)
        empty = not self.alive
        self._tell(WorkerExited(at_s=self._world.now_s, attempt=self.attempt, worker=worker, code=code))
        if empty:
            self.on_empty()

    def _tell_device(self, node: str, device: str, code: str) -> None:
        if self.nodes.index(node) in self.alive:
            self._tell(DeviceFaulted(at_s=self._world.now_s, node=node, device=device, code=code))

    def _broken_devices(self) -> list[tuple[str, str, str]]:
        return [
            (name, device, broken.code)
            for name in self.nodes
            for device, broken in self._cluster_nodes[name].broken.items()
        ]

    def _note(
        self,
        worker: int,
        rank: int | None = None,
        code: int | None = None,
        error: str = "",
        *,
        device: str = "",
        node: str = "",
    ) -> None:
        self.troubles.append(
            Trouble(
                at_s=self._world.now_s,
                worker=worker,
                rank=self._rank(worker, rank),
                code=code,
                error=error,
                device=device,
                node=node,
            )
        )

    def _rank(self, worker: int, rank: int | None = None) -> int:
        return worker * self._scenario.cluster.devices_per_node if rank is None else rank
