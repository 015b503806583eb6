"""Receives the streams of all uplinks on the server: stores their jobs, and sends requests to them."""

import asyncio
import itertools
import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from holdfast.archive.remote import NotTaken, RemoteJob, opened
from holdfast.jobs.line import LineLost, NoLine
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.link.uplink_messages import (
    Alive,
    Answered,
    Ask,
    BadWord,
    Begin,
    CloseLine,
    FileSent,
    Finished,
    FromJob,
    FromServer,
    Have,
    Kept,
    LineEnded,
    LineSaid,
    MetaSent,
    OpenLine,
    PartSent,
    Refuse,
    RowsSent,
    SayOnLine,
    from_job,
    packed,
)
from holdfast.model.calls import AnyCallWord
from holdfast.model.documents.output import OutputFile, OutputPage, OutputWanted
from holdfast.parsers.call_words import decode, encode

BEGIN_S = 15.0
ASK_S = 10.0
WORDS_MAX = 10_000  # messages of one line that wait for a reader
Made = TypeVar("Made")


class NotReached(Exception):
    """Raised when the job's host cannot be reached now. The message is one line: why."""


class Socket(Protocol):
    """Interface of a WebSocket on the server's side, as far as it is used here.

    Both methods raise ConnectionError once the connection is closed.
    """

    async def receive_bytes(self) -> bytes: ...

    async def send_bytes(self, data: bytes) -> None: ...


class Uplinks:
    """All connected uplinks of a server. Call `serve` for each connection.

    `changed`: called with the folder of a job after it was changed. One thread writes to disk, so that the
    event loop never blocks.
    """

    def __init__(self, root: Path, clock: Callable[[], float], changed: Callable[[JobDir], None]) -> None:
        self._root, self._clock, self._changed = root, clock, changed
        self._writer = ThreadPoolExecutor(1, "uplink")
        self._connections: dict[Path, _Connection] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, socket: Socket) -> None:
        """Serves one uplink from its first message to its end.

        A newer connection of the same job replaces it.
        """
        self._loop = asyncio.get_running_loop()
        try:
            begin = from_job(await asyncio.wait_for(socket.receive_bytes(), BEGIN_S))
            if not isinstance(begin, Begin):
                raise NotTaken("the first message must name the job")
            remote = await self._written(lambda: opened(self._root, begin, self._clock))
        except (NotTaken, BadWord, JournalUnusable, OSError) as error:
            await socket.send_bytes(packed(Refuse(why=str(error))))
            return
        connection = _Connection(socket, remote)
        before = self._connections.get(remote.job.path)
        self._connections[remote.job.path] = connection
        if before is not None:
            before.end("a newer connection of the same job has replaced this one")
        try:
            await socket.send_bytes(packed(Have(seq=remote.last_seq)))
            while True:
                await self._take(connection, from_job(await socket.receive_bytes()))
        except (NotTaken, BadWord) as error:
            await socket.send_bytes(packed(Refuse(why=str(error))))
        finally:
            if self._connections.get(remote.job.path) is connection:
                del self._connections[remote.job.path]
            connection.end("the job's host has closed the connection")
            await self._written(remote.close)
            self._changed(remote.job)

    def close(self) -> None:
        self._writer.shutdown()

    # Requests to a job: from any thread except the loop's --------------------------------------------------------

    def is_connected(self, job: JobDir) -> bool:
        return job.path in self._connections

    def files(self, job: JobDir) -> tuple[OutputFile, ...]:
        """Returns the output files of a job on its host. Raises NotReached."""
        return msgspec.json.decode(self._asked(job, "files", b"{}"), type=tuple[OutputFile, ...])

    def output(self, job: JobDir, wanted: OutputWanted) -> OutputPage:
        """Returns a page of a job's output.

        Raises NotReached, and ValueError if the job's host rejects the request.
        """
        return msgspec.json.decode(self._asked(job, "output", msgspec.json.encode(wanted)), type=OutputPage)

    def line(self, job: JobDir) -> "RemoteLine":
        """Opens a connection to the job's controller, like `jobs.line.open_line`. Raises NoLine."""
        connection, loop = self._connections.get(job.path), self._loop
        if connection is None or loop is None:
            raise NoLine(f"job {job.name} is not connected to this server now")
        return RemoteLine(job, connection, loop)

    def _asked(self, job: JobDir, what: str, query: bytes) -> bytes:
        connection, loop = self._connections.get(job.path), self._loop
        if connection is None or loop is None:
            raise NotReached(f"job {job.name} is not connected to this server now")
        try:
            answer = asyncio.run_coroutine_threadsafe(connection.ask(what, query), loop).result(ASK_S)
        except (TimeoutError, asyncio.CancelledError) as error:
            raise NotReached(f"the host of job {job.name} did not respond within {ASK_S:g} s") from error
        if answer.why:
            raise ValueError(answer.why)
        return answer.body

    # Taking -----------------------------------------------------------------------------------------------

    async def _take(self, connection: "_Connection", word: FromJob) -> None:
        remote = connection.remote
        match word:
            case RowsSent(rows=rows):
                seq = await self._written(lambda: remote.take_rows(rows))
                await connection.send(Have(seq=seq))
                self._changed(remote.job)
            case MetaSent(key=key, value=value):
                await self._written(lambda: remote.take_meta(key, value))
            case FileSent() as file:
                await self._written(lambda: remote.take_file(file))
                self._changed(remote.job)
            case PartSent() as part:
                await self._written(lambda: remote.take_part(part))
            case Alive() as alive:
                await self._written(lambda: remote.alive(alive))
            case Finished():
                await connection.send(Kept())
            case Answered() as answered:
                connection.answered(answered)
            case LineSaid(line=line, body=body):
                connection.said(line, body)
            case LineEnded(line=line, why=why):
                connection.ended(line, why)
            case Begin():
                raise NotTaken("the first message was sent twice")

    async def _written(self, write: Callable[[], Made]) -> Made:
        return await asyncio.get_running_loop().run_in_executor(self._writer, write)


