"""Messages between the agent and its processes for checkpoints: a line of JSON each."""

from msgspec import Struct

from holdfast.agent.checkpoints.store import Owner


class Job(Struct, frozen=True, kw_only=True):
    """What the copier is started with.

    `folders`: where the command says that checkpoints are saved; `others`: where they may be saved too. `left_out`: never
    looked at. `since_ns`: when the job's supervisor began, since the epoch. `limit_bytes`: of all copies. `detach`: the training goes on without its supervisor.
    `is_shared`: other workers write to the same checkpoints.
    """

    owner: Owner
    folders: tuple[str, ...]
    others: tuple[str, ...]
    left_out: tuple[str, ...]
    since_ns: int
    limit_bytes: int
    detach: bool
    is_shared: bool
    shm: str


class Word(Struct, frozen=True, kw_only=True):
    """What the agent says to the copier. `kind`: runs: an attempt runs, with these processes as its ranks. failed: it has
    failed, and is being ended. end: the job is over.
    """

    kind: str
    pids: tuple[int, ...] = ()


class Note(Struct, frozen=True, kw_only=True):
    """What the copier says. `kind`: copied, refused, dropped, replaced (the old copy was dropped first), left-out, failed.

    `path`: of the checkpoint on the disk; `copy`: in memory. `text`: why, in words.
    """

    kind: str
    path: str = ""
    copy: str = ""
    size_bytes: int = 0
    files: int = 0
    took_s: float = 0.0
    text: str = ""


class Result(Struct, frozen=True, kw_only=True):
    """What the comparison of the disk with the copy has found.

    `outcome`: none: there is no copy. comparing, restoring: not yet. intact. newer: the training has saved a newer one.
    restored: `files` of it were written again. failed: that could not be done, for the reason in `text`. gone: the
    file system is not there, or cannot be written.

    `kept`: where damaged files lie now. `beside`: an incomplete checkpoint beside it, and what is wrong.
    """

    outcome: str
    path: str = ""
    copy: str = ""
    files: int = 0
    missing: int = 0
    damaged: int = 0
    size_bytes: int = 0
    took_s: float = 0.0
    text: str = ""
    kept: tuple[str, ...] = ()
    beside: str = ""
