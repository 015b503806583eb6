"""The index follows the journals: what is new, what changes without an entry, what is replaced, damaged or removed."""

import shutil
import sqlite3

import msgspec
import pytest

from archive.index.fleet import BEGIN_S, Fleet, listed, until, verdict
from holdfast.archive.index.queries import job_row
from holdfast.archive.index.service import IndexService
from holdfast.archive.places import Places
from holdfast.core.job.decide import decide
from holdfast.journal.rows import Row
from holdfast.model import events as ev
from holdfast.model.documents.live import IncidentChanged, JobChanged
from holdfast.model.policy import Policy

RESTARTS = Policy(max_restarts=3, unconditional_restart=True)


def row_when(service, name, done):
    """The job's row once it is so."""

    def look(service):
        row = job_row(service.database, name)
        return row if row is not None and done(row) else None

    return until(service, look)


def changes_when(service, done):
    """The changes up to those with which it is so: a row is there a moment before they are."""
    found = []

    def look(service):
        found.extend(service.changes())
        return found if done(found) else None

    return until(service, look)


def has_all(*ids):
    """Whether there are changes of all these jobs."""
    return lambda changes: {change.job for change in changes} >= set(ids)


def test_new_entries_are_seen(fleet, url):
    service = fleet.served(url)
    job = fleet.job("llama", policy=RESTARTS).begins("n0", "n1").hold()
    assert row_when(service, "llama", lambda row: row.attempt == 1).nodes == ("n0", "n1")
    job.steps(1, 20)
    assert row_when(service, "llama", lambda row: row.step == 20).state == "training"
    job.fails()
    assert row_when(service, "llama", lambda row: row.incidents == 1).state == "recovering"
    job.begins("n2", "n3").steps(18, 19)
    row = row_when(service, "llama", lambda row: row.step == 19)
    assert (row.state, row.restarts, row.category) == ("training", 1, "gpu_oom")
    job.succeeds().close()
    assert row_when(service, "llama", lambda row: row.state == "succeeded").cause == ""


def test_changes_name_the_job_and_the_incident(fleet, url):
    job = fleet.job("llama").begins("n0").steps(1, 3).hold()
    service = fleet.served(url)
    changes_when(service, lambda found: any(change.data.row.step == 3 for change in found))
    job.fails()

    def is_shown(found):
        rows = [change.data.row for change in found if isinstance(change.data, JobChanged)]
        return any(row.state == "failed" for row in rows) and len(rows) < len(found)

    changes = [change.data for change in changes_when(service, is_shown)]
    [incident] = [one.row for one in changes if isinstance(one, IncidentChanged)]
    assert (incident.number, incident.category, incident.over) == (1, "gpu_oom", True)
    assert service.changes() == []


def test_a_row_does_not_say_training_of_a_dead_job(fleet, url):
    job = fleet.job("llama").begins("n0").steps(1, 3).hold()
    service = fleet.served(url)
    row_when(service, "llama", lambda row: row.state == "training")
    job.let_go()
    row = row_when(service, "llama", lambda row: row.state == "dead")
    assert row.step_s is None and row.eta_s is None
    job.hold()
    job.tell(ev.ControllerResumed(at_s=0.0))
    row_when(service, "llama", lambda row: row.state == "training")


def test_all_of_many_jobs_are_known_to_be_dead_in_time(fleet):
    jobs = [fleet.job(f"job-{number:02}").begins("n0").steps(1, 2).hold() for number in range(60)]
    service = fleet.served("")
    until(service, lambda service: listed(service).states == {"training": 60}, 60.0)
    for job in jobs:
        job.let_go()
    until(service, lambda service: listed(service).states == {"dead": 60}, 60.0)


def test_a_job_of_a_host_that_is_silent_becomes_unknown(fleet, url):
    """Its lock is on a disk that is shared, and does not show who holds it there."""
    job = fleet.job("llama", host="elsewhere").begins("n0").steps(1, 3)
    now_s = [job.at_s + 5.0]
    service = IndexService(Places([fleet.root]), url, processes=0, wall=lambda: now_s[0])
    service.start()
    try:
        row_when(service, "llama", lambda row: row.state == "training")
        now_s[0] += 600.0
        row = row_when(service, "llama", lambda row: row.state == "unknown")
        assert row.seen_at_s == job.at_s
    finally:
        service.stop()


def test_a_job_that_is_removed_is_gone(fleet, url):
    fleet.job("stays").begins("n0").fails()
    job = fleet.job("goes").begins("n0").fails()
    service = fleet.served(url)
    changes_when(service, has_all("stays", "goes"))
    assert listed(service).total == 2
    shutil.rmtree(job.dir.path)
    changes = changes_when(service, has_all("goes"))
    assert [change.data for change in changes] == [JobChanged(id="goes")]
    assert listed(service).total == 1
    assert listed(service, search="goes").total == 0


def test_another_job_of_the_same_name_takes_its_place(fleet, url):
    first = fleet.job("llama").begins("n0").steps(1, 50).fails()
    service = fleet.served(url)
    row_when(service, "llama", lambda row: row.state == "failed")
    shutil.rmtree(first.dir.path)
    fleet.job("llama", BEGIN_S + 9_000).begins("n7").steps(1, 60).succeeds()
    row = row_when(service, "llama", lambda row: row.state == "succeeded")
    assert (row.submitted_at_s, row.nodes, row.incidents) == (BEGIN_S + 9_001, ("n7",), 0)
    assert listed(service, search="n0").total == 0


