"""Runs the server: binds, prints its address, serves until a signal comes.

Does not listen where anyone could use it.
"""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config

from holdfast import struct_types
from holdfast.link.uplink_messages import MESSAGE_BYTES_MAX
from holdfast.web.access.loopback import is_loopback
from holdfast.web.access.tokens import TokenFile, TokensUnusable
from holdfast.web.app import application
from holdfast.web.data import Data
from holdfast.web.guard import HEADER_BYTES_MAX
from holdfast.web.protocol import limited
from holdfast.web.server_parts import ServerParts
from holdfast.web.settings import ServerSettings

GOODBYE_S = 3
KEEP_ALIVE_S = 20
WS_BYTES_MAX = MESSAGE_BYTES_MAX + 1_000
BACKLOG = 512


class CannotServe(Exception):
    """Error: the server cannot start. One line: why, and what to do."""


def check(settings: ServerSettings) -> None:
    """Checks that access to the server is limited, and that its certificate is readable.

    Raises CannotServe.
    """
    if settings.is_tls:
        tls_context(settings)
    if is_loopback(settings.host):
        return
    try:
        tokens = TokenFile(settings.folder).tokens()
    except TokensUnusable as error:
        raise CannotServe(str(error)) from error
    if not tokens and not (settings.user_header and settings.trusted_proxies):
        raise CannotServe(
            f"without a token, only this machine is served, but {settings.host} is reachable by others: "
            "create a token with "
            f"holdfast serve token create NAME --role viewer --state-dir {settings.state_dirs[0]}, or "
            "omit --address"
        )


def bound(settings: ServerSettings) -> socket.socket:
    """Returns the listening socket. Raises CannotServe."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except BaseException:
            listening.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CannotServe(
            f"the server cannot listen at {settings.host}:{settings.port}: {reason}; choose another --address"
        ) from error
    listening.set_inheritable(False)
    return listening


def address_of(settings: ServerSettings, listening: socket.socket) -> str:
    """Returns the server's URL for a browser: `http://127.0.0.1:8470/`."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if settings.is_tls else 'http'}://{shown}:{port}{settings.root_path}/"


def serve(settings: ServerSettings, make_data: Callable[[], Data], tell: Callable[[str], None]) -> None:
    """Runs the server until SIGINT or SIGTERM. Raises CannotServe.

    `make_data`: called once the server can listen. `tell`: receives a line for the user.
    """
    logging.basicConfig(format="holdfast serve: %(message)s", level=logging.WARNING)
    logging.getLogger("uvicorn").setLevel(
        logging.ERROR
    )  # else malformed requests could fill the disk with lines
    check(settings)
    struct_types.prepare()
    with bound(settings) as listening:
        parts = ServerParts(settings, make_data())
        app = application(parts)
        server = Server(_config(settings, app), parts, lambda: tell(address_of(settings, listening)))
        asyncio.run(server.serve(sockets=[listening]))


class Server(uvicorn.Server):
    """A uvicorn server that prints its address when it listens, and ends event streams before it stops."""

    def __init__(self, config: Config, parts: ServerParts, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._parts, self._ready = parts, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._parts.feed.end_all("the server ends")
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: object) -> None:
        """Handles a signal: the second SIGINT ends the server at once; none is raised again after a clean
        end.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def _config(settings: ServerSettings, app: ASGIApp) -> Config:
    limits = settings.limits
    config = Config(
        app,
        http=limited(limits.still_s),
        ws="websockets-sansio",
        ws_max_size=WS_BYTES_MAX,
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # decided by the guard, from trusted addresses only
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GOODBYE_S,
        limit_concurrency=limits.connections,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        ssl_context_factory=(lambda *_: tls_context(settings)) if settings.is_tls else None,
        ssl_certfile=str(settings.tls_cert) if settings.is_tls else None,
    )
    return config


def tls_context(settings: ServerSettings) -> ssl.SSLContext:
    """Returns the TLS settings with the server's certificate. Raises CannotServe."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert settings.tls_cert is not None, "only asked for with a certificate"
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise CannotServe(
            f"the certificate {settings.tls_cert} and its key {settings.tls_key or settings.tls_cert} "
            f"cannot be read: {error}"
        ) from error
    return context
