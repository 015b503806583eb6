"""Plays the agents of many nodes so cheaply that a thousand of them take less than half a core.

They speak the real protocol over real connections: handshake, a MAC and a number a frame, compression, entries with their
numbers, beats, acknowledgements, orders; after a connection is lost, what was not recorded is sent again. What they
save is what each agent does for itself: one loop and one epoll for all of them, bodies that are prepared once and
changed in place, no spool on disk. Some of them can be real AgentLinks with spools, to be compared with.
"""

import errno
import heapq
import os
import resource
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.many_nodes.simulated_node import Hung, Job, Node
from holdfast.link import agent_link as real
from holdfast.link import messages
from holdfast.link.agent_link import AgentLink
from holdfast.link.beats import Beats
from holdfast.link.channel import Channel, ChannelEnded
from holdfast.link.frames import (
    ACK,
    BEAT,
    DONE,
    ENTRY,
    GOODBYE,
    JOIN,
    ORDER,
    REFUSE,
    WELCOME,
    BadFrame,
    Frame,
)
from holdfast.link.handshake import NONCE_BYTES, AgentSide
from holdfast.link.heard import Ordered
from holdfast.link.resolve import Address
from holdfast.link.spool import NUMBERS_PER_OPENING, Spool
from holdfast.link.wire import Wire
from holdfast.model.nodes.workers import PROTOCOL

LATE_S = 0.5  # where the machine is too slow a report comes later, not twice
TURN_S = 0.2  # of a real link with nothing to do


class Plan(Struct, frozen=True, kw_only=True):
    """What one process plays: `count` of the fleet's `agents`, from number `first` on.

    `real`: so many of them by real AgentLinks, with spools in `folder`. `runs`: their workers run from the beginning, and
    not only when they are told to.
    """

    port: int
    secret_file: str
    folder: str
    agents: int
    first: int
    count: int
    real: int = 0
    runs: bool = False


class Fleets:
    """The processes that play a fleet, as the one that measures has them. They end with it."""

    def __init__(self, plan: Plan, processes: int) -> None:
        share, extra = divmod(plan.agents, processes)
        self.processes: list[subprocess.Popen[bytes]] = []
        first = 0
        for index in range(processes):
            count = share + (index < extra)
            part = msgspec.structs.replace(
                plan, first=first, count=count, real=min(count, plan.real // processes)
            )
            self.processes.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "bench.many_nodes.simulated_agents",
                        msgspec.json.encode(part).decode(),
                    ],
                    stdin=subprocess.PIPE,
                )
            )
            first += count

    def hang(self, hung: Hung) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(hung) + b"\n")
            process.stdin.flush()

    def cpu_s(self) -> float:
        """What all of them have used so far."""
        ticks = 0
        for process in self.processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()


# Lines ----------------------------------------------------------------------------------------------------


class Kept(Struct):
    seq: int
    drop: bool
    body: bytes


