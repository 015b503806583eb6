"""Signatures that tests of the choice share."""

from core.diagnosis.candidate_kit import signature
from holdfast.core.diagnosis.choice.choose import choose

OOM = signature("oom", "gpu_oom")
VAGUE = signature("python-exception", "python_exception", weight=0.6)
CLOSED = signature("closed", "nccl_network_error", role="symptom")
CHILD_FAILED = signature("child-failed", "unknown", role="symptom", severity="fatal")
TERM = signature("term", "terminated", explained_by=("*",))
ENDED = signature("ended", "unknown", role="symptom", weight=0.3)
SPOKEN = signature(
    "program-error-complaint", "python_exception", severity="warning", weight=0.45, explained_by=("*",)
)
DONE = signature("done", "none", role="end-ok")


def root_of(*candidates):
    choice = choose(candidates)
    return choice.root.signature.id if choice.root else None
