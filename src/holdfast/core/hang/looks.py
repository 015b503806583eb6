"""Classifies a job's standstill from the recent samples of its ranks. Pure.

If the collectives of all ranks are known, only the ranks that the others wait for count: they have no collective pending, and others
have. What waiting ranks do (sleep on gloo, spin on NCCL, upload a log) does not matter. Otherwise every
living rank counts, and wait channels show which ranks wait.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.hang.culprits import SLEEP_CHANNELS
from holdfast.core.hang.limits import Settings, Stretch
from holdfast.core.hang.tracks import RankTrack
from holdfast.core.slices import Sliced, pieces, whole
from holdfast.model.samples import GONE_STATES, RankSample

# Wait channels for something outside the job: a remote file system or service, a child, a pipe, a terminal.
OUTSIDE_CHANNELS = (
    "poll", "do_poll", "do_sys_poll", "do_select", "ep_poll", "do_epoll", "wait_woken", "sk_wait", "inet_", "tcp_", "unix_",
    "skb_", "__skb_", "pipe_", "anon_pipe_", "do_wait", "wait4", "rpc_", "nfs", "fuse_", "request_wait",
    "io_", "folio_", "locks_", "n_tty",
)  # fmt: skip
# Wait channels of a child that reads a pipe or opens a FIFO without a writer; idle loader workers poll.
PIPE_CHANNELS = ("pipe_", "anon_pipe_", "wait_for_partner", "fifo_")
CHILD_OUTSIDE = (
    *SLEEP_CHANNELS, "wait_woken", "sk_wait", "inet_", "tcp_", "unix_", "skb_", "__skb_", "rpc_", "nfs", "fuse_",
    "request_wait", "io_", "folio_", "locks_",
)  # fmt: skip
REMOTE_CHANNELS = ("rpc_", "nfs", "fuse_", "request_wait", "cl_", "osc_", "ptlrpc", "ceph", "__fuse")


class View(Struct, frozen=True):
    """The standstill of a job at one moment: its kind and its duration."""

    stretch: Stretch
    quiet_s: float  # duration, as measured for this kind of standstill
    still_s: float  # time without a step, line, collective or I/O, even if ranks run
    awaited: tuple[int, ...] = ()  # ranks that others are known to wait for
    arrived: bool = False  # every living rank waits in a collective
    runners: tuple[int, ...] = ()
    alone: bool = False  # one process trains, and no rank waits for it
    asleep: bool = False  # every rank that counts sleeps for a duration of its own choice


class _Seen(Struct):
    """Totals over all ranks, computed in pieces. `moved_s`: when any rank's collectives last progressed."""

    moved_s: float
    living: list[RankTrack] = []
    awaited: list[RankTrack] = []  # ranks that wait in no collective
    all_known: bool = True  # the collectives of all living ranks are known
    all_read: bool = True  # no rank may work unobserved: unreadable, or held by a debugger (state t)


class _Subjects(Struct):
    """Totals over the ranks whose standstill counts. `cpu_s`: when an idle one last used CPU."""

    moved_s: float
    cpu_s: float | None = None
    runners: list[RankTrack] = []


def looking(
    tracks: Mapping[int, RankTrack], at_s: float, marked_s: float, settings: Settings
) -> Sliced[View]:
    """Classifies the standstill; a generator that yields between pieces.

    `marked_s`: time of the last step or log line.
    """
    all_ = _Seen(marked_s)
    for part in pieces(list(tracks.values())):
        _gather(all_, part)
        yield
    living = all_.living
    seen = all_.all_known and len(all_.awaited) < len(
        living
    )  # collectives show which ranks wait, and some do
    awaited_ones = all_.awaited if seen else []
    subjects = awaited_ones or living
    met = _Subjects(all_.moved_s)
    for part in pieces(subjects):
        _meet(met, part)
        yield
    still_s = at_s - met.moved_s
    is_whole = settings.world_size is None or len(tracks) >= settings.world_size
    if not living or not is_whole or not all_.all_read:  # some rank may be at work unseen, or elsewhere
        return View("unseen", still_s, still_s)
    awaited = tuple(sorted(track.last.rank for track in awaited_ones))
    arrived = seen and not awaited
    idle_s = at_s - (at_s if met.cpu_s is None else met.cpu_s)
    if not met.runners:
        samples = [track.last for track in subjects]
        alone = settings.world_size == 1 and len(tracks) == 1
        asleep = all(sample.wait_channel.startswith(SLEEP_CHANNELS) for sample in samples)
        stretch = _kind_of_awaited(samples) if awaited else _kind_of_wait(samples)
        if arrived and stretch == "outside":
            stretch = "waiting"
        return View(stretch, min(idle_s, still_s), still_s, awaited, arrived, (), alone, asleep)
    ran = tuple(sorted(track.last.rank for track in met.runners))
    # A rank whose children run and whose main thread does not, compiles or loads data: that is no loop.
    are_few = seen or _are_few(len(met.runners), len(subjects), len(living))
    if are_few and all(track.spins for track in met.runners):
        quiet_s = still_s if seen else min(idle_s, still_s)
        return View("running", quiet_s, still_s, awaited, arrived, ran)
    return View("busy", still_s, still_s, awaited, arrived, ran)


