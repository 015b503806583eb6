"""Finds the processes that an ended command left running."""

from pathlib import Path

from holdfast.agent.launch import (
    marked,
)

NAMED_MAX = 5


def _ends_by_itself(pid: int) -> bool:
    """Returns whether a process is Python's resource tracker, which ends shortly after its parent, or a fork server."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"multiprocessing.resource_tracker" in line or line.startswith(b"holdfast\0zygote\0")
    except OSError:
        return True


def _command_name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "gone"


def leftovers_of(folder: Path) -> str:
    """Returns a sentence that names the processes that an ended command left running; empty if there are
    none.

    `folder`: the worker's folder, by which the processes are found, because it is in their environment.
    """
    left = [pid for pid in marked({"HOLDFAST_WORKER_DIR": str(folder)}) if not _ends_by_itself(pid)]
    if not left:
        return ""
    names = ", ".join(f"{pid} ({_command_name(pid)})" for pid in left[:NAMED_MAX])
    more = f" and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
    return (
        f"the command has ended and left processes running: {names}{more}; they are ended now. "
        "A training is supervised as long as its command runs: keep it in the foreground"
    )
