"""Chooses the line to quote for a root cause, if another line is more informative than the matched one.

Pure.
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import NEAR_BYTES, Candidate, first_of, is_cause, stands_below
from holdfast.core.diagnosis.choice.edges import explains

INNER_BYTES = 32 << 10
BUILD_BYTES = 256 << 10  # of a build's output
REPORT_BYTES = 16 << 10  # of one report of a kernel or a daemon
REPORT_S = 600.0  # storage that stalls complains every few minutes
OF_A_NODE = frozenset({"kernel", "scheduler", "fabric", "tool"})


def shown_by(root: Candidate, candidates: Sequence[Candidate]) -> Candidate | None:
    """Returns a line that says more than the root cause's own line, or reports the fault first; None if there is
    none.
    """
    first = [candidate for candidate in candidates if _says_it_first(candidate, root)]
    if first:
        return first_of(first)
    if root.has("launcher-told-to-stop") and root.match.captures.get("name", "").isdigit():
        named = [
            candidate
            for candidate in candidates
            if candidate.has("launcher-closes-rank") and stands_below(candidate, root)
        ]
        return named[0] if named else None  # the same, by the signal's name
    if root.says("row-of-accounting"):
        own = [candidate for candidate in candidates if _is_reported_by_job(candidate, root)]
        return first_of(own) if own else None
    if root.has("exception-passed-on") or any(
        root.known.says("exception-passed-on", line) for line in root.match.record[:2]
    ):
        inner = [candidate for candidate in candidates if _is_inner(candidate, root)]
        return inner[0] if inner else None
    began = [candidate for candidate in candidates if _begins_report(candidate, root)]
    if began:
        return first_of(began)
    return _compilers_error(root, candidates) or _first_warning(root, candidates)


def _says_it_first(candidate: Candidate, root: Candidate) -> bool:
    """Returns whether a line above the root cause's line, in the same log, reports the same end first."""
    if candidate.survived or not stands_below(root, candidate):
        return False
    if root.category == "terminated":
        if root.has("cancelled-by-scheduler"):
            return False  # it says more than srun's own notice: which job, where and when
        return candidate.has("step-aborted") and root.match.offset - candidate.match.offset < NEAR_BYTES
    return (
        root.has("named-by-next-writer")
        and is_cause(candidate)
        and (candidate.is_traceback or not root.is_traceback)  # else a handler quotes the root cause's end
        and candidate.class_ != "process"
        and explains(root, candidate)
    )


def _is_reported_by_job(candidate: Candidate, root: Candidate) -> bool:
    """Returns whether a scheduler's line in the job's own log reports the end that a table lists afterwards."""
    return (
        candidate.signature.area == "scheduler"
        and candidate.role in ("cause", "symptom")
        and not candidate.survived
        and not candidate.says("row-of-accounting")
        and (candidate.category == root.category or explains(root, candidate) or explains(candidate, root))
    )


def _begins_report(candidate: Candidate, root: Candidate) -> bool:
    """Returns whether a node's complaint directly above the root cause is the start of the same report.

    Example: a request that takes too long, followed by a reset of the disk. Its signature must list the root
    cause's category in `explained_by`.
    """
    if (
        root.signature.area not in OF_A_NODE
        or candidate.signature.area not in OF_A_NODE
        or candidate.role not in ("cause", "context")
    ):
        return False
    if candidate.survived or not stands_below(root, candidate) or not _is_alike(candidate, root):
        return False
    if candidate.says("note-of-a-log"):
        return False
    if root.match.offset - candidate.match.last_offset > REPORT_BYTES or not _is_soon(candidate, root):
        return False
    if any(_differ(candidate, root, name) for name in ("device", "host")):
        return False
    return root.category in candidate.signature.explained_by


def _differ(one: Candidate, other: Candidate, capture: str) -> bool:
    return len({each.match.captures.get(capture) for each in (one, other)} - {None}) > 1


def _is_alike(candidate: Candidate, root: Candidate) -> bool:
    """Returns whether both report one thing: by their category, or as a driver's complaint or a controller's
    reason, of the same class.
    """
    if candidate.has("stall-of-a-cpu") and root.has("stall-of-a-cpu"):
        return True
    is_of_a_kind = candidate.has("complaint") or candidate.has("reason-of-lost-node")
    return candidate.category == root.category or is_of_a_kind and candidate.class_ == root.class_


def _is_soon(candidate: Candidate, root: Candidate) -> bool:
    stamps = (
        (candidate.at_s, root.at_s) if candidate.at_s is not None else (candidate.uptime_s, root.uptime_s)
    )
    return None in stamps or abs((stamps[1] or 0.0) - (stamps[0] or 0.0)) <= REPORT_S


def _is_inner(candidate: Candidate, root: Candidate) -> bool:
    """Returns whether a candidate is the exception of a helper process, below the line that passes it on."""
    kind = root.match.captures.get("type") or root.match.error_type
    return (
        candidate.match.source == root.match.source
        and 0 < candidate.match.offset - root.match.offset < INNER_BYTES
        and candidate.is_traceback
        and (not kind or candidate.match.error_type.rpartition(".")[2] == kind.rpartition(".")[2])
    )


def _compilers_error(root: Candidate, candidates: Sequence[Candidate]) -> Candidate | None:
    """Returns the first error of a compiler near a line that only says that a build failed; a build tool writes that
    line above or below the compiler's output.
    """
    if not root.has("build-failed"):
        return None
    said = [
        candidate
        for candidate in candidates
        if candidate.has("compiler-says")
        and candidate.match.source == root.match.source
        and abs(candidate.match.offset - root.match.offset) < BUILD_BYTES
    ]
    return said[0] if said else None


def _first_warning(root: Candidate, candidates: Sequence[Candidate]) -> Candidate | None:
    """Returns the first warning of a library before an exception that only says that the library failed."""
    if not root.has("library-failed"):
        return None
    warned = [
        candidate
        for candidate in candidates
        if candidate.has("library-warning")
        and candidate.match.source == root.match.source
        and 0 < root.match.offset - candidate.match.offset < NEAR_BYTES
    ]
    return warned[0] if warned else None