class LeanLine:
    """The agent's end of the link: AgentLink's manners and times, without what each has for itself."""

    def __init__(self, node: Node, fleet: "Fleet") -> None:
        self._node, self._fleet = node, fleet
        self._stream = f"{node.name}/{os.urandom(8).hex()}"
        self._next = int(time.time()) * NUMBERS_PER_OPENING
        self._waits: deque[Kept] = deque()  # to be sent
        self._sent: deque[Kept] = deque()  # not received, as far as is known
        self._received: deque[Kept] = deque()  # not recorded
        self._sent_bytes = 0
        self._done: set[str] = set()
        self._beats = Beats(time.time())
        self._channel: Channel | None = None
        self._joined = self._connected = False
        self._since_s = 0.0
        self._failures = self._mask = self._descriptor = 0
        self._sock: socket.socket | None = None

    def put(self, body: bytes, *, drop: bool) -> None:
        self._waits.append(Kept(self._next, drop, body))
        self._next += 1

    def flush(self) -> None:
        if self._connected:
            self._guarded(self._push)

    def beat(self, now_s: float) -> None:
        """Once a second; where there is no connection its limits are looked at."""
        self._guarded(lambda: self._beat(now_s))

    def connect(self, now_s: float) -> None:
        self._guarded(lambda: self._connect(now_s))

    def event(self, now_s: float) -> None:
        """The descriptor shows something."""
        self._guarded(lambda: self._serve(now_s))

    def _connect(self, now_s: float) -> None:
        self._since_s = now_s
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        self._descriptor, self._mask = self._sock.fileno(), select.EPOLLOUT
        self._fleet.watch(self._descriptor, self)
        code = self._sock.connect_ex(self._fleet.address)
        if code not in (0, errno.EINPROGRESS):
            raise ChannelEnded(os.strerror(code))

    def _begun(self, now_s: float) -> Channel:
        assert self._sock is not None
        if code := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise ChannelEnded(os.strerror(code))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        side = AgentSide(self._fleet.secret, os.urandom(NONCE_BYTES), PROTOCOL)
        self._channel = Channel(Wire(self._sock), side, "the controller", now_s)
        self._channel.begin()
        return self._channel

    def _serve(self, now_s: float) -> None:
        channel = self._channel or self._begun(now_s)
        for frame in channel.read(real.READ_BYTES_MAX):
            self._beats.heard(now_s)
            self._took(channel, frame, now_s)
        if channel.is_proven and not self._joined:
            self._joined = True
            self._beats = Beats(now_s)
            join = messages.Join(self._node.name, "agent", self._stream, self._node.name, self._node.hello())
            channel.put(JOIN, messages.pack(join))
        if self._connected:
            self._push()
        else:
            channel.flush()

    def _took(self, channel: Channel, frame: Frame, now_s: float) -> None:
        kind, body = frame
        if kind == BEAT:
            beat, rest = messages.as_beat(body)
            self._beats.took(beat, now_s)
            self._acknowledged(*messages.as_ack(rest))
        elif kind == ACK:
            self._acknowledged(*messages.as_ack(body))
        elif kind == ORDER:
            order = messages.as_order(body)
            if order.id not in self._done:
                self._done.add(order.id)
                self._node.ordered(order.body)
            channel.put(DONE, order.id.encode())
        elif kind == WELCOME:
            self._welcomed(messages.as_welcome(body))
        elif kind in (GOODBYE, REFUSE):
            raise ChannelEnded(messages.as_text(body), refused=kind == REFUSE)

    def _welcomed(self, welcome: messages.Welcome) -> None:
        """What the controller has not received is sent again, whatever was sent before."""
        kept = [*self._received, *self._sent, *self._waits]
        self._received = deque(one for one in kept if welcome.recorded < one.seq <= welcome.received)
        self._waits = deque(one for one in kept if one.seq > welcome.received)
        self._sent.clear()
        self._sent_bytes = self._failures = 0
        self._next = max(self._next, welcome.received + 1)
        self._connected = True

    def _acknowledged(self, received: int, recorded: int) -> None:
        while self._sent and self._sent[0].seq <= received:
            one = self._sent.popleft()
            self._sent_bytes -= len(one.body)
            self._received.append(one)
        while self._received and self._received[0].seq <= recorded:
            self._received.popleft()

    def _beat(self, now_s: float) -> None:
        if self._connected and now_s - self._beats.heard_s > real.LOST_AFTER_S:
            self._serve(now_s)  # it may be us who are late: what has come is read first
        channel = self._channel
        if self._connected:
            assert channel is not None
            if now_s - self._beats.heard_s > real.LOST_AFTER_S:
                raise ChannelEnded("no message from the controller")
            channel.put(BEAT, messages.beat(self._beats.next(now_s)))
            self._push()  # along with what waits, as an AgentLink does
        elif self._descriptor:
            limit_s = real.CONNECT_S if channel is None else real.HANDSHAKE_S
            if now_s - self._since_s > limit_s:
                raise ChannelEnded("the controller did not answer in time")

    def _push(self) -> None:
        channel = self._channel
        assert channel is not None
        while (
            self._waits
            and self._sent_bytes < real.WINDOW_BYTES
            and channel.wire.waiting_bytes < real.OUT_BYTES_MAX
        ):
            one = self._waits.popleft()
            self._sent.append(one)
            self._sent_bytes += len(one.body)
            channel.put(ENTRY, messages.entry(one.seq, one.body, one.drop))
        channel.flush()

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except (ChannelEnded, BadFrame) as ended:
            self._end(str(ended), is_refused=getattr(ended, "refused", True))
            return
        if self._channel is not None and self._channel.wire.mask != self._mask:
            self._mask = self._channel.wire.mask
            self._fleet.poll.modify(self._descriptor, self._mask)

    def _end(self, why: str, *, is_refused: bool) -> None:
        """Tries again after a pause, as AgentLink does."""
        was_answered = self._channel is not None
        if is_refused:
            print(f"{self._node.name}: {why}", file=sys.stderr)
        if self._sock is not None:
            self._fleet.unwatch(self._descriptor)
            self._sock.close()
        self._channel, self._sock, self._descriptor = None, None, 0
        self._joined = self._connected = False
        most_s = real.CROWDED_PAUSE_S_MAX if was_answered else real.PAUSE_S_MAX
        pause_s = min(most_s, real.FIRST_PAUSE_S * 2 ** min(self._failures, 10))
        self._failures += 1
        if is_refused:
            pause_s = max(pause_s, real.REFUSED_PAUSE_S)
        self._fleet.later(time.monotonic() + pause_s * (0.5 + self._fleet.job.dice.random()), self.connect)


