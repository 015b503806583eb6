"""Reads journals of jobs, and replays their decisions with other settings. Read-only."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.archive.costs import JOBS_MAX, read_cost
from holdfast.core.costs.account import JobCost
from holdfast.core.job.presets.translate import translate
from holdfast.core.replay.deciding import UnknownSetting, changed
from holdfast.core.replay.score import Score, score, typical
from holdfast.jobs.record import RecordUnreadable, open_record
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import RawEntry
from holdfast.journal.store import JournalUnusable
from holdfast.model.events import AnyEvent
from holdfast.model.policy import Policy
from holdfast.settings.times import NotATime, seconds

_EVENTS: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class Wanted(Struct, frozen=True, kw_only=True):
    """The settings of a replay.

    `preset`: a policy as for --policy; empty means the job's own. `settings`: overrides of single settings.
    """

    preset: str = ""
    settings: Mapping[str, Any] = {}

    def policy(self, own: Policy) -> Policy:
        """Returns the policy with the overrides applied. Raises UnknownSetting and BadPreset."""
        base = own
        if self.preset:
            given = translate(self.preset)
            fields = {name: getattr(given.policy, name) for name in given.fields if hasattr(own, name)}
            base = replace(own, **fields)
        return changed(base, self.settings)


class Replayed(Struct, frozen=True, kw_only=True):
    """The scores of replayed jobs. `unread`: sentences about jobs that could not be replayed."""

    scores: tuple[Score, ...]
    unread: tuple[str, ...] = ()


def replay_jobs(jobs: Iterable[JobDir], wanted: Wanted) -> Replayed:
    """Replays jobs with other settings. Raises UnknownSetting and BadPreset.

    Each journal is read twice, first to measure recovery times.
    """
    costs, unread = list[tuple[JobDir, JobCost]](), list[str]()
    for count, job in enumerate(jobs):
        if count >= JOBS_MAX:
            unread.append(f"only the newest {JOBS_MAX} jobs are replayed")
            break
        try:
            costs.append((job, read_cost(job, steps=False).cost))
        except RecordUnreadable as error:
            unread.append(str(error))
    took = typical(cost for _, cost in costs)
    scores = []
    for job, cost in costs:
        try:
            scores.append(_score(job, cost, wanted, took))
        except RecordUnreadable as error:
            unread.append(str(error))
    return Replayed(scores=tuple(scores), unread=tuple(unread))


def events_of(rows: Iterable[RawEntry]) -> tuple[list[AnyEvent], int]:
    """Returns the events of a journal, and the number of rows that this version cannot decode."""
    found, skipped = list[AnyEvent](), 0
    for row in rows:
        try:
            found.append(_EVENTS.decode(row[2]))
        except msgspec.MsgspecError:
            skipped += 1
    return found, skipped


def setting_of(text: str) -> tuple[str, object]:
    """Parses a setting such as `max-restarts=3`, `hang_timeout=10min` or `hang-restart=true`.

    Raises UnknownSetting.
    """
    name, equals, raw = text.partition("=")
    key = name.strip().replace("-", "_")
    raw = raw.strip()
    if not key or not equals or not raw:
        raise UnknownSetting(f"{text!r} is not a setting: write KEY=VALUE, such as max-restarts=8")
    known = Policy.__struct_fields__
    if key not in known and f"{key}_s" in known:
        key = f"{key}_s"
    if raw in ("auto", "none", "null"):
        return key, None
    if raw in ("true", "yes", "on") or raw in ("false", "no", "off"):
        return key, raw if key == "boot_check" else raw in ("true", "yes", "on")
    if key.endswith("_s") and not raw.replace(".", "", 1).isdecimal():
        try:
            return key, seconds(raw)
        except NotATime as error:
            raise UnknownSetting(f"{name.strip()}: {error}") from error
    return key, raw


def _score(job: JobDir, cost: JobCost, wanted: Wanted, took: Mapping[str, Mapping[str, float]]) -> Score:
    record = open_record(job)
    try:
        events, skipped = events_of(record.reader.read_raw())
    except JournalUnusable as error:
        raise RecordUnreadable(str(error)) from error
    finally:
        record.close()
    found = score(events, record.policy, wanted.policy(record.policy), took, gpus=cost.gpus)
    notes = [*record.notes, *([record.reader.damage] if record.reader.damage else [])]
    notes += [f"{skipped} entries of another version were left out"] if skipped else []
    return replace(found, job=job.name, notes=tuple(notes))
