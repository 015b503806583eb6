"""Which line is quoted for a cause, where another tells more of it than the one that it was found by. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.clues import NEAR_BYTES, Clue, first_of, is_cause, stands_below
from holdfast.core.diagnosis.edges import explains

STEP_ABORTED = "srun-step-aborted"
TOLD_TO_STOP, CLOSES_RANK = "torchrun-told-to-stop", "torchrun-closes-rank"
# Whoever writes next names the reason; who wrote first only says that it failed.
TOLD_BY_OTHERS = frozenset({"disk_full"})
# Of these the words only say that NCCL failed; its own first warning says what.
NCCL_SAYS_LITTLE = frozenset(
    {
        *(
            "nccl-system-error",
            "nccl-internal-error",
            "nccl-cuda-error",
            "nccl-invalid-usage",
            "nccl-remote-error",
        ),
        *("nccl-tests-failed", "nccl-invalid-argument", "nccl-peer-closed"),
    }
)
ORIGINAL = "Original Traceback (most recent call last)"
FROM_WORKER = "dataloader-worker-exception"
INNER_BYTES = 32 << 10
REPORT_BYTES = 16 << 10  # of one report of a kernel or a daemon
REPORT_S = 600.0  # storage that stalls complains every few minutes
OF_A_NODE = frozenset({"kernel", "scheduler", "fabric", "tool"})
NCCL_WARNINGS = frozenset({"nccl-warn-of-network", "nccl-warn-of-setup"})


def shown_by(root: Clue, clues: Sequence[Clue]) -> Clue | None:
    """The line that says more than the root's own, or says it first; None where none does."""
    first = [clue for clue in clues if _says_it_first(clue, root)]
    if first:
        return first_of(first)
    if root.signature.id == TOLD_TO_STOP and root.sighting.captures.get("name", "").isdigit():
        named = [clue for clue in clues if clue.signature.id == CLOSES_RANK and stands_below(clue, root)]
        return named[0] if named else None  # the same, by the signal's name
    if root.signature.id == FROM_WORKER or any(ORIGINAL in line for line in root.sighting.record[:2]):
        inner = [clue for clue in clues if _is_inner(clue, root)]
        return inner[0] if inner else None
    began = [clue for clue in clues if _begins_report(clue, root)]
    return first_of(began) if began else _first_warning(root, clues)


def _says_it_first(clue: Clue, root: Clue) -> bool:
    """The line, above the root's own in the same log, with which the same end was first told."""
    if clue.survived or not stands_below(root, clue):
        return False
    if root.category == "terminated":
        return clue.signature.id == STEP_ABORTED and root.sighting.offset - clue.sighting.offset < NEAR_BYTES
    return (
        root.category in TOLD_BY_OTHERS
        and is_cause(clue)
        and clue.class_ != "process"
        and explains(root, clue)
    )


def _begins_report(clue: Clue, root: Clue) -> bool:
    """A node's complaint right above the root, of the same thing, of which its signature says that it follows from such.

    A request that takes too long, and then the reset of the disk: the report begins with the first.
    """
    if (
        root.signature.area not in OF_A_NODE
        or clue.signature.area not in OF_A_NODE
        or clue.role not in ("cause", "context")
    ):
        return False
    if clue.survived or not stands_below(root, clue) or not _is_alike(clue, root):
        return False
    if root.sighting.offset - clue.sighting.last_offset > REPORT_BYTES or not _is_soon(clue, root):
        return False
    devices = {one.sighting.captures.get("device") for one in (clue, root)} - {None}
    return len(devices) < 2 and root.category in clue.signature.explained_by


def _is_alike(clue: Clue, root: Clue) -> bool:
    """Of the same category; or a driver's complaint, which knows no more than that a device is at fault."""
    return (
        clue.category == root.category
        or clue.signature.id.endswith("-complaint")
        and clue.class_ == root.class_
    )


def _is_soon(clue: Clue, root: Clue) -> bool:
    stamps = (clue.at_s, root.at_s) if clue.at_s is not None else (clue.uptime_s, root.uptime_s)
    return None in stamps or abs((stamps[1] or 0.0) - (stamps[0] or 0.0)) <= REPORT_S


def _is_inner(clue: Clue, root: Clue) -> bool:
    """The exception that a worker of the loader raised, as it says it itself, below the line that passes it on."""
    kind = root.sighting.captures.get("type") or root.sighting.error_type
    return (
        clue.sighting.source == root.sighting.source
        and 0 < clue.sighting.offset - root.sighting.offset < INNER_BYTES
        and clue.is_traceback
        and (not kind or clue.sighting.error_type.rpartition(".")[2] == kind.rpartition(".")[2])
    )


def _first_warning(root: Clue, clues: Sequence[Clue]) -> Clue | None:
    """NCCL's own first warning before an exception that only says that NCCL failed."""
    if root.signature.id not in NCCL_SAYS_LITTLE:
        return None
    warned = [
        clue
        for clue in clues
        if clue.signature.id in NCCL_WARNINGS
        and clue.sighting.source == root.sighting.source
        and 0 < root.sighting.offset - clue.sighting.offset < NEAR_BYTES
    ]
    return warned[0] if warned else None
