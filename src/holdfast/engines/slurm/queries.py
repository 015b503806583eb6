"""Queries Slurm about nodes and jobs: as JSON if scontrol supports it, otherwise as one line each.

`sinfo --json` and `squeue --json` of 22.05 always list the whole cluster, so they are not used.
"""

from collections.abc import Sequence

from holdfast.engines.slurm.run_command import Answer
from holdfast.parsers.slurm import (
    NotSlurm,
    SlurmJob,
    SlurmNode,
    jobs_of_json,
    jobs_of_lines,
    nodes_of_json,
    nodes_of_lines,
)
from holdfast.slurm_names import folded

SPEAKS_JSON = (23, 11)  # older versions of scontrol have no --json, or leave fields out


def node_words(names: Sequence[str], version: tuple[int, int] = (0, 0)) -> list[str]:
    return ["scontrol", *_form(version), "show", "node", folded(names)]


def job_words(job: str, version: tuple[int, int] = (0, 0)) -> list[str]:
    return ["scontrol", *_form(version), "show", "job", job]


def nodes_in(answer: Answer) -> tuple[SlurmNode, ...]:
    """Returns the nodes in a result; none if Slurm did not respond, or the format is not Slurm's."""
    if not answer.is_good:
        return ()
    try:
        return nodes_of_json(answer.out) if _is_json(answer) else nodes_of_lines(answer.text)
    except NotSlurm:
        return ()


def job_in(answer: Answer, job: str) -> SlurmJob | None:
    """Returns the job in a result; None if Slurm did not respond, or no longer has the job."""
    if not answer.is_good:
        return None
    try:
        found = jobs_of_json(answer.out) if _is_json(answer) else jobs_of_lines(answer.text)
    except NotSlurm:
        return None
    return next((one for one in found if one.job == job), None)


def _form(version: tuple[int, int]) -> list[str]:
    return ["--json"] if version >= SPEAKS_JSON else ["--oneliner"]


def _is_json(answer: Answer) -> bool:
    return answer.out.lstrip()[:1] == b"{"
