"""Measures compute speed on one node, and network speed to a partner node, as a coordinator requests.

Runs in the Python of the training (`python -m holdfast.checks.training_python.pair_worker`). Reads requests
from stdin and writes answers to stdout, one line of JSON each. A second thread reads on during a measurement:
it answers pings, and ends the process at the end of stdin, so nothing is left behind. What libraries print
goes to stderr.

Two partners first connect over TCP, which finds the addresses by which they reach each other. The collective
library is then configured for that interface, unless the environment already names one.
"""

import fcntl
import importlib
import os
import queue
import secrets
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct

CPU_MATRIX, GPU_MATRIX = 768, 8192
MULTIPLIED_TIMES = 3
REPEATS_MAX = 40  # of one size; a message of a few bytes takes as long as chance has it, so many are needed
SMALL_BYTES = 64 << 10
SIZE_S = 0.4  # for all of them, where they are long
CONNECT_S = 3.0
LOOK_S = 0.2
SIOCGIFADDR = 0x8915
NAME_BYTES = 15  # of an interface, at most
WORDS_MAX = 300
GO, STOP = b"g", b"s"


class Ask(Struct, tag_field="ask", forbid_unknown_fields=True):
    """Base class of the requests that the coordinator sends to a worker."""


class Ping(Ask, tag="ping"):
    """Request: reply with `Pong`, to show that the worker responds."""


class Measure(Ask, tag="measure"):
    """Request: measure compute speed, then the network speed to a partner.

    `rank` 0 listens for the partner, 1 waits for a `Meet` with the partner's address, None measures compute
    speed only. `sizes`: message sizes in bytes.
    """

    number: int
    rank: int | None
    sizes: tuple[int, ...]
    within_s: float
    token: str = ""


class Meet(Ask, tag="meet"):
    """Request: connect to the partner at one of these addresses; not every one may be reachable."""

    number: int
    addresses: tuple[str, ...]
    port: int


class Abandon(Ask, tag="abandon"):
    """Request: stop measurement `number`, because the partner does not come."""

    number: int


class Answer(Struct, tag_field="answer"):
    """Base class of the answers that a worker sends to the coordinator."""


class Hello(Answer, tag="hello"):
    """First answer of a worker. `error`: why it cannot measure, or empty.

    `addresses`: of this node, the likeliest first.
    """

    host: str = ""
    addresses: tuple[str, ...] = ()
    model: str = ""
    backend: str = ""
    torch: str = ""
    error: str = ""


class Pong(Answer, tag="pong"):
    """Reply to `Ping`."""


class Computed(Answer, tag="computed"):
    """Answer: compute speed of each device in GFLOP/s.

    `wrong`: a device whose results differ between runs, or empty.
    """

    number: int
    speeds: dict[str, float]
    wrong: str = ""
    error: str = ""


class Listening(Answer, tag="listening"):
    number: int
    port: int


class Exchanged(Answer, tag="exchanged"):
    """Answer: bus bandwidth in GB/s by message size in bytes.

    `interface`: the network interface to the partner.
    """

    number: int
    speeds: dict[int, float] = {}
    error: str = ""
    interface: str = ""


AnyAsk = Ping | Measure | Meet | Abandon
AnyAnswer = Hello | Pong | Computed | Listening | Exchanged


class CannotExchange(Exception):
    """Raised when the network speed between the two nodes could not be measured. The message says why."""


class Link:
    """Connection to the coordinator over stdin and stdout.

    Two threads write answers; a lock keeps lines whole.
    """

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._asks: queue.SimpleQueue[AnyAsk] = queue.SimpleQueue()

    def say(self, answer: AnyAnswer) -> None:
        data = msgspec.json.encode(answer) + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._answers, data) :]

    def listen(self) -> None:
        """Reads requests until the end of stdin, then ends the process, even if a driver or a collective
        hangs.
        """
        decoder = msgspec.json.Decoder(AnyAsk)
        for line in sys.stdin.buffer:
            ask = decoder.decode(line)
            if isinstance(ask, Ping):
                self.say(Pong())
            else:
                self._asks.put(ask)
        os._exit(0)

    def next(self, within_s: float | None = None) -> AnyAsk:
        """Returns the coordinator's next request. Raises queue.Empty after `within_s` seconds; None waits without limit."""
        return self._asks.get(timeout=within_s)


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    os.set_inheritable(answers, False)
    link = Link(answers)
    threading.Thread(target=link.listen, daemon=True).start()
    try:
        torch = importlib.import_module("torch")
        link.say(_hello(torch))
    except (ImportError, OSError, RuntimeError) as error:
        link.say(Hello(host=socket.gethostname(), error=_words("torch cannot be imported", error)))
        return
    while True:
        ask = link.next()
        if isinstance(ask, Measure):
            _measure(torch, link, ask)


