"""Finds the rank that passed a different tensor size to a gloo collective, when that rank's record is lost.

Pure.

In a ring each rank receives from the next one; the first that gets more bytes than expected aborts, and the
launcher ends the others, sometimes before their records are read. The message shows the sizes:
`op.preamble.length <= op.nbytes. 12 vs 4`. If 4 is the size in the other ranks' records, the sender is at
fault; if 12 is, the rank itself is.

A ring moves each rank's share in two segments, so it compares 1/(2 n) of the tensor; a broadcast moves it
whole.

source: gloo/transport/tcp/pair.cc, gloo/allreduce.cc (ring); the direction was measured on torch 2.13, 20 of
20 times
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from holdfast.core.flight.members import ranks_of
from holdfast.core.flight.signature import words
from holdfast.late_pattern import late
from holdfast.model.flight.digests import Digest
from holdfast.model.flight.records import Operation

SIZES = late(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs\.? (\d+)")
SHAPE = late(r"of (\d+(?:x\d+)*) (\w+)$")
BYTES = {
    **dict.fromkeys(("Double", "Long", "ComplexFloat", "UInt64"), 8),
    **dict.fromkeys(("Float", "Int", "UInt32", "ComplexHalf"), 4),
    **dict.fromkeys(("Half", "BFloat16", "Short", "UInt16"), 2),
    **dict.fromkeys(("Char", "Byte", "Bool", "Float8_e4m3fn", "Float8_e5m2"), 1),
}


def odd_one(
    aborted: int,
    said: str,
    digests: Sequence[Digest],
    usual_bytes: Collection[int] = (),
    world_size: int | None = None,
) -> int | None:
    """Returns the rank at fault; None if this cannot be decided.

    `aborted`: the global rank that aborted; `said`: its error message. `usual_bytes`: sizes of this job's collectives
    while it was healthy, used if no record is left.
    """
    sizes = SIZES.search(said)
    if sizes is None:
        return None
    received, expected = int(sizes[1]), int(sizes[2])
    seen = [
        digest.groups[digest.newest] for digest in digests if digest.rank != aborted and digest.newest >= 0
    ]
    if seen:
        (usual, many), *others = Counter(group.last for group in seen).most_common()
        size = _bytes_of(usual)
        if size is not None and (not others or 2 * many > len(seen)):
            group = next(group for group in seen if group.last == usual)
            return _odd(aborted, received, expected, ranks_of(group.members), {size})
    return _odd(aborted, received, expected, range(world_size or 0), usual_bytes)


def bytes_of(operations: Iterable[Operation]) -> frozenset[int]:
    """Returns the input sizes of gloo collectives in bytes."""
    sizes = {_bytes_of(words(one)) for one in operations if not one.is_p2p}
    return frozenset(size for size in sizes if size)


def _odd(
    aborted: int, received: int, expected: int, ring: Sequence[int], sizes: Collection[int]
) -> int | None:
    if aborted not in ring:
        return None
    for parts in (2 * len(ring), 1):
        expected_fits = any(-(-size // parts) == expected for size in sizes)
        received_fits = any(-(-size // parts) == received for size in sizes)
        if expected_fits != received_fits:
            return ring[(ring.index(aborted) + 1) % len(ring)] if expected_fits else aborted
    return None


def _bytes_of(signature: str) -> int | None:
    shape = SHAPE.search(signature)
    if shape is None or shape[2] not in BYTES:
        return None
    size = BYTES[shape[2]]
    for one in shape[1].split("x"):
        size *= int(one)
    return size
