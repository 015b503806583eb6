"""A job of ranks that do what they are told, second by second, with the hang detector watching."""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.core.hang import detect as hang
from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import Hang, RankSample, StackTrend


class Doing(NamedTuple):
    """What a rank does in one second. The numbers are those measured on real gloo ranks."""

    state: str = "S"
    channel: str = "futex_do_wait"
    main_s: float = 0.0
    tree_s: float = 0.003
    io: int = 0
    disk: int = 0
    blocked: int = 0
    children: tuple[str, ...] = ()  # their wait channels
    in_collective: bool | None = None  # None: as WAITS and TRAINS do, see Job.knows_groups
    exit_code: int | None = None


WAITS = Doing()
TRAINS = Doing("R", "", 0.06, 0.18, 22_000_000)
SLEEPS = Doing(channel="hrtimer_nanosleep")
POLLS = Doing(channel="poll_schedule_timeout.constprop.0")
LOOPS = Doing("R", "", 1.0, 1.0)
EVALUATES = Doing("R", "", 0.155, 0.3)
COMPILES = Doing("S", "do_wait", 0.0, 1.9)
WRITES = Doing("D", "folio_wait_bit", 0.1, 0.1, 303_000_000, 303_000_000)
BLOCKED = Doing("D", "rpc_wait_bit_killable")
STOPPED = Doing("T", "do_signal_stop")
TRACED = Doing("t", "ptrace_stop")
GONE = Doing("X", "")


class Job:
    """Ranks that do what they are told, second by second, with the detector watching."""

    def __init__(self, ranks: int = 4, *, knows: hang.Learned | None = None, **limits: float) -> None:
        self.limits = hang.Settings(**limits)
        self.state = hang.start(knows)
        self.at_s, self.ranks = 1000.0, ranks
        self.step: int | None = None
        self.log_bytes = 0
        self.used = [Doing(main_s=0.0, tree_s=0.0)] * ranks
        self.readable = True
        self.hangs: list[Hang] = []
        self.knows_groups = False  # whether the shim tells how far each rank is
        self.done = 0  # collectives completed by all
        self.node_busy_s: float | None = None
        self.trends: dict[int, StackTrend] = {}

    def second(self, doing: Mapping[int, Doing], *, steps: int = 0, log: int = 0) -> Hang | None:
        """One second in which rank r does doing[r], or waits."""
        self.at_s += 1.0
        self.log_bytes += log
        self.step = (self.step or 0) + steps if steps else self.step
        self.done += steps
        samples = tuple(self._sample(rank, doing.get(rank, WAITS)) for rank in range(self.ranks))
        self.state, found = hang.observe(
            self.state,
            samples,
            self.at_s,
            self.limits,
            log_bytes=self.log_bytes,
            step=self.step,
            node_busy_s=self.node_busy_s,
            trends=self.trends,
        )
        self.hangs += [found] if found else []
        return found

    def _sample(self, rank: int, now: Doing) -> RankSample:
        was = self.used[rank]
        self.used[rank] = used = Doing(
            main_s=was.main_s + now.main_s,
            tree_s=was.tree_s + now.tree_s,
            io=was.io + now.io,
            disk=was.disk + now.disk,
        )
        seen = self.readable and now is not GONE
        return RankSample(
            at_s=self.at_s,
            rank=rank,
            pid=100 + rank,
            state=now.state if self.readable else "?",
            main_cpu_s=used.main_s if seen else None,
            tree_cpu_s=used.tree_s if seen else None,
            io_bytes=used.io if seen else None,
            disk_bytes=used.disk if seen else None,
            wait_channel=now.channel,
            blocked_children=now.blocked,
            children=len(now.children),
            child_channels=now.children,
            exit_code=now.exit_code,
            groups=self._groups(now) if seen and self.knows_groups else None,
        )

    def _groups(self, now: Doing) -> tuple[GroupStatus, ...]:
        pending = now is WAITS if now.in_collective is None else now.in_collective
        return (GroupStatus(0, self.done + pending, -1, self.done),)

    def all(self, doing: Doing) -> dict[int, Doing]:
        return dict.fromkeys(range(self.ranks), doing)

    def train(self, for_s: int = 60, *, steps: int = 50, log: int = 400) -> "Job":
        """20 ms steps; five lines a second."""
        for _ in range(for_s):
            self.second(self.all(TRAINS), steps=steps, log=log)
        return self

    def stay(self, doing: Mapping[int, Doing], for_s: float, *, log: int = 0) -> Hang | None:
        """The first hang found while nothing is stepped."""
        until_s = self.at_s + for_s
        while self.at_s < until_s:
            if found := self.second(doing, log=log):
                return found
        return None
