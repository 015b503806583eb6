"""Queries the RAS service of NCCL (2.24 and later) on this node for the state of the job's communicators.

It is queried only when a hang is suspected, never during normal training, and never before the first step: a
rank computes the report, and NCCL 2.26 to 2.29 have crashed in it while communicators were created or
destroyed. So only ranks that already make no progress are at risk.

source: NCCL user guide, RAS; https://github.com/NVIDIA/nccl/issues/1669, 1718, 1762, 2346
"""

import socket
import time
from collections.abc import Callable, Mapping

from holdfast.model.nodes.samples import RasReport
from holdfast.observe.host.aside import Answer, Aside
from holdfast.parsers.ras import parse_report

ADDRESS_SETTING = "NCCL_RAS_ADDR"
ENABLED_SETTING = "NCCL_RAS_ENABLE"
ADDRESS = "localhost:28028"
PROTOCOL = 2
ANSWER_S = 3  # for NCCL, to gather from its processes
DEADLINE_S = 8.0
GREETING_S = 1.0  # all ranks of a node listen on one port: the one that is reached may be the one that hangs
TRIES_MAX = 4
REPORT_BYTES_MAX = 4 << 20
LINE_BYTES_MAX = 1024
READ_BYTES = 64 << 10


class NoAnswer(OSError):
    """Raised when the RAS service returned no report. The message says why."""


class RasWitness:
    """Client of NCCL's RAS service. `env`: environment of the ranks.

    It connects only when `ask` is called, and only after `allow` was.
    """

    def __init__(self, env: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        address = env.get(ADDRESS_SETTING) or ADDRESS
        self.is_enabled = env.get(ENABLED_SETTING, "1") != "0"
        self._allowed = False
        self._aside: Aside[RasReport] = Aside(lambda: ask_ras(address), "holdfast-ras", clock)

    def allow(self) -> None:
        """Allows queries, because the job has made its first step."""
        self._allowed = True

    def ask(self) -> bool:
        """Starts a query of the RAS service and returns at once.

        Returns False if queries are not allowed yet, or a query is running.
        """
        return self._allowed and self.is_enabled and self._aside.ask()

    def last(self) -> Answer[RasReport] | None:
        return self._aside.last()

    @property
    def why_not(self) -> str:
        """Returns why the last query failed; empty if it succeeded."""
        return self._aside.why_not

    def wait(self, timeout_s: float) -> bool:
        """Waits until the current query ends, at most `timeout_s` seconds. Returns False at the timeout."""
        return self._aside.wait(timeout_s)

    def close(self) -> None:
        self._aside.close()


def ask_ras(address: str = ADDRESS, *, deadline_s: float = DEADLINE_S) -> RasReport:
    """Queries the RAS service once and returns its report. `address`: host:port or [IPv6]:port.

    Raises NoAnswer.
    """
    host, port = split_address(address)
    until_s = time.monotonic() + deadline_s
    try:
        with _greeted(host, port, until_s) as connection:
            _line(connection, f"TIMEOUT {ANSWER_S}", until_s)
            connection.settimeout(_left(until_s))
            connection.sendall(b"VERBOSE STATUS\n")
            text, is_cut = _all(connection, until_s)
    except OSError as error:
        raise NoAnswer(f"NCCL RAS at {address} returned no report: {error}") from error
    if not text:
        raise NoAnswer(f"NCCL RAS at {address} closed the connection without a report")
    return parse_report(text, is_cut=is_cut)


def split_address(address: str) -> tuple[str, int]:
    """Splits `host:port` into host and port number. Raises NoAnswer for another form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise NoAnswer(f"{ADDRESS_SETTING}={address!r} is not an address: use host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _greeted(host: str, port: int, until_s: float) -> socket.socket:
    """Returns a connection on which the RAS service has completed its handshake. Raises OSError."""
    why: OSError = NoAnswer("no time left")
    for _ in range(TRIES_MAX):
        if time.monotonic() >= until_s:
            break
        connection = socket.create_connection((host, port), timeout=min(GREETING_S, _left(until_s)))
        try:
            answer = _line(connection, f"CLIENT PROTOCOL {PROTOCOL}", time.monotonic() + GREETING_S)
            if not answer.upper().startswith(b"SERVER PROTOCOL"):
                raise NoAnswer(f"not an NCCL RAS service: it replied {answer[:40]!r}")
            return connection
        except TimeoutError as error:
            connection.close()
            why = error
        except OSError:
            connection.close()
            raise
    raise why


def _line(connection: socket.socket, said: str, until_s: float) -> bytes:
    """Sends a line and returns the line of the reply. Raises OSError and TimeoutError."""
    connection.settimeout(_left(until_s))
    connection.sendall(f"{said}\n".encode())
    answer = b""
    while not answer.endswith(b"\n"):
        connection.settimeout(_left(until_s))
        part = connection.recv(LINE_BYTES_MAX - len(answer))
        answer += part
        if not part or len(answer) >= LINE_BYTES_MAX:
            raise NoAnswer(f"the NCCL RAS service replied to {said!r} with {answer[:40]!r}")
    return answer


def _all(connection: socket.socket, until_s: float) -> tuple[bytes, bool]:
    """Reads until the end, the deadline or the size limit; returns the bytes, and whether they are
    incomplete.
    """
    text = bytearray()
    while len(text) < REPORT_BYTES_MAX:
        try:
            connection.settimeout(_left(until_s))
            part = connection.recv(min(READ_BYTES, REPORT_BYTES_MAX - len(text)))
        except OSError:
            return bytes(text), True
        if not part:
            return bytes(text), False
        text += part
    return bytes(text), True


def _left(until_s: float) -> float:
    """Returns the seconds until the deadline. Raises TimeoutError if it has passed."""
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s
