"""Converts states of pods into events for the controller, and decides what to write to the cluster. Pure.

A pod is a node of the job. The rules:

- a pod has a node that is not isolated: NodeReady
- its container or the pod has ended, or the pod no longer exists: NodeDown at once
- its deletion was requested: NodeDown after `SETTLE_S`, unless all pods are deleted
- all pods are deleted, or the owner is suspended, deleted or complete: EndAsked; the job resumes if only suspended
- the controller counts a healthy-looking pod as lost: its kubelet is tested. With a second proof (no response of
  the kubelet twice, or its node not ready) the pod is deleted by force; without, it may recover
- an agent has no contact, and its port refuses connections (`knocks.py`): NodeDown, until the port accepts one
- its node is Ready Unknown, too: the node is taken out of service, if permitted, until it is ready again
- the whole job restarts, and a container beside the training has failed: all containers of its pod restart, or the
  pod is evicted (`renewal.py`)
- a node is to be isolated: taint, if permitted; the pod is evicted later, as are up to `LANDED_MAX` later ones

An API server that does not respond proves nothing.
"""

from collections.abc import Iterable, Sequence

from holdfast.core.kubernetes import renewal, words
from holdfast.core.kubernetes.annotations import asked, of_platform
from holdfast.core.kubernetes.device_taints import DeviceTaints
from holdfast.core.kubernetes.doubts import Doubts
from holdfast.core.kubernetes.event_notes import EventNotes
from holdfast.core.kubernetes.knocks import Answer, Knocks
from holdfast.core.kubernetes.known import KnownPod, Rules
from holdfast.core.kubernetes.out_of_service import OutOfService
from holdfast.core.kubernetes.owner import end_of, is_older, newer
from holdfast.model.kubernetes import (
    RENEW,
    AnyClusterAct,
    ClusterEvent,
    DeletePod,
    Evict,
    KnockAgent,
    NodeState,
    OwnerState,
    PodState,
    ProbePod,
    RemakePods,
    RemakeWay,
    RestoreNode,
    TaintNode,
    TakeOutOfService,
)
from holdfast.model.nodes.workers import (
    AgentLeaves,
    AnyNews,
    DevicesSick,
    EndAsked,
    EngineNote,
    JobGoesOn,
    NodeAlive,
    NodeDown,
    NodeReady,
    NoMoreNodes,
    NotRemade,
    SetAside,
)

SETTLE_S = 0.5  # between the removal of one pod and those of the others, if the whole job is ended
ISOLATED_EVICT_S = 10.0  # for the agent of an isolated node to send its evidence
ANEW_GRACE_S = 5
AGAIN_S = 20.0
LANDED_MAX = 5  # evictions of pods that land on an isolated node; then one stays there, unused
WAIT_NOTED_S = 5.0  # a trouble that is over sooner is not noted
GONE_MAX = 4096  # pods that have gone are remembered, so that late events do not bring them back


