"""Routes users' calls (model.calls: a command, a shell, a stack dump on a node) to the agents of nodes and
their output back, and logs who ran what.

It stores no output, and decides only whether a call is possible.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.core.hang.stack_groups import ranges
from holdfast.model.calls import (
    COMMAND_BYTES_MAX,
    LIMIT_S_MAX,
    STACKS_S,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    WINDOWS_BYTES_MAX,
    AnyCallWord,
    AnyRequest,
    AskCall,
    AskNotes,
    AskPlaces,
    AskRemark,
    AskRestart,
    AskStop,
    BeginCall,
    CallEnded,
    CallPlace,
    CallPlaces,
    CallRefused,
    CancelCall,
    Outcome,
    Output,
    OutputTaken,
    Program,
    RequestDone,
    StackLook,
    Terminal,
    Typed,
    TypedTaken,
    WindowSize,
)
from holdfast.parsers.call_words import decode, encode, is_call_word
from holdfast.parsers.log_lines.secrets import masked

CALLS_MAX = 64  # at the same time, of all clients
ANSWER_S = 15.0  # beyond its time limit; a node that has not answered by then will not
NATIVE_ANSWER_S = 120.0
SILENT_S = 8.0  # agents send a beat every second: the node is dead, or cut off
CANCEL_S = 10.0
BY_CHARACTERS_MAX = 100
COMMAND_CHARACTERS_MAX = 2_000  # in the record
NODES_NAMED_MAX = 8


class JobNow(NamedTuple):
    """The state of a job that decides which calls are possible.

    `ended`: how the job ended, in words; empty while it runs. `workers`: node name of each worker. `nodes`:
    nodes with connected agents. `others`: further nodes of the job.
    """

    job: str
    attempt: int
    ended: str
    workers: Mapping[int, str]
    nodes: Collection[str]
    others: Collection[str] = ()


class _Call:
    """A call in progress. `open`: the nodes that have not sent their final result, with their workers."""

    def __init__(self, client: str, places: Iterable[CallPlace], is_terminal: bool) -> None:
        self.client = client
        self.is_terminal = is_terminal
        self.open = {place.node: place.worker for place in places}
        self.until_s: float | None = None  # then those who are still open do not answer


class CallRelay:
    """Router of calls between users and agents.

    `now`: returns the job's current state. `note`: writes a line to the log, with its kind: exec or shell.
    `silent_s`: returns seconds since an agent's last message; agents send one every second. `carry_out`:
    carries out a request about the job itself, or raises ValueError with the reason; None: such requests are
    refused.
    """

    def __init__(
        self,
        say: Callable[[str, bytes], bool],
        now: Callable[[], JobNow],
        note: Callable[[str, str], None],
        clock: Callable[[], float],
        silent_s: Callable[[str], float] = lambda peer: 0.0,
        carry_out: Callable[[AnyRequest], tuple[bool, str]] | None = None,
    ) -> None:
        self._carry_out = carry_out
        self._silent_s = silent_s
        self._say = say
        self._now = now
        self._note = note
        self._clock = clock
        self._calls: dict[str, _Call] = {}

    def hear(self, peer: str, body: bytes) -> bool:
        """Handles a message from `peer`, a client or an agent. Returns False if the message is not about a
        call.
        """
        word = decode(body)
        if word is None:
            return is_call_word(body)
        if isinstance(word, Output | TypedTaken | CallEnded):
            self._hear_agent(peer, word, body)
        else:
            self._hear_client(peer, word, body)
        return True

    def left(self, peer: str) -> None:
        """Ends what belongs to `peer`, a client or an agent that has disconnected."""
        for name, call in list(self._calls.items()):
            if call.client == peer:
                self._cancel(name, call)
            elif peer in call.open:
                self._answer_for(
                    name, call, peer, "not-reached", "the connection to the agent of this node was closed"
                )

    def turn(self) -> None:
        """Ends calls whose time limit has passed. To be called about once a second."""
        now_s = self._clock()
        for name, call in list(self._calls.items()):
            if call.until_s is None:  # a terminal: its user decides how long to wait
                continue
            for node in list(call.open):
                if now_s >= call.until_s:
                    self._answer_for(name, call, node, "no-answer", "the agent of this node did not respond")
                elif self._silent_s(node) > SILENT_S:
                    why = f"no message from the agent of this node for {SILENT_S:g} s"
                    self._answer_for(name, call, node, "no-answer", why)

    def close(self, why: str) -> None:
        """Ends all calls because the job has ended; `why` is sent to the users."""
        for name, call in list(self._calls.items()):
            self._cancel(name, call)
            self._say(call.client, encode(CallRefused(call=name, why=why)))

    # Clients ----------------------------------------------------------------------------------------------

    def _hear_client(self, peer: str, word: AnyCallWord, body: bytes) -> None:
        call = self._calls.get(word.call)
        match word:
            case AskPlaces():
                self._answer_places(peer, word)
            case AskCall() if call is None:
                self._ask(peer, word)
            case AskStop() | AskRestart() | AskRemark() | AskNotes():
                self._answer_request(peer, word)
            case CancelCall() if call is not None and call.client == peer:
                self._cancel(word.call, call, keep=True)
            case OutputTaken() if call is not None and call.client == peer and word.node in call.open:
                self._say(word.node, body)
            case Typed() | WindowSize() if call is not None and call.client == peer and call.is_terminal:
                for node in call.open:
                    self._say(node, body)

    def _answer_places(self, peer: str, word: AskPlaces) -> None:
        now = self._now()
        try:
            places = _places(now, word.workers, word.nodes)
        except ValueError as error:
            self._say(peer, encode(CallRefused(call=word.call, why=str(error))))
            return
        answer = CallPlaces(call=word.call, job=now.job, attempt=now.attempt, places=places)
        self._say(peer, encode(answer))

    def _answer_request(self, peer: str, word: AnyRequest) -> None:
        try:
            if self._carry_out is None:
                raise ValueError("this controller accepts no requests about its job")
            done, text = self._carry_out(word)
        except ValueError as error:
            self._say(peer, encode(CallRefused(call=word.call, why=str(error))))
            return
        self._say(peer, encode(RequestDone(call=word.call, done=done, text=text)))

    def _ask(self, peer: str, word: AskCall) -> None:
        now = self._now()
        try:
            if len(self._calls) >= CALLS_MAX:
                raise ValueError(f"{CALLS_MAX} calls are already running: wait until one of them has ended")
            _check(word.what)
            places = _places(now, word.workers, word.nodes)
            if isinstance(word.what, Terminal) and len(places) > 1:
                raise ValueError(f"a terminal needs one node, not {len(places)}")
        except ValueError as error:
            self._say(peer, encode(CallRefused(call=word.call, why=str(error))))
            return
        if not isinstance(word.what, StackLook):
            self._note(*_record(now, word, places))
        call = self._calls[word.call] = _Call(peer, places, isinstance(word.what, Terminal))
        call.until_s = _until_s(word.what, self._clock())
        answer = CallPlaces(call=word.call, job=now.job, attempt=now.attempt, places=places)
        self._say(peer, encode(answer))
        self._begin(word, call, places, now.attempt)

    def _begin(self, word: AskCall, call: _Call, places: tuple[CallPlace, ...], attempt: int) -> None:
        fair = max(WINDOW_BYTES_MIN, WINDOWS_BYTES_MAX // len(places))
        window = min(max(WINDOW_BYTES_MIN, word.window_bytes), WINDOW_BYTES_MAX, fair)
        for place in places:
            begin = BeginCall(
                call=word.call, what=word.what, worker=place.worker, attempt=attempt, window_bytes=window
            )
            if place.why_not or not self._say(place.node, encode(begin)):
                why = place.why_not or "the agent of this node is not connected"
                self._answer_for(word.call, call, place.node, "not-reached", why)

    def _cancel(self, name: str, call: _Call, *, keep: bool = False) -> None:
        """Cancels a call. `keep`: the user still waits for its result."""
        for node in call.open:
            self._say(node, encode(CancelCall(call=name)))
        if keep:
            call.until_s = self._clock() + CANCEL_S
        else:
            self._calls.pop(name, None)

    # Agents -----------------------------------------------------------------------------------------------

    def _hear_agent(self, peer: str, word: Output | TypedTaken | CallEnded, body: bytes) -> None:
        call = self._calls.get(word.call)
        if call is None or peer not in call.open:
            # The call outlived its user, or the previous controller.
            self._say(peer, encode(CancelCall(call=word.call)))
            return
        if word.node != peer:
            body = encode(replace(word, node=peer))
        if isinstance(word, CallEnded):
            self._close_one(word.call, call, peer)
        if not self._say(call.client, body):
            self._cancel(word.call, call)

    def _answer_for(self, name: str, call: _Call, node: str, outcome: Outcome, why: str) -> None:
        ended = CallEnded(call=name, node=node, worker=call.open[node], outcome=outcome, why=why)
        self._close_one(name, call, node)
        self._say(call.client, encode(ended))

    def _close_one(self, name: str, call: _Call, node: str) -> None:
        del call.open[node]
        if not call.open:
            self._calls.pop(name, None)


def _places(
    now: JobNow, workers: tuple[int, ...] | None, nodes: tuple[str, ...] | None
) -> tuple[CallPlace, ...]:
    """Returns the places of a call: those of workers, then nodes without one, each node once.

    Raises ValueError.
    """
    if now.ended:
        raise ValueError(f"job {now.job} has ended ({now.ended}): no command can be run in it")
    worker_on = {node: worker for worker, node in now.workers.items()}
    if workers is None and nodes is None:
        workers = tuple(sorted(now.workers))
        if not workers:
            raise ValueError(
                f"job {now.job} has no workers now: name nodes, or wait until its workers are placed on nodes"
            )
    missing = [worker for worker in workers or () if worker not in now.workers]
    if missing:
        has = f"its workers are {ranges(now.workers)}" if now.workers else "no worker is placed on a node now"
        raise ValueError(f"job {now.job} has no worker {ranges(missing)}: {has}")
    known = sorted({*worker_on, *now.nodes, *now.others})
    unknown = [node for node in nodes or () if node not in known]
    if unknown:
        more = "" if len(known) <= NODES_NAMED_MAX else f" and {len(known) - NODES_NAMED_MAX} more"
        raise ValueError(
            f"job {now.job} has no node {', '.join(unknown)}: its nodes are "
            f"{', '.join(known[:NODES_NAMED_MAX])}{more}"
        )
    chosen = [now.workers[worker] for worker in sorted(set(workers or ()))]
    chosen += sorted(set(nodes or ()))
    return tuple(_place(now, node, worker_on.get(node)) for node in dict.fromkeys(chosen))


def _place(now: JobNow, node: str, worker: int | None) -> CallPlace:
    why_not = "" if node in now.nodes else "the agent of this node is not connected"
    return CallPlace(node=node, worker=worker, why_not=why_not)


def _check(what: Program | Terminal | StackLook) -> None:
    """Raises ValueError if a command is too long or a time limit is invalid."""
    command = () if isinstance(what, StackLook) else what.command
    size_bytes = sum(len(word.encode("utf-8", "surrogateescape")) for word in command)
    if size_bytes > COMMAND_BYTES_MAX:
        raise ValueError(f"a command of {size_bytes} bytes is too long: the maximum is {COMMAND_BYTES_MAX}")
    if isinstance(what, Program) and not 0 < what.limit_s <= LIMIT_S_MAX:
        raise ValueError(f"a time limit of {what.limit_s:g} s is not between 0 and {LIMIT_S_MAX:g} s")


def _until_s(what: Program | Terminal | StackLook, now_s: float) -> float | None:
    match what:
        case Program():
            return now_s + what.limit_s + ANSWER_S
        case StackLook():
            return now_s + STACKS_S + (NATIVE_ANSWER_S if what.native else ANSWER_S)
        case Terminal():
            return None


def _record(now: JobNow, word: AskCall, places: tuple[CallPlace, ...]) -> tuple[str, str]:
    """Returns the log line of a call: `exec by root@login-1 on workers 0-3: nvidia-smi -q`, secrets
    masked.
    """
    workers = [place.worker for place in places if place.worker is not None]
    others = [place.node for place in places if place.worker is None]
    where = [f"worker{'s' if len(workers) > 1 else ''} {ranges(workers)}"] if workers else []
    if others:
        more = f" and {len(others) - NODES_NAMED_MAX} more" if len(others) > NODES_NAMED_MAX else ""
        where.append(f"node{'s' if len(others) > 1 else ''} {', '.join(others[:NODES_NAMED_MAX])}{more}")
    kind = "shell" if isinstance(word.what, Terminal) else "exec"
    command = "" if isinstance(word.what, StackLook) else masked(shlex.join(word.what.command))
    text = f"{kind} by {word.by[:BY_CHARACTERS_MAX]} on {' and '.join(where)}"
    if command:
        cut = "" if len(command) <= COMMAND_CHARACTERS_MAX else "…"
        text += f": {command[:COMMAND_CHARACTERS_MAX]}{cut}"
    return kind, "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )
