"""Resolves host names without blocking, so that an unreachable name server cannot stop an agent."""

import socket
import threading
from collections.abc import Sequence

Address = tuple[str, int]
SocketAddress = tuple[socket.AddressFamily, tuple[object, ...]]


class Lookup:
    """A running resolution of addresses: numeric ones at once, host names in a background thread."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._found: list[SocketAddress] = []
        self._why = ""
        self._done = threading.Event()
        if all(_look(host, port, self._found, socket.AI_NUMERICHOST) is None for host, port in addresses):
            self._done.set()
        else:
            self._found = []
            thread = threading.Thread(
                target=self._run, args=(addresses,), name="holdfast-lookup", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # no thread is left to be had
                self._why = str(error)
                self._done.set()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def result(self) -> tuple[list[SocketAddress], str]:
        """Returns the addresses found so far, and the reason why others were not found; empty if all were."""
        return self._found, self._why

    def _run(self, addresses: Sequence[Address]) -> None:
        for host, port in addresses:
            why = _look(host, port, self._found, 0)
            if why is not None:
                self._why = why
        self._done.set()


def _look(host: str, port: int, found: list[SocketAddress], flags: int) -> str | None:
    """Resolves one host, and appends the addresses to `found`.

    Returns the error if there are none; else None.
    """
    try:
        for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags):
            found.append((family, place))
    except (OSError, UnicodeError) as error:
        return f"{host}: {error}"
    return None