class RealLine:
    """A real AgentLink with its spool."""

    def __init__(self, node: Node, fleet: "Fleet") -> None:
        self._node = node
        self._link = AgentLink(
            name=node.name,
            role="agent",
            secret=fleet.secret,
            where=lambda: [fleet.address],
            hello=node.hello,
            spool=Spool(Path(fleet.plan.folder, node.name), time.time),
            clock=time.time,
            dice=fleet.job.dice.random,
        )
        fleet.watch(self._link.fileno(), self)

    def put(self, body: bytes, *, drop: bool) -> None:
        self._link.send(body, drop=drop)

    def flush(self) -> None:
        """What may be dropped goes with the next turn, as in an agent."""

    def beat(self, now_s: float) -> None:
        """It keeps its times by its turns."""

    def event(self, now_s: float) -> None:
        for heard in self._link.turn():
            if isinstance(heard, Ordered):
                self._node.ordered(heard.body)
                self._link.done(heard.id)


# The fleet ------------------------------------------------------------------------------------------------


class Fleet:
    """The agents of one process. Ends with the process that started it."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.address: Address = ("127.0.0.1", plan.port)
        self.secret = Path(plan.secret_file).read_bytes()
        self.job = Job(plan.agents, plan.first, runs=plan.runs)
        self.poll = select.epoll()
        self._lines: dict[int, LeanLine | RealLine] = {}
        self._due: list[tuple[float, int, Callable[[float], None], float]] = []
        self._count = 0
        self.poll.register(0, select.EPOLLIN)
        now_s = time.monotonic()
        for number in range(plan.first, plan.first + plan.count):
            self._begin(Node(number, self.job), now_s, is_real=number - plan.first < plan.real)

    def watch(self, descriptor: int, line: LeanLine | RealLine) -> None:
        self._lines[descriptor] = line
        self.poll.register(descriptor, select.EPOLLIN if isinstance(line, RealLine) else select.EPOLLOUT)

    def unwatch(self, descriptor: int) -> None:
        del self._lines[descriptor]
        self.poll.unregister(descriptor)

    def later(self, at_s: float, do: Callable[[float], None], every_s: float = 0.0) -> None:
        """`do` gets the wall clock; `at_s` is of the other. `every_s` 0: once."""
        self._count += 1
        heapq.heappush(self._due, (at_s, self._count, do, every_s))

    def run(self) -> None:
        while True:
            wait_s = max(0.0, self._due[0][0] - time.monotonic()) if self._due else 1.0
            events = self.poll.poll(wait_s, 256)
            now_s = time.time()
            for descriptor, _ in events:
                if descriptor == 0:
                    if not self._told():
                        return
                elif (line := self._lines.get(descriptor)) is not None:
                    line.event(now_s)
            self._do_due()

    def _do_due(self) -> None:
        now_s = time.monotonic()
        for _ in range(256):  # then what has come is read
            if not self._due or self._due[0][0] > now_s:
                return
            at_s, count, do, every_s = heapq.heappop(self._due)
            do(time.time())
            if every_s:
                next_s = at_s + every_s
                if next_s < now_s - LATE_S:
                    next_s = now_s + every_s
                heapq.heappush(self._due, (next_s, count, do, every_s))

    def _told(self) -> bool:
        line = os.read(0, 4096)
        if line:
            self.job.hang(msgspec.json.decode(line, type=Hung))
        return bool(line)

    def _begin(self, node: Node, now_s: float, *, is_real: bool) -> None:
        first_s = now_s + self.job.dice.random()
        if is_real:
            node.line = line = RealLine(node, self)
            self.later(first_s, line.event, TURN_S)
        else:
            node.line = line = LeanLine(node, self)
            self.later(first_s, line.connect)
        self.later(first_s + 1.0, lambda now_s: node.report(), 1.0)
        self.later(first_s + 1.5, lambda now_s: node.ship_and_beat(now_s), 1.0)


def allow_many_files() -> None:
    """A descriptor for each connection; a real link has three."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    allow_many_files()
    Fleet(msgspec.json.decode(sys.argv[1], type=Plan)).run()
