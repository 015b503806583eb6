"""Finds what to diagnose for a job of Holdfast: the evidence bundle of its newest incident.

The job's whole folder would mislead: it contains the logs of all attempts, in which launchers report stops that
Holdfast itself requested.
"""

import os
from pathlib import Path

from holdfast.cli.line.output import say
from holdfast.jobs.places import found_job
from holdfast.journal.jobdir import BadJobName, JobDir, NoSuchJob
from holdfast.settings.read import SettingsRefused, state_root

JOURNAL = "journal.db"
BUNDLES = "incident-*.tar.zst"


def is_job(folder: Path) -> bool:
    return (folder / JOURNAL).is_file()


def job_named(name: str, state_dir: str | None) -> JobDir | None:
    """Returns the job of this name; None if there is none, or if the text is no valid name."""
    if "/" in name:
        return None
    try:
        return found_job(name, state_root(state_dir, os.environ))
    except (BadJobName, NoSuchJob, SettingsRefused):
        return None


def place_of(job: JobDir) -> Path:
    """Returns the path to diagnose for a job: the bundle of its newest incident, or its folder if it had
    none.
    """
    try:
        bundles = sorted(job.incidents.glob(BUNDLES))
    except OSError:
        bundles = []
    if not bundles:
        return job.path
    which = "its incident" if len(bundles) == 1 else f"the newest of its {len(bundles)} incidents"
    say(f"job {job.name}: {which}, {bundles[-1]}")
    return bundles[-1]
