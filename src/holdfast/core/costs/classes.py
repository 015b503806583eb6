"""Lists the classes that a job's wall clock is divided into. Each second belongs to exactly one. Data only."""

from msgspec import Struct

from holdfast.core.job.spent import DETECTION, REPEATED, STANDING, STARTING, UNSUPERVISED

COMPUTING, CHECKPOINTING, EVALUATION = "computing", "checkpointing", "evaluation"
SLOW, STRAGGLERS, ENDING = "slow-steps", "stragglers", "ending"
OTHER = "other"  # a part of an incident that a newer version wrote


class CostClass(Struct, frozen=True):
    """`is_lost`: nothing was made in this time that counted. Checkpoints and evaluation are work."""

    name: str
    meaning: str
    is_lost: bool = True


ALL = (
    CostClass(COMPUTING, "steps that counted", is_lost=False),
    CostClass(CHECKPOINTING, "saving checkpoints", is_lost=False),
    CostClass(EVALUATION, "evaluation between steps", is_lost=False),
    CostClass(SLOW, "steps longer than before, beyond their usual time"),
    CostClass(STRAGGLERS, "waiting for slow ranks"),
    CostClass(REPEATED, "lost since the last checkpoint, made again"),
    CostClass(DETECTION, "from the last step of a hang until it was found"),
    CostClass("diagnosis", "from a failure until its verdict"),
    CostClass("isolation", "isolating nodes"),
    CostClass("stopping", "ending the processes of a failed attempt"),
    CostClass("placing", "choosing nodes for workers"),
    CostClass("waiting", "waiting for a healthy node"),
    CostClass("checks", "checking nodes before a start"),
    CostClass("healing", "resetting devices"),
    CostClass(STARTING, "from the start of the command to its first step"),
    CostClass(STANDING, "a failed attempt that was left as it was"),
    CostClass("kept", "a failed job kept for inspection"),
    CostClass(UNSUPERVISED, "no supervisor was there, and the job had failed when one came"),
    CostClass(ENDING, "from the decision to end the job to its end"),
    CostClass(OTHER, "of a class that this version does not have"),
)
NAMES = tuple(one.name for one in ALL)
LOST = frozenset(one.name for one in ALL if one.is_lost)
MEANINGS = {one.name: one.meaning for one in ALL}
