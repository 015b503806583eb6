"""Parts that several documents share: texts, people at fault, places in logs, pages of a list."""

from typing import Literal

from msgspec import Struct

from holdfast.model.signatures import Words

# starting: no attempt runs yet. training: steps are made. recovering: from a failure to the first step after it.
# waiting: for a node. kept: failed, the workers are held for inspection. stopping: the end is settled, processes are ended.
# succeeded, failed, stopped (a person or a signal asked), preempted (the scheduler took the nodes): ended.
# unsupervised: ranks run and no supervisor. dead: neither supervisor nor ranks, and no end in the journal.
# unknown: the host cannot be asked, and nothing was reported for a while.
JobState = Literal[
    "starting",
    "training",
    "recovering",
    "waiting",
    "kept",
    "stopping",
    "succeeded",
    "failed",
    "stopped",
    "preempted",
    "unsupervised",
    "dead",
    "unknown",
]
JOB_STATES: tuple[JobState, ...] = JobState.__args__  # type: ignore[attr-defined]
LIVE_STATES: frozenset[JobState] = frozenset(
    {"starting", "training", "recovering", "waiting", "kept", "stopping", "unsupervised"}
)

# What a person sees first: neutral (nothing to do), trouble (Holdfast acts), lost (a person must act), recovered.
Tone = Literal["neutral", "trouble", "lost", "recovered"]


class Who(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A culprit. None: not known. `device`: a PCI address, an index or a name."""

    rank: int | None = None
    worker: int | None = None
    node: str | None = None
    device: str | None = None


class Sentence(Struct, frozen=True, kw_only=True):
    """`WHO did WHAT, since WHEN; DONE; COST; NEXT.` in at most 160 characters per language.

    `tone` decides the colour; `to_do`: whether a person has to do something.
    """

    text: Words
    tone: Tone = "neutral"
    to_do: bool = False


class LinePlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in the output of a job, stable for as long as the file lives. `offset`: in bytes, of the line's start.

    `file`: relative to the job's folder.
    """

    file: str
    offset: int | None = None
    line: int | None = None
    attempt: int | None = None
    worker: int | None = None
    rank: int | None = None


class Cost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an incident or a job lost. `lost_s`: wall-clock seconds; `devices`: that stood idle meanwhile, 0: not known.

    `by_cause`: seconds by what they went to (detection, diagnosis, stopping, placing, starting, repeated-steps, ...);
    they add up to `lost_s`.
    """

    lost_s: float
    devices: int = 0
    steps_repeated: int | None = None
    by_cause: dict[str, float] = {}

    @property
    def device_hours(self) -> float:
        return self.lost_s * self.devices / 3600.0
