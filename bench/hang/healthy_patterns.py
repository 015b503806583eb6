"""Healthy trainings by the hour, simulated sample by sample, under the real detector: it must never call one hung.

    python -m bench.hang.healthy_patterns --steps 100000

A pattern is a training with one habit: checkpoints, evaluations, slow epochs, pauses, compilation. Each is run with
collectives that wait asleep (gloo) and spinning (NCCL), with and without the shim, at steps of 20 ms and 1 s, by a
seed. What ranks do in each phase are the figures measured on real ranks. Exits with 1 on a false alarm.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from holdfast.core.hang import detect as hang
from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import Hang, RankSample

FUTEX, SLEEP, POLL = "futex_do_wait", "hrtimer_nanosleep", "poll_schedule_timeout.constprop.0"


class Doing(NamedTuple):
    """What a rank does in one second: state, wait channel, CPU seconds, bytes."""

    state: str = "S"
    channel: str = FUTEX
    main_s: float = 0.0
    tree_s: float = 0.003
    io: int = 0
    disk: int = 0
    waits: bool = False  # in a collective
    child: str = ""  # what its children wait for


TRAINS = Doing("R", "", 0.06, 0.18, 22_000_000)
ASLEEP_IN_COLLECTIVE = Doing(waits=True)
SPINS_IN_COLLECTIVE = Doing("R", "", 1.0, 1.0, waits=True)
PAUSES = Doing(channel=SLEEP)
EVALUATES = Doing("R", "", 0.155, 0.3)
COMPUTES = Doing("R", "", 1.0, 1.0)
COMPILES = Doing("S", "do_wait", 0.0, 1.9)
WRITES = Doing("D", "folio_wait_bit", 0.1, 0.1, 303_000_000, 303_000_000)
FLUSHES = Doing("D", "folio_wait_bit_common")
LOADS = Doing(channel=POLL, tree_s=0.6, io=9_000_000, child="sk_wait_data")
LOADS_QUIETLY = Doing(channel=POLL, child="sk_wait_data")


class Phase(NamedTuple):
    """Some seconds in which no step is made. `who`: what ranks do; the others wait in a collective."""

    seconds: int
    who: Mapping[int, Doing]
    node_busy: bool = True


class Pattern(NamedTuple):
    """`phase`: what comes after every `every` seconds of training, by a die and the length of a step in seconds."""

    every: int
    phase: Callable[[random.Random, float], Phase]


def _all(doing: Doing) -> dict[int, Doing]:
    return dict.fromkeys(range(8), doing)


PATTERNS: dict[str, Pattern] = {
    "steps alone": Pattern(1000, lambda die, step_s: Phase(0, {})),
    "checkpoint by rank 0": Pattern(120, lambda die, step_s: Phase(die.randint(5, 90), {0: WRITES})),
    "checkpoint, then a flush": Pattern(120, lambda die, step_s: Phase(die.randint(5, 90), {0: FLUSHES})),
    "checkpoint by all": Pattern(120, lambda die, step_s: Phase(die.randint(5, 60), _all(WRITES))),
    "quiet evaluation by rank 0": Pattern(150, lambda die, step_s: Phase(die.randint(5, 80), {0: EVALUATES})),
    "evaluation by rank 0 at full speed": Pattern(
        150, lambda die, step_s: Phase(die.randint(5, 80), {0: COMPUTES})
    ),
    "evaluation by all": Pattern(150, lambda die, step_s: Phase(die.randint(5, 300), _all(EVALUATES))),
    "compilation by all": Pattern(400, lambda die, step_s: Phase(die.randint(5, 300), _all(COMPILES))),
    "compilation by rank 0": Pattern(400, lambda die, step_s: Phase(die.randint(5, 300), {0: COMPILES})),
    "slow data in all": Pattern(60, lambda die, step_s: Phase(die.randint(1, 50), _all(LOADS_QUIETLY))),
    "slow data in one": Pattern(
        60, lambda die, step_s: Phase(die.randint(1, 50), {die.randrange(8): LOADS_QUIETLY})
    ),
    "loading shards": Pattern(200, lambda die, step_s: Phase(die.randint(5, 120), _all(LOADS))),
    "pauses of all, up to 100 steps": Pattern(
        30, lambda die, step_s: Phase(die.randint(0, min(55, int(100 * step_s))), _all(PAUSES))
    ),
    "pauses of one, up to 5 s": Pattern(
        30, lambda die, step_s: Phase(die.randint(0, 5), {die.randrange(8): PAUSES})
    ),
}


class Job:
    """Eight ranks. Samples come a second apart, a little early or late."""

    def __init__(self, seed: int, step_s: float, wait: Doing, *, has_shim: bool) -> None:
        self.die = random.Random(seed)
        self.step_s, self.wait, self.has_shim = step_s, wait, has_shim
        self.state, self.limits = hang.start(), hang.Settings(world_size=8)
        self.at_s, self.step, self.log_bytes = 1000.0, 0, 0
        self.made = 0.0
        self.used = [Doing() for _ in range(8)]
        self.node_busy_s = self.at_s
        self.alarms: list[tuple[float, Hang]] = []

    def train(self, seconds: int) -> None:
        for _ in range(seconds):
            self.made += self.die.uniform(0.7, 1.3) / self.step_s
            self.step = int(self.made)
            self.log_bytes += 80
            self._second(_all(TRAINS), busy=True)

    def rest(self, phase: Phase) -> None:
        for _ in range(phase.seconds):
            self._second(phase.who, busy=phase.node_busy)

    def _second(self, who: Mapping[int, Doing], *, busy: bool) -> None:
        self.at_s += self.die.uniform(0.9, 1.15)
        if busy:
            self.node_busy_s = self.at_s
        samples = tuple(self._sample(rank, who.get(rank, self.wait)) for rank in range(8))
        self.state, found = hang.observe(
            self.state,
            samples,
            self.at_s,
            self.limits,
            log_bytes=self.log_bytes,
            step=self.step or None,
            node_busy_s=self.node_busy_s,
        )
        if found is not None:
            self.alarms.append((self.at_s, found))

    def _sample(self, rank: int, now: Doing) -> RankSample:
        was = self.used[rank]
        used = Doing(
            main_s=was.main_s + now.main_s * self.die.uniform(0.8, 1.2),
            tree_s=was.tree_s + now.tree_s * self.die.uniform(0.8, 1.2),
            io=was.io + now.io,
            disk=was.disk + now.disk,
        )
        self.used[rank] = used
        groups = (GroupStatus(0, self.step * 3 + now.waits, -1, self.step * 3),) if self.has_shim else None
        return RankSample(
            at_s=self.at_s,
            rank=rank,
            pid=100 + rank,
            state=now.state,
            main_cpu_s=used.main_s,
            tree_cpu_s=used.tree_s,
            io_bytes=used.io,
            disk_bytes=used.disk,
            wait_channel=now.channel,
            children=1 if now.child else 0,
            child_channels=(now.child,) if now.child else (),
            groups=groups,
        )


def run(pattern: Pattern, steps: int, seed: int, step_s: float, wait: Doing, *, has_shim: bool) -> Job:
    """One training of this many steps."""
    job = Job(seed, step_s, wait, has_shim=has_shim)
    while job.step < steps:
        job.train(pattern.every)
        job.rest(pattern.phase(job.die, step_s))
    return job


def settings() -> Iterator[tuple[float, str, Doing, bool]]:
    for step_s in (0.02, 1.0):
        for name, wait in (("asleep", ASLEEP_IN_COLLECTIVE), ("spinning", SPINS_IN_COLLECTIVE)):
            for has_shim in (True, False):
                yield step_s, name, wait, has_shim


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100_000, help="of each pattern in each setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="patterns whose name holds this")
    given = parser.parse_args()
    began_s, false_alarms, hours = time.monotonic(), 0, 0.0
    for name, pattern in PATTERNS.items():
        if given.only not in name:
            continue
        for step_s, waits, wait, has_shim in settings():
            job = run(pattern, given.steps, given.seed, step_s, wait, has_shim=has_shim)
            hours += (job.at_s - 1000.0) / 3600
            false_alarms += len(job.alarms)
            if job.alarms:
                at_s, found = job.alarms[0]
                shim = "shim" if has_shim else "no shim"
                print(f"{name}, {step_s} s, waits {waits}, {shim}: {len(job.alarms)} false alarms, "
                      f"the first at {at_s - 1000:.0f} s: {found.kind} {found.culprits}: {found.why}")  # fmt: skip
    print(f"{false_alarms} false alarms in {len(PATTERNS)} patterns x 8 settings x {given.steps} steps "
          f"({hours:.0f} simulated hours, {time.monotonic() - began_s:.0f} s)")  # fmt: skip
    return 1 if false_alarms else 0


if __name__ == "__main__":
    sys.exit(main())
