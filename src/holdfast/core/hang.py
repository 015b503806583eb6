"""Decides that a training attempt hangs, and first guesses which rank the others wait for.

Pure: no clock, file, socket, dice or log; time comes in with each call. It sees what /proc tells of every rank
once a second (model/samples.py), step numbers and the growth of logs; `culprits.refine` looks again, with stacks.
It never looks into collectives: progress by flight record is to come in as one more reading beside `_look`.

Measured on four gloo ranks on CPU, one asleep, in a lock or in a loop: the ranks that wait use 0 ms of main thread
and 0-10 (3 on average) of the whole tree each second, and not one byte of I/O; their wait channel is a futex. NCCL
waiters spin instead (reported): there all ranks seem busy, and only `silent_s` or a given timeout finds the hang.
"""

from collections.abc import Sequence
from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.culprits import SLEEP_CHANNELS, does, minority, plural, ranks_named
from holdfast.model.samples import GONE_STATES, Hang, HangKind, RankSample

# What kind of standstill it is, from the quickest to be sure of to the slowest:
# waiting: nobody runs, someone waits for another; outside: someone waits for the network, a pipe or a timer;
# blocked: someone is in state D; running: a few run, the others wait; busy: many run; unseen: not all can be read.
Stretch = Literal["waiting", "outside", "blocked", "running", "busy", "unseen"]

MAIN_CPU_SHARE = 0.02  # of a core; less is standing still. Waiting gloo ranks: 0.00, training: 0.06
MAIN_CPU_S = 0.03  # three ticks of the kernel's clock on top, as one may be counted late
TREE_CPU_SHARE = 0.10  # of a core: idle helper threads took up to 0.01, a monitoring child takes up to 0.03
TREE_CPU_S = 0.10
SPIN_SHARE = 0.3  # a main thread in an endless loop took 0.74-1.00
TRICKLE_BYTES_PER_S = 16 << 10  # waiting gloo ranks: 0; a monitor that reads /proc: some KiB every 10 s
TRICKLE_BYTES = 64 << 10  # one such burst
JITTER_S = 0.25  # samples a second apart come a little early or late
MARKS_PER_CALL_MAX = 20

# Waits for something outside the job: a remote file system or service, a child, a pipe, a person.
OUTSIDE_CHANNELS = (
    "poll", "do_poll", "do_sys_poll", "do_select", "ep_poll", "do_epoll", "wait_woken", "sk_wait", "inet_", "tcp_", "unix_",
    "skb_", "__skb_", "pipe_", "anon_pipe_", "do_wait", "wait4", "rpc_", "nfs", "fuse_", "request_wait",
    "io_", "folio_", "locks_", "n_tty",
)  # fmt: skip


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every limit, in seconds. Those without a measurement named are chosen: a false alarm costs a run."""

    hang_timeout_s: float | None = None  # given, it replaces floor_s ... silent_s
    world_size: int | None = None  # while fewer are sampled, not all is seen
    stopped_s: float = 0.9  # two samples a second apart
    floor_s: float = 6.0  # a fault shows in the sample after it, the log may lag one more: 8 s in all
    floor_without_steps_s: float = 30.0  # lines alone are weaker proof that training has begun
    quiet_factor: float = 3.0  # three usual steps (HANG.md: <= 3 for slow jobs)
    outside_s: float = 60.0  # retries of storage and web clients give up within it
    blocked_s: float = 120.0  # an fsync of a large checkpoint stays in D with no counter moving
    running_s: float = 90.0  # a quiet evaluation on one rank looks the same
    start_s: float = 600.0  # before training has been learned
    first_steps_s: float = (
        60.0  # a step was made, too few to learn from, and nobody runs or waits on the outside
    )
    silent_s: float = 1800.0  # the platforms' default
    exit_hang_s: float = 60.0
    exit_busy_factor: float = 10.0  # where a rank that lives on still runs: it may finish its work
    marks_min: int = 20
    calls_min: int = 5  # calls with a mark, so that one burst of lines is not taken for training
    calls_min_with_steps: int = 1  # a counter that has risen by marks_min is no burst of lines
    marks_min_again: int = 2  # in a later attempt, what the one before taught holds from here on
    watch_gap_s_max: float = 15.0  # longer between two calls: nobody watched, nothing is concluded from it


class Learned(Struct, frozen=True, kw_only=True):
    """What is usual in this job, carried from attempt to attempt: the longest healthy stretch of each kind."""

    marks: int = 0  # steps; where the log names none, calls in which it grew
    calls: int = 0  # calls with a mark
    has_steps: bool = False
    from_before: bool = False  # an attempt before this one had been learned
    waiting_s: float = 0.0
    outside_s: float = 0.0
    blocked_s: float = 0.0
    running_s: float = 0.0
    still_s: float = 0.0  # no step, line or I/O, though something ran


class RankTrack(Struct, frozen=True):
    """One rank's latest sample, and those in which its CPU and I/O last moved."""

    last: RankSample
    cpu_from: RankSample
    io_from: RankSample
    runs: bool = False
    spins: bool = False
    stopped_since_s: float | None = None


