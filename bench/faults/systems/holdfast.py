"""Starts Holdfast around torchrun, and reads its findings from the job's journal."""

import re
from pathlib import Path

import msgspec

from bench.faults.systems.base import Found, System
from bench.job.trial import HOLDFAST, holdfast_run, torchrun
from holdfast.controller.loop import decisions
from holdfast.core.job.story import Line, Story, Summary
from holdfast.journal.jobdir import StateDir
from holdfast.journal.store import open_reader
from holdfast.model.policy import Policy

RANK = re.compile(r"\brank (\d+)")
NAMES = {
    ("--no-standby",): "holdfast-cold",
    ("--no-zygote",): "holdfast-standby",
}  # by the flags of `holdfast run`


def system(ranks: int, *flags: str) -> System:
    name = NAMES.get(flags, "holdfast")
    return System(
        name=name,
        command=lambda state: [*holdfast_run(state, *flags), *torchrun(ranks)],
        started=lambda state: [*holdfast_run(state, "--detach", *flags), *torchrun(ranks)],
        again=lambda state, _: [*HOLDFAST, "attach", "--state-dir", str(state)],
        found=lambda trial: found(trial.folder / "state"),
    )


def found(state: Path) -> list[Found]:
    """Returns the incidents of the job, each with its verdict, and the slow ranks among its findings."""
    told = story_of(state)
    if told is None:
        return []
    summary, lines = told
    incidents = [
        Found(
            one.found_at_s,
            tuple(who.rank for who in one.verdict.culprits if who.rank is not None) if one.verdict else (),
            one.verdict.category if one.verdict else "",
        )
        for one in summary.incidents
    ]
    return sorted(incidents + [slow_rank(one) for one in lines if one.finding == "straggler"], key=_at_s)


def _at_s(one: Found) -> float:
    return one.at_s


def slow_rank(line: Line) -> Found:
    return Found(
        line.at_s, tuple(int(rank) for rank in RANK.findall(line.text)[:1]), "straggler", is_warning=True
    )


def summary_of(state: Path) -> Summary | None:
    """Returns the summary of the only job in a state folder; None without a job."""
    told = story_of(state)
    return told[0] if told else None


def story_of(state: Path) -> tuple[Summary, list[Line]] | None:
    jobs = StateDir(state).jobs()
    if not jobs or not jobs[0].journal_path.exists():
        return None
    reader = open_reader(jobs[0].journal_path)
    try:
        policy = msgspec.json.decode(reader.meta("policy") or b"{}", type=Policy)
        story, lines = Story(policy), list[Line]()
        for event, decision in decisions(reader.read_raw(), policy):
            lines += story.hear(event, decision)
        return story.summary(), lines
    finally:
        reader.close()
