"""What a played agent of one node says and does: its reports, prepared once and changed in place, and what it answers.

Each sends once a second the samples of 8 ranks with the step, and a piece of log; all together some findings.
"""

import random
import re
import struct
import time
from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from bench.hang.flight_records import digest_of
from holdfast.model.events import AttemptStarted, FindingNoted, RankStarted, StepReached
from holdfast.model.flight.digests import Digest, Members
from holdfast.model.flight.records import GroupStatus
from holdfast.model.nodes.workers import (
    AgentHello,
    AnyCommand,
    EventReport,
    FindPort,
    LookCloser,
    Looked,
    PortFound,
    Sampled,
    Shipped,
    StartWorker,
)
from holdfast.model.samples import RankSample

RANKS = 8
VERSION = "bench"
LINES_A_SECOND = 10
LINE = (
    b"2026-01-31 15:02:11,482 INFO iteration %8d/ 500000 | consumed samples: %12d | lm loss: 2.1%05dE+00 |\n"
)
STEPS_A_SECOND, COLLECTIVES_A_STEP = 10, 3
FINDINGS_A_SECOND = 50.0  # of the whole fleet
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.Decoder(AnyCommand).decode


class Hung(Struct, frozen=True):
    """From `at_s` on nothing moves: all ranks wait in a collective for this one."""

    rank: int
    at_s: float


class Job:
    """What all agents of a process have in common. `runs`: their workers run from the beginning."""

    def __init__(self, agents: int, seed: int, *, runs: bool) -> None:
        self.agents, self.runs = agents, runs
        self.dice = random.Random(seed)
        self.chance = FINDINGS_A_SECOND / agents
        self.began_s = time.time() // 3600 * 3600 - 3600  # alike in all processes
        self.hung: Hung | None = None
        self._digests: dict[str, Digest] = {}
        self._members: dict[str, Members] = {}

    @property
    def world(self) -> int:
        return self.agents * RANKS

    def hang(self, hung: Hung) -> None:
        """What ranks will tell of it is prepared at once."""
        self.hung = hung
        for rank in (hung.rank, hung.rank ^ 1, hung.rank ^ RANKS):
            self.digest(rank)

    def digest(self, rank: int) -> Digest:
        """What a rank's flight record comes to once the job hangs."""
        assert self.hung is not None
        return digest_of(rank, self.world, self.hung.rank, self._digests, self._members)


# What travels ---------------------------------------------------------------------------------------------


class Template:
    """A value as it travels, in which numbers are changed in place: packing it anew is not what is measured.

    `marks`: numbers that stand for those to come. Each is found wherever it is in the packed value.
    """

    def __init__(self, value: object, marks: Sequence[float]) -> None:
        data = pack(value)
        places = sorted(
            (found.end() - 8, which)
            for which, mark in enumerate(marks)
            for found in re.finditer(re.escape(pack(mark)), data)
        )
        self._which = [which for _, which in places]
        begins = [0, *(at + 8 for at, _ in places)]
        ends = [*(at for at, _ in places), len(data)]
        self._parts = [b""] * (2 * len(places) + 1)
        self._parts[::2] = [data[begin:end] for begin, end in zip(begins, ends, strict=True)]
        self._packs = [struct.Struct(">d" if isinstance(mark, float) else ">Q").pack for mark in marks]

    def filled(self, numbers: Sequence[float]) -> bytes:
        """With these in the places of the marks, in their order."""
        eights = [pack(number) for pack, number in zip(self._packs, numbers, strict=True)]
        self._parts[1::2] = [eights[which] for which in self._which]
        return b"".join(self._parts)


AT, CPU = 1.0625e300, 1.125e300
STEP, BYTES, DONE_1, ENQUEUED_1, DONE_2, ENQUEUED_2 = (2**63 + number for number in range(6))


def sampled(attempt: int, worker: int, agents: int, hung: int | None) -> Template:
    """`hung`: the rank that all others wait for; None: all is well."""
    world = agents * RANKS
    ranks = tuple(_sample(worker * RANKS + local, hung) for local in range(RANKS))
    value = Sampled(
        attempt=attempt,
        worker=worker,
        at_s=AT,
        ranks=ranks,
        world_size=world,
        log_bytes=BYTES,
        step=STEP,
        first_step=1,
    )
    return Template(value, (AT, CPU, STEP, BYTES, DONE_1, ENQUEUED_1, DONE_2, ENQUEUED_2))


def _sample(rank: int, hung: int | None) -> RankSample:
    waits = hung is not None
    ahead_1, ahead_2 = (DONE_1, DONE_2) if rank == hung else (ENQUEUED_1, ENQUEUED_2)
    return RankSample(
        at_s=AT,
        rank=rank,
        pid=40_000 + rank,
        state="S" if waits else "RS"[rank % 2],
        main_cpu_s=CPU,
        tree_cpu_s=CPU,
        io_bytes=BYTES,
        disk_bytes=BYTES,
        write_bytes=BYTES,
        disk_write_bytes=BYTES,
        wait_channel="futex_wait_queue" if waits or rank % 2 else "",
        children=9,
        running_children=0 if waits else rank % 3,
        child_names=("pt_data_worker", "pt_main_thread"),
        child_channels=() if waits else ("do_poll.constprop.0",),
        log_bytes=BYTES,
        step=STEP,
        groups=(GroupStatus(0, ahead_1, DONE_1, DONE_1), GroupStatus(1, ahead_2, DONE_2, DONE_2)),
    )


def step_reached(attempt: int) -> Template:
    return Template(EventReport(event=StepReached(at_s=AT, attempt=attempt, step=STEP)), (AT, STEP))


def shipped(attempt: int, worker: int) -> tuple[Template, int]:
    """A piece of log and its size."""
    lines = b"".join(LINE % (number, worker * 1024, number * 977 % 99999) for number in range(LINES_A_SECOND))
    value = Shipped(attempt=attempt, worker=worker, name="stdout", offset=BYTES, data=lines)
    return Template(value, (BYTES,)), len(lines)


# An agent -------------------------------------------------------------------------------------------------


class Line(Protocol):
    """How a node reaches the controller. `put`: sent with the next `flush`."""

    def put(self, body: bytes, *, drop: bool) -> None: ...

    def flush(self) -> None: ...

    def beat(self, now_s: float) -> None: ...


class Node:
    """What one agent knows and says."""

    def __init__(self, number: int, job: Job) -> None:
        self.name = name_of(number)
        self.number = number
        self.line: Line
        self.run: tuple[int, int] | None = None  # attempt, worker
        self._job = job
        self._hung: Hung | None = None
        if job.runs:
            self._begin(1, number)

    def hello(self) -> bytes:
        attempt, worker = self.run or (0, None)
        hello = AgentHello(
            node=self.name,
            address="127.0.0.1",
            instance=self.name,
            version=VERSION,
            attempt=attempt,
            worker=worker,
        )
        return pack(hello)

    def ordered(self, body: bytes) -> None:
        command = unpack(body)
        match command:
            case FindPort():
                self.line.put(pack(PortFound(attempt=command.attempt, port=29400)), drop=False)
            case StartWorker():
                self._begin(command.attempt, command.worker)
                self._tell_start(command.attempt, command.worker)
            case LookCloser():
                self.line.put(pack(self._looked(command)), drop=False)

    def report(self) -> None:
        """Samples, the step, and now and then a finding."""
        if self.run is None:
            return
        at_s, hung = time.time(), self._job.hung
        if hung is not self._hung:
            self._hung = hung
            assert hung is not None
            self._sampled = sampled(*self.run, self._job.agents, hung.rank)
        trained_s = (at_s if hung is None else hung.at_s) - self._job.began_s
        step = int(trained_s * STEPS_A_SECOND)
        done = step * COLLECTIVES_A_STEP
        numbers = (at_s, trained_s * 0.7, step, step * 100_000, done, done + 1, done // 2, done // 2 + 1)
        self.line.put(self._sampled.filled(numbers), drop=True)
        if hung is None:
            self.line.put(self._step.filled((at_s, step)), drop=False)
        if self._job.dice.random() < self._job.chance:
            self.line.put(self._finding(at_s), drop=False)
        self.line.flush()

    def ship_and_beat(self, now_s: float) -> None:
        """A piece of its log, and the beat that is due."""
        if self.run is not None and self._job.hung is None:
            self.line.put(self._shipped.filled((self._log_bytes,)), drop=True)
            self._log_bytes += self._piece_bytes
        self.line.beat(now_s)

    def _begin(self, attempt: int, worker: int) -> None:
        self.run = (attempt, worker)
        self._sampled = sampled(attempt, worker, self._job.agents, None)
        self._step = step_reached(attempt)
        self._shipped, self._piece_bytes = shipped(attempt, worker)
        self._log_bytes = 0

    def _tell_start(self, attempt: int, worker: int) -> None:
        at_s = time.time()
        self.line.put(pack(EventReport(event=AttemptStarted(at_s=at_s, attempt=attempt))), drop=False)
        for rank in range(worker * RANKS, (worker + 1) * RANKS):
            found = RankStarted(at_s=at_s, attempt=attempt, worker=worker, rank=rank, pid=40_000 + rank)
            self.line.put(pack(EventReport(event=found)), drop=False)

    def _finding(self, at_s: float) -> bytes:
        text = f"an uncorrectable error of the memory of a device, row {self._job.dice.random()}"
        attempt = self.run[0] if self.run else 0
        return pack(
            EventReport(
                event=FindingNoted(
                    at_s=at_s, finding="xid", text=text, attempt=attempt, numbers={"sent_s": at_s}
                )
            )
        )

    def _looked(self, asked: LookCloser) -> Looked:
        assert self.run is not None and self._hung is not None
        worker = self.run[1]
        ranks = range(worker * RANKS, (worker + 1) * RANKS)
        found = tuple(self._job.digest(rank) for rank in ranks)
        return Looked(attempt=asked.attempt, worker=worker, look=asked.look, digests=found)


def name_of(number: int) -> str:
    return f"node-{number:04}"
