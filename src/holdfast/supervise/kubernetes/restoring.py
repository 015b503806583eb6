"""Restores the journal of a job that was lost together with its controller's pod, from the copy on an agent's node.

It runs before the new controller: it listens at the same address, lets the agents connect, and takes the copy with
the most rows. The training goes on meanwhile. Entries that agents have stored are not acknowledged here: the agents
send them to the controller again.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from holdfast.core.kubernetes.copy_choice import CopyChoice, JournalCopy
from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway
from holdfast.engines.kubernetes.engine import Identity
from holdfast.engines.kubernetes.lease import Lease, LeaseTaken
from holdfast.engines.kubernetes.names import PORT, ROLE_WORKER, objects_name, selector
from holdfast.journal.jobdir import JobDir, StateDir, StateUnwritable
from holdfast.journal.rows import JournalUnusable, Row
from holdfast.journal.store import Store
from holdfast.link.arrived import Entry, Joined
from holdfast.link.hub import Hub
from holdfast.link.listening import ListenFailed
from holdfast.link.messages import UNREADABLE
from holdfast.model.nodes.workers import FILE_KEY, AgentHello, RowsSent, SendRows
from holdfast.observe.clock import JobClock
from holdfast.parsers.kubernetes.objects import NotRead, page, pod_of
from holdfast.supervise.start import keep_environment
from holdfast.views.console import Console

PIECES_S = 60.0
LEASE_S = 40.0
TURN_S = 0.05
_HELLOS = msgspec.msgpack.Decoder(AgentHello)
_PIECES = msgspec.msgpack.Decoder(RowsSent)


def restore(
    connection: Connection,
    identity: Identity,
    state_dir: str,
    secret: Path,
    env: Mapping[str, str],
    console: Console,
) -> bool:
    """Restores the journal. Returns True if the job can be resumed from it, False if no agent has a copy.

    Raises ListenFailed.
    """
    name = objects_name(identity.job)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{identity.namespace}/leases/{name}"
    try:
        found = connection.request("GET", path).json()  # none: this controller is the first
        if not (found.get("spec") or {}).get("renewTime"):
            return False  # it was created with the job
        pods = _agents(connection, identity)
        if not pods:
            return False
        lease = Lease(connection, identity.namespace, name, identity.holder)
        lease.take(LEASE_S)
    except (RequestFailed, ServerAway, LeaseTaken, NotRead):
        return False
    try:
        return _from_agents(
            identity, state_dir, bytes.fromhex(secret.read_text().strip()), pods, env, console
        )
    except ListenFailed:
        raise
    except (OSError, ValueError, JournalUnusable, StateUnwritable) as error:
        console.tell(f"the record of the job cannot be restored from its agents: {error}")
        return False
    finally:
        lease.stop()


def _agents(connection: Connection, identity: Identity) -> int:
    """Returns the number of running pods, whose agents may have a copy."""
    path = f"/api/v1/namespaces/{identity.namespace}/pods"
    params = {"labelSelector": selector(identity.job, ROLE_WORKER)}
    found = page(connection.request("GET", path, params=params).content)
    return sum(1 for raw in found.items or () if pod_of(bytes(raw), identity.container).running)


def _from_agents(
    identity: Identity, state_dir: str, secret: bytes, pods: int, env: Mapping[str, str], console: Console
) -> bool:
    """Restores the record over the link.

    Raises OSError, ValueError, ListenFailed, JournalUnusable and StateUnwritable.
    """
    hub = Hub(secret=secret, listen=[(identity.address, PORT)], clock=JobClock())
    try:
        best = _best(hub, pods)
        if best is None:
            return False
        console.tell(
            f"the record was lost with its pod: restoring {best.seq} entries from the agent of {best.node}"
        )
        pieces = _fetched(hub, best)
    finally:
        hub.close()
    if pieces is None:
        console.tell(f"the agent of {best.node} did not send its copy within {PIECES_S:.0f} s")
        return False
    job = StateDir(Path(state_dir)).create(identity.job, time.time())
    write_record(job, pieces)
    keep_environment(job, env, console)
    return True


def write_record(job: JobDir, pieces: list[RowsSent]) -> None:
    """Writes the journal and the copied files into the job's folder. Raises OSError and JournalUnusable."""
    store = Store.open(job.journal_path)
    try:
        for piece in pieces:
            store.append([Row(*row) for row in piece.rows])
            for key, value in piece.meta.items():
                if key.startswith(FILE_KEY):
                    (job.path / Path(key.removeprefix(FILE_KEY)).name).write_bytes(value)
                else:
                    store.set_meta(key, value)
    finally:
        store.close()


def _best(hub: Hub, pods: int) -> JournalCopy | None:
    """Returns the copy with the most rows among the agents that connect in time."""
    choice = CopyChoice(pods, time.monotonic())
    while not choice.is_over(time.monotonic()):
        for arrived in hub.turn():
            if isinstance(arrived, Joined) and arrived.role == "agent":
                try:
                    hello = _HELLOS.decode(arrived.hello)
                except UNREADABLE:
                    continue
                choice.hear(JournalCopy(arrived.peer, hello.copy_of, hello.copy_seq), time.monotonic())
        time.sleep(TURN_S)
    return choice.best


def _fetched(
    hub: Hub, copy: JournalCopy, clock: Callable[[], float] = time.monotonic
) -> list[RowsSent] | None:
    """Fetches all pieces of a copy; returns None if they do not arrive in time.

    Repeats the request when the agent reconnects.
    """
    pieces: list[RowsSent] = []
    ask = msgspec.msgpack.encode(SendRows())
    hub.say(copy.node, ask)
    until_s = clock() + PIECES_S
    while clock() < until_s:
        for arrived in hub.turn():
            if isinstance(arrived, Joined) and arrived.peer == copy.node:
                pieces = []
                hub.say(copy.node, ask)
            elif isinstance(arrived, Entry) and arrived.peer == copy.node:
                try:
                    piece = _PIECES.decode(arrived.body)
                except UNREADABLE:
                    continue  # another report
                if piece.lineage != copy.lineage:
                    continue
                pieces = [piece] if piece.meta else [*pieces, piece]
                if piece.is_last:
                    return pieces
        time.sleep(TURN_S)
    return None