def _hello(torch: Any) -> Hello:
    has_gpus = bool(torch.cuda.is_available())
    return Hello(
        host=socket.gethostname(),
        addresses=tuple(dict.fromkeys(address for _, address in own_addresses())),
        model=str(torch.cuda.get_device_name(0)) if has_gpus else _processor(),
        backend="nccl" if has_gpus and torch.distributed.is_nccl_available() else "gloo",
        torch=str(torch.__version__),
    )


def _measure(torch: Any, link: Link, ask: Measure) -> None:
    """Carries out one `Measure` request: sends `Computed` and, if there is a partner, `Exchanged`."""
    until_s = time.monotonic() + ask.within_s
    link.say(_computed(torch, ask.number))
    if ask.rank is None:
        return
    try:
        connection = _wait_for_partner(link, ask, until_s) if ask.rank == 0 else _go_to(link, ask, until_s)
    except CannotExchange as error:
        link.say(Exchanged(ask.number, error=str(error)))
        return
    with connection:
        link.say(_exchanged(torch, ask, connection, until_s))


# Computing


def _computed(torch: Any, number: int) -> Computed:
    speeds: dict[str, float] = {}
    wrong = ""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for device in [f"cuda:{index}" for index in range(count)] or ["cpu"]:
        try:
            speeds[device], same = _multiplied(torch, device)
        except RuntimeError as error:  # out of memory, or a device that failed
            return Computed(number, speeds, wrong, _words(f"multiplying on {device}", error))
        wrong = wrong or ("" if same else device)
    return Computed(number, speeds, wrong)


def _multiplied(torch: Any, device: str) -> tuple[float, bool]:
    """Returns the speed of the fastest of a few matrix products in GFLOP/s, and whether all had the same
    bits.
    """
    on_gpu = device != "cpu"
    side = GPU_MATRIX if on_gpu else CPU_MATRIX
    generator = torch.Generator().manual_seed(7)
    first = torch.rand((side, side), generator=generator).to(device)
    if on_gpu:
        first = first.to(torch.bfloat16)
    result = first @ first
    best_s = float("inf")
    same = True
    for _ in range(MULTIPLIED_TIMES):
        _settled(torch, on_gpu)
        began_s = time.perf_counter()
        again = first @ first
        _settled(torch, on_gpu)
        best_s = min(best_s, time.perf_counter() - began_s)
        same = same and bool(torch.equal(result, again))
    return 2 * side**3 / best_s / 1e9, same


def _settled(torch: Any, on_gpu: bool) -> None:
    if on_gpu:
        torch.cuda.synchronize()


# Meeting


def _wait_for_partner(link: Link, ask: Measure, until_s: float) -> socket.socket:
    """Listens until a partner with the right token connects. Raises CannotExchange."""
    try:
        listener = socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    except (OSError, ValueError):
        listener = socket.create_server(("", 0))
    with listener:
        link.say(Listening(ask.number, listener.getsockname()[1]))
        while time.monotonic() < until_s and not _is_abandoned(link, ask.number):
            listener.settimeout(LOOK_S)
            try:
                connection, _ = listener.accept()
                connection.settimeout(CONNECT_S)
                if secrets.compare_digest(_line(connection), ask.token):
                    return connection
            except TimeoutError:
                continue
            except OSError as error:
                raise CannotExchange(_words("waiting for the partner", error)) from error
    raise CannotExchange("the partner did not connect")


def _is_abandoned(link: Link, number: int) -> bool:
    try:
        ask = link.next(0.001)
    except queue.Empty:
        return False
    return isinstance(ask, Abandon) and ask.number == number


def _go_to(link: Link, ask: Measure, until_s: float) -> socket.socket:
    """Connects to the partner. Raises CannotExchange."""
    while True:
        try:
            meet = link.next(max(0.01, until_s - time.monotonic()))
        except queue.Empty as error:
            raise CannotExchange("the address of the partner did not arrive") from error
        if isinstance(meet, Meet) and meet.number == ask.number:
            break
    why = "the partner reported no address"
    for address in meet.addresses:
        try:
            connection = socket.create_connection((address, meet.port), CONNECT_S)
            connection.sendall(ask.token.encode() + b"\n")
            return connection
        except OSError as error:
            why = f"no connection to {address} port {meet.port}: {error}"
    raise CannotExchange(why)


def _line(connection: socket.socket) -> str:
    """Reads one line from a connection. Raises OSError."""
    text = b""
    while not text.endswith(b"\n") and len(text) < 256:
        piece = connection.recv(1)
        if not piece:
            break
        text += piece
    return text.decode("ascii", "replace").strip()


# Exchanging


