"""Executes requests of users on this node: commands, terminals, stack dumps (model.calls).

Never blocks, so the agent's loop keeps running. Keeps nothing: a call ends when its requester disconnects or
when the connection to the controller is lost. All messages come from and go to the controller.
"""

import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.agent.calls.process import CallProcess
from holdfast.agent.calls.surroundings import surroundings
from holdfast.model.calls import (
    CHUNK_BYTES_MAX,
    LIMIT_S_MAX,
    OUTPUT_BYTES_MAX,
    RUNAWAY_BYTES,
    STACKS_S,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    AnyCallWord,
    BeginCall,
    CallEnded,
    CancelCall,
    Outcome,
    Output,
    OutputTaken,
    Program,
    StackLook,
    Terminal,
    Typed,
    TypedTaken,
    WindowSize,
)
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.observe.processes.pyspy import NATIVE_S, Ask, collect
from holdfast.observe.processes.worker_facts import worker_facts
from holdfast.parsers.call_words import decode, encode, is_call_word

CALLS_MAX = 8  # at the same time, on one node
READ_BYTES_MAX = (
    1 << 18
)  # in one turn: a command that prints without end must not keep the agent from its work
STACKS_BYTES_MAX = 8 << 20
TYPED_BYTES_MAX = 1 << 20  # that a terminal has not taken yet
SHELLS = ("/bin/bash", "/bin/sh")
TERM = "xterm-256color"


class CallScene(NamedTuple):
    """The agent's data about its node when a user's call begins.

    `folder`: the folder of the worker that runs here; None if no worker runs. `env`, `cwd`: environment and
    working folder of commands if no worker runs.
    """

    node: str
    folder: Path | None
    env: Mapping[str, str]
    cwd: str


class _Carried(Protocol):
    """A call that is being carried out."""

    def channels(self) -> list[int]: ...

    def hear(self, word: AnyCallWord) -> None: ...

    def turn(self) -> list[AnyCallWord]:
        """Returns the messages to send; the last one of a call is CallEnded."""

    def end(self) -> None: ...

    def close(self) -> None:
        """Ends what still runs, and is not waited for."""

    def is_gone(self) -> bool: ...


