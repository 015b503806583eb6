"""Decides whether a training attempt hangs, and finds a first candidate for the rank that others wait for.

Pure.

No clock, file, socket, random numbers or log; time comes with each call. Its input: samples of /proc and
collectives of every rank once a second (model/samples.py), step numbers, log growth. Stacks
(`culprits.refine`) and flight records (`core/flight`) refine the culprit.

Three sources, most reliable first: collectives (who waits in one, who is awaited, when any last moved); CPU,
I/O and wait channels of each rank; silence of the log. Ranks that wait in NCCL spin: without data on
collectives all ranks seem busy, and only `silent_s` or a user's timeout finds the hang.
"""

from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.hang.culprits import RANKS_NAMED_MAX, does, minority, plural, ranks_named
from holdfast.core.hang.limits import (
    Learned,
    Settings,
    Stretch,
    alone_limit_s,
    count_marks,
    has_begun,
    learn,
    lengthen,
    quiet_limit_s,
    trains,
)
from holdfast.core.hang.looks import View, is_blocked, is_remote, looking
from holdfast.core.hang.tracks import News, RankTrack, follow, follow_all
from holdfast.core.slices import Sliced, pieces, whole
from holdfast.model.samples import GONE_STATES, Hang, HangKind, RankSample, StackTrend

__all__ = [
    "Learned",
    "Settings",
    "Watch",
    "learned",
    "observe",
    "observing",
    "quiet_limit_s",
    "start",
    "to_sample",
]

JITTER_S = 0.25  # tolerance of the interval between samples
MARKS_PER_CALL_MAX = 20
SUSPECT_S = 2.0  # stacks of a rank that runs are sampled once others have waited this long
SUSPECTS_MAX = 3
LOOP_SAMPLES = 10  # identical stacks: of 12, a quiet evaluation had 2-3 distinct ones, an endless loop 1
LOOP_CPU_S = 2.0  # CPU time of a loop; a rank that built a list under load 13 had 1.2 s of 8
NODE_QUIET_S = 4.0  # disks and links of the node idle for this long: nothing is being flushed


class Watch(Struct, frozen=True, kw_only=True):
    """The state of the hang detector for one attempt."""

    at_s: float | None = None
    marked_s: float = 0.0  # the last step or log line
    log_bytes: int = 0
    step: int | None = None
    tracks: dict[int, RankTrack] = {}
    away: dict[int, RankTrack] = {}  # last state of ranks without recent samples
    exited_s: float | None = None
    still_s: float = 0.0
    learned: Learned = Learned()
    stretch: Learned = Learned()  # the present standstill; learned when activity returns
    view: View | None = None
    reported: bool = False


def start(learned: Learned | None = None) -> Watch:
    """Returns the detector's state for a new attempt, with the durations learned in earlier ones."""
    return Watch(learned=learned or Learned())


def learned(state: Watch) -> Learned:
    """Returns the learned durations, for `start` of the next attempt.

    Whether training has begun is determined again.
    """
    now_learned = state.learned
    return replace(
        now_learned,
        marks=0,
        calls=0,
        from_before=now_learned.from_before or has_begun(now_learned, Settings()),
    )


def to_sample(state: Watch) -> tuple[int, ...]:
    """Returns the ranks whose stacks should be sampled repeatedly: they run while others wait for them."""
    view = state.view
    if view is None or view.stretch != "running" or view.quiet_s < SUSPECT_S or state.reported:
        return ()
    return view.runners if len(view.runners) <= SUSPECTS_MAX else ()


