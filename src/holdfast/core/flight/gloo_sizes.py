"""Who passed another size on gloo, when the record of that rank was lost with it. Pure.

In a ring each rank receives from the next one; the first that gets more bytes than it expects aborts, and the launcher
ends the others, sometimes before they could tell their records. What it says holds the answer: `op.preamble.length <=
op.nbytes. 12 vs 4`. Where 4 fits the size that the other ranks' records show, it expected what they did, and its sender
is the odd one; where 12 fits, it is itself.

source: gloo/transport/tcp/pair.cc, gloo/allreduce.cc (ring); the direction was seen on torch 2.13, 20 of 20 times
"""

import re
from collections import Counter
from collections.abc import Sequence

from holdfast.core.flight.members import ranks_of
from holdfast.model.digests import Digest, GroupDigest

TOLD = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs\.? (\d+)")
SHAPE = re.compile(r"of (\d+(?:x\d+)*) (\w+)$")
BYTES = {
    **dict.fromkeys(("Double", "Long", "ComplexFloat", "UInt64"), 8),
    **dict.fromkeys(("Float", "Int", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Char", "Byte", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
}


def odd_one(aborted: int, said: str, digests: Sequence[Digest]) -> int | None:
    """The rank at fault; None where that cannot be told. `aborted`: who said it, as a rank of the job."""
    told = TOLD.search(said)
    seen = [
        (digest.rank, digest.groups[digest.newest])
        for digest in digests
        if digest.rank != aborted and digest.newest >= 0
    ]
    if told is None or not seen:
        return None
    (usual, many), *others = Counter(group.last for _, group in seen).most_common()
    if others and 2 * many <= len(seen):
        return None
    group = next(group for _, group in seen if group.last == usual)
    return _odd(aborted, int(told[1]), int(told[2]), group)


def _odd(aborted: int, received: int, expected: int, group: GroupDigest) -> int | None:
    ring = ranks_of(group.members)
    size = _bytes_of(group.last)
    if aborted not in ring or size is None:
        return None
    if _is_part(expected, size, len(ring)):
        return ring[(ring.index(aborted) + 1) % len(ring)]
    return aborted if _is_part(received, size, len(ring)) else None


def _is_part(part: int, size: int, ranks: int) -> bool:
    """Of a ring: each rank's share, or half of it, since it works on two segments at once; or the whole."""
    return part > 0 and any(-(-size // parts) == part for parts in (1, ranks, 2 * ranks))


def _bytes_of(signature: str) -> int | None:
    shape = SHAPE.search(signature)
    if shape is None or shape[2] not in BYTES:
        return None
    size = BYTES[shape[2]]
    for one in shape[1].split("x"):
        size *= int(one)
    return size
