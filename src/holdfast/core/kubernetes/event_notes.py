"""Chooses which Events of the cluster are worth a line of the job's log: why no pod comes, or why one does not start. Pure."""

from holdfast.core.kubernetes import words
from holdfast.model.kubernetes import ClusterEvent, OwnerState, PodState
from holdfast.model.nodes.workers import EngineNote

EVENTS_MAX = 64  # different messages that are noted


class EventNotes:
    """Filter of cluster Events; each message passes once."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def of(self, event: ClusterEvent, pod: PodState | None, owner: OwnerState | None) -> list[EngineNote]:
        """Returns the note for an Event, or nothing. `pod`: the pod of the job that the Event is about."""
        if not event.is_warning or (pod is None and not _is_of_owner(event.about, owner)):
            return []
        if pod is not None and pod.running:
            return []
        if not words.advice_of(event) or event.message in self._noted or len(self._noted) >= EVENTS_MAX:
            return []
        self._noted.add(event.message)
        return [EngineNote(text=words.event_line(event))]


def _is_of_owner(name: str, owner: OwnerState | None) -> bool:
    """Returns True if a name is that of the owner, or of a Job that it created."""
    return owner is not None and (name == owner.name or name.startswith(f"{owner.name}-"))