class Calls:
    """All calls of users on a node.

    `scene`: read at the start of each call. `say`: sends a message to the controller; returns False if it
    cannot be sent now. `hear`, `lost` and `close` send nothing; `turn` sends. Call `turn` after `hear`, when
    one of `channels` is readable, and ten times a second.
    """

    def __init__(
        self,
        scene: Callable[[], CallScene],
        say: Callable[[bytes], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scene = scene
        self._say = say
        self._clock = clock
        self._carried: dict[str, _Carried] = {}
        self._closed: list[_Carried] = []  # over for the requester, but not gone yet
        self._unsaid: deque[bytes] = deque()  # the link has no room now; no more than all windows together

    def hear(self, body: bytes) -> bool:
        """Handles a message of the controller about a user's call. Returns False for other messages."""
        word = decode(body)
        match word:
            case None:
                return is_call_word(body)
            case BeginCall():
                self._begin(word)
            case CancelCall() if word.call in self._carried:
                self._carried[word.call].end()
            case Typed() | WindowSize() | OutputTaken() if word.call in self._carried:
                self._carried[word.call].hear(word)
        return True

    def turn(self) -> None:
        for call, carried in list(self._carried.items()):
            is_over = True  # one with a fault is: it must not take the agent's time again and again
            try:
                words = carried.turn()
                self._unsaid.extend(encode(word) for word in words)
                is_over = any(isinstance(word, CallEnded) for word in words)
            finally:
                if is_over:
                    self._let_go(call)
        while self._unsaid and self._say(self._unsaid[0]):
            self._unsaid.popleft()
        self._closed = [carried for carried in self._closed if not carried.is_gone()]

    @property
    def is_idle(self) -> bool:
        """Returns whether no user's call is running and no process of an earlier call is left."""
        return not self._carried and not self._closed

    def channels(self) -> list[int]:
        return [fd for carried in self._carried.values() for fd in carried.channels()]

    def lost(self) -> None:
        """Ends all calls: the connection to the controller is lost."""
        for call in list(self._carried):
            self._let_go(call)
        self._unsaid.clear()

    def close(self) -> None:
        self.lost()

    def _begin(self, word: BeginCall) -> None:
        if word.call in self._carried:
            return
        scene = self._scene()
        try:
            if len(self._carried) >= CALLS_MAX:
                raise OSError(f"{CALLS_MAX} calls already run on this node")
            self._carried[word.call] = self._carry_out(word, scene)
        except (OSError, ValueError) as error:
            ended = CallEnded(
                call=word.call, node=scene.node, worker=word.worker, outcome="not-started", why=str(error)
            )
            self._unsaid.append(encode(ended))

    def _carry_out(self, word: BeginCall, scene: CallScene) -> _Carried:
        """Starts a call. Raises OSError, ValueError."""
        match word.what:
            case Program():
                return _ProgramCall(word, word.what, scene)
            case Terminal():
                return _TerminalCall(word, word.what, scene, self._clock)
            case StackLook():
                return _StackCall(word, word.what, scene, self._clock)

    def _let_go(self, call: str) -> None:
        carried = self._carried.pop(call)
        carried.close()
        self._closed.append(carried)


class _Sender:
    """Output on its way: no more than the window ahead of what was taken."""

    def __init__(self, word: BeginCall, node: str) -> None:
        self._call, self._node = word.call, node
        self._window = min(max(WINDOW_BYTES_MIN, word.window_bytes), WINDOW_BYTES_MAX)
        self._sent = self._taken = 0
        self._waiting = bytearray()

    @property
    def room(self) -> int:
        return max(0, self._window - (self._sent - self._taken) - len(self._waiting))

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def add(self, data: bytes) -> None:
        self._waiting += data

    def taken(self, total_bytes: int) -> None:
        self._taken = min(max(self._taken, total_bytes), self._sent)

    def chunks(self) -> list[AnyCallWord]:
        found: list[AnyCallWord] = []
        while self._waiting and (room := self._window - (self._sent - self._taken)) > 0:
            data = bytes(self._waiting[: min(room, CHUNK_BYTES_MAX)])
            del self._waiting[: len(data)]
            self._sent += len(data)
            found.append(Output(call=self._call, node=self._node, data=data))
        return found


class _ProgramCall:
    """A command, and as much of its output as is wanted; what is more is counted and thrown away."""

    def __init__(self, word: BeginCall, what: Program, scene: CallScene) -> None:
        self._word, self._node = word, scene.node
        self._kept_max = min(max(0, what.output_bytes_max), OUTPUT_BYTES_MAX)
        self._printed = self._kept = 0
        self._outcome: Outcome = "exited"
        self._sender = _Sender(word, scene.node)
        env, cwd = surroundings(scene.folder, scene.env, scene.cwd)
        limit_s = min(max(0.0, what.limit_s), LIMIT_S_MAX)
        self._process = CallProcess(_command(what.command), env, cwd, limit_s=limit_s, size=None)

    def channels(self) -> list[int]:
        return self._process.channels(output=True)

    def hear(self, word: AnyCallWord) -> None:
        if isinstance(word, OutputTaken):
            self._sender.taken(word.total_bytes)

    def turn(self) -> list[AnyCallWord]:
        self._process.hear()
        self._read()
        if self._printed > RUNAWAY_BYTES and self._outcome == "exited":
            self._outcome = "ran-away"
            self._process.end()
        words = self._sender.chunks()
        ending = self._process.ending
        if ending is None or self._process.has_output or not self._sender.is_empty:
            return words
        return [
            *words,
            _ended(self._word, self._node, self._process, self._outcome, self._printed - self._kept),
        ]

    def _read(self) -> None:
        """Reads the available output, limited per turn.

        After the end of the command, no more output is expected.
        """
        left = READ_BYTES_MAX
        while left > 0 and (data := self._process.read(left)):
            left -= len(data)
            self._printed += len(data)
            kept = data[: self._kept_max - self._kept]
            self._kept += len(kept)
            self._sender.add(kept)
        if self._process.ending is not None and left == READ_BYTES_MAX:
            self._process.no_more()

    def end(self) -> None:
        self._outcome = "cancelled"
        self._process.end()

    def close(self) -> None:
        self._process.close()

    def is_gone(self) -> bool:
        return self._process.is_collected()


class _TerminalCall:
    """A terminal: what is typed goes in, what it shows comes out, as fast as it is taken."""

    def __init__(self, word: BeginCall, what: Terminal, scene: CallScene, clock: Callable[[], float]) -> None:
        self._word, self._node = word, scene.node
        self._typed = bytearray()
        self._given = self._given_noted = 0
        self._outcome: Outcome = "exited"
        self._sender = _Sender(word, scene.node)
        env, cwd = surroundings(scene.folder, scene.env, scene.cwd)
        env["TERM"] = what.term or TERM
        for name in ("LINES", "COLUMNS"):  # they would override the size of the terminal itself
            env.pop(name, None)
        command = _command(what.command) if what.command else (_shell(env),)
        self._process = CallProcess(command, env, cwd, limit_s=None, size=(what.rows, what.columns))

    def channels(self) -> list[int]:
        return self._process.channels(output=self._sender.room > 0)

    def hear(self, word: AnyCallWord) -> None:
        match word:
            case OutputTaken():
                self._sender.taken(word.total_bytes)
            case Typed():
                self._typed += word.data[: TYPED_BYTES_MAX - len(self._typed)]
            case WindowSize():
                self._process.resize(word.rows, word.columns)

    def turn(self) -> list[AnyCallWord]:
        self._process.hear()
        words = self._type()
        while data := self._process.read(min(self._sender.room, CHUNK_BYTES_MAX)):
            self._sender.add(data)
            words += self._sender.chunks()
        words += self._sender.chunks()
        if self._process.ending is not None and self._sender.room > 0:
            self._process.no_more()
        if self._process.ending is None or self._process.has_output or not self._sender.is_empty:
            return words
        return [*words, _ended(self._word, self._node, self._process, self._outcome, 0)]

    def _type(self) -> list[AnyCallWord]:
        while self._typed and (count := self._process.type(bytes(self._typed[:CHUNK_BYTES_MAX]))):
            del self._typed[:count]
            self._given += count
        if self._given == self._given_noted:
            return []
        self._given_noted = self._given
        return [TypedTaken(call=self._word.call, node=self._node, total_bytes=self._given)]

    def end(self) -> None:
        self._outcome = "cancelled"
        self._process.end()

    def close(self) -> None:
        self._process.close()

    def is_gone(self) -> bool:
        return self._process.is_collected()


class _StackCall:
    """A look at the stacks of the ranks here, in a thread."""

    def __init__(
        self, word: BeginCall, what: StackLook, scene: CallScene, clock: Callable[[], float]
    ) -> None:
        self._word, self._what, self._node = word, what, scene.node
        self._clock, self._began_s = clock, clock()
        self._sender = _Sender(word, scene.node)
        self._collected: tuple[RankStacks, ...] | None = None
        self._is_given = self._is_cancelled = False
        folder = scene.folder
        living = worker_facts(folder).living if folder is not None else ()
        wanted = what.ranks
        self._asks = [
            Ask(one.rank, one.pid, folder) for one in living if wanted is None or one.rank in wanted
        ]
        self._thread = threading.Thread(target=self._look, name="stacks of a call", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        within_s = STACKS_S + NATIVE_S * len(self._asks) * self._what.native
        try:
            found = collect(self._asks, within_s, native=self._what.native, signal_first=False)
        except (OSError, RuntimeError, ValueError) as error:  # no process, no thread, no tool
            found = tuple(RankStacks(rank=one.rank, pid=one.pid, why_not=str(error)) for one in self._asks)
        self._collected = found

    def channels(self) -> list[int]:
        return []

    def hear(self, word: AnyCallWord) -> None:
        if isinstance(word, OutputTaken):
            self._sender.taken(word.total_bytes)

    def turn(self) -> list[AnyCallWord]:
        if self._collected is not None and not self._is_given:
            self._is_given = True
            self._sender.add(_encoded(self._collected, all_threads=self._what.all_threads))
        words = self._sender.chunks()
        if not self._is_cancelled and not (self._is_given and self._sender.is_empty):
            return words
        ended = CallEnded(
            call=self._word.call,
            node=self._node,
            worker=self._word.worker,
            outcome="cancelled" if self._is_cancelled else "exited",
            code=None if self._is_cancelled else 0,
            took_s=self._clock() - self._began_s,
        )
        return [*words, ended]

    def end(self) -> None:
        self._is_cancelled = True

    def close(self) -> None:
        """Does nothing: the thread ends by itself within its time limit."""

    def is_gone(self) -> bool:
        return not self._thread.is_alive()


def _encoded(collected: tuple[RankStacks, ...], *, all_threads: bool) -> bytes:
    """Returns the collected stacks as bytes: only what was requested, up to the size limit."""
    if not all_threads:
        collected = tuple(replace(one, threads=one.threads[:1]) for one in collected)
    body = msgspec.msgpack.encode(collected)
    return (
        body if len(body) <= STACKS_BYTES_MAX or not all_threads else _encoded(collected, all_threads=False)
    )


def _ended(word: BeginCall, node: str, process: CallProcess, outcome: Outcome, cut_bytes: int) -> CallEnded:
    ending = process.ending
    assert ending is not None
    why = ending.error
    if ending.left:
        why = f"processes {', '.join(map(str, ending.left))} cannot be killed and are left behind"
    if outcome == "exited":
        outcome = "timed-out" if ending.timed_out else "exited" if ending.code is not None else "not-started"
    return CallEnded(
        call=word.call,
        node=node,
        worker=word.worker,
        outcome=outcome,
        code=ending.code,
        cut_bytes=cut_bytes,
        took_s=ending.took_s,
        why=why,
    )


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the command line of a call. Raises ValueError."""
    if not words or not words[0]:
        raise ValueError("the command is empty")
    if any("\0" in word for word in words):
        raise ValueError("an argument of the command contains a NUL byte")
    return words


def _shell(env: Mapping[str, str]) -> str:
    for shell in (env.get("SHELL", ""), *SHELLS):
        if shell and os.access(shell, os.X_OK):
            return shell
    return shutil.which("sh") or "sh"
