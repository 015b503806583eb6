"""A job's folder with a journal, a server that records uplinks, and a connection between them that can be cut."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from websockets.asyncio.client import connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import RawEntry, Row
from holdfast.journal.store import Store, open_reader
from holdfast.link.uplink_messages import Alive
from holdfast.model.policy import Policy
from holdfast.uplink.receiving import Uplinks
from holdfast.uplink.session import Session
from holdfast.uplink.source import Source

END = b'[{"kind":"end-job","outcome":"succeeded","code":0,"reason":"done"}]'


class Job:
    """A job whose journal the test writes."""

    def __init__(self, root: Path, name: str = "llama") -> None:
        self.dir = JobDir(root / "jobs" / name)
        self.dir.path.mkdir(parents=True)
        (self.dir.path / "created").write_text("1000.5\n")
        self.store = Store.open(self.dir.journal_path)
        self.store.set_meta("policy", msgspec.json.encode(Policy()))

    def write(self, count: int, orders: bytes = b"[]") -> None:
        first = self.store.last_seq
        self.store.append(
            [
                Row(1000.0 + number, "tick", b'{"kind":"tick","at_s":1.0}', orders, f"row {number}")
                for number in range(first, first + count)
            ]
        )

    def end(self) -> None:
        self.write(1, END)


class ServerSocket:
    """A connection of the websockets library as Uplinks wants one."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def receive_bytes(self) -> bytes:
        try:
            raw = await self._connection.recv()
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from error
        return raw if isinstance(raw, bytes) else raw.encode()

    async def send_bytes(self, data: bytes) -> None:
        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from error


@contextlib.asynccontextmanager
async def serving(uplinks: Uplinks) -> AsyncIterator[tuple[str, Server]]:
    """The address of a server for these uplinks, and the server, whose connections can be closed."""

    async def handle(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionError):
            await uplinks.serve(ServerSocket(connection))

    async with serve(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"ws://127.0.0.1:{port}/", server


async def report(url: str, job: Job, state: str = "training") -> None:
    """One session of the job's uplink, to its end."""
    source = Source(job.dir)
    try:
        async with connect(url) as socket:
            await Session(socket, source, lambda: Alive(state=state, supervisor="process 1", at_s=1.0)).run()
    finally:
        source.close()


def rows_of(job: JobDir) -> list[RawEntry]:
    reader = open_reader(job.journal_path)
    try:
        return list(reader.read_raw())
    finally:
        reader.close()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for an event that no call announces."""
    async with asyncio.timeout(100):
        while not condition():
            await asyncio.sleep(0.01)
