"""Runs the process that sends notifications: `python -m holdfast.notify JOB_FOLDER CONFIG` for one job.

`--all CONFIG STATE_FOLDER...` is for all jobs in state folders. The supervisor starts the first form, which
continues and reports it if the supervisor dies. The server starts the second form, which ends with it.
Secrets come from the environment, or from files that CONFIG names.
"""

import logging
import os
import sys
from pathlib import Path

from holdfast.jobs.only_one import is_only_one
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable
from holdfast.notify import companion, fleet
from holdfast.notify.config import ConfigRefused, read_config
from holdfast.notify.started import FOLDER

ALL = "--all"
FAILED, USAGE, INTERRUPTED = 1, 2, 130
_log = logging.getLogger("holdfast.notify")


def main(arguments: list[str]) -> int:
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    try:
        if len(arguments) >= 3 and arguments[0] == ALL:
            return _of_all(Path(arguments[1]), [Path(one) for one in arguments[2:]])
        if len(arguments) == 2:
            return _of_one(JobDir(Path(arguments[0])), Path(arguments[1]))
    except KeyboardInterrupt:
        return INTERRUPTED
    except ConfigRefused as error:
        _log.error("%s", error)
        return USAGE
    except (JournalUnusable, OSError) as error:
        _log.error("%s", error)
        return FAILED
    _log.error("usage: python -m holdfast.notify JOB_FOLDER CONFIG | --all CONFIG STATE_FOLDER...")
    return USAGE


def _of_one(job: JobDir, path: Path) -> int:
    config = read_config(path, os.environ)
    if is_only_one(job.path / companion.LOCK):
        companion.notify_of(job, config)
    return 0


def _of_all(path: Path, roots: list[Path]) -> int:
    config = read_config(path, os.environ)
    folder = roots[0] / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    if not is_only_one(folder / fleet.LOCK):
        _log.error("another server already sends notifications about the jobs in %s", roots[0])
        return FAILED
    parent = os.getppid()
    fleet.notify_of_all(roots, config, lambda: os.getppid() == parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
