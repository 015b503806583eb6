"""Compares a job with the last successful run of the same script: command, settings, version, nodes, speed.

Pure.
"""

from collections.abc import Sequence

from holdfast.model.documents.jobs import JobDocument, JobRow

GOOD = "succeeded"
SCRIPTS = (".py", ".sh", ".ipynb")
SPEED_RATIO = 1.05  # a smaller ratio of median step times counts as equal

Difference = tuple[str, str, str]


def script_of(command: str) -> str:
    """Returns the script that a command runs, or the program if there is no script."""
    words = command.split()
    scripts = [word for word in words if word.endswith(SCRIPTS)]
    return scripts[-1].rpartition("/")[2] if scripts else (words[0].rpartition("/")[2] if words else "")


def last_good(job: JobRow, others: Sequence[JobRow]) -> JobRow | None:
    """Returns the newest earlier job that ran the same script and succeeded; None if there is none."""
    script = script_of(job.command)
    fitting = [
        one
        for one in others
        if one.id != job.id
        and one.state == GOOD
        and script_of(one.command) == script
        and (one.submitted_at_s or 0.0) <= (job.submitted_at_s or float("inf"))
    ]
    return max(fitting, key=lambda one: one.submitted_at_s or 0.0, default=None)


def differences(job: JobDocument, good: JobDocument) -> list[Difference]:
    """Returns the differences as (name, in this job, in the successful job)."""
    found = [
        ("command, only in one job", *_words(job.row.command, good.row.command)),
        ("Holdfast", job.version, good.version),
        ("workers", str(job.row.workers), str(good.row.workers)),
        ("ranks", str(job.row.ranks), str(good.row.ranks)),
        ("engine", job.row.engine, good.row.engine),
        ("user", job.row.user, good.row.user),
        ("nodes", ", ".join(job.row.nodes), ", ".join(good.row.nodes)),
        ("last step", str(job.row.step), str(good.row.step)),
        *_settings(job, good),
        *_speed(job.row, good.row),
    ]
    return [one for one in found if one[1] != one[2]]


def _words(here: str, there: str) -> tuple[str, str]:
    ours, theirs = here.split(), there.split()
    only_ours = " ".join(word for word in ours if word not in theirs)
    only_theirs = " ".join(word for word in theirs if word not in ours)
    return only_ours, only_theirs


def _settings(job: JobDocument, good: JobDocument) -> list[Difference]:
    keys = sorted({*job.policy, *good.policy})
    return [(f"policy.{key}", str(job.policy.get(key)), str(good.policy.get(key))) for key in keys]


def _speed(job: JobRow, good: JobRow) -> list[Difference]:
    """Compares the medians of the last step times in both logs."""
    if not job.sparkline or not good.sparkline:
        return []
    here, there = (sorted(row.sparkline)[len(row.sparkline) // 2] for row in (job, good))
    if max(here, there) < SPEED_RATIO * min(here, there):
        return []
    return [("seconds a step", f"{here:.3g}", f"{there:.3g}")]
