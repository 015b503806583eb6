"""Simulates a faulty control plane around the pods of a healthy job, with virtual time and random numbers of a seed.

The cluster is true; what the controller hears of it is not always: watches drop, and resume from an old version or with a list
that is stale; events are doubled, reordered between objects, and late; writes fail before or after they are done; the
controller dies at any of its writes and begins anew from a list.
"""

import random
from dataclasses import dataclass, field

from msgspec.structs import replace

from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import PodBook
from holdfast.model.kubernetes import (
    ContainerEnd,
    DeletePod,
    Evict,
    KnockAgent,
    NodeState,
    OwnerState,
    PodState,
    ProbePod,
    RestoreNode,
    TaintNode,
    TakeOutOfService,
)
from holdfast.model.nodes.workers import EndAsked, NodeDown

PODS = 5
TURN_S = 0.1
FAULTS = ("drop", "stale_list", "double", "shuffle", "late", "away", "kill", "refuse", "lose_answer", "skew")
SETTLED_S = 40.0  # without faults: by then a dead pod is known as such


@dataclass
class World:
    """`chance`: seeded. `killed`: pods that really ended. `wrong`: what was done to healthy pods."""

    chance: random.Random
    node_rights: bool = True
    remakes_ended: bool = True
    pods: dict = field(default_factory=dict)
    killed: set = field(default_factory=set)
    wrong: list = field(default_factory=list)
    told_down: set = field(default_factory=set)
    now_s: float = 0.0
    version: int = 100
    quiet: bool = False

    def __post_init__(self):
        self.history = []  # (version, kind, state or name)
        self.queue = []  # events on their way to the controller
        self.away_until_s = 0.0
        self.refused = 0
        self.lost_answers = 0
        self.kill_at_write = False
        self.sent = 0
        self.made = 0
        suspended = OwnerState(kind="Job", name="t", uid="o", version="50", suspended=True)
        self.old_owner = suspended
        self.owner = replace(suspended, version="60", suspended=False)
        for number in range(PODS):
            self._make(f"gpu-{number}")
        self.begin()

    # The cluster ------------------------------------------------------------------------------------------

    def _change(self, kind, state):
        self.version += 1
        state = replace(state, version=str(self.version))
        if kind == "gone":
            self.pods.pop(state.name, None)
        else:
            self.pods[state.name] = state
        self.history.append((self.version, kind, state))

    def _make(self, node):
        self.made += 1
        name = f"t-{self.made}"
        state = PodState(name=name, uid=f"uid-{self.made}", address="10.0.0.1")
        self._change("changed", state)
        self._change("changed", replace(self.pods[name], node=node))
        self._change("changed", replace(self.pods[name], phase="Running", running=True))

    def kill_pod(self):
        alive = [pod for pod in self.pods.values() if pod.running and not pod.deleting]
        if not alive:
            return
        pod = self.chance.choice(alive)
        self.killed.add(pod.uid)
        end = ContainerEnd(code=137, reason="Error")
        self._change("changed", replace(pod, phase="Failed", running=False, ended=end))
        if self.remakes_ended:
            self._make(pod.node)

    # The controller ---------------------------------------------------------------------------------------

    def begin(self):
        self.book = PodBook(Rules(node_rights=self.node_rights, remakes_ended=self.remakes_ended))
        self.queue.clear()
        self.told_down = set()
        owner = self.old_owner if self._is_stale() else self.owner
        self.book.saw_owner(owner, self.now_s)
        self._list()
        if owner is not self.owner:
            self.book.saw_owner(self.owner, self.now_s)

    def _is_stale(self):
        return not self.quiet and self.chance.random() < 0.3

    def _list(self, behind=0):
        """`behind`: by so many versions."""
        version = max(100, self.version - behind)
        found = {}
        for at, kind, state in self.history:
            if at <= version:
                if kind == "gone":
                    found.pop(state.name, None)
                else:
                    found[state.name] = state
        self.sent = version
        self.book.listed(list(found.values()), self.now_s, str(version))

    def turn(self):
        self.now_s += TURN_S
        if self.now_s >= self.away_until_s:
            for at, kind, state in self.history:
                if at > self.sent:
                    self.queue.append((kind, state))
            self.sent = self.version
            queue, self.queue = self.queue, []
            for kind, state in queue:
                (self.book.pod_left if kind == "gone" else self.book.saw_pod)(state, self.now_s)
        news, acts = self.book.turn(self.now_s)
        for one in news:
            if isinstance(one, NodeDown):
                self._told(one)
            elif isinstance(one, EndAsked):
                self.wrong.append(f"the job was ended: {one.reason}")
        for act in acts:
            self._carry_out(act)

    def _told(self, news):
        pod = next(
            (state for _, _, state in reversed(self.history) if state.name == news.node),
            PodState(name="", uid=""),
        )
        self.told_down.add(pod.uid)
        if pod.uid not in self.killed:
            self.wrong.append(f"healthy pod {news.node} counts as lost: {news.reason}")

    def _carry_out(self, act):
        match act:
            case KnockAgent(pod=name, uid=uid):
                there = name in self.pods and self.pods[name].uid == uid and self.pods[name].running
                self.book.knocked(name, uid, "accepted" if there else "refused", self.now_s)
            case ProbePod(pod=name):
                if self.now_s < self.away_until_s:
                    pass
                elif name not in self.pods:
                    self.book.not_there(name)
                else:
                    self.book.probed(name, answered=self.pods[name].running, at_s=self.now_s)
            case Evict() | DeletePod():
                self._remove(act)
            case TaintNode(node=node) | TakeOutOfService(node=node) | RestoreNode(node=node):
                self.wrong.append(f"node {node} was changed: {act}")

    def _remove(self, act):
        if act.uid not in self.killed:
            self.wrong.append(f"healthy pod {act.pod} was removed: {act}")
            return
        if self.refused:
            self.refused -= 1
            self.book.not_done(act, "HTTP 500", self.now_s)
            return
        pod = self.pods.get(act.pod)
        if pod is not None and pod.uid == act.uid:
            self._change("gone", pod)
            if not self.remakes_ended:
                self._make(pod.node)
        if self.lost_answers:
            self.lost_answers -= 1
            self.book.not_done(act, "the answer was lost", self.now_s)
        if self.kill_at_write:
            self.kill_at_write = False
            self.begin()

    # Faults -----------------------------------------------------------------------------------------------

    def strike(self, fault):
        getattr(self, f"_{fault}")()

    def _drop(self):
        self.sent = max(100, self.sent - self.chance.randrange(12))

    def _stale_list(self):
        self._list(behind=self.chance.randrange(1, 40))

    def _double(self):
        self.queue += [(kind, state) for _, kind, state in self.history[-12:]]

    def _shuffle(self):
        """Objects change places; the events of one object keep their order."""
        recent = [(kind, state) for _, kind, state in self.history[-12:]]
        order = {uid: self.chance.random() for uid in sorted({state.uid for _, state in recent})}
        self.queue += sorted(recent, key=lambda one: order[one[1].uid])

    def _late(self):
        some = self.chance.sample(self.history, min(8, len(self.history)))
        self.queue += [(kind, state) for _, kind, state in some]

    def _away(self):
        self.away_until_s = self.now_s + self.chance.uniform(1, 60)
        for name in self.pods:
            if self.chance.random() < 0.5:
                self.book.ask(name, self.now_s)

    def _kill(self):
        self.kill_at_write = True
        if self.chance.random() < 0.5:
            self.begin()

    def _refuse(self):
        self.refused += self.chance.randrange(1, 6)

    def _lose_answer(self):
        self.lost_answers += self.chance.randrange(1, 3)

    def _skew(self):
        """A node that reports late, and agents on it that are silent for a moment."""
        node = f"gpu-{self.chance.randrange(PODS)}"
        for ready in ("False", "Unknown", "True"):
            self.book.saw_node(NodeState(name=node, ready=ready), self.now_s)
        for name, pod in self.pods.items():
            if pod.node == node:
                self.book.ask(name, self.now_s)
                self.book.returned(name)


def run(seed, faults=20):
    """What was wrong in one job with so many faults of the control plane, and a few ends of pods; empty: nothing."""
    chance = random.Random(seed)
    world = World(chance, node_rights=chance.random() < 0.5, remakes_ended=chance.random() < 0.5)
    for _ in range(faults):
        world.strike(chance.choice(FAULTS))
        if chance.random() < 0.15:
            world.kill_pod()
        for _ in range(chance.randrange(1, 60)):
            world.turn()
    world.quiet = True
    world.away_until_s, world.refused, world.lost_answers = 0.0, 0, 0
    world.strike("drop")
    for _ in range(int(SETTLED_S / TURN_S)):
        world.turn()
    usable = {world.pods[name].uid for name in world.book.nodes if name in world.pods}
    healthy = {pod.uid for pod in world.pods.values() if pod.running}
    if usable != healthy or len(healthy) != PODS:
        world.wrong.append(
            f"{len(healthy)} pods are healthy, {sorted(healthy ^ usable)} differ from those used"
        )
    return world.wrong
