"""Infers who stopped a job from the text of the reason, for old journals that do not record it. Pure."""

# Texts of version 0.1.0, unchanged: current texts have other words, and come with StopRequested.by.
PREEMPTED = (
    "Slurm gives the nodes to a job of higher priority",
    "Slurm puts the job back into its queue",
)
SCHEDULER = ("the time limit of the Slurm job", "the Slurm job was cancelled")


def asked_by(reason: str) -> str:
    """Returns who requested a stop, as in StopRequested.by; empty if unknown.

    Journals up to version 0.1.0 contain only the reason.
    """
    if reason.startswith(PREEMPTED):
        return "preemption"
    if reason.startswith(SCHEDULER):
        return "scheduler"
    return "signal" if reason.endswith("was sent to Holdfast") else ""
