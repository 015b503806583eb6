"""What kind of standstill a job is in, from the ranks' tracks.

Pure. Where the collectives of all ranks are known, only the awaited ranks are looked at: those that have nothing
pending while others have. What the waiting ones do (sleep on gloo, spin on NCCL, upload a log) is of no interest.
Without them every living rank counts, and a wait channel has to tell who waits for whom.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from holdfast.core.culprits import SLEEP_CHANNELS
from holdfast.core.hang_limits import Settings, Stretch
from holdfast.core.hang_tracks import RankTrack
from holdfast.model.samples import GONE_STATES, RankSample

# Waits for something outside the job: a remote file system or service, a child, a pipe, a person.
OUTSIDE_CHANNELS = (
    "poll", "do_poll", "do_sys_poll", "do_select", "ep_poll", "do_epoll", "wait_woken", "sk_wait", "inet_", "tcp_", "unix_",
    "skb_", "__skb_", "pipe_", "anon_pipe_", "do_wait", "wait4", "rpc_", "nfs", "fuse_", "request_wait",
    "io_", "folio_", "locks_", "n_tty",
)  # fmt: skip
# Of a child: it reads a pipe or opens a FIFO that nobody writes. Idle loader workers wait in poll instead.
PIPE_CHANNELS = ("pipe_", "anon_pipe_", "wait_for_partner", "fifo_")
CHILD_OUTSIDE = (
    *SLEEP_CHANNELS, "wait_woken", "sk_wait", "inet_", "tcp_", "unix_", "skb_", "__skb_", "rpc_", "nfs", "fuse_",
    "request_wait", "io_", "folio_", "locks_",
)  # fmt: skip
REMOTE_CHANNELS = ("rpc_", "nfs", "fuse_", "request_wait", "cl_", "osc_", "ptlrpc", "ceph", "__fuse")


class View(Struct, frozen=True):
    """The job at one moment: what kind of standstill, and for how long."""

    stretch: Stretch
    quiet_s: float  # by the measure of this kind of standstill
    still_s: float  # no step, line, collective or I/O, whatever runs
    awaited: tuple[int, ...] = ()  # ranks that others are known to wait for
    arrived: bool = False  # every living rank waits in a collective
    runners: tuple[int, ...] = ()


class Seen(NamedTuple):
    """Ranks whose collectives are known: those that wait in one, and those that do not."""

    waiting: list[RankTrack]
    awaited: list[RankTrack]


def look(tracks: Mapping[int, RankTrack], at_s: float, marked_s: float, settings: Settings) -> View:
    """`marked_s`: the last step or log line."""
    living = [track for track in tracks.values() if track.last.state not in GONE_STATES]
    seen = _collectives(living)
    subjects = seen.awaited or living if seen else living
    moved_s = [track.groups_from.at_s for track in tracks.values() if track.groups_from is not None]
    still_s = at_s - max([marked_s, *moved_s, *(track.io_from.at_s for track in subjects)])
    if _cannot_tell(tracks, living, settings):
        return View("unseen", still_s, still_s)
    awaited = tuple(sorted(track.last.rank for track in seen.awaited)) if seen else ()
    arrived = seen is not None and not seen.awaited
    runners = [track for track in subjects if track.runs]
    others = [track for track in subjects if not track.runs]
    ran = tuple(sorted(track.last.rank for track in runners))
    idle_s = at_s - max((track.cpu_from.at_s for track in others), default=at_s)
    if not runners:
        samples = [track.last for track in others]
        stretch = _kind_of_awaited(samples) if awaited else _kind_of_wait(samples)
        if arrived and stretch == "outside":
            stretch = "waiting"
        return View(stretch, min(idle_s, still_s), still_s, awaited, arrived)
    # A rank whose children run, not its main thread, compiles or loads data: that is no loop.
    if all(track.spins for track in runners) and _are_few(runners, subjects, living, seen):
        quiet_s = still_s if seen else min(idle_s, still_s)
        return View("running", quiet_s, still_s, awaited, arrived, ran)
    return View("busy", still_s, still_s, awaited, arrived, ran)


def _collectives(living: list[RankTrack]) -> Seen | None:
    """None where nothing can be concluded: some rank's are not known, or nobody waits in one."""
    if not living or any(track.groups is None for track in living):
        return None
    seen = Seen([], [])
    for track in living:
        (seen.waiting if track.is_pending else seen.awaited).append(track)
    return seen if seen.waiting else None


def _are_few(
    runners: list[RankTrack], subjects: list[RankTrack], living: list[RankTrack], seen: Seen | None
) -> bool:
    """That the others wait for those that run is known by collectives, or guessed from their number."""
    if seen is not None:
        return True
    return len(runners) < len(subjects) and (len(runners) == 1 or 3 * len(runners) <= len(living))


def _cannot_tell(tracks: Mapping[int, RankTrack], living: list[RankTrack], settings: Settings) -> bool:
    """Some rank may be at work unseen: it is elsewhere, may not be read, or a debugger holds it (state t)."""
    if not living or (settings.world_size is not None and len(tracks) < settings.world_size):
        return True
    return any(
        track.last.state in "?t" or track.last.main_cpu_s is None or track.last.io_bytes is None
        for track in living
    )


def _kind_of_wait(samples: Sequence[RankSample]) -> Stretch:
    if any(is_blocked(sample) for sample in samples):
        return "blocked"
    if all(sample.wait_channel.startswith(SLEEP_CHANNELS) for sample in samples):
        return "outside"  # a pause: nobody waits for another
    if not any(sample.wait_channel for sample in samples):
        return "outside"  # this kernel does not tell: the more careful limit
    if any(sample.wait_channel.startswith(OUTSIDE_CHANNELS) for sample in samples):
        return "outside"
    return "waiting"


def _kind_of_awaited(samples: Sequence[RankSample]) -> Stretch:
    """Of ranks that others wait for: asleep, in a lock, or waiting for a child that itself waits for nothing outside."""
    if any(is_blocked(sample) for sample in samples):
        return "blocked"
    return "outside" if any(_waits_outside(sample) for sample in samples) else "waiting"


def _waits_outside(sample: RankSample) -> bool:
    channel = sample.wait_channel
    if not channel or any(one.startswith(CHILD_OUTSIDE) for one in sample.child_channels):
        return True  # "": this kernel does not tell, the more careful limit
    if any(one.startswith(PIPE_CHANNELS) for one in sample.child_channels):
        return False
    return channel.startswith(OUTSIDE_CHANNELS)


def is_blocked(sample: RankSample) -> bool:
    return sample.state == "D" or sample.blocked_children > 0


def is_remote(sample: RankSample) -> bool:
    """Blocked on a file system that lives on another machine, or in a process of this one."""
    return any(one.startswith(REMOTE_CHANNELS) for one in (sample.wait_channel, *sample.child_channels))
