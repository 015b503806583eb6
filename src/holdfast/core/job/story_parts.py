"""Data types of a job's log and summary: chosen recovery actions, ends of processes, ranks. No behaviour."""

from msgspec import Struct


class RungTaken(Struct, frozen=True, kw_only=True):
    """An action of the recovery ladder (rung) that was chosen in an incident. `shadow`: it was recorded but not
    carried out.
    """

    at_s: float
    rung: str
    why: str
    shadow: bool = False
    isolate: tuple[str, ...] = ()
    restarts: int = 0  # of the job, after this choice
    replacements: int = 0


class RankEnd(Struct, frozen=True, kw_only=True):
    """The end of a process that belongs to an incident. `rank`: None for the launch command of the worker."""

    at_s: float
    worker: int
    code: int | None
    rank: int | None = None
    reason: str = ""


class RankKnown(Struct, frozen=True, kw_only=True):
    """A rank of the current attempt: its worker, its process, and after its end the exit code."""

    rank: int
    worker: int
    pid: int
    code: int | None = None
    ended: bool = False
