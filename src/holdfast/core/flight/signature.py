"""Defines what must be equal on all ranks of a group in one collective, and formats operations. Pure."""

from zlib import crc32

from holdfast.model.flight.records import Operation

# Sizes may differ between ranks (uneven splits, or lists that only the root has): only the kind is compared.
UNEVEN = frozenset(
    (
        "all_to_all",
        "alltoall",
        "alltoall_base",
        "all_to_all_single",
        "all_gather",
        "gather",
        "scatter",
        "coalesced",
    )
)
SENDS = ("send", "isend")
SIZES_SHOWN = 3
TEXT_CHARS = 56


def bare(kind: str) -> str:
    """Returns the kind of an operation without backend and ranks: "send" for "nccl:send 0->1"."""
    return kind.rpartition(":")[2].split(" ", 1)[0]


def key(operation: Operation) -> int:
    """Returns a hash, 1 to 65535, of everything that must be equal on all ranks; 0 if unknown."""
    kind = bare(operation.kind)
    if kind in UNEVEN:
        text = kind
    elif operation.is_p2p:
        text = operation.kind
    else:
        text = f"{kind} {operation.input_sizes} {operation.input_types}"
    return crc32(text.encode()) % 65535 + 1


def words(operation: Operation) -> str:
    """Returns a description of an operation: "all_reduce of 4000 Float"."""
    sizes = ["x".join(map(str, size)) or "1" for size in operation.input_sizes[:SIZES_SHOWN]]
    if len(operation.input_sizes) > SIZES_SHOWN:
        sizes.append(f"... ({len(operation.input_sizes)} tensors)")
    types = sorted(set(operation.input_types))
    what = " ".join(part for part in (", ".join(sizes), "/".join(types)) if part)
    text = f"{bare(operation.kind)} of {what}" if what else bare(operation.kind)
    return text if len(text) <= TEXT_CHARS else text[: TEXT_CHARS - 3] + "..."


def peer(kind: str) -> tuple[int, bool]:
    """Returns the other side of a send or receive as a rank within the group (-1 if unknown), and whether
    this side sends.

    source: FlightRecorder's profiling names, "nccl:send 0->1" and "nccl:recv 1<-0"
    """
    text = kind.rpartition(":")[2]
    name, _, sides = text.partition(" ")
    sends = name in SENDS
    _, _, other = sides.partition("->" if sends else "<-")
    return (int(other) if other.isdecimal() else -1), sends
