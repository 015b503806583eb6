"""Tracks each rank from sample to sample: when its CPU, its I/O and its collectives last progressed. Pure.

Measured on four gloo ranks on CPU, one asleep, in a lock or in a loop: waiting ranks use 0 ms of main-thread
CPU and 0-10 (3 on average) of the whole process tree each second, and not one byte of I/O.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import RankSample

MAIN_CPU_SHARE = 0.02  # of a core; less counts as idle. Waiting gloo ranks: 0.00, training: 0.06
MAIN_CPU_S = 0.03  # plus three ticks of the kernel's clock, because one may be counted late
TREE_CPU_SHARE = 0.10  # of a core: idle helper threads used up to 0.01, a monitoring child up to 0.03
TREE_CPU_S = 0.10
SPIN_SHARE = 0.3  # of a core: a main thread in an endless loop used 0.74-1.00
ALONE_SHARE = 0.8  # of the process's CPU: beside a loop, helper threads used 0.004 of a core
TRICKLE_BYTES_PER_S = 16 << 10  # waiting gloo ranks: 0; a monitor that reads /proc: some KiB every 10 s
TRICKLE_BYTES = 64 << 10  # one such burst
UNHEARD_S = 2.5  # two queries without an answer; a busy rank answers within 5 ms, the switch interval


class RankTrack(Struct, frozen=True, gc=False):
    """A rank's latest sample, and the samples in which its CPU and I/O last progressed.

    `groups`: state of its collectives at its last answer, at `heard_s`; `groups_from`: the sample in which it
    last changed.
    """

    last: RankSample
    cpu_from: RankSample
    io_from: RankSample
    runs: bool = False
    spins: bool = False
    stopped_since_s: float | None = None
    groups: tuple[GroupStatus, ...] | None = None
    groups_from: RankSample | None = None
    heard_s: float | None = None
    wrote_s: float = float("-inf")  # the last sample in which it had written more than a trickle

    @property
    def is_heard(self) -> bool:
        """Returns whether the rank answers queries about its progress in collectives."""
        return self.heard_s is not None and self.last.at_s - self.heard_s <= UNHEARD_S

    @property
    def worked_s(self) -> float:
        """Returns the CPU time of the main thread since its collectives last progressed, in seconds; 0 if unknown."""
        return 0.0 if self.groups_from is None else _grew(self.groups_from.main_cpu_s, self.last.main_cpu_s)

    @property
    def is_pending(self) -> bool:
        """Returns whether the rank has enqueued a collective that is not complete, so that it waits for others, or
        will wait.

        A rank that waits for others answers queries; a rank that does not answer (stopped, in the kernel, holding the
        GIL) does something else, whatever it last reported.
        """
        heard_s = self.heard_s  # not by `is_heard`: asked of sixteen thousand ranks each second
        if heard_s is None or self.last.at_s - heard_s > UNHEARD_S:
            return False
        for group in self.groups or ():
            if group.enqueued > group.completed:
                return True
        return False


class News(Struct):
    """The progress of all ranks together since the previous sample.

    `steps`: changed step counters, before and now.
    """

    steps: set[tuple[int | None, int | None]]
    logs_grew: bool = False
    collectives_moved: bool = False


def follow_all(
    known: Mapping[int, RankTrack], samples: Iterable[RankSample], news: News
) -> dict[int, RankTrack]:
    """Returns the tracks extended by these samples. Adds the progress of ranks whose process is still the same to
    `news`.

    A rank's first answer about its collectives does not count as progress.
    """
    tracks: dict[int, RankTrack] = {}
    for now in samples:
        before = known.get(now.rank)
        tracks[now.rank] = track = follow(before, now)
        if before is None:
            continue
        last = before.last
        if last.pid != now.pid:
            continue
        if last.step != now.step:
            news.steps.add((last.step, now.step))
        if last.log_bytes != now.log_bytes:
            news.logs_grew = True
        if track.groups_from is not before.groups_from and before.groups is not None:
            news.collectives_moved = True
    return tracks


def follow(before: RankTrack | None, now: RankSample) -> RankTrack:
    """Returns the track of a rank extended by one sample.

    Called for each of many ranks every second: optimised for speed.
    """
    stopped_since_s = now.at_s if now.state == "T" else None
    if before is None or before.last.pid != now.pid:
        heard_s = None if now.groups is None else now.at_s
        groups_from = None if now.groups is None else now
        return RankTrack(now, now, now, False, False, stopped_since_s, now.groups, groups_from, heard_s)
    if stopped_since_s is not None and before.stopped_since_s is not None:
        stopped_since_s = before.stopped_since_s
    last = before.last
    used_cpu = _used_cpu(before.cpu_from, now)
    runnable = now.state == "R" and last.state == "R"
    main_s = _grew(last.main_cpu_s, now.main_cpu_s)
    # If other programs use the cores too, a loop uses little of a core, but all CPU time of its process.
    starved = runnable and 0 < ALONE_SHARE * _grew(last.tree_cpu_s, now.tree_cpu_s) <= main_s
    groups, groups_from, heard_s = now.groups, before.groups_from, now.at_s
    if groups is None:
        groups, heard_s = before.groups, before.heard_s
    elif groups != before.groups:
        groups_from = now
    wrote = _grew(last.write_bytes, now.write_bytes) > TRICKLE_BYTES
    return RankTrack(
        now,
        now if used_cpu else before.cpu_from,
        now if _moved_bytes(before.io_from, now) else before.io_from,
        used_cpu or runnable,
        starved or main_s > SPIN_SHARE * (now.at_s - last.at_s),
        stopped_since_s,
        groups,
        groups_from,
        heard_s,
        now.at_s if wrote else before.wrote_s,
    )


def _used_cpu(since: RankSample, now: RankSample) -> bool:
    """Returns whether the rank used more than a negligible CPU time since then; an unreadable counter counts
    as use.
    """
    for_s = now.at_s - since.at_s
    was_s, is_s = since.main_cpu_s, now.main_cpu_s
    if was_s is None or is_s is None:
        if was_s is not is_s:
            return True
    elif is_s - was_s > MAIN_CPU_SHARE * for_s + MAIN_CPU_S:
        return True
    return _grew(since.tree_cpu_s, now.tree_cpu_s) > TREE_CPU_SHARE * for_s + TREE_CPU_S


def _moved_bytes(since: RankSample, now: RankSample) -> bool:
    """Returns whether the rank moved data by system calls, or pages of mapped files, which only the disk
    counter contains.
    """
    trickle = TRICKLE_BYTES_PER_S * (now.at_s - since.at_s) + TRICKLE_BYTES
    was, is_ = since.io_bytes, now.io_bytes
    if was is None or is_ is None:
        if was is not is_:
            return True
    elif is_ - was > trickle:
        return True
    return _grew(since.disk_bytes, now.disk_bytes) > trickle


def _grew(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else now - before
