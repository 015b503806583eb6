"""Tracks the nodes of a job: which join, fall silent, are lost, return, or must leave. Pure.

`core.nodes.watch` judges silence. A lost node is used again only after its agent reports that nothing of an
old attempt is left there and, with checks on, the node passes a check.
"""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.nodes import watch as node_watch
from holdfast.core.workers.acts import Act, AskEngine, Drop, Forget, Say, Send, SetNodeAside, StartAgent, Tell
from holdfast.core.workers.nodes import Node
from holdfast.core.workers.spares import SpareChecks
from holdfast.model.checks import IDLE
from holdfast.model.events import (
    FindingNoted,
    NodeIsolated,
    NodeLost,
    NodeReleased,
    NodeReturned,
    NodesChecked,
    WorkerExited,
)
from holdfast.model.nodes.workers import (
    AgentEnded,
    AgentHello,
    CheckNode,
    Leave,
    NodeAlive,
    NodeDown,
    NodeReady,
    SetAside,
    StopWorker,
)

LEFT_OUT = 0  # exit code of an agent that has to leave without a fault of the job
KILLED = -9
WORD_S = 1.0  # how long a message proves that its sender is alive


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the worker group; all times in seconds.

    `gather_s`: wait for expected nodes before others are requested. `start_wait_s`: wait for a connected
    agent to start its worker. `check_wait_s`: wait for a returned node to end old processes and to be
    checked, before the order is repeated. `gone_s`: wait for a new agent to report what happened to its
    node's worker. `checks`: check returned nodes. `standby`: keep the next attempt's processes ready from the
    first step on. `spare_check`: the suite for spares; empty: no checks. `check_again_s`: how long a pass is
    valid.
    """

    watch: node_watch.Settings = node_watch.Settings()
    gather_s: float = 60.0
    start_wait_s: float = 120.0
    check_wait_s: float = 60.0
    gone_s: float = 5.0
    checks: bool = True
    standby: bool = False
    spare_check: str = ""
    check_again_s: float = 0.0


class Team(Struct):
    """The workers of the current attempt.

    `nodes`: node by worker. `stop_asked`: its end was ordered. `over`: it has ended.
    """

    attempt: int = 0
    nodes: dict[int, str] = {}
    started: set[int] = set()  # workers reported to run
    exited: set[int] = set()  # workers whose command has ended
    stop_asked: bool = False
    over: bool = True

    places: dict[str, int] = {}  # worker by node, the inverse of `placed`
    placed: dict[int, str] = {}

    def worker_on(self, node: str) -> int | None:
        """Returns the worker on this node; None if there is none.

        Called for every report of thousands of nodes: `nodes` is replaced, never changed, so that the inverse
        can be cached.
        """
        if self.placed is not self.nodes:
            self.places = {where: worker for worker, where in self.nodes.items()}
            self.placed = self.nodes
        return self.places.get(node)


class Roster:
    """The nodes of a job with the state of their agents.

    `version`: of this Holdfast; all agents must have the same. `epoch`: how often the controller has resumed.
    """

    def __init__(self, nodes: Iterable[str], settings: Settings, version: str) -> None:
        self.nodes: dict[str, Node] = {name: Node(name=name) for name in nodes}
        self.team = Team()
        self.epoch = 0
        self.order: list[str] = list(self.nodes)  # in which they are preferred
        self.changed = False  # since the caller last looked: which nodes may be used
        self.lost_now: list[str] = []  # since the caller last looked: nodes lost
        self._settings = settings
        self._version = version
        self._spares = SpareChecks(settings.spare_check, settings.check_again_s)
        self._given: dict[str, int] = {}
        self._refused: set[str] = set()  # instances of refused agents
        self._awaits_all = True  # once the controller has resumed

    # Facts ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Node:
        """Returns the node with this name.

        A node that the engine has not listed may report, but is not used.
        """
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name=name, known=False)
            self.order.append(name)
        return node

    def usable(self, without: Iterable[str]) -> list[str]:
        """Returns the names of nodes on which a worker may be placed now, most preferred first."""
        shunned = set(without)
        return [name for name in self.order if name not in shunned and self.nodes[name].is_usable]

    def hopeful(self, without: Iterable[str]) -> list[str]:
        """Returns the names of nodes that are usable, or may become so soon."""
        shunned = set(without)
        return [name for name in self.order if name not in shunned and self.nodes[name].may_become_usable]

    def order_id(self, base: str) -> str:
        """Returns an id for an order: `base` the first time, a different one if repeated or after the
        controller resumed.
        """
        count = self._given[base] = self._given.get(base, 0) + 1
        return base if count == 1 and not self.epoch else f"{base}/{self.epoch}.{count}"

    def expect(self, worker: int, name: str, at_s: float, *, runs: bool) -> None:
        """Marks a node as expected to connect; called after the controller resumed, for each node with a
        worker.
        """
        node = self[name]
        node.contact = node_watch.Contact(
            silent_since_s=at_s, allowed_s=self._settings.watch.resumed_s, noted=True
        )
        if runs:
            self.team.started.add(worker)

    def _await_all(self, at_s: float) -> None:
        """Requests, after a restart of the controller, that the engine is queried about silent nodes, even
        those unused.
        """
        for node in self.nodes.values():
            if node.known and not (node.joined or node.lost) and node.contact.silent_since_s is None:
                node.contact = node_watch.Contact(silent_since_s=at_s, allowed_s=math.inf, noted=True)

    def lose(self, name: str, reason: str, at_s: float) -> list[Act]:
        return self._lose(self[name], reason, at_s)

    # The link ---------------------------------------------------------------------------------------------

    def joined(self, hello: AgentHello, address: str, at_s: float) -> list[Act]:
        node = self[hello.node]
        if hello.version != self._version:
            return self._sent_away(hello, at_s)
        is_new_agent = node.instance != hello.instance
        node.address = hello.address or address
        node.instance = hello.instance
        node.joined = True
        node.contact = node_watch.heard(node.contact)
        was_gone = node.gone_s is not None
        node.attempt, node.worker, node.gone_s = hello.attempt, hello.worker, None
        self.changed = True
        if node.lost:
            return self._may_return(node, at_s)
        if node.attempt and not self._is_of_team(node):
            return self._stop_stray(node, at_s)
        if not node.attempt and (is_new_agent or was_gone) and self._ran_here(node):
            node.gone_s = at_s
        return []

    def left(self, name: str, at_s: float) -> list[Act]:
        node = self[name]
        node.joined = False
        node.contact = node_watch.silent(node.contact, at_s, closed=True)
        self.changed = True
        self._forget_held(node)
        return self._watch(node, at_s)

    def silent(self, name: str, for_s: float, at_s: float) -> list[Act]:
        node = self[name]
        if node.joined:
            node.contact = node_watch.silent(node.contact, at_s - for_s)
            self.changed = True
            self._forget_held(node)
        return []

    def _forget_held(self, node: Node) -> None:
        """Stops waiting for a lost node that was ending its worker and fell silent again."""
        if node.lost and node.returning == "hold":
            self.lost_now.append(node.name)

    def heard(self, name: str, at_s: float) -> list[Act]:
        """Processes a message over a connection that had been quiet, perhaps from a lost node."""
        node = self.nodes.get(name)
        if node is None or not node.joined or node.contact.silent_since_s is None:
            return []
        ended_s = node.contact.agent_ended_s
        if ended_s is not None and at_s - ended_s <= WORD_S:
            return []  # the message may have been sent before that agent ended
        node.contact = node_watch.heard(node.contact)
        self.changed = True
        return self._may_return(node, at_s) if node.lost else []

    def _sent_away(self, hello: AgentHello, at_s: float) -> list[Act]:
        why = f"its Holdfast is {hello.version}, the controller's {self._version}: install the same on all nodes"
        acts: list[Act] = [Say(hello.node, Leave(code=LEFT_OUT, reason=why)), Drop(hello.node, why)]
        if hello.instance not in self._refused:
            self._refused.add(hello.instance)
            text = f"the agent of {hello.node} was ordered to leave: {why}"
            acts.append(Tell(FindingNoted(at_s=at_s, finding="agent-refused", text=text)))
        return acts

    def _is_of_team(self, node: Node) -> bool:
        team = self.team
        is_mine = node.attempt == team.attempt and node.worker is not None
        return is_mine and not team.over and team.nodes.get(node.worker or 0) == node.name

    def _ran_here(self, node: Node) -> bool:
        """Returns whether a worker of the running attempt started there without a reported end."""
        team = self.team
        worker = None if team.over or team.stop_asked else team.worker_on(node.name)
        return worker in team.started and worker not in team.exited

    def _stop_stray(self, node: Node, at_s: float) -> list[Act]:
        """Ends processes of an old attempt, or of a worker placed elsewhere, before the node is used."""
        acts = self._stop_old(node, at_s)
        if node.attempt == self.team.attempt and node.worker in self.team.nodes:
            text = (
                f"worker {node.worker} of attempt {node.attempt} runs on {node.name} too, and its place is "
                f"{self.team.nodes[node.worker]}: the one on {node.name} is ended"
            )
            acts.append(Tell(FindingNoted(at_s=at_s, finding="worker-twice", text=text)))
        return acts

    def _stop_old(self, node: Node, at_s: float) -> list[Act]:
        node.returning, node.asked_s = "stop", at_s
        node.returns += 1
        stop = StopWorker(attempt=node.attempt, reason=f"attempt {node.attempt} has ended")
        return [Send(node.name, self.order_id(f"return-{node.returns}/stop/{node.name}"), stop)]

    # Coming back ------------------------------------------------------------------------------------------

    def _may_return(self, node: Node, at_s: float) -> list[Act]:
        if node.attempt and self._is_of_team(node) and not self.team.stop_asked:
            node.returning = "hold"  # the core decides whether its attempt goes on
            return []
        return self._stop_old(node, at_s) if node.attempt else self._check(node, at_s)

    def _check(self, node: Node, at_s: float) -> list[Act]:
        if node.down:
            node.returning = ""  # until the engine says that it is up
            return []
        if not self._settings.checks or not node.lost:
            return self._back(node, at_s)
        node.returning, node.asked_s = "check", at_s
        order_id = self.order_id(f"return-{node.returns}/check/{node.name}")
        command = CheckNode(attempt=self.team.attempt, suite=self._spares.suite or "quick")
        return [Send(node.name, order_id, command)]

    def _back(self, node: Node, at_s: float) -> list[Act]:
        node.returning, self.changed = "", True
        if not node.lost:
            return []
        node.lost = False
        if node.aside:
            node.aside = False
            return [Tell(NodeReleased(at_s=at_s, node=node.name))]
        return [Tell(NodeReturned(at_s=at_s, node=node.name))]

    def stopped(self, name: str, attempt: int, at_s: float, *, all_gone: bool) -> list[Act]:
        """Processes an agent's report whether processes of this attempt or an earlier one are left on its node.

        `all_gone`: none is left.
        """
        node = self[name]
        if not all_gone or attempt < node.attempt:
            return []
        node.attempt, node.worker, node.gone_s = 0, None, None
        self.changed = True
        if node.returning == "stop" or (node.returning == "hold" and node.is_reachable):
            return self._check(node, at_s)
        return []

    def checked(self, name: str, answer: NodesChecked, at_s: float) -> list[Act] | None:
        """Processes the result of a check; returns None if it is not of a spare or of a returned node."""
        node = self[name]
        if node.returning != "check":
            return self._spare_checked(node, answer, at_s)
        why = answer.isolate.get(name, "") or answer.stop
        if not why:
            passed = [Tell(replace(answer, context=IDLE))] if self._spares.suite else []
            return [*self._back(node, at_s), *passed]
        node.returning = "refused"
        text = f"the returned node {name} is not used, because its check found: {why}"
        noted = Tell(FindingNoted(at_s=at_s, finding="node-refused", text=text))
        return [noted, SetNodeAside(name, why)] if name in answer.isolate else [noted]

    def _spare_checked(self, node: Node, answer: NodesChecked, at_s: float) -> list[Act] | None:
        if self.team.worker_on(node.name) is not None:  # placed meanwhile: the core may wait for this answer
            return None
        acts = self._spares.checked(node, answer, at_s)
        self.changed = self.changed or acts is not None
        return acts

    def set_aside(self, name: str) -> bool:
        """Marks a node as isolated by decision of core/job. Returns False if it is lost, which already keeps it out
        of use.
        """
        node = self[name]
        node.aside, self.changed = node.lost, True
        node.isolated = not node.lost
        return not node.lost

    # The engine -------------------------------------------------------------------------------------------

    def news(self, news: NodeReady | NodeDown | NodeAlive | AgentEnded | SetAside, at_s: float) -> list[Act]:
        node = self[news.node]
        match news:
            case NodeReady() | NodeAlive():
                return self._is_up(node, news, at_s)
            case NodeDown():
                node.down, self.changed = news.reason or "down", True
                reason = news.reason or "the scheduler says that it is down"
                return self._lose(node, reason, at_s, with_job=news.with_job)
            case AgentEnded():  # another agent may live there and be connected
                node.contact = node_watch.agent_ended(node.contact, at_s)
                self.changed = True
                return []
            case SetAside():
                node.isolated, self.changed = True, True
                acts: list[Act] = [Tell(NodeIsolated(at_s=at_s, node=node.name))]
                if news.says:
                    text = f"{node.name} is set aside: {news.says}"
                    acts.append(Tell(FindingNoted(at_s=at_s, finding="isolation", text=text)))
                return acts

    def _is_up(self, node: Node, news: NodeReady | NodeAlive, at_s: float) -> list[Act]:
        node.contact = node_watch.alive(node.contact, at_s)
        if isinstance(news, NodeReady) and not node.known:
            node.known = self.changed = True
        if not node.down:
            return []
        node.down, self.changed = "", True
        return self._may_return(node, at_s) if node.lost and node.is_reachable else []

    def _lose(self, node: Node, reason: str, at_s: float, *, with_job: bool = False) -> list[Act]:
        """Marks the node as lost and drops its orders: the next attempt's port and name fence off what still
        runs there.
        """
        if node.lost:
            node.returning = ""
            return []
        node.lost, node.lost_s, node.returning, node.with_job = True, at_s, "", with_job
        self.changed = True
        self.lost_now.append(node.name)
        lost = NodeLost(at_s=at_s, node=node.name, reason=reason, with_job=with_job)
        acts: list[Act] = [Forget(node.name), Tell(lost)]
        return [*acts, *self._may_return(node, at_s)] if node.is_reachable else acts

    # Time -------------------------------------------------------------------------------------------------

    def tick(self, at_s: float) -> list[Act]:
        acts: list[Act] = []
        if self.epoch and self._awaits_all:
            self._awaits_all = False
            self._await_all(at_s)
        for name in self.order:
            node = self.nodes[name]
            if node.contact.silent_since_s is not None:
                acts += self._watch(node, at_s)
            if node.gone_s is not None and node.joined and at_s - node.gone_s >= self._settings.gone_s:
                acts += self._worker_gone(node, at_s)
            if node.returning in ("check", "stop") and node.is_reachable:
                acts += self._ask_again(node, at_s)
        team = self.team
        runs = not (team.over or team.stop_asked or team.exited) and len(team.started) == len(team.nodes)
        used = team.nodes.values() if runs and len(self.order) > len(team.nodes) else ()
        return acts + self._spares.turn(self.nodes.values(), used, team.attempt, at_s, self.epoch)

    def _watch(self, node: Node, at_s: float) -> list[Act]:
        settings = self._settings.watch
        ended_s = node.contact.agent_ended_s
        if node.joined and ended_s is not None and at_s - ended_s < 2 * WORD_S:
            return []  # its connection is open: wait for the next message
        if node.lost:
            node.contact, is_again = node_watch.look_for_agent(node.contact, at_s, settings)
            return [StartAgent(node.name)] if is_again else []
        acts: list[Act] = []
        node.contact, steps = node_watch.look(node.name, node.contact, at_s, settings)
        for step in steps:
            match step:
                case node_watch.Note(text=text):
                    acts.append(Tell(FindingNoted(at_s=at_s, finding="node-silent", text=text)))
                case node_watch.Ask():
                    acts.append(AskEngine(node.name))
                case node_watch.AgentAgain():
                    acts.append(StartAgent(node.name))
                case node_watch.Lost(reason=reason):
                    acts += self._lose(node, reason, at_s)
        return acts

    def _ask_again(self, node: Node, at_s: float) -> list[Act]:
        if at_s - node.asked_s < self._settings.check_wait_s:
            return []
        return self._check(node, at_s) if node.returning == "check" else self._stop_old(node, at_s)

    def _worker_gone(self, node: Node, at_s: float) -> list[Act]:
        """Reports the end of a worker that a new agent did not find and of which no report exists."""
        node.gone_s = None
        team = self.team
        worker = team.worker_on(node.name)
        if worker is None or not self._ran_here(node):
            return []
        text = f"worker {worker} on {node.name} ended with its agent, unseen"
        finding = FindingNoted(at_s=at_s, finding="worker-gone", text=text, attempt=team.attempt)
        gone = WorkerExited(at_s=at_s, attempt=team.attempt, worker=worker, code=KILLED)
        team.exited.add(worker)
        return [Tell(finding), Tell(gone)]

    def isolate(self, names: Sequence[str]) -> None:
        for name in names:
            self[name].isolated = True
        self.changed = True

    def held_up(self, for_s: float) -> None:
        """Does not count `for_s` seconds, in which the controller itself was stopped, as silence of nodes."""
        for node in self.nodes.values():
            node.contact = node_watch.held_up(node.contact, for_s)