class Watch(Struct, frozen=True, kw_only=True):
    """The detector's whole state."""

    at_s: float | None = None
    marked_s: float = 0.0  # the last step or log line
    log_bytes: int = 0
    step: int | None = None
    tracks: dict[int, RankTrack] = {}
    exited_s: float | None = None
    still_s: float = 0.0
    learned: Learned = Learned()
    stretch: Learned = Learned()  # the standstill going on; learned when life comes back
    reported: bool = False


class View(Struct, frozen=True):
    """The job at one moment: what kind of standstill, and for how long."""

    stretch: Stretch
    quiet_s: float  # by the measure of this kind of standstill
    still_s: float  # no step, line or I/O, whatever runs


def start(learned: Learned | None = None) -> Watch:
    """A new attempt, knowing what the attempts before it taught."""
    return Watch(learned=learned or Learned())


def learned(state: Watch) -> Learned:
    """For `start` of the next attempt: the usual lengths. Whether training has begun is to be seen anew."""
    knows = state.learned
    return replace(knows, marks=0, calls=0, from_before=knows.from_before or _has_begun(knows, Settings()))


def observe(
    state: Watch,
    samples: Sequence[RankSample],
    at_s: float,
    settings: Settings,
    *,
    log_bytes: int = 0,
    step: int | None = None,
    first_step: int | None = None,
) -> tuple[Watch, Hang | None]:
    """One look, once a second. A hang is told once, and again only after the job has shown life.

    `samples`: one for each rank of the whole job (every worker), ended ones with state X or Z.
    `log_bytes`, `step`: of the job's own output, where ranks have none of their own or none were found.
    `first_step`: the one that the output named first, so that fast steps before the first look count too.
    A call that does not go forward in time changes nothing.
    """
    if state.at_s is not None and at_s <= state.at_s:
        return state, None
    if state.at_s is None or at_s - state.at_s > settings.watch_gap_s_max:
        return _watch_anew(state, samples, at_s, log_bytes, step), None
    tracks = {sample.rank: _follow(state.tracks.get(sample.rank), sample) for sample in samples}
    steps = _new_steps(state, tracks, step, first_step)
    grew = _has_log_grown(state, tracks, log_bytes)
    marked_s = at_s if steps or grew else state.marked_s
    view = _look(tracks, at_s, marked_s, settings)
    moved = view.still_s < state.still_s
    knows, stretch = _learn(_count_marks(state.learned, steps, grew), state.stretch, view, moved=moved)
    after = Watch(
        at_s=at_s,
        marked_s=marked_s,
        log_bytes=log_bytes,
        step=step,
        tracks=tracks,
        exited_s=_exited_since(state, tracks, at_s),
        still_s=view.still_s,
        learned=knows,
        stretch=_lengthen(stretch, view),
        reported=state.reported and not moved,
    )
    hang = _stopped(after, state.tracks, settings) or _standstill(after, view, settings)
    return replace(after, reported=after.reported or hang is not None), hang


def quiet_limit_s(learned: Learned, settings: Settings, stretch: Stretch = "waiting") -> float:
    """How long a standstill of this kind may last before it is called a hang."""
    if settings.hang_timeout_s is not None:
        return settings.hang_timeout_s
    if stretch == "busy" or stretch == "unseen":
        return max(settings.silent_s, settings.quiet_factor * learned.still_s)
    if not _has_begun(learned, settings):
        if stretch == "waiting" and learned.has_steps and learned.marks:
            return settings.first_steps_s
        return settings.silent_s if stretch == "running" else settings.start_s
    floor_s = settings.floor_s if learned.has_steps else settings.floor_without_steps_s
    usual_s = learned.waiting_s
    match stretch:
        case "waiting":
            pass
        case "outside":
            floor_s, usual_s = max(floor_s, settings.outside_s), max(usual_s, learned.outside_s)
        case "blocked":
            floor_s, usual_s = max(floor_s, settings.blocked_s), max(usual_s, learned.blocked_s)
        case "running":
            floor_s, usual_s = max(floor_s, settings.running_s), max(usual_s, learned.running_s)
        case never:
            assert_never(never)
    return min(max(floor_s, settings.quiet_factor * usual_s), settings.silent_s)


