"""Follows the record of one job and makes notices: from each entry of the journal, and from what lies outside of it.

The same journal gives the same notices with the same versions, so that a process that starts anew knows what is due.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo

from msgspec import Struct

from holdfast.archive.state import true_state
from holdfast.controller.loop import decisions
from holdfast.core.notify.happenings import Happening, happenings
from holdfast.jobs.record import Record
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import RawEntry
from holdfast.journal.store import open_reader
from holdfast.model.documents.notices import Notice
from holdfast.model.state import Running
from holdfast.views.jobs.seen import Seen
from holdfast.views.notices import notice


class Settings(Struct, frozen=True, kw_only=True):
    """`page`: address of the server's page; empty: no links. `labels`: of the job."""

    page: str = ""
    labels: dict[str, str] = {}
    zone: tzinfo | None = None


class JobWatch:
    """raises: JournalUnusable, where there is no journal yet"""

    def __init__(self, job: JobDir, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._record = Record(job, open_reader(job.journal_path))
        self._job, self._settings, self._clock = job, settings, clock
        self._seq = 0
        self._versions: dict[str, int] = {}
        self._lost = False  # said that nobody supervises the job

    @property
    def has_ended(self) -> bool:
        return self._record.story.ended

    def news(self) -> Iterator[Notice]:
        """From the entries that are new since the last call. raises: JournalUnusable"""
        story, policy = self._record.story, self._record.policy
        state = story.state
        for event, decision in decisions(self._rows(), policy, state):
            found = happenings(state, event, decision, policy)
            story.hear(event, decision)
            state = decision.state
            for one in found:
                yield self._notice(one, "training")

    def look(self) -> Iterator[Notice]:
        """From what the journal does not say: the supervisor has died, and nobody writes the journal."""
        if self.has_ended:
            return
        truth = true_state(self._job, self._record.facts, self._record.story.summary(), self._clock)
        is_lost = truth.state in ("dead", "unsupervised")
        if is_lost != self._lost:
            self._lost = is_lost
            happening = Happening(
                key="supervisor",
                event="unsupervised",
                severity="critical" if is_lost else "info",
                at_s=truth.since_s or self._clock(),
                is_over=not is_lost,
            )
            yield self._notice(happening, truth.state)

    def outside(self, found: Iterable[Happening]) -> Iterator[Notice]:
        """Of what was found outside of the journal while the job trains."""
        for one in found:
            yield self._notice(one, "training")

    @property
    def attempt(self) -> int | None:
        """The attempt that trains now; None: none does."""
        state = self._record.story.state
        return state.job.attempt if isinstance(state.phase, Running) else None

    def close(self) -> None:
        self._record.close()

    def _notice(self, happening: Happening, state: str) -> Notice:
        version = self._versions[happening.key] = self._versions.get(happening.key, 0) + 1
        settings, facts = self._settings, self._record.facts
        summary = self._record.story.summary()
        seen = Seen(
            id=self._job.name,
            name=self._job.name,
            state=_state(happening, state),  # type: ignore[arg-type]
            state_since_s=happening.at_s,
            facts=facts,
            policy=self._record.policy,
            labels=settings.labels,
        )
        link = ""
        if settings.page:
            link = f"{settings.page}/jobs/{self._job.name}"
            link += f"/incidents/{happening.incident}" if happening.incident is not None else ""
        return notice(happening, version, summary, seen, link=link, zone=settings.zone)

    def _rows(self) -> Iterator[RawEntry]:
        for row in self._record.reader.read_raw(self._seq):
            self._seq = row[5]
            yield row


def _state(happening: Happening, state: str) -> str:
    """The state that the sentence of this moment is about."""
    by_event = {
        "waiting-for-node": "waiting",
        "no-spare": "waiting",
        "failed": "failed",
        "job-done": "succeeded",
        "job-started": "starting",
        "incident": "recovering",
        "hang": "recovering",
        "verdict": "recovering",
    }
    return by_event.get(happening.event, state)
