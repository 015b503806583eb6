"""Implements the engine `kubernetes`: a job's nodes are its pods, in which an agent is the container's first
process.

Threads watch pods, nodes and the owner of the pods, and make requests; `core/kubernetes` decides what to do.
If the API server does not respond, nothing is concluded from that: the engine notes it, and pending writes
are made later.
"""

import os
import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import PodBook
from holdfast.engines.kubernetes import rights
from holdfast.engines.kubernetes.connection import Connection, RequestFailed, ServerAway
from holdfast.engines.kubernetes.kinds import OwnerKind
from holdfast.engines.kubernetes.lease import Lease, LeaseTaken
from holdfast.engines.kubernetes.names import (
    CONTAINER,
    LIFE_PORT,
    PORT,
    ROLE_WORKER,
    objects_name,
    selector,
)
from holdfast.engines.kubernetes.probing import Knocked, Probed, Probing
from holdfast.engines.kubernetes.remaking import Owner, way_of
from holdfast.engines.kubernetes.watching import Seen, Watching
from holdfast.engines.kubernetes.writing import Done, Writing
from holdfast.engines.nodes import EngineRefused, JobPlace
from holdfast.model.kubernetes import JOB_FAILED, KnockAgent, ProbePod
from holdfast.model.nodes.workers import AnyNews, EndAsked, EngineNote
from holdfast.parsers.kubernetes.devices import claim_of, slice_of
from holdfast.parsers.kubernetes.objects import NotRead, event_of, node_of, owner_of, pod_of

FIRST_LIST_S, LEASE_S = 60.0, 40.0
TAKEN_MAX = 512  # of what has arrived, in one turn
SUPERSEDED = 91  # exit code of a controller whose Lease another holds
ISOLATED = "isolated-nodes"  # in the job's folder
REMADE = "remade-for-attempt"  # the same: the last attempt for which all pods were made anew
PODS, NODES, OWNER, EVENTS = "pods", "nodes", "owner", "events"
SLICES, CLAIMS = "resourceslices", "resourceclaims"
DEVICES_API = "/apis/resource.k8s.io/v1"
_ASKED = (*rights.WATCH_PODS, rights.REMOVE_PODS, rights.EVICT_PODS, rights.READ_LOGS)
_BETTER = (*rights.NODES, rights.LEASES, *rights.WATCH_SLICES, *rights.WATCH_CLAIMS)


class Identity(NamedTuple):
    """Which job and which controller's pod this is. `owner`: name of the object that creates the pods.

    `container`: name of the container with the agent.
    """

    job: str
    namespace: str
    kind: OwnerKind
    owner: str
    address: str
    holder: str
    container: str = CONTAINER

    @property
    def owns(self) -> Owner:
        return Owner(self.job, self.namespace, self.kind, self.owner)


def isolated_in(folder: Path) -> tuple[str, ...]:
    """Returns the cluster nodes that a job has isolated. `folder`: the job's folder."""
    try:
        return tuple((folder / ISOLATED).read_text().split())
    except OSError:
        return ()