class _Connection:
    """The connection of one job, with its open requests and controller connections.

    For the event loop's thread.
    """

    def __init__(self, socket: Socket, remote: RemoteJob) -> None:
        self.remote = remote
        self._socket = socket
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Answered]] = {}
        self.lines: dict[int, queue.Queue[AnyCallWord | str]] = {}
        self._is_over = ""

    async def send(self, word: FromServer) -> None:
        await self._socket.send_bytes(packed(word))

    async def ask(self, what: str, query: bytes) -> Answered:
        number = next(self._numbers)
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            await self.send(Ask(ask=number, what=what, query=query))
            return await asyncio.wait_for(future, ASK_S)
        finally:
            self._asked.pop(number, None)

    async def open_line(self, words: "queue.Queue[AnyCallWord | str]") -> int:
        if self._is_over:
            raise LineLost(self._is_over)
        number = next(self._numbers)
        self.lines[number] = words
        await self.send(OpenLine(line=number))
        return number

    def answered(self, answer: Answered) -> None:
        future = self._asked.get(answer.ask)
        if future is not None and not future.done():
            future.set_result(answer)

    def said(self, line: int, body: bytes) -> None:
        words, word = self.lines.get(line), decode(body)
        if words is None or word is None:
            return
        try:
            words.put_nowait(word)
        except queue.Full:
            self.ended(line, "the client reads too slowly")

    def ended(self, line: int, why: str) -> None:
        words = self.lines.pop(line, None)
        if words is not None:
            with words.mutex:
                words.queue.append(why or "the controller has closed the connection")
                words.not_empty.notify()

    def end(self, why: str) -> None:
        self._is_over = why
        for future in self._asked.values():
            if not future.done():
                future.cancel()
        for line in list(self.lines):
            self.ended(line, why)


class RemoteLine:
    """A connection to a controller through an uplink. For threads other than the event loop's."""

    def __init__(self, job: JobDir, connection: _Connection, loop: asyncio.AbstractEventLoop) -> None:
        self.job = job
        self._connection, self._loop = connection, loop
        self._words: queue.Queue[AnyCallWord | str] = queue.Queue(WORDS_MAX)
        self._lost = ""
        self._number = asyncio.run_coroutine_threadsafe(connection.open_line(self._words), loop).result(ASK_S)

    def say(self, word: AnyCallWord) -> None:
        """Sends a message. Raises LineLost."""
        said = SayOnLine(line=self._number, body=encode(word))
        try:
            asyncio.run_coroutine_threadsafe(self._connection.send(said), self._loop).result(ASK_S)
        except (OSError, TimeoutError) as error:
            raise LineLost(f"the connection to job {self.job.name} was lost: {error}") from error

    def words(self, within_s: float) -> list[AnyCallWord]:
        """Returns received messages as soon as there are any. Raises LineLost."""
        found: list[AnyCallWord] = []
        wait_s = max(0.0, within_s)
        while not self._lost:
            try:
                word = self._words.get(timeout=wait_s) if wait_s else self._words.get_nowait()
            except queue.Empty:
                return found
            wait_s = 0.0
            if isinstance(word, str):
                self._lost = word
            else:
                found.append(word)
        if not found:
            raise LineLost(f"the connection to the controller of job {self.job.name} was lost: {self._lost}")
        return found

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._closed(), self._loop)

    async def _closed(self) -> None:
        if self._connection.lines.pop(self._number, None) is not None:
            await self._connection.send(CloseLine(line=self._number))
