"""Runs a command in a container through the API server, over a WebSocket of the protocol v5.channel.k8s.io.

Each message begins with a byte that is the number of its channel. Version 5 can also close one channel, so
that the command receives the end of its input; version 4, of servers before Kubernetes 1.30, cannot.

source:
https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4006-transition-spdy-to-websockets,
https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (exec)
"""

import json
import ssl
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode, urlsplit, urlunsplit

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_websocket
from websockets.typing import Subprotocol

from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway
from holdfast.parsers.kubernetes.objects import status_body

V5, V4 = Subprotocol("v5.channel.k8s.io"), Subprotocol("v4.channel.k8s.io")
STDIN, STDOUT, STDERR, STATUS, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
OPEN_S = 10.0
MESSAGE_BYTES_MAX = 16 << 20
FAILED = 1


class Piece(NamedTuple):
    """A piece of the output of a command that runs in a container."""

    channel: Literal[1, 2]
    data: bytes


class ExecChannel:
    """Command that runs in a container.

    Call `receive` until it returns None; then `code` is the command's exit code.
    """

    def __init__(self, socket: ClientConnection, opened: ExitStack) -> None:
        self._socket, self._opened = socket, opened
        self._lock = threading.Lock()
        self.code = FAILED
        self.why = "the connection to the API server was lost"

    def receive(self) -> Piece | None:
        """Returns the next piece of output; None once the command or the connection has ended."""
        while True:
            try:
                message = self._socket.recv(decode=False)
            except ConnectionClosed:
                return None
            channel, data = message[0], message[1:]
            if channel == STATUS:
                self.code, self.why = ended_with(data)
            elif channel in (STDOUT, STDERR) and data:
                return Piece(channel, data)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None:
        self._send(bytes((STDIN,)) + data)

    def end_of_input(self) -> None:
        if self._socket.subprotocol == V5:
            self._send(bytes((CLOSE, STDIN)))

    def resize(self, rows: int, columns: int) -> None:
        self._send(bytes((RESIZE,)) + json.dumps({"Width": columns, "Height": rows}).encode())

    def close(self) -> None:
        self._opened.close()

    def _send(self, message: bytes) -> None:
        """Sends a message to the command. It is dropped if the command has ended."""
        with self._lock, suppress(ConnectionClosed):
            self._socket.send(message)


def ended_with(body: bytes) -> tuple[int, str]:
    """Returns exit code and reason of a command from the Status object that ends its channel."""
    try:
        found = json.loads(body)
    except ValueError:
        return FAILED, "the end of the command cannot be read"
    if found.get("status") == "Success":
        return 0, ""
    for cause in (found.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdigit():
            return int(cause["message"]), ""
    return FAILED, str(found.get("message") or "the command could not be run")


def open_exec(
    connection: Connection,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    *,
    tty: bool = False,
    stdin: bool = True,
) -> ExecChannel:
    """Starts a command in a container and returns its channel. Raises RequestFailed, ServerAway."""
    flags = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    query = [("container", container), *((name, str(value).lower()) for name, value in flags.items())]
    query += [("command", word) for word in command]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?{urlencode(query)}"
    config = connection.config
    parts = urlsplit(str(config.cluster.server).rstrip("/") + path)
    is_tls = parts.scheme == "https"
    opened = ExitStack()
    try:
        request = httpx2.Request("GET", urlunsplit(parts))
        auth = user_auth(config.user)
        if auth is not None:
            request = next(auth.sync_auth_flow(request))
        user = config.user or User()
        context: Any = verify_cluster(config.cluster, user, config.abs_file) if is_tls else None
        found = request.headers.get("Authorization")
        socket = opened.enter_context(
            open_websocket(
                urlunsplit(parts._replace(scheme="wss" if is_tls else "ws")),
                ssl=context,
                additional_headers={"Authorization": found} if found else {},
                subprotocols=[V5, V4],
                open_timeout=OPEN_S,
                max_size=MESSAGE_BYTES_MAX,
                compression=None,
                proxy=None,
            )
        )
    except InvalidStatus as error:
        status = status_body(bytes(error.response.body or b""))
        code = error.response.status_code
        raise RequestFailed(code, status.reason, status.message or f"HTTP {code}") from error
    except (InvalidHandshake, ConfigError, ssl.SSLError, OSError, TimeoutError) as error:
        raise ServerAway(f"the API server does not answer: {error or type(error).__name__}") from error
    return ExecChannel(socket, opened)
