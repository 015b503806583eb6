"""Defines parts that several documents share: sentences, culprits, places in logs, costs."""

from typing import Literal

from msgspec import Struct

from holdfast.model.signatures import Words

# starting: no attempt runs yet. training: steps are made. recovering: from a failure to the first step after
# it.
# waiting: for a node. kept: failed, the workers are held for inspection. stopping: the outcome is final,
# processes end.
# succeeded, failed, stopped (by a user or a signal), preempted (the scheduler took the nodes): ended.
# unsupervised: ranks run without a supervisor. dead: no supervisor, no ranks, and no end in the journal.
# unknown: the host is unreachable and sent nothing for a while.
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

# Tones of a headline: neutral (nothing to do), trouble (Holdfast acts), lost (a user must act), recovered.
Tone = Literal["neutral", "trouble", "lost", "recovered"]


class Who(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A culprit: a rank, worker, node or device; fields that are unknown are None.

    `device`: a PCI address, an index or a name.
    """

    rank: int | None = None
    worker: int | None = None
    node: str | None = None
    device: str | None = None


class Sentence(Struct, frozen=True, kw_only=True):
    """A one-sentence summary of a job or incident: "WHO did WHAT, since WHEN; DONE; COST; NEXT.", at most 160
    characters in each language.

    `tone`: selects the colour. `to_do`: a user has to act.
    """

    text: Words
    tone: Tone = "neutral"
    to_do: bool = False


class LinePlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The position of a line in a job's output, valid while the file exists.

    `file`: relative to the job's folder. `offset`: of the line's start, in bytes.
    """

    file: str
    offset: int | None = None
    line: int | None = None
    attempt: int | None = None
    worker: int | None = None
    rank: int | None = None


class Cost(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The loss caused by an incident, or in a job.

    `lost_s`: wall-clock seconds. `devices`: idle devices; 0 if unknown. `by_cause`: seconds by cause
    (detection, diagnosis, stopping, placing, starting, repeated-steps, ...), which sum to `lost_s`.
    """

    lost_s: float
    devices: int = 0
    steps_repeated: int | None = None
    by_cause: dict[str, float] = {}

    @property
    def device_hours(self) -> float:
        return self.lost_s * self.devices / 3600.0
