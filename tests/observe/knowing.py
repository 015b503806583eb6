"""Signatures for tests of the search: only what the search looks at."""

from core.diagnosis import candidate_kit
from holdfast.model.signatures import Signature


def signature(id_: str, pattern: str, *, category: str = "gpu_oom", role: str = "cause") -> Signature:
    return candidate_kit.signature(id_, category, pattern=pattern, role=role, matches=())
