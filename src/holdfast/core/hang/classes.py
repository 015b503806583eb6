"""Classifies what each rank is doing at the moment of a hang. Pure.

source of the classes: measured on real ranks, one fault each (docs/hang.md)
"""

from collections.abc import Mapping

from holdfast.core.hang.culprits import waits_for_others
from holdfast.core.hang.looks import is_blocked
from holdfast.core.hang.tracks import RankTrack
from holdfast.model.flight.digests import RankClass, RankLife
from holdfast.model.samples import GONE_STATES, Stack

FRESH_S = 2.5  # a counter that changed within the last two samples counts as changing
COMPILERS = (
    "cc1",
    "cc1plus",
    "ptxas",
    "nvcc",
    "cicc",
    "cudafe++",
    "ninja",
    "ld",
    "as",
    "g++",
    "gcc",
    "clang",
    "triton",
)


def lives(
    tracks: Mapping[int, RankTrack],
    stacks: Mapping[int, Stack],
    errors: Mapping[int, str],
    ended: Mapping[int, int | None],
) -> dict[int, RankLife]:
    """Returns the state of each rank at the moment of a hang.

    `errors`: last error of a rank. `ended`: exit codes, also of ranks that ended since the last sample.
    """
    return {
        rank: RankLife(
            rank_class="dead" if rank in ended else _class_of(track, stacks.get(rank)),
            exit_code=ended.get(rank, track.last.exit_code),
            wait_channel=track.last.wait_channel,
            frames=stacks[rank].frames if rank in stacks else (),
            error=errors.get(rank, ""),
            answered=rank in stacks if stacks else None,
        )
        for rank, track in tracks.items()
    }


def _class_of(track: RankTrack, stack: Stack | None) -> RankClass:
    sample = track.last
    if sample.state in GONE_STATES:
        return "dead"
    if sample.state == "T":
        return "stopped"
    if sample.state in "?t":
        return "unknown"
    if is_blocked(sample):
        return "blocked"
    if track.is_pending:
        return "comm_wait"
    if sample.at_s - track.wrote_s < FRESH_S:
        return "writing"
    if any(name in COMPILERS for name in sample.child_names):
        return "compiling"
    if stack is not None and waits_for_others(stack.frames):
        return "comm_wait"
    return "running" if track.runs else "waiting_outside"
