"""Defines the hub's state of its peers: their connections, their streams of entries, and the limits for all
of them.
"""

from msgspec import Struct

from holdfast.link.beats import Beats
from holdfast.link.channel import Channel
from holdfast.link.order_books import OrderBook

AGENT = "agent"  # the role of peers whose silence is reported; clients of other roles may leave at any time


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a hub: times in seconds, sizes in bytes.

    `silent_s`: silence after which an agent is reported. `lost_s`: silence after which a connection is
    closed. `strangers`: maximum number of unauthenticated connections; beyond it, one older than `patience_s`
    is closed for the next. `turn_bytes`, `serve_bytes`: about how much one turn reads from all peers and from
    one, uncompressed. `read_bytes`: how much one turn reads from one peer, compressed. `out_bytes`: maximum
    queued for one peer. `prompt_acks`: up to this many connections are acknowledged at once; with more,
    `acks_a_second`, or with a beat.
    """

    beat_s: float = 1.0
    silent_s: float = 3.0
    lost_s: float = 30.0
    handshake_s: float = 5.0
    strangers: int = 4096
    patience_s: float = 2.5
    peers: int = 8192
    turn_bytes: int = 4 << 20
    read_bytes: int = 1 << 18
    serve_bytes: int = 1 << 20
    ack_bytes: int = 1 << 20
    prompt_acks: int = 64
    acks_a_second: int = 2000
    out_bytes: int = 8 << 20
    refusals_a_minute: int = 60


LIMITS = Limits()


class Stream(Struct):
    """The progress of a peer's stream of entries, as entry numbers.

    `received`: the controller has all entries up to this one. `recorded`: the journal has all entries up to
    this one.
    """

    received: int = 0
    recorded: int = 0
    kept: int = 0  # the last received entry that must not be lost


class Connection(Struct, eq=False):
    """One open connection of the hub, with the acknowledgement that it still has to send.

    `mask`: epoll events to wait for. `peer`: None until the other side has identified itself.
    """

    channel: Channel
    mask: int
    peer: "Peer | None" = None
    is_open: bool = True
    ack_due: bool = False
    ack_due_s: float = 0.0
    unacknowledged_bytes: int = 0


class Peer(Struct, eq=False):
    """An agent or client known to the hub, connected or not. `instance`: identifies its process."""

    name: str
    role: str
    beats: Beats
    orders: OrderBook
    stream: str = ""
    instance: str = ""
    connection: Connection | None = None
    has_joined: bool = False
    said_goodbye: bool = False
    silence_reported: bool = False
    orders_wait: bool = False  # orders are held back until the controller has handled its Joined


def used_twice(name: str, there: str, here: str) -> str:
    """Returns the message for a second peer with a name that is in use. `there`, `here`: addresses of the first and
    the second one.

    The message contains no ports, so that repeated messages are equal.
    """
    return (
        f"the name {name!r} is used twice: by {there}, which is connected, and by {here}, which is refused; "
        "give each node a name of its own"
    )