def test_a_damaged_journal_is_shown_as_far_as_it_goes(fleet, url):
    job = fleet.job("llama").begins("n0").steps(1, 40).close()
    with sqlite3.connect(job.dir.journal_path) as connection:
        connection.execute("DROP TRIGGER entries_stay")
        connection.execute("UPDATE entries SET event = replace(event, 'step', 'stop') WHERE seq = 20")
    connection.close()
    broken = fleet.job("broken").begins("n0").close()
    broken.dir.journal_path.write_bytes(b"no database at all" * 400)
    service = fleet.served(url)
    page = until(service, lambda service: listed(service) if listed(service).total == 2 else None)
    rows = {row.name: row for row in page.jobs}
    assert rows["llama"].step == 16
    assert rows["broken"].state == "unknown"
    assert "journal" in rows["broken"].sentence.text.en


def test_a_journal_of_a_later_version_is_named(fleet, url):
    job = fleet.job("llama").begins("n0")
    job.store.set_meta("schema-version", b"99")
    job.close()
    service = fleet.served(url)
    row = row_when(service, "llama", lambda row: row.state == "unknown")
    assert "journal version 99" in row.sentence.text.en


def test_an_ended_journal_may_still_grow(fleet, url):
    """What people say of an incident is written after the end."""
    job = fleet.job("llama").begins("n0").fails().close()
    service = fleet.served(url)
    row_when(service, "llama", lambda row: row.state == "failed")
    service.changes()
    remark = ev.IncidentAcknowledged(at_s=job.at_s + 5, incident=1, by="ana")
    decision = decide(job.state, remark, job.policy)
    from_outside = type(job.store).open(job.dir.journal_path)
    from_outside.append(
        [Row(remark.at_s, "incident-acknowledged", msgspec.json.encode(remark), b"[]", decision.why)]
    )
    from_outside.close()
    service.refresh("llama")

    def is_acknowledged(service):
        changes = [one.data for one in service.changes() if isinstance(one.data, IncidentChanged)]
        return [one.row for one in changes if one.row.acknowledged_by == "ana"]

    [incident] = until(service, is_acknowledged)
    assert incident.number == 1


def test_a_second_start_reads_only_what_is_new(fleet, url):
    for number in range(5):
        fleet.job(f"old-{number}").begins("n0").fails().close()
    first = fleet.served(url)
    until(first, lambda service: listed(service).total == 5)
    first.stop()
    fleet.job("new").begins("n0").steps(1, 3).fails().close()
    second = fleet.served(url)
    assert {change.job for change in changes_when(second, has_all("new"))} == {"new"}
    assert listed(second).total == 6


def test_a_long_journal_goes_on_from_what_was_stored(fleet, url):
    """After a restart of the server the rows are those of a replay from the first entry."""
    job = fleet.job("llama", policy=RESTARTS).begins("n0").steps(1, 5_200).fails().begins("n1").hold()
    first = fleet.served(url)
    row_when(first, "llama", lambda row: row.incidents == 1)
    first.stop()
    job.steps(5_190, 5_300)
    second = fleet.served(url)
    row = row_when(second, "llama", lambda row: row.step == 5_300)
    fresh = fleet.served(fleet.root / "another.db")
    assert row == row_when(fresh, "llama", lambda row: row.step == 5_300)


def test_many_journals_are_read_by_processes_of_their_own(fleet):
    for number in range(110):
        fleet.job(f"job-{number:03}", BEGIN_S + number).begins("n0").steps(1, 3).fails(
            verdict() if number % 2 else None
        ).close()
    alone = fleet.served(fleet.root / "alone.db")
    until(alone, lambda service: listed(service).total == 110)
    together = fleet.served(fleet.root / "together.db", processes=2)
    until(together, lambda service: listed(service).total == 110, 60.0)
    assert listed(together, limit=500, grouped=True) == listed(alone, limit=500, grouped=True)


@pytest.fixture
def other(tmp_path):
    with Fleet(tmp_path / "other") as made:
        yield made


def test_jobs_of_several_folders(fleet, other, url):
    fleet.job("llama").begins("n0").fails()
    other.job("llama", BEGIN_S + 60).begins("n1").succeeds()
    service = fleet.served(url, other.root)
    page = until(service, lambda service: listed(service) if listed(service).total == 2 else None)
    assert [(row.id, row.name, row.state, row.source) for row in page.jobs] == [
        ("llama~2", "llama", "succeeded", str(other.root)),
        ("llama", "llama", "failed", ""),
    ]


def test_only_one_job_is_shown_where_only_one_is_asked_for(fleet, url):
    fleet.job("llama").begins("n0").fails()
    fleet.job("other").begins("n0").fails()
    service = IndexService(Places([fleet.root], "llama"), url, processes=0)
    service.start()
    try:
        page = until(service, lambda service: listed(service) if listed(service).total else None)
        assert [row.id for row in page.jobs] == ["llama"]
    finally:
        service.stop()
