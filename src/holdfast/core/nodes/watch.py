"""Decides when the silence of a node's agent counts as the loss of the node. Pure.

During a network partition the training and its agent may live on. So silence is first noted, and the engine
is queried; it becomes a loss only by these rules, the first that applies to a node that was connected:

    its connection has closed, or no heartbeat for `noted_s`  -> query the engine, every `ask_again_s`
    the engine reports it as down                             -> lost at once
    the engine reports that its agent has ended               -> start another agent there, at most every
                                                                 `agent_again_s`, twice as long each time
    as before, the connection closed, another agent starting  -> lost after `agent_start_s` in all: a slow
                                                                 start means a busy node, no partition
    no answer, or reported as up, for `node_silence_s`        -> lost: most likely ranks cannot reach it
    its agent announced its end                               -> as if its connection had closed
    the controller itself was stopped meanwhile               -> that time is not counted

A lost node that reports again is not used at once: see `core.workers.roster`.
"""

from msgspec import Struct
from msgspec.structs import replace

STEADY_S = 60.0  # an agent that lived this long does not count as failing at start


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time limits for silent nodes, in seconds.

    `agent_start_s`: silence allowed while another agent starts; `resumed_s`: time for agents to connect to a
    resumed controller.
    """

    noted_s: float = 3.0
    node_silence_s: float = 12.0
    ask_again_s: float = 3.0
    agent_again_s: float = 2.0
    agent_again_s_max: float = 60.0
    agent_start_s: float = 30.0
    resumed_s: float = 45.0


class Contact(Struct, frozen=True, kw_only=True):
    """The contact to one node's agent. `silent_since_s`: None while messages arrive.

    `allowed_s`: how long the agent may be silent, in seconds; None for the default.
    """

    silent_since_s: float | None = None
    closed: bool = False  # the connection is gone, not only quiet
    said_end: bool = False  # the close, or the engine's news that the agent ended, came before any silence
    noted: bool = False
    asked_s: float | None = None
    alive_s: float | None = None  # the engine said that the node is up
    agent_ended_s: float | None = None  # when its agent ended; None once another was requested
    agents: int = 0  # requested since the last message
    agent_asked_s: float | None = None
    allowed_s: float | None = None


class Note(Struct, frozen=True):
    """A step to take about a silent node: write a line to the log."""

    text: str


class Ask(Struct, frozen=True):
    """A step to take about a silent node: query the engine about it."""


class AgentAgain(Struct, frozen=True):
    """A step to take about a silent node: have the engine start a new agent on it, because the earlier one has
    ended.
    """


class Lost(Struct, frozen=True):
    """A conclusion about a silent node: it is lost."""

    reason: str


Step = Note | Ask | AgentAgain | Lost

IN_CONTACT = Contact()


def heard(contact: Contact) -> Contact:
    """Returns the contact to a node after a message from its agent.

    The count of failed agent starts is kept for some time, because a new agent may end at once too.
    """
    return Contact(agents=contact.agents, agent_asked_s=contact.agent_asked_s)


def silent(contact: Contact, since_s: float, *, closed: bool = False) -> Contact:
    """Returns the contact to a node whose agent has sent nothing since `since_s`; the first call counts.

    `closed`: the connection was closed.
    """
    if contact.silent_since_s is None:
        agents, asked_s = contact.agents, contact.agent_asked_s
        if asked_s is not None and since_s - asked_s > STEADY_S:
            agents, asked_s = 0, None
        return replace(
            contact,
            silent_since_s=since_s,
            closed=closed,
            said_end=closed,
            agents=agents,
            agent_asked_s=asked_s,
        )
    return replace(contact, closed=contact.closed or closed)


def held_up(contact: Contact, for_s: float) -> Contact:
    """Returns the contact to a node after the controller itself was stopped for `for_s` seconds, which do not count
    as silence.
    """
    if contact.silent_since_s is None:
        return contact
    return replace(contact, silent_since_s=contact.silent_since_s + for_s)


def alive(contact: Contact, at_s: float) -> Contact:
    """Returns the contact to a node after the engine reported the node as up."""
    return replace(contact, alive_s=at_s)


def agent_ended(contact: Contact, at_s: float) -> Contact:
    """Returns the contact to a node after the engine reported that the agent's process has ended."""
    return replace(silent(contact, at_s, closed=True), agent_ended_s=at_s)


def look(node: str, contact: Contact, at_s: float, settings: Settings) -> tuple[Contact, tuple[Step, ...]]:
    """Returns the contact to a node that the engine did not report as down, and what to do now about its silence.

    After a loss the caller must not call this again for the node.
    """
    if contact.silent_since_s is None:
        return contact, ()
    for_s = at_s - contact.silent_since_s
    allowed_s = settings.node_silence_s if contact.allowed_s is None else contact.allowed_s
    if _is_starting(contact):
        allowed_s = max(allowed_s, settings.agent_start_s)
    if for_s >= allowed_s:
        return contact, (Lost(_reason(contact, for_s)),)
    steps: list[Step] = []
    if for_s >= settings.noted_s and not contact.noted:
        contact = replace(contact, noted=True)
        steps.append(Note(f"{node} has sent nothing for {for_s:.0f} s; it is lost after {allowed_s:.0f} s"))
    curious = contact.closed or for_s >= settings.noted_s
    if curious and (contact.asked_s is None or at_s - contact.asked_s >= settings.ask_again_s):
        contact = replace(contact, asked_s=at_s)
        steps.append(Ask())
    if contact.agent_ended_s is not None and _may_start_agent(contact, at_s, settings):
        contact = replace(contact, agent_ended_s=None, agents=contact.agents + 1, agent_asked_s=at_s)
        steps.append(AgentAgain())
    return contact, tuple(steps)


def look_for_agent(contact: Contact, at_s: float, settings: Settings) -> tuple[Contact, bool]:
    """Returns the contact, and whether to start another agent on a lost node, so that it can return."""
    if contact.agent_ended_s is None or not _may_start_agent(contact, at_s, settings):
        return contact, False
    return replace(contact, agent_ended_s=None, agents=contact.agents + 1, agent_asked_s=at_s), True


def _is_starting(contact: Contact) -> bool:
    """Returns whether another agent was requested during this silence, and the engine has not reported its
    end.
    """
    assert contact.silent_since_s is not None
    asked_s = contact.agent_asked_s
    is_asked = asked_s is not None and asked_s >= contact.silent_since_s
    return contact.said_end and is_asked and contact.agent_ended_s is None


def _may_start_agent(contact: Contact, at_s: float, settings: Settings) -> bool:
    if contact.agent_asked_s is None:
        return True
    wait_s = min(settings.agent_again_s * 2.0 ** max(0, contact.agents - 1), settings.agent_again_s_max)
    return at_s - contact.agent_asked_s >= wait_s


def _reason(contact: Contact, for_s: float) -> str:
    says = "; the scheduler or the machine says that it is up" if contact.alive_s is not None else ""
    if contact.agents:
        says = f"; {contact.agents} agents started there since did not connect"
    return f"no message for {for_s:.0f} s{says}"