def observing(
    state: Watch,
    samples: Sequence[RankSample],
    at_s: float,
    settings: Settings,
    *,
    log_bytes: int = 0,
    step: int | None = None,
    first_step: int | None = None,
    node_busy_s: float | None = None,
    device_busy_s: float | None = None,
    trends: Mapping[int, StackTrend] = {},
) -> Sliced[tuple[Watch, Hang | None]]:
    """Processes one second of samples, and returns the state and a hang.

    A hang is reported again only after progress.

    A generator that yields between pieces, for jobs with many ranks; the result is as of `at_s`.

    `samples`: one for each rank of the whole job (every worker), ended ones with state X or Z. `log_bytes`,
    `step`: of the job's own output, if ranks have no logs of their own. `first_step`: the first step in the
    output, so that fast steps before the first call count too. `node_busy_s`: when disks or links of the node
    were last busy; None if not known. `device_busy_s`: when a GPU of the node last computed; None if not
    known. A single process that waits for it does not hang. `trends`: the results of repeated stack samples
    of the ranks from `to_sample`. Ranks of a silent node may be left out: their return is no progress. A call
    with an earlier or equal time changes nothing.
    """
    if state.at_s is not None and at_s <= state.at_s:
        return state, None
    if state.at_s is None or at_s - state.at_s > settings.watch_gap_s_max:
        return _watch_anew(state, samples, at_s, log_bytes, step), None
    known = {**state.away, **state.tracks} if state.away else state.tracks
    tracks: dict[int, RankTrack] = {}
    news = News({(state.step if state.step is not None or first_step == step else first_step, step)})
    for part in pieces(samples):
        tracks |= follow_all(known, part, news)
        yield
    steps = min(max(_steps_between(*one) for one in news.steps), MARKS_PER_CALL_MAX)
    grew = news.logs_grew or state.log_bytes != log_bytes
    marked_s = at_s if steps or grew else state.marked_s
    view = yield from looking(tracks, at_s, marked_s, settings)
    moved = view.still_s < state.still_s
    counted = count_marks(state.learned, steps, grew=grew, moved=news.collectives_moved)
    now_learned, stretch = learn(counted, state.stretch, view.stretch, moved=moved)
    after = Watch(
        at_s=at_s,
        marked_s=marked_s,
        log_bytes=log_bytes,
        step=step,
        tracks=tracks,
        away={rank: known[rank] for rank in known.keys() - tracks.keys()},
        exited_s=_exited_since(state, tracks, at_s),
        still_s=view.still_s,
        learned=now_learned,
        stretch=lengthen(stretch, view.stretch, view.quiet_s, view.still_s),
        view=view,
        reported=state.reported and not moved,
    )
    hang = _stopped(after, known, settings)
    if hang is None and view.alone:
        hang = _alone(after, view, settings, device_busy_s)
    elif hang is None:
        hang = _left_early(after, view, settings) or _standstill(after, view, settings, node_busy_s, trends)
    return replace(after, reported=after.reported or hang is not None), hang


observe = whole(observing)  # for callers without other work in between


# --- following the job


def _watch_anew(
    state: Watch, samples: Sequence[RankSample], at_s: float, log_bytes: int, step: int | None
) -> Watch:
    """Returns the state after the first sample, or after a gap between samples: only learned durations are
    kept.
    """
    tracks = {sample.rank: follow(None, sample) for sample in samples}
    return Watch(
        at_s=at_s, marked_s=at_s, log_bytes=log_bytes, step=step, tracks=tracks, learned=state.learned
    )


def _steps_between(before: int | None, now: int | None) -> int:
    """Returns the number of steps made. A counter that falls (resumed, a new epoch) counts as one step."""
    if now is None or now == before:
        return 0
    return 1 if before is None else max(1, now - before)


def _exited_since(state: Watch, tracks: dict[int, RankTrack], at_s: float) -> float | None:
    if not any(track.last.state in GONE_STATES for track in tracks.values()):
        return None
    return at_s if state.exited_s is None else state.exited_s


# --- the rules


def _stopped(state: Watch, before: dict[int, RankTrack], settings: Settings) -> Hang | None:
    """Returns the hang of ranks in state T: at one sample a second, at most 2 s after SIGSTOP."""
    stopped = _long_stopped(state.tracks, settings)
    if not stopped or not stopped.keys() - _long_stopped(before, settings).keys():
        return None
    culprits = tuple(sorted(stopped))
    return Hang(
        kind="stopped",
        culprits=culprits,
        waiting=_living_but(state, culprits),
        since_s=min(stopped.values()),
        why=f"{ranks_named(culprits)} {plural(culprits, 'is', 'are')} stopped (state T): a SIGSTOP, or a job control stop",
        confidence=0.99,
        seen=_seen(state),
    )


def _long_stopped(tracks: dict[int, RankTrack], settings: Settings) -> dict[int, float]:
    """Returns the ranks that have been stopped for too long, with the start of that state."""
    return {
        rank: track.stopped_since_s
        for rank, track in tracks.items()
        if track.stopped_since_s is not None and track.last.at_s - track.stopped_since_s >= settings.stopped_s
    }