class PodBook:
    """All pods of one job, by name. Methods process observations; `turn` returns the consequences."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._pods: dict[str, KnownPod] = {}
        self._nodes: dict[str, NodeState] = {}
        self._owner: OwnerState | None = None
        self._isolated: dict[str, int] = {}  # nodes, and how many pods were evicted there since
        self._evict_at_s: dict[str, float] = {}  # pods of isolated nodes
        self._doubts = Doubts()
        self.knocks = Knocks()
        self._out_of_service = OutOfService()
        self._renewals = renewal.Renewals()
        self.devices = DeviceTaints()
        self._news: list[AnyNews] = []
        self._acts: list[AnyClusterAct] = []
        self._gone: dict[str, str] = {}  # names of pods that have gone, by uid
        self._wonders_s: float | None = None
        self._ended = False
        self._remaking: RemakeWay | None = None
        self._wants = 0
        self._waited = ""
        self._noted_nodes: dict[str, str] = {}
        self._event_notes = EventNotes()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Returns the pods that the controller may use, oldest first."""
        return tuple(
            name
            for name, pod in self._pods.items()
            if pod.announced and not pod.down and pod.state.node not in self._isolated
        )

    @property
    def isolated(self) -> tuple[str, ...]:
        """Returns the cluster's nodes that this job does not use any more."""
        return tuple(self._isolated)

    @property
    def owner(self) -> OwnerState | None:
        return self._owner

    def remember_isolated(self, nodes: Iterable[str]) -> None:
        """Adds nodes that a previous controller isolated."""
        for node in nodes:
            self._isolated.setdefault(node, 0)

    # Facts ------------------------------------------------------------------------------------------------

    def listed(self, pods: Iterable[PodState], at_s: float, version: str = "") -> None:
        """Processes a complete list of the pods at this version; ignores it for pods known at a later version."""
        there = {}
        for pod in pods:
            there[pod.name] = pod.uid
            self.saw_pod(pod, at_s)
        for name, known in list(self._pods.items()):
            if there.get(name) != known.state.uid and not is_older(version, known.state.version):
                self.pod_gone(name, known.state.uid, at_s)

    def saw_pod(self, state: PodState, at_s: float) -> None:
        if state.uid in self._gone:
            return  # a late event
        known = self._pods.get(state.name)
        if known is not None and known.state.uid != state.uid:
            if is_older(state.version, known.state.version):
                return  # a late event about the pod before
            self.pod_gone(state.name, known.state.uid, at_s)
            known = None
        if known is None:
            known = self._pods[state.name] = KnownPod(state)
        elif is_older(state.version, known.state.version):
            return
        if state.broken and not known.state.broken:
            self._news.append(EngineNote(text=renewal.note(state)))
        known.state = state
        self._note_devices(known)
        if state.deleting and known.deleting_s is None:
            known.deleting_s = at_s
        renewing = self._renewals.saw(state)
        if renewing == "back":
            known.announced = known.down = False
        if renewing == "restarting":
            return
        if state.is_over:
            self._lose(known, words.end_of(known.state))
        elif state.node and not (known.announced or known.down or state.deleting):
            self._landed(known, at_s)

    def pod_left(self, last: PodState, at_s: float) -> None:
        """Processes the deletion of a pod; `last`: its last state."""
        known = self._pods.get(last.name)
        if known is not None and known.state.uid == last.uid:
            known.state = last
            self.pod_gone(last.name, last.uid, at_s)

    def pod_gone(self, name: str, uid: str, at_s: float) -> None:
        known = self._pods.get(name)
        if known is None or known.state.uid != uid:
            return
        self._lose(known, words.end_of(known.state))
        del self._pods[name]
        self._gone[uid] = name
        if len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        self._evict_at_s.pop(name, None)
        self._doubts.forget(name)
        self.knocks.forget(name)
        self._renewals.gone(uid)

    def saw_node(self, node: NodeState, at_s: float) -> None:
        self._nodes[node.name] = node
        self._judge_node(node, at_s)
        mine = [pod.state.name for pod in self._pods.values() if pod.state.node == node.name]
        if not mine:
            return
        fault = words.fault_of(node)
        if fault and self._noted_nodes.get(node.name) != fault:
            self._news.append(EngineNote(text=f"{fault}; pods there: {', '.join(mine[:4])}"))
        self._noted_nodes[node.name] = fault
        for pod in self._pods.values():
            if pod.state.node == node.name:
                self._note_devices(pod)

    def _judge_node(self, node: NodeState, at_s: float) -> None:
        """Takes a dead node out of service, or a recovered one back, if this job may change nodes."""
        act = self._out_of_service.judge(node, at_s) if self.rules.node_rights else None
        if act is not None:
            self._acts.append(act)
            self._news.append(EngineNote(text=words.node_act(act)))

    def _note_devices(self, known: KnownPod) -> None:
        """Reports changes of the faulty devices; a report alone ends nothing."""
        node = self._nodes.get(known.state.node)
        sick = dict.fromkeys(known.state.sick_devices, words.UNHEALTHY) | words.hardware_problems(node)
        sick |= self.devices.of_pod(known.state.uid)
        if sick == known.sick:
            return
        known.sick = sick
        text = words.devices_line(known.state, sick)
        self._news += [EngineNote(text=text), DevicesSick(node=known.state.name, devices=sick)]

    def saw_event(self, event: ClusterEvent, at_s: float) -> None:
        """Processes an Event about the job's pods or their owner."""
        known = self._pods.get(event.about)
        self._news += self._event_notes.of(event, known.state if known is not None else None, self._owner)

    def saw_owner(self, owner: OwnerState, at_s: float) -> None:
        before = self._owner
        if newer(before, owner) is None:
            return
        self._owner = owner
        if before is None or of_platform(owner.annotations) != of_platform(before.annotations):
            self._news.append(asked(owner.annotations, f"{owner.kind} {owner.name}"))

    def owner_gone(self, at_s: float) -> None:
        if self._owner is not None:
            self._owner = OwnerState(kind=self._owner.kind, name=self._owner.name, deleting=True)

    def begin_anew(self) -> None:
        """Deletes all pods, because their agents have orders of a lost journal, whose numbers a new journal uses again."""
        for known in (one for one in self._pods.values() if not one.state.is_over):
            known.announced, known.down = False, True
            self._remove(known, ANEW_GRACE_S)
        if self._pods:
            self._news = [EngineNote(text=words.BEGUN_ANEW)]

    # Requests of the controller ---------------------------------------------------------------------------

    def ask(self, name: str, at_s: float) -> None:
        known = self._pods.get(name)
        if known is None:
            self._ask_of_unknown(name, at_s)
        elif known.down or known.state.is_over:
            self._news.append(NodeDown(node=name, reason=words.end_of(known.state)))
        else:
            self.knocks.ask(name, at_s)
            if self._doubts.may_probe(name, at_s):
                self._acts.append(ProbePod(pod=name, uid=known.state.uid))

    def _ask_of_unknown(self, name: str, at_s: float) -> None:
        """Reports the loss of a pod that has gone; probes one that a stale list may have left out."""
        if name in self._gone.values():
            self._news.append(NodeDown(node=name, reason=f"pod {name} is gone"))
        elif self._doubts.may_probe(name, at_s):
            self._acts.append(ProbePod(pod=name, uid=""))

    def not_there(self, name: str) -> None:
        """Processes the answer that the server has no pod of this name."""
        if name not in self._pods:
            self._news.append(NodeDown(node=name, reason=f"pod {name} is gone"))

    def knocked(self, name: str, uid: str, answer: Answer, at_s: float) -> None:
        """Processes the result of a connection to the port of a pod's agent."""
        known = self._pods.get(name)
        if known is not None and known.state.uid == uid and not known.down:
            if self.knocks.answered(name, answer, at_s):
                self._news.append(NodeAlive(node=name))

    def probed(self, name: str, *, answered: bool, at_s: float) -> None:
        """Processes a test of a pod's kubelet: it responded, or was silent while the API server responded."""
        known = self._pods.get(name)
        if known is None or known.down:
            return
        self._doubts.probed(name, answered=answered, at_s=at_s)
        if answered:
            self._news.append(NodeAlive(node=name))

    def lost(self, name: str, reason: str, at_s: float) -> None:
        """Records that the controller counts a pod as lost, and does not use it unless it comes back."""
        known = self._pods.get(name)
        if known is None or self._renewals.is_open(known.state.uid):
            return
        if not known.removed and not known.state.deleting:
            self._doubts.lost(name, at_s)
            self._out_of_service.agent_lost(known.state.node, name, at_s)
            if known.state.node in self._nodes:
                self._judge_node(self._nodes[known.state.node], at_s)

    def returned(self, name: str) -> None:
        self._out_of_service.agent_returned(name)
        self._doubts.forget(name)

    def isolate(self, name: str, reason: str, at_s: float) -> None:
        known = self._pods.get(name)
        node = known.state.node if known is not None else ""
        if not node:
            self._news.append(SetAside(node=name, says=f"pod {name} is gone already"))
            return
        if node not in self._isolated:
            self._isolated[node] = 0
            if self.rules.node_rights:
                self._acts.append(TaintNode(node=node, reason=reason))
        self._evict_at_s[name] = at_s + ISOLATED_EVICT_S
        self._news.append(
            SetAside(node=name, says=words.isolated(node, LANDED_MAX, is_tainted=self.rules.node_rights))
        )

    def more_nodes(self, workers: int, without: Sequence[str], at_s: float) -> None:
        self._wants, self._waited = workers, ""
        for name in without:
            known = self._pods.get(name)
            if known is not None and known.state.node in self._isolated:
                self._evict_at_s.setdefault(name, at_s)

    def remake(self, way: RemakeWay, attempt: int) -> None:
        """Has all pods created again; EndAsked follows, or NotRemade."""
        self._remaking = way
        if way != "evict":
            self._acts.append(RemakePods(way=way, attempt=attempt))
            return
        for known in self._pods.values():
            if not (known.state.is_over or known.state.deleting):
                self._remove(known, None)

    def renew(self, at_s: float) -> bool:
        """Restarts all containers of pods where one has failed, or evicts them. NotRemade follows if there are any."""
        found = [one for one in self._pods.values() if one.state.broken and one.announced and not one.down]
        for known in found:
            why = renewal.why(known.state)
            self._lose(known, why)
            if known.state.is_renewable:
                self._renewals.begin(known.state, at_s)
                self._news.append(AgentLeaves(node=known.state.name, code=RENEW, reason=why))
            else:
                self._remove(known, None)
        if found:
            self._news.append(NotRemade(reason=renewal.why(found[0].state)))
        return bool(found)

    def wonder(self, at_s: float) -> None:
        """Begins to check whether the cluster ends the whole job, because it asked a part of it to end."""
        if self._wonders_s is None:
            self._wonders_s = at_s

    # Consequences -----------------------------------------------------------------------------------------

    def turn(self, at_s: float) -> tuple[list[AnyNews], list[AnyClusterAct]]:
        self._judge_job(at_s)
        for known in self._pods.values() if self.devices.changed else ():
            self._note_devices(known)
        self.devices.changed = False
        for known in self._pods.values():
            if known.deleting_s is not None and at_s - known.deleting_s >= SETTLE_S and not self._ended:
                self._lose(known, words.end_of(known.state))
            self._note_wait(known, at_s)
            self._clear_ended(known, at_s)
        for name in self._renewals.overdue(at_s):
            self._remove(self._pods[name], None)
            self._doubts.lost(name, at_s)
        self._turn_isolated(at_s)
        self._turn_knocks(at_s)
        self._turn_doubts(at_s)
        self._turn_wish()
        news, self._news = self._news, []
        acts, self._acts = self._acts, []
        return news, acts

    def _judge_job(self, at_s: float) -> None:
        if self._ended:
            return
        asked = self._end_of_job(at_s)
        if asked is not None:
            self._ended = True
            self._news.append(asked)
        elif self._wonders_s is not None and at_s - self._wonders_s >= 2 * SETTLE_S:
            self._wonders_s = None
            self._news.append(JobGoesOn())

    def _end_of_job(self, at_s: float) -> EndAsked | None:
        live = [one for one in self._pods.values() if one.announced and not one.down]
        grace_s = float(max((one.state.grace_s for one in live), default=0))
        known = [one.state for one in self._pods.values() if one.announced or one.down]
        return end_of(self._owner, known, self._remaking, grace_s)

    def _clear_ended(self, known: KnownPod, at_s: float) -> None:
        """Deletes an ended pod if its owner creates another one only then, and has no need to count how it ended."""
        wanted = known.state.is_over and not (self.rules.remakes_ended or known.state.deleting or self._ended)
        wanted = wanted and not (known.state.shows_end_of_job or self._renewals.is_open(known.state.uid))
        if wanted and not known.removed and at_s >= known.again_s:
            known.removed = True
            self._acts.append(DeletePod(pod=known.state.name, uid=known.state.uid))

    def not_done(self, act: AnyClusterAct, why: str, at_s: float) -> None:
        """Processes the rejection of a request by the API server, which may be temporary."""
        if isinstance(act, RemakePods):
            self._remaking = None
            self._news.append(NotRemade(reason=why))
            return
        if isinstance(act, TakeOutOfService | RestoreNode):
            self._out_of_service.refused(act.node)
            return
        known = self._pods.get(act.pod) if isinstance(act, Evict | DeletePod) else None
        if known is None or known.state.uid != getattr(act, "uid", ""):
            return
        known.removed, known.again_s = False, at_s + AGAIN_S
        if isinstance(act, Evict) and act.grace_s is None:
            self._evict_at_s[known.state.name] = known.again_s

    def _lose(self, known: KnownPod, reason: str) -> None:
        if known.announced and not known.down:
            self._news.append(NodeDown(node=known.state.name, reason=reason, with_job=self._ended))
        known.down = True
        self._doubts.forget(known.state.name)

    def _landed(self, known: KnownPod, at_s: float) -> None:
        node, name = known.state.node, known.state.name
        if node not in self._isolated:
            known.announced = True
            self._news.append(NodeReady(node=name))
            return
        if known.removed or known.noted == node:
            return
        known.noted = node
        if self._isolated[node] < LANDED_MAX:
            self._isolated[node] += 1
            self._evict_at_s[name] = at_s
            return
        self._news.append(EngineNote(text=words.landed_again(name, node, LANDED_MAX)))

    def _note_wait(self, known: KnownPod, at_s: float) -> None:
        why = "" if self._renewals.is_open(known.state.uid) else words.wait_of(known.state)
        if not why:
            known.waits_s = None
            return
        if known.waits_s is None:
            known.waits_s = at_s
        if at_s - known.waits_s >= WAIT_NOTED_S and known.noted != why:
            known.noted = why
            self._news.append(EngineNote(text=why))

    def _turn_isolated(self, at_s: float) -> None:
        due = [name for name, evict_s in self._evict_at_s.items() if at_s >= evict_s]
        for name in due:
            del self._evict_at_s[name]
            known = self._pods.get(name)
            if known is not None:
                self._remove(known, None)

    def _turn_knocks(self, at_s: float) -> None:
        alive = {
            name: one.state
            for name, one in self._pods.items()
            if one.announced and not one.down and one.state.running and one.state.address
        }
        for name in self.knocks.due(alive, at_s):
            state = alive[name]
            self._acts.append(KnockAgent(pod=name, uid=state.uid, address=state.address))
        for name in alive:
            if self.knocks.presume(name, at_s):
                reason = f"{words.where(alive[name])} has ended: its agent is gone, and the agent's port refuses connections"
                self._news.append(NodeDown(node=name, reason=reason, with_job=self._ended))

    def _turn_doubts(self, at_s: float) -> None:
        for name in self._doubts.lost_ones:
            known = self._pods[name]
            node = self._nodes.get(known.state.node)
            silent = node is not None and node.ready == "Unknown"
            if self._doubts.is_proven(name, at_s) or (silent and not known.removed):
                self._remove(known, 0)
                self._lose(known, words.not_responding(known.state))
            elif self._doubts.may_probe(name, at_s):
                self._acts.append(ProbePod(pod=name, uid=known.state.uid))

    def _remove(self, known: KnownPod, grace_s: int | None) -> None:
        if not known.removed or grace_s == 0:
            known.removed = True
            self._acts.append(Evict(pod=known.state.name, uid=known.state.uid, grace_s=grace_s))

    def _turn_wish(self) -> None:
        """Reports why pods are missing; the owner creates them, however long it takes."""
        if not self._wants:
            return
        if self._ended:
            self._wants = 0
            self._news.append(NoMoreNodes(reason="the cluster terminates the job"))
            return
        if len(self.nodes) >= self._wants:
            self._wants = 0
            return
        whys = [why for one in self._pods.values() if (why := words.wait_of(one.state))]
        text = f"{self._wants} workers need a pod each, {len(self.nodes)} are there: waiting for more"
        text += f"; {whys[0]}" if whys else ""
        if text != self._waited:
            self._waited = text
            self._news.append(EngineNote(text=text))
