"""Runs one connection of an uplink: sends the journal as it grows, and handles the server's requests."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec

from holdfast.archive.output.read import read_files, read_output
from holdfast.link.uplink_messages import (
    Alive,
    Answered,
    Ask,
    BadWord,
    CloseLine,
    Finished,
    FromJob,
    FromServer,
    Have,
    Kept,
    LineEnded,
    LineSaid,
    OpenLine,
    Refuse,
    SayOnLine,
    from_server,
    packed,
)
from holdfast.model.documents.output import OutputWanted
from holdfast.uplink.lines import Lines
from holdfast.uplink.source import Source

LOOK_S = 0.1  # interval of checks for new rows
FILES_S = 1.0  # interval of checks for changed files, and of state reports
ANSWER_S = 15.0
WINDOW_ROWS = 5_000  # rows sent but not yet acknowledged
UNSENT_MAX = 1_000  # answers and line messages that wait for the connection


class Refused(Exception):
    """Raised when the server rejects this job. A retry would fail too."""


class Socket(Protocol):
    """Interface of a WebSocket connection, as far as it is used."""

    async def send(self, message: bytes) -> None: ...

    async def recv(self) -> bytes | str: ...


class Session:
    """One connection of an uplink to the server.

    `alive`: returns the current state of the job on this host.
    """

    def __init__(self, socket: Socket, source: Source, alive: Callable[[], Alive]) -> None:
        self._socket, self._source, self._alive = socket, source, alive
        self._sent = self._recorded = 0
        self._is_kept = asyncio.Event()
        self._unsent: asyncio.Queue[FromJob] = asyncio.Queue(UNSENT_MAX)
        self._loop = asyncio.get_running_loop()
        self._lines = Lines(source.job, self._line_said, self._line_ended)
        self._files_s = float("-inf")

    async def run(self) -> None:
        """Runs until the server has the complete journal of an ended job.

        Raises Refused, JournalUnusable, and errors of the connection.
        """
        await self._send(self._source.begin())
        answer = await asyncio.wait_for(self._receive(), ANSWER_S)
        if isinstance(answer, Refuse):
            raise Refused(answer.why)
        if not isinstance(answer, Have):
            raise Refused("the server did not send the last recorded row")
        self._sent = self._recorded = answer.seq
        tasks = [asyncio.create_task(one) for one in (self._ship(), self._hear(), self._pass_on())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._lines.close_all()

    # Up ---------------------------------------------------------------------------------------------------

    async def _ship(self) -> None:
        while True:
            while self._sent - self._recorded < WINDOW_ROWS and (rows := self._source.rows(self._sent)):
                await self._send(rows)
                self._sent = rows.rows[-1][5]
            if self._loop.time() - self._files_s >= FILES_S:
                self._files_s = self._loop.time()
                await self._ship_files()
            if self._source.has_ended and self._sent == self._recorded:
                await self._ship_files()
                for part in self._source.tails():
                    await self._send(part)
                await self._send(Finished())
                await asyncio.wait_for(self._is_kept.wait(), 2 * ANSWER_S)
                return
            await asyncio.sleep(LOOK_S)

    async def _ship_files(self) -> None:
        await self._send(self._alive())
        for meta in self._source.changed_meta():
            await self._send(meta)
        for file in self._source.changed_files():
            await self._send(file)
        for part in self._source.new_bundles():
            await self._send(part)

    async def _pass_on(self) -> None:
        while True:
            await self._send(await self._unsent.get())

    async def _send(self, word: FromJob) -> None:
        await self._socket.send(packed(word))

    # Down -------------------------------------------------------------------------------------------------

    async def _hear(self) -> None:
        answering: set[asyncio.Task[None]] = set()
        while True:
            match await self._receive():
                case Have(seq=seq):
                    self._recorded = max(self._recorded, seq)
                case Kept():
                    self._is_kept.set()
                case Refuse(why=why):
                    raise Refused(why)
                case Ask() as ask:
                    task = asyncio.create_task(self._answer(ask))
                    answering.add(task)
                    task.add_done_callback(answering.discard)
                case OpenLine(line=line):
                    self._lines.open(line)
                case SayOnLine(line=line, body=body):
                    self._lines.say(line, body)
                case CloseLine(line=line):
                    self._lines.close(line)

    async def _receive(self) -> FromServer:
        raw = await self._socket.recv()
        try:
            return from_server(raw if isinstance(raw, bytes) else raw.encode())
        except BadWord as error:
            raise Refused(f"the server sent a message that cannot be decoded: {error}") from error

    async def _answer(self, ask: Ask) -> None:
        try:
            answer = Answered(ask=ask.ask, body=await asyncio.to_thread(self._read, ask))
        except (ValueError, OSError) as error:
            answer = Answered(ask=ask.ask, why=str(error))
        await self._unsent.put(answer)

    def _read(self, ask: Ask) -> bytes:
        """Returns the data that the server requests. Raises ValueError and OSError."""
        if ask.what == "files":
            return msgspec.json.encode(read_files(self._source.job))
        if ask.what == "output":
            wanted = msgspec.json.decode(ask.query, type=OutputWanted)
            return msgspec.json.encode(read_output(self._source.job, wanted))
        raise ValueError(f"{ask.what!r} is not a valid request: use files or output")

    # Lines: called from their threads ---------------------------------------------------------------------

    def _line_said(self, line: int, body: bytes) -> None:
        self._put_soon(LineSaid(line=line, body=body))

    def _line_ended(self, line: int, why: str) -> None:
        self._put_soon(LineEnded(line=line, why=why))

    def _put_soon(self, word: FromJob) -> None:
        """Queues a message; waits for room, so that fast output of a command does not fill the memory."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._unsent.put(word), self._loop).result()