def _has_begun(learned: Learned, settings: Settings) -> bool:
    """Training is under way and its usual lengths are known."""
    if learned.from_before:
        return learned.marks >= settings.marks_min_again
    calls_min = settings.calls_min_with_steps if learned.has_steps else settings.calls_min
    return learned.marks >= settings.marks_min and learned.calls >= calls_min


# --- following the ranks


def _watch_anew(
    state: Watch, samples: Sequence[RankSample], at_s: float, log_bytes: int, step: int | None
) -> Watch:
    """The first look, or one after a time in which nobody looked: only what was learned is kept."""
    tracks = {sample.rank: _follow(None, sample) for sample in samples}
    return Watch(
        at_s=at_s, marked_s=at_s, log_bytes=log_bytes, step=step, tracks=tracks, learned=state.learned
    )


def _follow(before: RankTrack | None, now: RankSample) -> RankTrack:
    stopped_since_s = now.at_s if now.state == "T" else None
    if before is None or before.last.pid != now.pid:
        return RankTrack(now, now, now, stopped_since_s=stopped_since_s)
    if now.state == "T" and before.stopped_since_s is not None:
        stopped_since_s = before.stopped_since_s
    last = before.last
    used_cpu = _used_cpu(before.cpu_from, now)
    return RankTrack(
        last=now,
        cpu_from=now if used_cpu else before.cpu_from,
        io_from=now if _moved_bytes(before.io_from, now) else before.io_from,
        runs=used_cpu or (now.state == "R" and last.state == "R"),
        spins=_grew(last.main_cpu_s, now.main_cpu_s) > SPIN_SHARE * (now.at_s - last.at_s),
        stopped_since_s=stopped_since_s,
    )


def _used_cpu(since: RankSample, now: RankSample) -> bool:
    """More than a trickle over the whole time since; a counter first readable now counts as use."""
    for_s = now.at_s - since.at_s
    if (since.main_cpu_s is None) != (now.main_cpu_s is None):
        return True
    main_s = _grew(since.main_cpu_s, now.main_cpu_s)
    tree_s = _grew(since.tree_cpu_s, now.tree_cpu_s)
    return main_s > MAIN_CPU_SHARE * for_s + MAIN_CPU_S or tree_s > TREE_CPU_SHARE * for_s + TREE_CPU_S


def _moved_bytes(since: RankSample, now: RankSample) -> bool:
    """Bytes by system calls, or pages of mapped files: those show in the disk counter only."""
    if (since.io_bytes is None) != (now.io_bytes is None):
        return True
    trickle = TRICKLE_BYTES_PER_S * (now.at_s - since.at_s) + TRICKLE_BYTES
    return max(_grew(since.io_bytes, now.io_bytes), _grew(since.disk_bytes, now.disk_bytes)) > trickle