look = whole(looking)


def _gather(all_: _Seen, tracks: Iterable[RankTrack]) -> None:
    moved_s, living, awaited = all_.moved_s, all_.living, all_.awaited
    for track in tracks:
        if track.groups_from is not None and track.groups_from.at_s > moved_s:
            moved_s = track.groups_from.at_s
        last = track.last
        if last.state in GONE_STATES:
            continue
        living.append(track)
        if track.groups is None:
            all_.all_known = False
        if not track.is_pending:
            awaited.append(track)
        if last.main_cpu_s is None or last.io_bytes is None or last.state in "?t":
            all_.all_read = False
    all_.moved_s = moved_s


def _meet(met: _Subjects, tracks: Iterable[RankTrack]) -> None:
    moved_s, cpu_s = met.moved_s, met.cpu_s
    for track in tracks:
        if track.io_from.at_s > moved_s:
            moved_s = track.io_from.at_s
        if track.runs:
            met.runners.append(track)
        elif cpu_s is None or track.cpu_from.at_s > cpu_s:
            cpu_s = track.cpu_from.at_s
    met.moved_s, met.cpu_s = moved_s, cpu_s


def _are_few(runners: int, subjects: int, living: int) -> bool:
    """Returns whether so few ranks run that the others probably wait for them; used without data on
    collectives.
    """
    return runners < subjects and (runners == 1 or 3 * runners <= living)


def _kind_of_wait(samples: Sequence[RankSample]) -> Stretch:
    if any(is_blocked(sample) for sample in samples):
        return "blocked"
    if all(sample.wait_channel.startswith(SLEEP_CHANNELS) for sample in samples):
        return "outside"  # a pause: no rank waits for another
    if not any(sample.wait_channel for sample in samples):
        return "outside"  # this kernel does not show wait channels: the longer limit applies
    if any(sample.wait_channel.startswith(OUTSIDE_CHANNELS) for sample in samples):
        return "outside"
    return "waiting"


def _kind_of_awaited(samples: Sequence[RankSample]) -> Stretch:
    """Returns the kind of standstill of awaited ranks.

    "waiting": asleep, in a lock, or waiting for a child that does not wait for something outside the job.
    """
    if any(is_blocked(sample) for sample in samples):
        return "blocked"
    return "outside" if any(_waits_outside(sample) for sample in samples) else "waiting"


def _waits_outside(sample: RankSample) -> bool:
    channel = sample.wait_channel
    if not channel or any(one.startswith(CHILD_OUTSIDE) for one in sample.child_channels):
        return True  # "": this kernel does not show wait channels: the longer limit applies
    if any(one.startswith(PIPE_CHANNELS) for one in sample.child_channels):
        return False
    return channel.startswith(OUTSIDE_CHANNELS)


def is_blocked(sample: RankSample) -> bool:
    """Returns whether the rank's process or a child of it is in uninterruptible sleep (state D)."""
    return sample.state == "D" or sample.blocked_children > 0


def is_remote(sample: RankSample) -> bool:
    """Returns whether the rank is blocked on a network file system, or on a FUSE process of this machine."""
    return any(one.startswith(REMOTE_CHANNELS) for one in (sample.wait_channel, *sample.child_channels))