def _left_early(state: Watch, view: View, settings: Settings) -> Hang | None:
    """Returns the hang in which all living ranks wait in a collective that a rank with exit code 0 will never
    enter.
    """
    if state.reported or not view.arrived or state.exited_s is None or settings.hang_timeout_s is not None:
        return None
    assert state.at_s is not None
    gone = [track.last for track in state.tracks.values() if track.last.state in GONE_STATES]
    for_s = min(view.quiet_s, state.at_s - state.exited_s)
    if any(one.exit_code for one in gone) or for_s < settings.left_s - JITTER_S:
        return None
    left = tuple(sorted(one.rank for one in gone))
    waiting = _living_but(state, left)
    return Hang(
        kind="left-early",
        culprits=left,
        waiting=waiting,
        since_s=state.at_s - for_s,
        why=f"{ranks_named(left)} {plural(left, 'has', 'have')} ended with code 0 while {ranks_named(waiting)} "
        f"{plural(waiting, 'waits', 'wait')} in a collective",
        confidence=0.9,
        seen=_seen(state),
    )


def _alone(state: Watch, view: View, settings: Settings, device_busy_s: float | None) -> Hang | None:
    """Returns the hang of a single process that waits for a lock or sleeps while its devices are idle."""
    assert state.at_s is not None
    if state.reported:
        return None
    limit_s = alone_limit_s(state.learned, settings, view.stretch, asleep=view.asleep)
    for_s = view.still_s if settings.hang_timeout_s is not None else view.quiet_s
    if device_busy_s is not None:
        for_s = min(for_s, state.at_s - device_busy_s)
    if limit_s is None or for_s < limit_s - JITTER_S:
        return None
    seen = _seen(state)
    return Hang(
        kind="blocked-io" if view.stretch == "blocked" else "quiet",
        culprits=tuple(sample.rank for sample in seen),
        since_s=state.at_s - for_s,
        why=f"{'; '.join(map(does, seen))}; the only rank has made no step, log line or I/O and used no CPU "
        f"for {for_s:.0f} s ({limit_s:.0f} s allowed)",
        category="" if view.stretch == "blocked" else "unknown",
        confidence=0.8,
        seen=seen,
    )


def _standstill(
    state: Watch,
    view: View,
    settings: Settings,
    node_busy_s: float | None,
    trends: Mapping[int, StackTrend],
) -> Hang | None:
    if state.reported:
        return None
    exits = [track.last for track in state.tracks.values() if track.last.state in GONE_STATES]
    living = _living_but(state, ())
    if exits and living and not any(exit.exit_code for exit in exits):
        found = _exit_hang(state, view, living, settings)
        if found is not None:
            return found
    stretch: Stretch = "unseen" if exits else view.stretch
    limit_s = quiet_limit_s(state.learned, settings, stretch, awaited=bool(view.awaited))
    if settings.hang_timeout_s is None and not exits:
        limit_s = min(limit_s, _certain_s(state, view, settings, node_busy_s, trends))
    # A timeout that the user set counts only steps, lines and I/O, even if a rank runs.
    for_s = view.still_s if exits or settings.hang_timeout_s is not None else view.quiet_s
    if (
        exits
        and settings.hang_timeout_s is not None
        and state.exited_s is not None
        and state.at_s is not None
    ):
        for_s = min(for_s, state.at_s - state.exited_s)  # an end is a sign of life, too
    if for_s < limit_s - JITTER_S:
        return None
    return _hang(state, view, stretch, for_s, limit_s)


def _certain_s(
    state: Watch,
    view: View,
    settings: Settings,
    node_busy_s: float | None,
    trends: Mapping[int, StackTrend],
) -> float:
    """Returns a shorter limit if more is known: an idle disk, an unchanged stack."""
    assert state.at_s is not None
    if not trains(state.learned, settings):
        return settings.silent_s  # during a start, one rank prepares data while the others wait for it
    usual_s = settings.quiet_factor * state.learned.waiting_s
    floor_s = max(settings.floor_s, usual_s)
    if view.stretch == "running" and view.runners and view.awaited:
        since_s = state.at_s - view.quiet_s
        looped = all(_loops(state.tracks[rank], trends.get(rank), since_s) for rank in view.runners)
        return floor_s if looped else settings.silent_s
    if view.stretch == "blocked" and node_busy_s is not None:
        blocked = [track.last for track in state.tracks.values() if is_blocked(track.last)]
        remote = any(is_remote(sample) for sample in blocked)
        if state.at_s - node_busy_s >= NODE_QUIET_S:
            return max(settings.blocked_remote_s, usual_s) if remote else floor_s
    return settings.silent_s


