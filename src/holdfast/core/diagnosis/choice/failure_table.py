"""Reads the table with which a launcher gives a run up: which rank it saw fail first. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.model.verdicts import Culprit


def failure_table(candidates: Sequence[Candidate]) -> Culprit | None:
    """Returns the root cause in the last failure table that a launcher printed; None if there is no such
    table.

    Earlier tables are about earlier attempts.
    """
    roots = [candidate for candidate in candidates if candidate.has("root-cause-header")]
    if not roots:
        return _only_entry(candidates)
    source, offset = roots[-1].match.source, roots[-1].match.offset
    after = [
        candidate
        for candidate in candidates
        if candidate.match.source == source and candidate.match.last_offset > offset
    ]
    rank = next(
        (_rank_number(one.match.captures["rank"]) for one in after if one.has("run-gave-up-on-rank")), None
    )
    host = next((one.match.captures["host"] for one in after if one.has("run-gave-up-on-host")), None)
    return Culprit(rank=rank, host=host) if rank is not None else None


def _only_entry(candidates: Sequence[Candidate]) -> Culprit | None:
    """Returns the rank and host of a failure table without its header; None if it has more than one entry."""
    ranks = {
        candidate.match.captures["rank"] for candidate in candidates if candidate.has("run-gave-up-on-rank")
    }
    hosts = {
        candidate.match.captures["host"] for candidate in candidates if candidate.has("run-gave-up-on-host")
    }
    rank = _rank_number(ranks.pop()) if len(ranks) == 1 else None
    return None if rank is None else Culprit(rank=rank, host=hosts.pop() if len(hosts) == 1 else None)


def _rank_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