class KubernetesEngine:
    """The NodeEngine (engines/nodes.py) for Kubernetes. `has_no_record`: True if this controller starts the job, so
    that there is no journal yet.
    """

    def __init__(
        self,
        connection: Connection,
        identity: Identity,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_no_record: bool = False,
        remakes: bool = False,
    ) -> None:
        self._has_no_record, self._remakes = has_no_record, remakes
        self.is_moved = False  # the job's pods are ended, and its record continues
        self.port = PORT
        self.copied_files: tuple[str, ...] | None = (ISOLATED, REMADE)
        self._connection, self._identity, self._clock = connection, identity, clock
        self._book = PodBook(Rules(remakes_ended=identity.kind.remakes_ended))
        self._arrived: queue.SimpleQueue[tuple[Watching, Seen] | Done | Probed | Knocked] = (
            queue.SimpleQueue()
        )
        self._awake, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._lease = Lease(connection, identity.namespace, objects_name(identity.job), identity.holder)
        self._writing = Writing(connection, identity.namespace, self._put, identity.owns)
        self._probing = Probing(connection, identity.namespace, self._put)
        self._watches: dict[str, Watching] = {}
        self._notes: list[AnyNews] = []
        self._noted: set[str] = set()
        self._is_listed = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._book.nodes

    @property
    def writes(self) -> int:
        """Returns the number of requests so far that change something, without renewals of the Lease."""
        return self._writing.writes

    def listen(self, folder: Path) -> Sequence[str]:
        """Returns the address of this pod. Waits for the Lease, and for the first list of pods."""
        self._folder = folder
        self._isolated_path = folder / ISOLATED
        self._book.remember_isolated(isolated_in(folder))
        try:
            self._learn_rights()
            is_first = self._lease.take(LEASE_S)
        except LeaseTaken as error:
            raise EngineRefused(str(error)) from error
        except (ServerAway, RequestFailed) as error:
            raise EngineRefused(
                f"the job cannot start, because the API server rejects requests of this pod: {error}"
            ) from error
        self._start_watches()
        until_s = self._clock() + FIRST_LIST_S
        while not self._is_listed:
            self._take()
            if self._clock() > until_s:
                raise EngineRefused(f"the pods of the job could not be listed within {FIRST_LIST_S:.0f} s")
            time.sleep(0.05)
        if self._has_no_record and not is_first:
            self._book.begin_anew()
        return (self._identity.address,)

    def begin(self, place: JobPlace) -> None:
        self._writing.start()

    def turn(self) -> Sequence[AnyNews]:
        self._take()
        news, acts = self._book.turn(self._clock())
        for act in acts:
            if isinstance(act, ProbePod):
                self._probing.probe(act.pod, act.uid, self._identity.container)
            elif isinstance(act, KnockAgent):
                self._probing.knock(act.pod, act.uid, act.address, LIFE_PORT)
            else:
                self._writing.put(act)
        if self._lease.lost_to:
            self._step_down()
        if self._lease.is_forbidden:
            self._note(
                "lease",
                "permission to renew the job's Lease is missing: a second controller would not be detected",
            )
        self.is_moved = self.is_moved or any(isinstance(one, EndAsked) and one.comes_back for one in news)
        notes, self._notes = self._notes, []
        return [*news, *notes]

    def channels(self) -> list[int]:
        return [self._awake]

    def agent_again(self, node: str) -> None:
        """Does nothing: the agent is its container's first process, so the pod ends with it."""

    def joined(self, node: str) -> None:
        self._book.knocks.joined(node)

    def ask(self, node: str) -> None:
        self._book.ask(node, self._clock())

    def lost(self, node: str, reason: str) -> None:
        self._book.lost(node, reason, self._clock())

    def returned(self, node: str) -> None:
        self._book.returned(node)

    def isolate(self, node: str, reason: str) -> None:
        self._book.isolate(node, reason, self._clock())
        with suppress(OSError):  # a controller that is restarted would use the node again
            self._isolated_path.write_text("\n".join(self._book.isolated))

    def more_nodes(self, workers: int, without: Sequence[str]) -> None:
        self._book.more_nodes(workers, without, self._clock())

    def remake(self, attempt: int) -> bool:
        if not self._remakes or self._remade() >= attempt:
            return self._book.renew(self._clock())
        if f"away-{PODS}" in self._noted:
            self._note("remake", "the API server does not respond: the job restarts in its existing pods")
            return False
        with suppress(OSError):
            (self._folder / REMADE).write_text(str(attempt))
        self._book.remake(way_of(self._identity.kind, self._book.owner), attempt)
        return True

    def _remade(self) -> int:
        try:
            return int((self._folder / REMADE).read_text())
        except (OSError, ValueError):
            return 0

    def is_to_end(self) -> bool:
        self._book.wonder(self._clock())
        return True

    def signalled(self, number: int) -> bool:
        self._book.wonder(self._clock())
        return True

    def agents_end_with(self, code: int) -> int:
        """Returns JOB_FAILED for a failed job, because the owner of the pods replaces pods with other exit
        codes.
        """
        return JOB_FAILED if code else 0

    def end(self, code: int) -> None:
        for watch in self._watches.values():
            watch.stop()
        self._writing.stop()
        self._probing.stop()
        self._lease.release()

    # Start ------------------------------------------------------------------------------------------------

    def _learn_rights(self) -> None:
        """Queries which requests this pod may make. Raises EngineRefused, ServerAway and RequestFailed."""
        found = rights.allowed(self._connection, self._identity.namespace, (*_ASKED, *_BETTER))
        missing = [right for right in rights.WATCH_PODS if not found[right]]
        if missing:
            raise EngineRefused(
                f"the service account of this pod may not {' or '.join(right.verb for right in missing)} pods in the namespace "
                f"{self._identity.namespace}: apply the Role that `holdfast run --engine kubernetes` writes"
            )
        has_nodes = all(found[right] for right in rights.NODES)
        self._book.rules = Rules(node_rights=has_nodes, remakes_ended=self._identity.kind.remakes_ended)
        if not found[rights.REMOVE_PODS] and not found[rights.EVICT_PODS]:
            self._note(
                "remove",
                "permission to delete pods is missing: a pod on a failed node is replaced only by its owner",
            )
        if not found[rights.READ_LOGS]:
            self._note(
                "logs",
                (
                    "permission to read pods/log is missing: only the states of nodes can show that a pod "
                    "has ended"
                ),
            )
        self._has_nodes = has_nodes
        may_see = all(found[right] for right in (*rights.WATCH_SLICES, *rights.WATCH_CLAIMS))
        self._has_devices = may_see and self._connection.is_served(DEVICES_API)

    def _start_watches(self) -> None:
        space, kind = self._identity.namespace, self._identity.kind
        pods = {"labelSelector": selector(self._identity.job, ROLE_WORKER)}
        self._watch(PODS, f"/api/v1/namespaces/{space}/pods", pods)
        self._watch(OWNER, kind.path(space), {"fieldSelector": f"metadata.name={self._identity.owner}"})
        self._watch(EVENTS, f"/api/v1/namespaces/{space}/events", {"fieldSelector": "type=Warning"})
        if self._has_nodes:
            self._watch(NODES, "/api/v1/nodes", {})
        if self._has_devices:
            self._watch(SLICES, f"{DEVICES_API}/{SLICES}", {})
            self._watch(CLAIMS, f"{DEVICES_API}/namespaces/{space}/{CLAIMS}", {})

    def _watch(self, name: str, path: str, params: dict[str, str]) -> None:
        watch = self._watches[name] = Watching(
            self._connection, path, params, lambda watching, seen: self._put((watching, seen)), name
        )
        watch.start()

    # What arrives -----------------------------------------------------------------------------------------

    def _put(self, one: tuple[Watching, Seen] | Done | Probed | Knocked) -> None:
        """Queues something that a thread has received. May be called from any thread."""
        self._arrived.put(one)
        with suppress(BlockingIOError, OSError):
            os.write(self._wake, b"1")

    def _take(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._awake, 4096)
        for _ in range(TAKEN_MAX):
            try:
                one = self._arrived.get_nowait()
            except queue.Empty:
                return
            match one:
                case Done():
                    self._done(one)
                case Probed(answered=answered) if answered is not None:
                    self._book.probed(one.pod, answered=answered, at_s=self._clock())
                case Probed(is_gone=True):
                    self._book.not_there(one.pod)
                case Probed():
                    pass
                case Knocked():
                    self._book.knocked(one.pod, one.uid, one.answer, self._clock())
                case (watching, seen):
                    self._seen(watching.name, seen)
        with suppress(BlockingIOError, OSError):
            os.write(self._wake, b"1")  # there is more

    def _done(self, done: Done) -> None:
        if done.why:
            self._book.not_done(done.act, done.why, self._clock())
            what = type(done.act).__name__
            self._note(f"{what}-{done.is_forbidden}", f"{done.act}: rejected by the API server: {done.why}")

    def _seen(self, name: str, seen: Seen) -> None:
        if seen.kind == "away":
            text = f"{seen.why}; the training continues" if name == PODS else f"{name}: {seen.why}"
            self._note(f"away-{name}", text)
        elif seen.kind == "back":
            self._forget_note(f"away-{name}", f"the API server responds again ({name})")
        else:
            for raw in self._read(name, seen):
                self._take_object(name, seen.kind, raw)

    def _read(self, name: str, seen: Seen) -> Sequence[bytes]:
        """Decodes received objects: a complete list of pods as one, other kinds one by one."""
        if seen.kind == "list" and name in (SLICES, CLAIMS):  # those that are not in it are gone
            self._book.devices.listed(
                () if name == SLICES else None,
                () if name == CLAIMS else None,
            )
        if seen.kind != "list" or name != PODS:
            return seen.objects
        pods = []
        for raw in seen.objects:
            with suppress(NotRead):
                pods.append(pod_of(raw, self._identity.container))
        self._book.listed(pods, self._clock(), seen.version)
        self._is_listed = True
        return ()

    def _take_object(self, name: str, kind: str, raw: bytes) -> None:
        at_s = self._clock()
        try:
            if name == PODS:
                pod = pod_of(raw, self._identity.container)
                if kind == "gone":
                    self._book.pod_left(pod, at_s)
                else:
                    self._book.saw_pod(pod, at_s)
            elif name == NODES:
                self._book.saw_node(node_of(raw), at_s)
            elif name in (SLICES, CLAIMS):
                one = slice_of(raw) if name == SLICES else claim_of(raw)
                self._book.devices.saw(one, is_gone=kind == "gone")
            elif name == EVENTS:
                self._book.saw_event(event_of(raw), at_s)
            elif kind == "gone":
                self._book.owner_gone(at_s)
            else:
                self._book.saw_owner(owner_of(raw), at_s)
        except NotRead as error:
            self._note("unreadable", str(error))

    def _note(self, key: str, text: str) -> None:
        """Adds a note, once until the condition has ended."""
        if key not in self._noted:
            self._noted.add(key)
            self._notes.append(EngineNote(text=text))

    def _forget_note(self, key: str, text: str) -> None:
        if key in self._noted:
            self._noted.discard(key)
            self._notes.append(EngineNote(text=text))

    def _step_down(self) -> None:
        """Exits at once: another controller decides for the job, and the training continues."""
        os._exit(SUPERSEDED)