def _loops(track: RankTrack, trend: StackTrend | None, since_s: float) -> bool:
    """Returns whether a rank is in an endless loop: an unchanged stack since the standstill began, in Python
    or in a sleep.

    A long call into C shows one stack too, and may end. It is recognised by its native frames or, if it holds
    the GIL (a sum over a range, garbage collection), by a rank that does not answer: a loop in Python lets
    other threads answer. If other programs use the cores, the work of a second takes ten with one stack; so
    the CPU time counts.
    """
    return (
        trend is not None
        and track.is_heard
        and trend.from_s >= since_s
        and trend.samples >= LOOP_SAMPLES
        and trend.distinct == 1
        and (trend.inside == "kernel" or (trend.inside == "interpreter" and track.worked_s >= LOOP_CPU_S))
    )


def _exit_hang(state: Watch, view: View, living: tuple[int, ...], settings: Settings) -> Hang | None:
    """Returns the hang of ranks that live on after others ended with 0; for ranks that still run, after ten
    times as long.
    """
    assert state.at_s is not None and state.exited_s is not None
    idle = view.stretch in ("waiting", "outside", "blocked")
    limit_s = settings.exit_hang_s * (1.0 if idle else settings.exit_busy_factor)
    if settings.hang_timeout_s is not None:
        limit_s = min(limit_s, settings.hang_timeout_s)
    alive_s = view.quiet_s if settings.hang_timeout_s is None else view.still_s
    for_s = min(alive_s, state.at_s - state.exited_s)
    if for_s < limit_s - JITTER_S:
        return None
    ended = tuple(sorted(set(state.tracks) - set(living)))
    return Hang(
        kind="exit-hang",
        culprits=living,
        since_s=state.at_s - for_s,
        why=f"{ranks_named(ended)} ended, {ranks_named(living)} {plural(living, 'lives', 'live')} on "
        f"with no progress for {for_s:.0f} s",
        confidence=0.8,
        seen=_seen(state),
    )


def _hang(state: Watch, view: View, stretch: Stretch, for_s: float, limit_s: float) -> Hang:
    assert state.at_s is not None
    seen = _seen(state)
    quiet = f"for {for_s:.0f} s ({limit_s:.0f} s allowed)"
    culprits = view.awaited or minority(seen)
    kind: HangKind
    match stretch:
        case "waiting" | "outside":
            kind, sure = "quiet", 0.8 if culprits else 0.7
            why = f"no step, no log line, no I/O and no CPU in any rank {quiet}"
            if view.arrived:
                why = f"every rank waits in a collective, none has moved {quiet}"
        case "blocked":
            kind, sure = "blocked-io", 0.85
            culprits = tuple(sample.rank for sample in seen if is_blocked(sample))
            why = f"{ranks_named(culprits)} blocked in I/O (state D), no progress anywhere {quiet}"
        case "running":
            kind, sure = "spinning", 0.6
            culprits = () if view.arrived else view.runners
            why = f"only {ranks_named(view.runners)} {plural(view.runners, 'runs', 'run')}, "
            why += f"with no step, log line or I/O in any rank {quiet}"
        case "busy" | "unseen":
            kind, sure, culprits = "silent", 0.5, ()
            why = f"no step, no log line and no I/O {quiet}"
        case never:
            assert_never(never)
    if view.awaited and stretch != "busy":
        sure = max(sure, 0.9)
        why = f"{_awaits(view, _living_but(state, view.awaited))} {quiet}"
    if culprits and kind == "quiet":
        named = set(culprits[:RANKS_NAMED_MAX])
        why = "; ".join([*(does(sample) for sample in seen if sample.rank in named), why])
    return Hang(
        kind=kind,
        culprits=culprits,
        waiting=_living_but(state, culprits),
        since_s=state.at_s - for_s,
        why=why,
        confidence=sure,
        seen=seen,
    )


def _awaits(view: View, waiting: tuple[int, ...]) -> str:
    return (
        f"{ranks_named(waiting)} {plural(waiting, 'waits', 'wait')} in a collective for "
        f"{ranks_named(view.awaited)}, with no step, log line or I/O"
    )


def _living_but(state: Watch, ranks: tuple[int, ...]) -> tuple[int, ...]:
    left_out = set(ranks)
    return tuple(
        rank
        for rank in sorted(state.tracks)
        if rank not in left_out and state.tracks[rank].last.state not in GONE_STATES
    )


def _seen(state: Watch) -> tuple[RankSample, ...]:
    return tuple(state.tracks[rank].last for rank in sorted(state.tracks))
