"""Updates the advised checkpoint interval of a job, as a process that the supervisor starts beside the job.

It runs as `python -m holdfast.archive.checkpoint_advice JOB_FOLDER`, independently of the supervisor. It
rewrites the file as the failure record grows, and the next attempt reads the interval from its environment.
It ends with the job.
"""

import logging
import os
import sys
import time
from pathlib import Path

from holdfast.archive.advice import Given, published, record_of
from holdfast.archive.costs import read_cost, read_fleet
from holdfast.core.reliability.advice import advise
from holdfast.jobs.only_one import is_only_one
from holdfast.jobs.record import RecordUnreadable, supervisor
from holdfast.journal.jobdir import JobDir, StateDir

FILE, LOCK = "checkpoint-every-s", "checkpoint-advice.lock"
LOOK_S, AGAIN_S = 2.0, 20.0  # interval of checks of the journal's size; minimum interval of computations
DEAD_S = 3_600.0  # time without a new entry and without a supervisor after which the job counts as dead
NO_JOURNAL_S = 30.0
FLEET_JOBS_MAX = 200  # the newest other jobs; only their failures are used
USAGE = 2
_log = logging.getLogger("holdfast.checkpoint_advice")


def main(arguments: list[str]) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    if len(arguments) != 1:
        _log.error("usage: python -m holdfast.archive.checkpoint_advice JOB_FOLDER")
        return USAGE
    job = JobDir(Path(arguments[0]))
    os.nice(10)
    if not is_only_one(job.path / LOCK):
        return 0
    try:
        return _keep(job)
    except KeyboardInterrupt:
        return 130


def _keep(job: JobDir) -> int:
    seen, computed_s = -1, float("-inf")
    begun_s = grown_s = time.monotonic()
    while True:
        try:
            size = sum(path.stat().st_size for path in job.path.glob("journal.db*"))
        except OSError:
            size = -1
        if size != seen and time.monotonic() - computed_s >= AGAIN_S:
            seen, computed_s = size, time.monotonic()
            grown_s = computed_s
            try:
                if compute(job):
                    return 0
            except RecordUnreadable as error:
                if time.monotonic() - begun_s > NO_JOURNAL_S:
                    _log.error("job %s: %s", job.name, error)
                    return 1
                seen, computed_s = -1, float("-inf")
        if time.monotonic() - grown_s > DEAD_S and not supervisor(job, {}):
            return 0
        time.sleep(LOOK_S)


def compute(job: JobDir) -> bool:
    """Writes the advised interval if it can be computed. Returns True if the job has ended.

    Raises RecordUnreadable.
    """
    own = read_cost(job)
    others = [one for one in StateDir(job.path.parents[1]).jobs()[:FLEET_JOBS_MAX] if one.name != job.name]
    record = record_of([own, *read_fleet(others, steps=False).jobs], Given())
    found = advise(record, published()).interval
    if found is not None:
        text = f"{found.best_s:.1f}\n"
        part = job.path / f"{FILE}.part"
        part.write_text(text)
        part.replace(job.path / FILE)
        _log.info("best interval %s s (%.0f to %.0f)", text.strip(), found.low_s, found.high_s)
    return own.ended


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
