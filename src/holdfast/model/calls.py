"""What a person asks of a running job and its nodes, and what comes back: commands, shells, stacks, a stop, a restart.

A client asks the job's controller, which passes the call on to the agents it concerns and their answers back. Nothing
of it is kept: where a connection is lost, the calls that went over it are over. Every value is one MessagePack map
with its tag in `kind`, like those of model.nodes; the tags begin with "call-", so that no other value is taken for one.

Output is bounded on its way by a window: a node sends no more than that many bytes ahead of those that the client
said it has taken; so is what is typed.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

OUTPUT_BYTES_MAX = 1 << 20  # that is kept of one worker's answer
OUTPUT_BYTES_MIN = 1 << 14
OUTPUTS_BYTES_MAX = 64 << 20  # of all workers' together, which a client holds
CHUNK_BYTES_MAX = 1 << 15
WINDOW_BYTES_MAX = 1 << 16
WINDOW_BYTES_MIN = 1 << 11
WINDOWS_BYTES_MAX = 4 << 20  # of all nodes of a call together, which the controller may have to hold
RUNAWAY_BYTES = (
    64 << 20
)  # a command that prints more is ended: it would never stop, and takes a core meanwhile
COMMAND_BYTES_MAX = 1 << 17
LIMIT_S_DEFAULT = 30.0
LIMIT_S_MAX = 86_400.0
STACKS_S = 20.0  # for the ranks of one node; more where native frames are asked for

# How an answer came to its end. "exited": by itself, `code` says how. "timed-out", "ran-away": ended by the agent, it
# took too long or printed too much. "cancelled": whoever asked is gone, or wants no more. "not-started": the agent
# could not begin, or what watched over the command was killed. "not-reached": no agent is connected there, or its connection was lost. "no-answer": nothing came.
Outcome: TypeAlias = Literal[
    "exited", "timed-out", "ran-away", "cancelled", "not-started", "not-reached", "no-answer"
]


class Program(Struct, frozen=True, kw_only=True, tag="program"):
    """Run a command, no shell around it, nothing to read for it. Its output and errors come as one stream."""

    command: tuple[str, ...]
    limit_s: float = LIMIT_S_DEFAULT
    output_bytes_max: int = OUTPUT_BYTES_MAX


class Terminal(Struct, frozen=True, kw_only=True, tag="terminal"):
    """A terminal of `rows` and `columns` with a command in it; an empty one is the user's shell."""

    command: tuple[str, ...] = ()
    term: str = ""  # what TERM is to be
    rows: int = 24
    columns: int = 80


class StackLook(Struct, frozen=True, kw_only=True, tag="stack-look"):
    """The stacks of these ranks, of all of the worker's where None: tuple[RankStacks, ...], MessagePack, as output."""

    ranks: tuple[int, ...] | None = None
    native: bool = False
    all_threads: bool = False


What: TypeAlias = Program | Terminal | StackLook


class CallPlace(Struct, frozen=True, kw_only=True):
    """A node that a call concerns; `worker`: which one runs there now, if any. `why_not`: it cannot be reached."""

    node: str
    worker: int | None = None
    why_not: str = ""


class CallWord(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """`call`: its id, made up by the client."""

    call: str


# From a client --------------------------------------------------------------------------------------------------


class AskPlaces(CallWord, frozen=True, tag="call-places"):
    """Where would a call go? Answer: CallPlaces. None for both: to all workers."""

    workers: tuple[int, ...] | None = None
    nodes: tuple[str, ...] | None = None


class AskCall(CallWord, frozen=True, tag="call-ask"):
    """Carry this out on these workers and nodes. Answers: CallPlaces, then Output and CallEnded of each; or CallRefused.

    `by`: who asks, "user@host", for the record. `window_bytes`: of each node.
    """

    what: What
    by: str
    workers: tuple[int, ...] | None = None
    nodes: tuple[str, ...] | None = None
    window_bytes: int = WINDOW_BYTES_MAX


class AskStop(CallWord, frozen=True, tag="call-stop"):
    """End the job. `force`: at once, no grace. `by`: who asks, for the record. Answer: RequestDone or CallRefused."""

    by: str
    reason: str = ""
    force: bool = False


class AskRestart(CallWord, frozen=True, tag="call-restart"):
    """End the present attempt and start the next one. Answer: RequestDone or CallRefused."""

    by: str
    reason: str = ""


class AskRemark(CallWord, frozen=True, tag="call-remark"):
    """Write down what a person says of an incident: that they have seen it, or with a `category`, that its verdict is wrong.

    Answer: RequestDone or CallRefused.
    """

    by: str
    incident: int
    category: str = ""
    text: str = ""


# Of either side, passed on by the controller --------------------------------------------------------------------------


class Typed(CallWord, frozen=True, tag="call-typed"):
    """Input for a terminal. Answer: TypedTaken."""

    data: bytes


class WindowSize(CallWord, frozen=True, tag="call-window-size"):
    rows: int
    columns: int


class OutputTaken(CallWord, frozen=True, tag="call-output-taken"):
    """The client has taken so many bytes of this node's output, all told."""

    node: str
    total_bytes: int


class CancelCall(CallWord, frozen=True, tag="call-cancel"):
    """End what was begun. Answer: CallEnded, of each."""


# To an agent ----------------------------------------------------------------------------------------------------


class BeginCall(CallWord, frozen=True, tag="call-begin"):
    """`worker`, `attempt`: what runs on the node as far as the controller knows; None, 0: nothing does."""

    what: What
    worker: int | None
    attempt: int
    window_bytes: int = WINDOW_BYTES_MAX


# From an agent --------------------------------------------------------------------------------------------------


class Output(CallWord, frozen=True, tag="call-output"):
    node: str
    data: bytes


class TypedTaken(CallWord, frozen=True, tag="call-typed-taken"):
    """So many bytes of input were given to the terminal, all told."""

    node: str
    total_bytes: int


class CallEnded(CallWord, frozen=True, tag="call-ended"):
    """The last word of a node. `code`: -N when killed by signal N. `cut_bytes`: printed and not kept. `took_s`: it ran."""

    node: str
    worker: int | None
    outcome: Outcome
    code: int | None = None
    cut_bytes: int = 0
    took_s: float = 0.0
    why: str = ""


# From the controller ----------------------------------------------------------------------------------------------


class CallPlaces(CallWord, frozen=True, tag="call-placed"):
    """Whom the call concerns."""

    job: str
    attempt: int
    places: tuple[CallPlace, ...]


class CallRefused(CallWord, frozen=True, tag="call-refused"):
    """It was not carried out anywhere, or the controller ends it everywhere."""

    why: str


class RequestDone(CallWord, frozen=True, tag="call-request-done"):
    """`done` False: it was not necessary, for instance because the job is being stopped already. `text`: one line."""

    done: bool
    text: str


AnyRequest: TypeAlias = AskStop | AskRestart | AskRemark

AnyCallWord: TypeAlias = (
    AskPlaces
    | AskCall
    | AskStop
    | AskRestart
    | AskRemark
    | Typed
    | WindowSize
    | OutputTaken
    | CancelCall
    | BeginCall
    | Output
    | TypedTaken
    | CallEnded
    | CallPlaces
    | CallRefused
    | RequestDone
)
