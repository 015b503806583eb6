"""Runs rounds of pair measurements on several nodes, with one worker process on each node.

Every wait has a limit, and a fault of one node delays the others by one round at most. A worker stuck in a
collective differs from a lost node: its reader thread still answers pings. Workers end with this process,
whose pipe they read.
"""

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex

import msgspec
from msgspec import Struct

from holdfast.checks.parting import how_it_ended, part_with
from holdfast.checks.remote import words_to_reach
from holdfast.checks.training_python import pair_worker
from holdfast.checks.training_python.pair_worker import (
    Abandon,
    AnyAnswer,
    AnyAsk,
    Computed,
    Exchanged,
    Hello,
    Listening,
    Measure,
    Meet,
    Ping,
    Pong,
)
from holdfast.core.checks.pairs.plan import next_round
from holdfast.core.checks.pairs.results import Limits, Measured, NodeSample, PairSample, Round
from holdfast.core.checks.pairs.words import kind_of

STARTS_AT_ONCE = 64
ROUND_S = 30.0
RESTART_S = 20.0
START_S = 90.0  # torch is imported, perhaps by all nodes from one file server
PONG_S = 3.0
END_S = 3.0
LOOK_S = 0.2
LATE_S = 2.0  # for an answer to come in after the time for it
READ_BYTES = 1 << 16
LINE_BYTES_MAX = 1 << 20
WORDS_MAX = 300
CPU_SIZES = (1 << 10, 1 << 23)  # one for the latency, one for the bandwidth
GPU_SIZES = (1 << 10, 1 << 28)


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of a pair measurement.

    `via`: template of the command that reaches a node. `env`: of the workers. `python`: interpreter of the
    training on the nodes. `sizes`: message sizes in bytes; empty means chosen by the devices. `pong_s`: how long
    a worker that is late may take to reply to a ping.
    """

    via: str
    python: str
    round_s: float = ROUND_S
    within_s: float = 120.0
    pong_s: float = PONG_S
    sizes: tuple[int, ...] = ()
    limits: Limits = Limits()
    env: Mapping[str, str] | None = None


class Done(Struct, frozen=True, kw_only=True):
    """Result of a pair measurement. `why_not`: for each node whose worker never answered, the reason.

    `late`: the time limit ended the measurement.
    """

    measured: Measured
    hellos: dict[str, Hello]
    why_not: dict[str, str]
    late: bool


def what_of(size: int) -> str:
    """Returns the name of an all-reduce measurement by its size in bytes, such as `all-reduce 8 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"all-reduce {size / unit:g} {name}"
    return f"all-reduce {size} B"


class PairRun:
    """One run of pair measurements over `nodes`. `spares`: nodes known to be good, with which suspected nodes are tested.

    `usual`: expected values in GB/s from the baseline, by kind of node and measurement. Raises BadVia.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        settings: Settings,
        spares: Sequence[str] = (),
        usual: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        everybody = (*dict.fromkeys((*nodes, *spares)),)
        self._settings = settings
        self._until_s = time.monotonic() + settings.within_s
        _allow_files(len(everybody))
        command = (settings.python, "-P", "-m", pair_worker.__name__)
        self._workers = {
            node: _Worker(node, [*words_to_reach(settings.via, node), *command], settings.env)
            for node in everybody
        }
        self._measured = Measured(nodes=tuple(nodes), spares=tuple(spares))
        self._usual = usual or {}
        self._number = 0

    def run(self, on_round: Callable[[int, Round], None] | None = None) -> Done:
        """Runs all rounds, ends the workers and returns the measurements.

        `on_round`: called before each round.
        """
        late = False
        longest_s = 0.0
        try:
            self._start([*self._workers])
            while (chosen := next_round(self._measured, self._settings.limits)) is not None:
                began_s = time.monotonic()
                if began_s + longest_s > self._until_s:
                    late = True
                    break
                if on_round is not None:
                    on_round(self._measured.rounds, chosen)
                self._carry_out(chosen)
                longest_s = max(longest_s, time.monotonic() - began_s)
        finally:
            self._end()
        return Done(
            measured=self._measured,
            hellos={node: worker.hello for node, worker in self._workers.items() if worker.hello},
            why_not={
                node: worker.why
                for node, worker in self._workers.items()
                if not (worker.hello or worker.helloed)
            },
            late=late,
        )

    # Starting and ending

    def _start(self, nodes: Sequence[str]) -> None:
        """Starts workers on the nodes; returns once each has sent `Hello` or ended, or at the time limit."""
        waiting = [self._workers[node] for node in nodes if not self._workers[node].is_there]
        begun: list[_Worker] = []
        while waiting or any(worker.is_starting for worker in begun):
            while waiting and sum(worker.is_starting for worker in begun) < STARTS_AT_ONCE:
                worker = waiting.pop(0)
                within_s = RESTART_S if worker.helloed else START_S
                worker.start(min(self._until_s, time.monotonic() + within_s))
                begun.append(worker)
            self._read([worker for worker in begun if worker.is_starting])
            for worker in begun:
                worker.give_up_start()
        if not self._measured.small:
            kind = kind_of(worker.hello.model for worker in self._workers.values() if worker.hello)
            self._measured = msgspec.structs.replace(
                self._measured, small=(what_of(self._sizes()[0]),), usual=dict(self._usual.get(kind, {}))
            )

    def _sizes(self) -> tuple[int, ...]:
        has_gpus = [worker.hello.backend == "nccl" for worker in self._workers.values() if worker.hello]
        return self._settings.sizes or (GPU_SIZES if has_gpus and all(has_gpus) else CPU_SIZES)

    def _end(self) -> None:
        for worker in self._workers.values():
            worker.close()
        give_up_s = time.monotonic() + END_S
        for worker in self._workers.values():
            worker.end(give_up_s)

    # One round

    def _carry_out(self, chosen: Round) -> None:
        asked = [*chosen.alone, *(node for pair in chosen.pairs for node in pair)]
        self._start(asked)
        within_s = max(1.0, min(self._settings.round_s, self._until_s - time.monotonic()))
        sizes = self._sizes()
        meetings = {a: (b, token_hex(16)) for a, b in chosen.pairs}
        for node in asked:
            self._workers[node].begin(self._number)
        for node in chosen.alone:
            self._say(node, Measure(self._number, None, sizes, within_s))
        for a, (b, token) in meetings.items():
            self._say(a, Measure(self._number, 0, sizes, within_s, token))
            self._say(b, Measure(self._number, 1, sizes, within_s, token))
        self._wait(chosen, {a: b for a, b in chosen.pairs}, time.monotonic() + within_s + LATE_S)
        stuck = self._who_is_stuck(chosen)
        self._note(chosen, stuck)
        self._number += 1

    def _wait(self, chosen: Round, partner: Mapping[str, str], until_s: float) -> None:
        """Waits for a round's workers until `until_s`; sends the second of each pair the first's port."""
        unmet, waited_for = set(partner), set(partner)
        while time.monotonic() < until_s:
            for a in list(unmet):
                port = self._workers[a].port
                if port is not None:
                    unmet.discard(a)
                    self._say(partner[a], Meet(self._number, self._addresses(a), port))
            for a in list(waited_for):
                there = self._workers[partner[a]]
                if not there.is_there or there.exchanged is not None:  # it came, or it never will
                    waited_for.discard(a)
                    self._say(a, Abandon(self._number))
            waiting = [self._workers[node] for node in chosen.alone if not self._workers[node].has_computed]
            for pair in chosen.pairs:
                both = [self._workers[node] for node in pair]
                if all(worker.is_there for worker in both):
                    waiting += [worker for worker in both if not worker.has_exchanged]
                else:  # the other one has no partner
                    waiting += [worker for worker in both if worker.is_there and not worker.has_computed]
            if not waiting:
                return
            self._read(waiting, min(LOOK_S, max(0.0, until_s - time.monotonic())))

    def _who_is_stuck(self, chosen: Round) -> set[str]:
        """Returns nodes whose workers reply to a ping but did not finish the round. The others are killed."""
        late = [
            worker
            for node in (*chosen.alone, *(node for pair in chosen.pairs for node in pair))
            if (worker := self._workers[node]).is_there and not worker.has_answered(node in chosen.alone)
        ]
        for worker in late:
            worker.pong = False
            self._say(worker.node, Ping())
        pong_s = self._settings.pong_s
        until_s = time.monotonic() + pong_s
        while time.monotonic() < until_s and any(worker.is_there and not worker.pong for worker in late):
            self._read([worker for worker in late if worker.is_there and not worker.pong])
        for worker in late:
            if worker.is_there:
                worker.kill("" if worker.pong else f"the worker did not reply to a ping within {pong_s:g} s")
        return {worker.node for worker in late if worker.pong}

    def _note(self, chosen: Round, stuck: set[str]) -> None:
        round_ = self._measured.rounds
        asked = [*chosen.alone, *(node for pair in chosen.pairs for node in pair)]
        singles = [self._workers[node].single(round_, node in stuck) for node in asked]
        silent = {single.node for single in singles if single.error}
        pairs = [self._pair(round_, a, b) for a, b in chosen.pairs if a not in silent and b not in silent]
        self._measured = msgspec.structs.replace(
            self._measured,
            rounds=round_ + 1,
            pairs=(*self._measured.pairs, *pairs),
            singles=(*self._measured.singles, *singles),
        )

    def _pair(self, round_: int, a: str, b: str) -> PairSample:
        """Returns the speeds of one pair; where the two nodes measured differently, the slower value."""
        exchanges = [
            self._workers[node].exchanged for node in (b, a)
        ]  # the second has the better reason why they did not connect
        speeds: dict[str, float] = {}
        error = ""
        for exchanged in exchanges:
            if exchanged is None:
                error = error or f"the collective did not finish within {self._settings.round_s:g} s"
                continue
            error = error or exchanged.error
            for size, speed in exchanged.speeds.items():
                speeds[what_of(size)] = min(speed, speeds.get(what_of(size), speed))
        if not speeds:
            error = error or "nothing was measured"
        return PairSample(round=round_, a=a, b=b, speeds=speeds, error=error)

    def _addresses(self, node: str) -> tuple[str, ...]:
        """Returns the addresses by which a partner may reach a node: those it reported, and its name."""
        hello = self._workers[node].hello
        return tuple(dict.fromkeys((*(hello.addresses if hello else ()), node)))

    def _say(self, node: str, ask: AnyAsk) -> None:
        self._workers[node].say(ask)

    def _read(self, workers: Sequence["_Worker"], at_most_s: float = LOOK_S) -> None:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                if worker.is_running:
                    selector.register(worker.answers, selectors.EVENT_READ, worker)
            if not selector.get_map():
                return
            for key, _ in selector.select(at_most_s):
                key.data.read()


class _Worker:
    """The worker process on one node. `why`: the reason if there is no running worker."""

    def __init__(self, node: str, words: Sequence[str], env: Mapping[str, str] | None) -> None:
        self.node = node
        self.why = ""
        self.hello: Hello | None = None
        self.helloed = False  # once, though it may be gone since
        self.pong = False
        self.port: int | None = None
        self.exchanged: Exchanged | None = None
        self._computed: Computed | None = None
        self._number = -1
        self._words = list(words)
        self._env = dict(os.environ if env is None else env)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = -1
        self._text = b""
        self._start_until_s = 0.0
        self._decoder = msgspec.json.Decoder(AnyAnswer)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_there(self) -> bool:
        return self._process is not None and self.hello is not None

    @property
    def is_starting(self) -> bool:
        return self._process is not None and self.hello is None

    @property
    def has_computed(self) -> bool:
        return self._computed is not None or not self.is_there

    @property
    def has_exchanged(self) -> bool:
        return self.exchanged is not None or not self.is_there

    @property
    def answers(self) -> int:
        assert self._process is not None and self._process.stdout is not None, "only of one that runs"
        return self._process.stdout.fileno()

    def has_answered(self, alone: bool) -> bool:
        return self._computed is not None and (alone or self.exchanged is not None)

    def start(self, until_s: float) -> None:
        self.hello, self.why, self._text = None, "", b""
        self._start_until_s = until_s
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
                env=self._env,
                cwd="/",
            )
        except OSError as error:
            self.why = f"{self._words[0]} cannot be started: {error}"
            self._forget_errors()
            return
        os.set_blocking(self.answers, False)

    def begin(self, number: int) -> None:
        self._number = number
        self._computed = self.exchanged = self.port = None

    def say(self, ask: AnyAsk) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(msgspec.json.encode(ask) + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._gone()

    def read(self) -> None:
        """Reads the available answers of the worker, and marks a worker that has ended as gone."""
        ended = False
        with suppress(BlockingIOError):
            while piece := os.read(self.answers, READ_BYTES):
                self._text += piece
                if len(self._text) > LINE_BYTES_MAX:
                    break
            else:
                ended = True
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            with suppress(msgspec.MsgspecError):  # a login's greeting is no answer
                self._take(self._decoder.decode(line))
        if ended or len(self._text) > LINE_BYTES_MAX:
            self._gone()

    def _take(self, answer: AnyAnswer) -> None:
        match answer:
            case Hello():
                if answer.error:
                    self.kill(answer.error)
                else:
                    self.hello, self.helloed = answer, True
            case Pong():
                self.pong = True
            case Computed() if answer.number == self._number:
                self._computed = answer
            case Listening() if answer.number == self._number:
                self.port = answer.port
            case Exchanged() if answer.number == self._number:
                self.exchanged = answer
            case _:  # of an earlier round
                return

    def give_up_start(self) -> None:
        if self.is_starting and time.monotonic() > self._start_until_s:
            self.kill("the worker did not start in time")

    def single(self, round_: int, is_stuck: bool) -> NodeSample:
        model = self.hello.model if self.hello else ""
        if self._computed is None and not is_stuck:
            return NodeSample(round=round_, node=self.node, error=self.why or "no answer")
        if self._computed is None:
            return NodeSample(
                round=round_, node=self.node, error="the worker process runs, but does not compute"
            )
        if not self.is_there and not is_stuck and self.exchanged is None and self.why:
            return NodeSample(round=round_, node=self.node, error=self.why)
        return NodeSample(
            round=round_,
            node=self.node,
            compute=self._computed.speeds,
            model=model,
            wrong=self._computed.wrong or self._computed.error,
        )

    # Ending

    def close(self) -> None:
        """Closes the worker's stdin, at which the worker ends."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def end(self, give_up_s: float) -> None:
        if self._process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, give_up_s - time.monotonic()))
        self.kill(self.why)

    def kill(self, why: str) -> None:
        self._reap(kill=True)
        self.why = why

    def _gone(self) -> None:
        code = self._reap(kill=False)
        said = ""
        if self._errors >= 0:
            said = " ".join(os.pread(self._errors, READ_BYTES, 0).decode(errors="replace").split())
        how = f"the worker {how_it_ended(code)}" if code is not None else "the worker closed its output"
        self.why = f"{how}: {said[-WORDS_MAX:]}" if said else how
        self._forget_errors()

    def _reap(self, *, kill: bool) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        self.close_of(process)
        with suppress(subprocess.TimeoutExpired):
            if not kill:
                process.wait(1.0)
        if process.poll() is None or kill:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            part_with(process, 1.0)
        if kill:
            self._forget_errors()
        return process.returncode

    @staticmethod
    def close_of(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _forget_errors(self) -> None:
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1


def _allow_files(nodes: int) -> None:
    """Raises the soft limit of open files, often 1,024, because each node needs three pipes or files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 256 + 4 * nodes
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
