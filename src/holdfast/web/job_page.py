"""Serves the page of one job while it is supervised: `python -m holdfast.web.job_page JOB_FOLDER HOST:PORT`.

The supervisor starts it in a process of its own with the lowest priority, so that it cannot disturb the
training. It writes its address to `page-address` in the job's folder, and ends with the run.
"""

import importlib
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from holdfast.jobs.record import supervisor
from holdfast.journal.jobdir import JobDir

ADDRESS = "page-address"
DATABASE = "page-index.db"
USAGE = 2
BEGIN_S = 60.0  # for the supervisor to hold the job
LOOK_S = 1.0
LOOKS_MAX = 5  # without a supervisor, one after the other: it may be attaching again
NICE = 10
EXTRA = "the page needs optional dependencies: pip install 'holdfast[server]'"


def main(arguments: list[str]) -> int:
    """Runs the server of one job's page and returns the exit code: 2 if it cannot serve, after printing why."""
    folder, host, port, fleet = Path(arguments[0]), *_address(arguments[1]), Path(arguments[2])
    with suppress(OSError):
        os.nice(NICE)
    try:
        serving = importlib.import_module("holdfast.web.main")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("holdfast"):
            raise
        sys.stderr.write(f"{EXTRA} ({error})\n")
        return USAGE
    job = JobDir(folder)
    settings = serving.ServerSettings(
        state_dirs=(folder.parent.parent,),
        fleet_dir=fleet,
        host=host,
        port=port,
        database=f"sqlite:///{folder / DATABASE}",
        job=job.name,
    )
    threading.Thread(target=_end_with, args=(job,), daemon=True).start()
    try:
        serving.run(settings, lambda address: _announce(job, address))
    except serving.CannotServe as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    finally:
        _clear(job)
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _announce(job: JobDir, address: str) -> None:
    """Writes the address atomically, because the supervisor reads it."""
    part = job.path / f"{ADDRESS}.part"
    part.write_text(f"{address}jobs/{job.name}\n")
    part.rename(job.path / ADDRESS)


def _end_with(job: JobDir) -> None:
    """Interrupts this process once no process holds the job's lock any more."""
    until_s = time.monotonic() + BEGIN_S
    while not supervisor(job, {}) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    missed = 0
    while missed < LOOKS_MAX:
        time.sleep(LOOK_S)
        missed = 0 if supervisor(job, {}) else missed + 1
    os.kill(os.getpid(), 15)


def _clear(job: JobDir) -> None:
    for name in (ADDRESS, *(f"{DATABASE}{part}" for part in ("", "-wal", "-shm")), "index.lock"):
        with suppress(OSError):
            (job.path / name).unlink()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
