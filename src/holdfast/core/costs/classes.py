"""Defines the cost classes that a job's wall-clock time is divided into; each second belongs to exactly one.

Data only.
"""

from msgspec import Struct

from holdfast.core.job.spent import DETECTION, REPEATED, STANDING, STARTING, UNSUPERVISED

COMPUTING, CHECKPOINTING, EVALUATION = "computing", "checkpointing", "evaluation"
SLOW, STRAGGLERS, ENDING = "slow-steps", "stragglers", "ending"
OTHER = "other"  # a class in a journal of a newer version


class CostClass(Struct, frozen=True):
    """A class of time in the cost report. `is_lost`: the time did not contribute to the training's result.

    Checkpoints and evaluation do not count as lost.
    """

    name: str
    meaning: str
    is_lost: bool = True


ALL = (
    CostClass(COMPUTING, "steps that counted", is_lost=False),
    CostClass(CHECKPOINTING, "saving checkpoints", is_lost=False),
    CostClass(EVALUATION, "evaluation between steps", is_lost=False),
    CostClass(SLOW, "time of slow steps beyond the usual step time"),
    CostClass(STRAGGLERS, "waiting for slow ranks"),
    CostClass(REPEATED, "repeating steps after a restart"),
    CostClass(DETECTION, "from the last step of a hang until it was found"),
    CostClass("diagnosis", "from a failure until its verdict"),
    CostClass("isolation", "isolating nodes"),
    CostClass("stopping", "ending the processes of a failed attempt"),
    CostClass("placing", "choosing nodes for workers"),
    CostClass("waiting", "waiting for a healthy node"),
    CostClass("checks", "checking nodes before a start"),
    CostClass("healing", "resetting devices"),
    CostClass(STARTING, "from the start of the command to its first step"),
    CostClass(STANDING, "a failed or hung attempt on which no action was taken"),
    CostClass("kept", "a failed job kept for inspection"),
    CostClass(UNSUPERVISED, "no supervisor ran, and the job had failed when one started again"),
    CostClass(ENDING, "from the decision to end the job to its end"),
    CostClass(OTHER, "a class that this version does not know"),
)
NAMES = tuple(one.name for one in ALL)
LOST = frozenset(one.name for one in ALL if one.is_lost)
MEANINGS = {one.name: one.meaning for one in ALL}
