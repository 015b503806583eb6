"""Selects the alerts that are not recorded in a job's journal yet, with a limit per hour. Pure."""

from collections import OrderedDict, deque
from collections.abc import Iterable

from holdfast.core.job.story_lines import ALERT
from holdfast.model.events import AnyEvent, FindingNoted

KEY = "alert"  # in the numbers of the event
KEY_CHARACTERS_MAX = 100
KNOWN_MAX = 10_000
PER_HOUR_MAX = 200  # an alert that fires and resolves again and again must not fill the journal
HOUR_S = 3600.0


class AlertNotes:
    """The keys of the alerts that a job's journal contains already, the newest KNOWN_MAX of them. Not
    thread-safe.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()
        self._times: deque[float] = deque(maxlen=PER_HOUR_MAX)

    def remember(self, event: AnyEvent) -> None:
        """Stores the key of an alert that an event of the journal records; ignores all other events."""
        if not isinstance(event, FindingNoted) or event.finding != ALERT:
            return
        self._known[str(event.numbers.get(KEY, ""))] = None
        self._times.append(event.at_s)
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def new(self, keys: Iterable[str], at_s: float) -> tuple[frozenset[str], int]:
        """Returns the keys of the alerts to record, and the number of new alerts beyond this hour's limit."""
        found = [key for key in dict.fromkeys(keys) if key not in self._known]
        room = max(0, PER_HOUR_MAX - sum(at_s - one < HOUR_S for one in self._times))
        return frozenset(found[:room]), max(0, len(found) - room)
