"""Tells who asked a job to stop from the reason in journals that do not name it. Data and one rule. Pure."""

PREEMPTED = (
    "Slurm gives the nodes to a job of higher priority",
    "Slurm puts the job back into its queue",
)
SCHEDULER = ("the time limit of the Slurm job", "the Slurm job was cancelled")


def asked_by(reason: str) -> str:
    """As in StopRequested.by: journals up to version 0.1.0 hold the reason alone."""
    if reason.startswith(PREEMPTED):
        return "preemption"
    if reason.startswith(SCHEDULER):
        return "scheduler"
    return "signal" if reason.endswith("was sent to Holdfast") else ""