def _grew(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else now - before


def _new_steps(state: Watch, tracks: dict[int, RankTrack], step: int | None, first_step: int | None) -> int:
    """Steps made since the call before. A counter that falls (resumed, a new epoch) has moved too."""
    pairs = [(state.step if state.step is not None or first_step == step else first_step, step)]
    pairs += [(before.last.step, track.last.step) for before, track in _pairs(state, tracks)]
    return min(max(_steps_between(*pair) for pair in pairs), MARKS_PER_CALL_MAX)


def _steps_between(before: int | None, now: int | None) -> int:
    if now is None or now == before:
        return 0
    return 1 if before is None else max(1, now - before)


def _has_log_grown(state: Watch, tracks: dict[int, RankTrack], log_bytes: int) -> bool:
    if state.log_bytes != log_bytes:
        return True
    return any(before.last.log_bytes != track.last.log_bytes for before, track in _pairs(state, tracks))


def _pairs(state: Watch, tracks: dict[int, RankTrack]) -> list[tuple[RankTrack, RankTrack]]:
    """Each rank's track before and now, where it is still the same process."""
    return [
        (before, track)
        for rank, track in tracks.items()
        if (before := state.tracks.get(rank)) is not None and before.last.pid == track.last.pid
    ]


def _exited_since(state: Watch, tracks: dict[int, RankTrack], at_s: float) -> float | None:
    if not any(track.last.state in GONE_STATES for track in tracks.values()):
        return None
    return at_s if state.exited_s is None else state.exited_s


# --- learning what is usual


def _count_marks(knows: Learned, steps: int, grew: bool) -> Learned:
    """The first step begins a new phase: what start-up taught says nothing about training."""
    if steps and not knows.has_steps:
        return Learned(has_steps=True, marks=steps, calls=1)
    marks = steps if knows.has_steps else int(grew)
    return replace(knows, marks=knows.marks + marks, calls=knows.calls + 1) if marks else knows


def _learn(knows: Learned, stretch: Learned, view: View, *, moved: bool) -> tuple[Learned, Learned]:
    """A standstill that ended by itself was healthy: its lengths become usual, and a new stretch begins.

    Where only CPU came back, the quiet part has ended; a rank that spins now and then still spins, so that and
    the time without a step, line or byte go on. What came before an attempt's first mark is start-up: not learned.
    """
    if not moved and view.stretch != "busy":
        return knows, stretch
    after = Learned() if moved else Learned(running_s=stretch.running_s, still_s=stretch.still_s)
    if knows.calls <= 1:
        return knows, after
    longest = replace(
        knows,
        waiting_s=max(knows.waiting_s, stretch.waiting_s),
        outside_s=max(knows.outside_s, stretch.outside_s),
        blocked_s=max(knows.blocked_s, stretch.blocked_s),
    )
    if moved:
        longest = replace(
            longest,
            running_s=max(knows.running_s, stretch.running_s),
            still_s=max(knows.still_s, stretch.still_s),
        )
    return longest, after


def _lengthen(stretch: Learned, view: View) -> Learned:
    """The standstill going on, by each kind it has been so far."""
    longer = replace(stretch, still_s=max(stretch.still_s, view.still_s))
    match view.stretch:
        case "waiting":
            return replace(longer, waiting_s=max(longer.waiting_s, view.quiet_s))
        case "outside":
            return replace(longer, outside_s=max(longer.outside_s, view.quiet_s))
        case "blocked":
            return replace(longer, blocked_s=max(longer.blocked_s, view.quiet_s))
        case "running":
            return replace(longer, running_s=max(longer.running_s, view.quiet_s))
        case "busy" | "unseen":
            return longer
        case never:
            assert_never(never)


# --- what kind of standstill


def _look(tracks: dict[int, RankTrack], at_s: float, marked_s: float, settings: Settings) -> View:
    living = [track for track in tracks.values() if track.last.state not in GONE_STATES]
    still_s = at_s - max([marked_s, *(track.io_from.at_s for track in living)])
    if _cannot_tell(tracks, living, settings):
        return View("unseen", still_s, still_s)
    runners = [track for track in living if track.runs]
    others = [track for track in living if not track.runs]
    idle_s = at_s - max((track.cpu_from.at_s for track in others), default=at_s)
    if not runners:
        return View(_kind_of_wait([track.last for track in others]), min(idle_s, still_s), still_s)
    few = bool(others) and (len(runners) == 1 or 3 * len(runners) <= len(living))
    # A rank whose children run, not its main thread, compiles or loads data: that is no loop.
    if few and all(track.spins for track in runners):
        return View("running", min(idle_s, still_s), still_s)
    return View("busy", still_s, still_s)


def _cannot_tell(tracks: dict[int, RankTrack], living: list[RankTrack], settings: Settings) -> bool:
    """Some rank may be at work unseen: it is elsewhere, may not be read, or a debugger holds it (state t)."""
    if not living or (settings.world_size is not None and len(tracks) < settings.world_size):
        return True
    return any(
        track.last.state in "?t" or track.last.main_cpu_s is None or track.last.io_bytes is None
        for track in living
    )


def _kind_of_wait(samples: list[RankSample]) -> Stretch:
    if any(_is_blocked(sample) for sample in samples):
        return "blocked"
    if all(sample.wait_channel.startswith(SLEEP_CHANNELS) for sample in samples):
        return "outside"  # a pause: nobody waits for another
    if not any(sample.wait_channel for sample in samples):
        return "outside"  # this kernel does not tell: the more careful limit
    if any(sample.wait_channel.startswith(OUTSIDE_CHANNELS) for sample in samples):
        return "outside"
    return "waiting"


def _is_blocked(sample: RankSample) -> bool:
    return sample.state == "D" or sample.blocked_children > 0


# --- the rules


def _stopped(state: Watch, before: dict[int, RankTrack], settings: Settings) -> Hang | None:
    """Told in the call in which the time is up for some rank: at 1 Hz at most 2 s after SIGSTOP."""
    stopped = _long_stopped(state.tracks, settings)
    if not stopped.keys() - _long_stopped(before, settings).keys():
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
    """Ranks stopped long enough, and since when."""
    return {
        rank: track.stopped_since_s
        for rank, track in tracks.items()
        if track.stopped_since_s is not None and track.last.at_s - track.stopped_since_s >= settings.stopped_s
    }


def _standstill(state: Watch, view: View, settings: Settings) -> Hang | None:
    if state.reported:
        return None
    exits = [track.last for track in state.tracks.values() if track.last.state in GONE_STATES]
    living = _living_but(state, ())
    if exits and living and not any(exit.exit_code for exit in exits):
        found = _exit_hang(state, view, living, settings)
        if found is not None:
            return found
    stretch: Stretch = "unseen" if exits else view.stretch
    limit_s = quiet_limit_s(state.learned, settings, stretch)
    # A timeout the user gave counts steps, lines and I/O alone: what runs without them has had its time.
    for_s = view.still_s if exits or settings.hang_timeout_s is not None else view.quiet_s
    if for_s < limit_s - JITTER_S:
        return None
    return _hang(state, stretch, for_s, limit_s)


def _exit_hang(state: Watch, view: View, living: tuple[int, ...], settings: Settings) -> Hang | None:
    """Ranks that live on after others ended well: quiet ones soon, those that still run after ten times as long."""
    assert state.at_s is not None and state.exited_s is not None
    idle = view.stretch in ("waiting", "outside", "blocked")
    limit_s = settings.exit_hang_s * (1.0 if idle else settings.exit_busy_factor)
    if settings.hang_timeout_s is not None:
        limit_s = min(limit_s, settings.hang_timeout_s)
    for_s = min(view.quiet_s, state.at_s - state.exited_s)
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


def _hang(state: Watch, stretch: Stretch, for_s: float, limit_s: float) -> Hang:
    assert state.at_s is not None
    seen = _seen(state)
    quiet = f"for {for_s:.0f} s ({limit_s:.0f} s allowed)"
    culprits = minority(seen)
    kind: HangKind
    match stretch:
        case "waiting" | "outside":
            kind, sure = "quiet", 0.8 if culprits else 0.7
            why = f"no step, no log line, no I/O and no CPU in any rank {quiet}"
        case "blocked":
            kind, sure = "blocked-io", 0.85
            culprits = tuple(sample.rank for sample in seen if _is_blocked(sample))
            why = f"{ranks_named(culprits)} blocked in I/O (state D), no progress anywhere {quiet}"
        case "running":
            kind, sure = "spinning", 0.6
            culprits = tuple(rank for rank in sorted(state.tracks) if state.tracks[rank].runs)
            why = f"only {ranks_named(culprits)} {plural(culprits, 'runs', 'run')}, "
            why += f"with no step, log line or I/O in any rank {quiet}"
        case "busy" | "unseen":
            kind, sure = "silent", 0.5
            why = f"no step, no log line and no I/O {quiet}"
        case never:
            assert_never(never)
    if culprits and kind == "quiet":
        why += "; " + "; ".join(does(sample) for sample in seen if sample.rank in culprits)
    return Hang(
        kind=kind,
        culprits=culprits,
        waiting=_living_but(state, culprits),
        since_s=state.at_s - for_s,
        why=why,
        confidence=sure,
        seen=seen,
    )


def _living_but(state: Watch, ranks: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(
        rank
        for rank in sorted(state.tracks)
        if rank not in ranks and state.tracks[rank].last.state not in GONE_STATES
    )


def _seen(state: Watch) -> tuple[RankSample, ...]:
    return tuple(state.tracks[rank].last for rank in sorted(state.tracks))
