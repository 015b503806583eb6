"""Creates notifications about one job, from each entry of its journal and from conditions that are not in the
journal.

The same journal gives the same notifications with the same versions, so a restarted process finds which ones
are still to be sent.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from datetime import tzinfo

from msgspec import Struct
from msgspec.structs import replace

from holdfast.archive.state import true_state
from holdfast.controller.loop import decisions
from holdfast.core.job.story import Summary
from holdfast.core.notify.happenings import Happening, happenings
from holdfast.jobs.record import Record, labels_of
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import RawEntry
from holdfast.journal.store import open_reader
from holdfast.model.documents.notices import Notice, NoticeEvent
from holdfast.model.documents.parts import JobState
from holdfast.model.state import Running
from holdfast.notify.checkpoints import CheckpointAge
from holdfast.notify.silence import Silence
from holdfast.views.jobs.seen import Seen
from holdfast.views.notices import HAVE_AN_END, notice

# The state that the sentence of the moment is about; of others, that the job trains.
STATES: dict[NoticeEvent, JobState] = {
    "waiting-for-node": "waiting",
    "no-spare": "waiting",
    "failed": "failed",
    "job-done": "succeeded",
    "job-started": "starting",
    "incident": "recovering",
    "hang": "recovering",
    "verdict": "recovering",
}


class Settings(Struct, frozen=True, kw_only=True):
    """Settings of notifications about one job.

    `page`: address of the server's page; empty means no links. `labels`: of the job. `silence_s`,
    `checkpoint_age_s`: as in NotifyConfig.
    """

    page: str = ""
    labels: dict[str, str] = {}
    zone: tzinfo | None = None
    silence_s: float = 0.0
    checkpoint_age_s: float = 0.0


class JobWatch:
    """Source of notifications about one job. Raises JournalUnusable if there is no journal yet.

    `job_id`: id on the server's page; empty means the job's name.
    """

    def __init__(
        self, job: JobDir, settings: Settings, clock: Callable[[], float] = time.time, job_id: str = ""
    ) -> None:
        self._record = Record(job, open_reader(job.journal_path))
        self._job, self._settings, self._clock = job, settings, clock
        self._id = job_id or job.name
        self._seq = 0
        self._summary: Summary | None = None  # after the last event; made where it is asked for
        self._versions: dict[str, int] = {}
        self._rounds: dict[str, int] = {}  # how often what a key stands for has begun
        self._closed: set[str] = set()
        self._lost = ""  # the key of the notice that the job has no supervisor
        self._silence = Silence(job, settings.silence_s)
        self._checkpoints = CheckpointAge(job, settings.checkpoint_age_s)

    @property
    def has_ended(self) -> bool:
        return self._record.story.ended

    def news(self) -> Iterator[Notice]:
        """Yields notifications from journal entries that are new since the last call.

        Raises JournalUnusable.
        """
        story, policy = self._record.story, self._record.policy
        state = story.state
        for event, decision in decisions(self._rows(), policy, state):
            found = happenings(state, event, decision, policy)
            story.hear(event, decision)
            state, self._summary = decision.state, None
            for one in found:
                yield from self._notices(one, STATES.get(one.event, "training"))

    def look(self) -> Iterator[Notice]:
        """Yields notifications about conditions that are not in the journal: a dead supervisor, missing
        output, old checkpoints.
        """
        if self.has_ended:
            return
        yield from self._supervised()
        now_s, attempt, started_s = self._clock(), None, None
        state = self._record.story.state
        if isinstance(state.phase, Running) and not self._lost:
            attempt = state.job.attempt
            attempts = self._now().attempts
            started_s = attempts[-1].started_at_s if attempts else None
        yield from self._outside(self._silence.look(attempt, now_s))
        yield from self._outside(self._checkpoints.look(attempt, started_s, now_s))

    def close(self) -> None:
        self._record.close()

    def _supervised(self) -> Iterator[Notice]:
        truth = true_state(self._job, self._record.facts, self._now(), self._clock)
        is_lost = truth.state in ("dead", "unsupervised")
        if is_lost == bool(self._lost):
            return
        # Without a supervisor the journal does not change, so a restart of this process gives the same key.
        key = self._lost or f"supervisor-{self._seq}"
        self._lost = key if is_lost else ""
        happening = Happening(
            key=key,
            event="unsupervised",
            severity="critical" if is_lost else "info",
            at_s=truth.since_s or self._clock(),
            is_over=not is_lost,
        )
        yield from self._notices(happening, truth.state)

    def _outside(self, found: Iterable[Happening]) -> Iterator[Notice]:
        for one in found:
            yield from self._notices(one, "training")

    def _notices(self, happening: Happening, state: JobState) -> Iterator[Notice]:
        """Yields the notification of an event; none if it ends a condition that had not begun."""
        is_on = happening.key in self._versions and happening.key not in self._closed
        if happening.is_over and happening.event in HAVE_AN_END and not is_on:
            return
        yield self._notice(self._numbered(happening), state)

    def _notice(self, happening: Happening, state: JobState) -> Notice:
        version = self._versions[happening.key] = self._versions.get(happening.key, 0) + 1
        settings, record = self._settings, self._record
        seen = Seen(
            id=self._id,
            name=self._job.name,
            state=state,
            state_since_s=happening.at_s,
            facts=record.facts,
            policy=record.policy,
            labels={**settings.labels, **labels_of(record.facts)},
        )
        link = ""
        if settings.page:
            link = f"{settings.page}/jobs/{self._id}"
            link += f"/incidents/{happening.incident}" if happening.incident is not None else ""
        return notice(happening, version, self._now(), seen, link=link, zone=settings.zone)

    def _now(self) -> Summary:
        if self._summary is None:
            self._summary = self._record.story.summary()
        return self._summary

    def _numbered(self, happening: Happening) -> Happening:
        """Gives a condition that begins again after its end a new key, so that it becomes a new
        notification.
        """
        key = happening.key
        if key in self._closed:
            self._closed.discard(key)
            self._rounds[key] = self._rounds.get(key, 1) + 1
        if happening.is_over:
            self._closed.add(key)
        number = self._rounds.get(key, 1)
        return happening if number == 1 else replace(happening, key=f"{key}-again-{number}")

    def _rows(self) -> Iterator[RawEntry]:
        for row in self._record.reader.read_raw(self._seq):
            self._seq = row[5]
            yield row
