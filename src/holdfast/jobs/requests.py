"""Requests the controller of a running job to stop it, restart it or record a remark; for a job that has ended, adds
the remark to its journal.
"""

import time

import msgspec

from holdfast.controller.loop import replay, row_of
from holdfast.controller.requests import BY_CHARACTERS_MAX, plain, remark, remark_done
from holdfast.core.job.decide import decide
from holdfast.jobs.call import CallNotMade
from holdfast.jobs.line import AnyLine, NoLine
from holdfast.jobs.record import RecordUnreadable, open_record, supervisor
from holdfast.journal.jobdir import JobDir, JobInUse
from holdfast.journal.store import JournalUnusable, Store
from holdfast.model.calls import AnyRequest, AskRemark, CallRefused, RequestDone
from holdfast.model.policy import Policy

ANSWER_S = 10.0


def answer(line: AnyLine, word: AnyRequest) -> RequestDone:
    """Sends a request and returns the controller's reply. Raises CallNotMade and NoLine."""
    line.say(word)
    until_s = time.monotonic() + ANSWER_S
    while time.monotonic() < until_s:
        for one in line.words(until_s - time.monotonic()):
            if isinstance(one, RequestDone) and one.call == word.call:
                return one
            if isinstance(one, CallRefused) and one.call == word.call:
                raise CallNotMade(one.why)
    raise NoLine(
        f"the controller of job {line.job.name} did not respond within {ANSWER_S:g} s: it may be an "
        "older Holdfast that does not support this request"
    )


def has_controller(job: JobDir) -> bool:
    """Returns whether a controller supervises the job, as far as it is visible from here.

    Raises CallNotMade.
    """
    try:
        record = open_record(job)
    except RecordUnreadable as error:
        raise CallNotMade(str(error)) from error
    try:
        record.all_lines()
        return not record.story.ended and bool(supervisor(job, record.facts))
    except RecordUnreadable as error:
        raise CallNotMade(str(error)) from error
    finally:
        record.close()


def keep_remark(job: JobDir, word: AskRemark, at_s: float) -> RequestDone:
    """Adds a remark to the journal of a job without a controller, while holding the job's lock.

    Raises CallNotMade.
    """
    try:
        with job.lock() as lock:
            if not lock.held:
                raise CallNotMade(
                    f"the disk of {job.path} does not support locks: a remark could damage the journal"
                )
            store = Store.open(job.journal_path)
            try:
                _add(job, store, word, at_s)
            finally:
                store.close()
    except JobInUse as error:
        raise CallNotMade(str(error)) from error
    except (JournalUnusable, OSError, msgspec.MsgspecError) as error:
        raise CallNotMade(f"the remark on job {job.name} cannot be written: {error}") from error
    return RequestDone(call=word.call, done=True, text=remark_done(word))


def _add(job: JobDir, store: Store, word: AskRemark, at_s: float) -> None:
    """Appends the remark to an open journal. Raises CallNotMade and JournalUnusable."""
    policy = msgspec.json.decode(store.meta("policy") or b"{}", type=Policy)
    rows = list(store.read_raw())
    state = replay(rows, policy)
    if not 0 < word.incident <= state.job.incidents:
        raise CallNotMade(f"job {job.name} has no incident {word.incident}")
    by = plain(word.by, BY_CHARACTERS_MAX)
    event = remark(word, by, max(at_s, rows[-1][0] if rows else 0.0))
    store.append([row_of(event, decide(state, event, policy))])
