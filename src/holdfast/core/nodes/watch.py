"""What is concluded from the silence of a node's agent, and when. Pure.

A partition is not a death: the training may live on where no word comes from, and the node's own agent keeps it. So
silence alone is noted, asked about, and waited for; it becomes a loss only by these rules, the first that applies:

| what is known of a node that was in contact                | what follows                                          |
|------------------------------------------------------------|-------------------------------------------------------|
| its connection has closed, or no beat for `noted_s` (3 s)  | the engine is asked how it is, every `ask_again_s`    |
| the engine says that it is down                            | lost at once                                          |
| the engine says that its agent has ended                   | another agent is started there, at most every         |
|                                                            | `agent_again_s`, twice as long each time              |
| that, of a node that closed its connection, and another    | lost after `agent_start_s` (30 s) in all: a node that |
| agent is on its way                                        | starts it slowly is a busy one, and no partition      |
| nothing, or that it is up, for `node_silence_s` (12 s)     | lost: unreachable for ranks, too, as far as is known  |
| its agent said goodbye                                     | as if its connection had closed                       |
| the controller itself was held up meanwhile                | that time is not counted                              |

A node that is lost and speaks again is not taken back for that: see `core.worker_group`.
"""

from msgspec import Struct
from msgspec.structs import replace

STEADY_S = 60.0  # an agent that lived so long is not one that cannot live


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All in seconds. `agent_start_s`: of silence, for another agent to come; `resumed_s`: for agents to find a
    controller that has come back."""

    noted_s: float = 3.0
    node_silence_s: float = 12.0
    ask_again_s: float = 3.0
    agent_again_s: float = 2.0
    agent_again_s_max: float = 60.0
    agent_start_s: float = 30.0
    resumed_s: float = 45.0


class Contact(Struct, frozen=True, kw_only=True):
    """The way to one agent. `silent_since_s`: None while it is heard. `allowed_s`: of silence; None: the usual."""

    silent_since_s: float | None = None
    closed: bool = False  # the connection is gone, not only quiet
    said_end: bool = (
        False  # and that it closed, or the engine's word that the agent has ended, came before any silence
    )
    noted: bool = False
    asked_s: float | None = None
    alive_s: float | None = None  # the engine said that the node is up
    agent_ended_s: float | None = None  # and that its agent is not; None once another was asked for
    agents: int = 0  # asked for since it was last heard
    agent_asked_s: float | None = None
    allowed_s: float | None = None


class Note(Struct, frozen=True):
    """A line for the log."""

    text: str


class Ask(Struct, frozen=True):
    """The engine is to be asked how the node is."""


class AgentAgain(Struct, frozen=True):
    """The engine is to start another agent there."""


class Lost(Struct, frozen=True):
    reason: str


Step = Note | Ask | AgentAgain | Lost

IN_CONTACT = Contact()


def heard(contact: Contact) -> Contact:
    """A word from there. That agents were started in vain is forgotten only with time: they may end again at once."""
    return Contact(agents=contact.agents, agent_asked_s=contact.agent_asked_s)


def silent(contact: Contact, since_s: float, *, closed: bool = False) -> Contact:
    """No word since then. Said again, the first time counts."""
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
    """The listener itself was stopped or starved so long: that is not the node's silence."""
    if contact.silent_since_s is None:
        return contact
    return replace(contact, silent_since_s=contact.silent_since_s + for_s)


def alive(contact: Contact, at_s: float) -> Contact:
    """The engine says that the node is up."""
    return replace(contact, alive_s=at_s)


def agent_ended(contact: Contact, at_s: float) -> Contact:
    """The engine says that the agent's process is gone."""
    return replace(silent(contact, at_s, closed=True), agent_ended_s=at_s)


def look(node: str, contact: Contact, at_s: float, settings: Settings) -> tuple[Contact, tuple[Step, ...]]:
    """What is to be done now about a node that was not reported down. A lost one is the caller's to remember."""
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
        steps.append(Note(f"{node} has not been heard for {for_s:.0f} s; it is lost after {allowed_s:.0f} s"))
    curious = contact.closed or for_s >= settings.noted_s
    if curious and (contact.asked_s is None or at_s - contact.asked_s >= settings.ask_again_s):
        contact = replace(contact, asked_s=at_s)
        steps.append(Ask())
    if contact.agent_ended_s is not None and _may_start_agent(contact, at_s, settings):
        contact = replace(contact, agent_ended_s=None, agents=contact.agents + 1, agent_asked_s=at_s)
        steps.append(AgentAgain())
    return contact, tuple(steps)


def look_for_agent(contact: Contact, at_s: float, settings: Settings) -> tuple[Contact, bool]:
    """Of a node that is lost: whether another agent is to be started there, so that it may come back."""
    if contact.agent_ended_s is None or not _may_start_agent(contact, at_s, settings):
        return contact, False
    return replace(contact, agent_ended_s=None, agents=contact.agents + 1, agent_asked_s=at_s), True


def _is_starting(contact: Contact) -> bool:
    """Another agent was asked for in this silence, and the engine has not said that it ended, too."""
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
        says = f"; {contact.agents} agents that were started there since did not come"
    return f"not heard for {for_s:.0f} s{says}"