def _exchanged(torch: Any, ask: Measure, connection: socket.socket, until_s: float) -> Exchanged:
    """Measures all-reduce of each message size over the interface by which the two nodes connected."""
    distributed = torch.distributed
    speeds: dict[int, float] = {}
    interface = ""
    error_text = ""
    try:
        connection.settimeout(max(0.1, until_s - time.monotonic()))
        own = connection.getsockname()[0].removeprefix("::ffff:")
        interface = next((name for name, address in own_addresses() if address == own), "")
        has_gpus = torch.cuda.is_available() and distributed.is_nccl_available()
        _use(interface)
        store = _store(distributed, ask.rank == 0, own, connection, until_s)
        distributed.init_process_group(
            "nccl" if has_gpus else "gloo",
            store=store,
            rank=ask.rank,
            world_size=2,
            timeout=timedelta(seconds=max(1.0, until_s - time.monotonic())),
        )
        device = "cuda:0" if has_gpus else "cpu"
        for size, speed in _all_reduced(torch, ask, connection, device, until_s):
            speeds[size] = speed
    except (OSError, RuntimeError, ValueError, CannotExchange) as error:
        error_text = _words("", error)
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        _unuse()
    return Exchanged(ask.number, speeds, error_text, interface)


_IFNAMES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_set_by_us: set[str] = set()


def _use(interface: str) -> None:
    for name in _IFNAMES:
        if interface and name not in os.environ:
            os.environ[name] = interface
            _set_by_us.add(name)


def _unuse() -> None:
    for name in _set_by_us:
        os.environ.pop(name, None)
    _set_by_us.clear()


def _store(distributed: Any, is_first: bool, own: str, connection: socket.socket, until_s: float) -> Any:
    """Returns a torch TCPStore for two ranks; the second rank receives its port over `connection`.

    Raises OSError and RuntimeError.
    """
    within = timedelta(seconds=max(1.0, until_s - time.monotonic()))
    if is_first:
        store = distributed.TCPStore(own, 0, 2, True, within, wait_for_workers=False)
        connection.sendall(f"{store.port}\n".encode())
        return store
    host = connection.getpeername()[0].removeprefix("::ffff:")
    port = _line(connection)
    if not port.isdigit():
        raise CannotExchange("the partner ended before the first all-reduce")
    return distributed.TCPStore(host, int(port), 2, False, within)


def _all_reduced(
    torch: Any, ask: Measure, connection: socket.socket, device: str, until_s: float
) -> Iterator[tuple[int, float]]:
    """Yields message size in bytes and bus bandwidth in GB/s: 2(n-1)/n of the size by time, which is the size
    for two ranks.

    Raises RuntimeError and OSError, and CannotExchange if a sum is wrong.
    """
    on_gpu = device != "cpu"
    for size in ask.sizes:
        tensor = torch.empty(max(1, size // 4), dtype=torch.float32, device=device)
        took_s: list[float] = []
        while _goes_on(ask.rank == 0, connection, took_s, until_s):
            tensor.fill_(float(ask.rank or 0) + 1.0)
            _settled(torch, on_gpu)
            began_s = time.perf_counter()
            torch.distributed.all_reduce(tensor)
            _settled(torch, on_gpu)
            took_s.append(time.perf_counter() - began_s)
            low, high = float(tensor.min()), float(tensor.max())
            if (low, high) != (3.0, 3.0):
                raise CannotExchange(f"an all-reduce of {size} bytes gave {low:g} to {high:g}, not 3")
        if not took_s:
            return
        kept = took_s[1:] if len(took_s) > 1 else took_s  # the first makes the connections
        # A small message takes as long as both processors make it; the best of many is what the network does.
        yield size, size / (min(kept) if size <= SMALL_BYTES else median(kept)) / 1e9


def _goes_on(decides: bool, connection: socket.socket, took_s: Sequence[float], until_s: float) -> bool:
    """Returns whether to repeat the measurement; the first rank decides and informs the second.

    Raises OSError.
    """
    if not decides:
        return connection.recv(1) == GO
    left_s = until_s - time.monotonic()
    is_long = sum(took_s) > SIZE_S and (len(took_s) > 2 or took_s[-1] > SIZE_S)
    is_enough = is_long or len(took_s) > REPEATS_MAX
    goes_on = not is_enough and left_s > 2 * (took_s[-1] if took_s else 0.1)
    connection.sendall(GO if goes_on else STOP)
    return goes_on


# This node


def own_addresses() -> list[tuple[str, str]]:
    """Returns (interface, IPv4 address) of this node without the loopback, interfaces named in the
    environment first.
    """
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            ask = struct.pack("256s", name.encode()[:NAME_BYTES])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, ask)
            except OSError:
                continue
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                found.append((name, address))
    named = [os.environ.get(name, "") for name in _IFNAMES]
    return sorted(found, key=lambda one: (one[0] not in named, one[0].startswith(("docker", "virbr", "cni"))))


def _processor() -> str:
    """Returns the CPU model and the number of CPUs, such as `AMD EPYC 9354 x 64`."""
    count = len(os.sched_getaffinity(0))
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return f"processor x {count}"
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return f"{names[0] if names else 'processor'} x {count}"


def _words(what: str, error: BaseException) -> str:
    text = " ".join(str(error).split())[:WORDS_MAX] or type(error).__name__
    return f"{what}: {text}" if what else text


if __name__ == "__main__":
    main()
