"""Signatures for tests of the search: only what the search looks at."""

from holdfast.model.signatures import Signature, Words

NONE = Words(en="-", zh="-")


def signature(id_: str, pattern: str, *, category: str = "gpu_oom", role: str = "cause") -> Signature:
    return Signature(
        id=id_,
        category=category,
        pattern=pattern,
        role=role,
        title=NONE,
        explanation=NONE,
        advice=NONE,
        source="-",
        matches=(),
    )
