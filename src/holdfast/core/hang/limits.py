"""Sets how long a standstill of each kind may last before it is a hang: fixed minimums, and learned
durations. Pure.

A standstill that ended by itself was healthy, so its duration becomes usual for its kind: a checkpoint of ten
minutes says nothing about how long a rank may wait for another. Learned durations carry over to later
attempts.
"""

from typing import Literal, assert_never

from msgspec import Struct
from msgspec.structs import replace

# The kind of a standstill, from the shortest limit to the longest:
# waiting: no rank runs, some rank waits for another; outside: some rank waits for the network, a pipe or a timer;
# blocked: a rank is in state D; running: few run, others wait; busy: many run; unseen: not all are known.
Stretch = Literal["waiting", "outside", "blocked", "running", "busy", "unseen"]


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All limits of the hang detector, in seconds.

    Limits without a named measurement are chosen conservatively, because a false alarm costs a run.
    """

    hang_timeout_s: float | None = None  # if set, it replaces floor_s ... silent_s
    world_size: int | None = None  # with fewer sampled ranks, the kind of standstill is "unseen"
    stopped_s: float = 0.9  # two samples a second apart
    left_s: float = 1.9  # ranks wait in a collective for one that has ended and whose last data has arrived
    floor_s: float = 6.0  # plus one sample until the fault is visible and one for the log: 8 s in all
    floor_without_steps_s: float = 30.0  # lines alone are weaker proof that training has begun
    quiet_factor: float = 3.0  # three usual steps (HANG.md: <= 3 for slow jobs)
    outside_s: float = 60.0  # retries of storage and web clients give up within it
    blocked_s: float = 120.0  # an fsync of a large checkpoint stays in D with no counter moving
    blocked_remote_s: float = (
        30.0  # a file server that does not answer: a hiccup of its network is over by then
    )
    running_s: float = 90.0  # a quiet evaluation on one rank looks the same
    start_s: float = 600.0  # before training has been learned
    start_awaited_s: float = 26.0  # likewise, but ranks wait in a collective for one that does nothing at all
    # One process trains alone: no rank waits for it, so only its own inactivity counts. A copy to a device, a queue
    # of a loader and a pause in a script are shorter; a back-off of a web client doubles up to 16 s.
    alone_s: float = 20.0
    alone_asleep_s: float = 25.0
    first_steps_s: float = (
        60.0  # too few steps to learn from, and no rank runs or waits for something outside the job
    )
    silent_s: float = 1800.0  # the platforms' default
    exit_hang_s: float = 60.0
    exit_busy_factor: float = (
        10.0  # multiple of exit_hang_s for a rank that still runs, and may finish its work
    )
    marks_min: int = 20
    steps_min: int = 5  # minimum logged steps, for ranks that wait for an idle one
    calls_min: int = 5  # minimum calls with progress, so that one burst of lines does not count as training
    calls_min_with_steps: int = 1  # the same with logged steps, which are no burst of lines
    marks_min_again: int = 2  # marks of progress after which a later attempt uses the learned durations
    watch_gap_s_max: float = 15.0  # after a longer gap between two calls, nothing is concluded


class Learned(Struct, frozen=True, kw_only=True):
    """The usual durations in this job, which are carried over between attempts: the longest healthy standstill of
    each kind.
    """

    marks: int = 0  # steps; without steps in the log, calls in which the log or collectives progressed
    calls: int = 0  # calls with progress
    has_steps: bool = False
    has_collectives: bool = False  # collectives progressed, which proves training as steps do
    from_before: bool = False  # durations were learned in an earlier attempt
    waiting_s: float = 0.0
    outside_s: float = 0.0
    blocked_s: float = 0.0
    running_s: float = 0.0
    still_s: float = 0.0  # no step, line or I/O, though something ran


def has_begun(learned: Learned, settings: Settings, stretch: Stretch = "waiting") -> bool:
    """Returns whether training has begun and its usual durations are known.

    Collectives also progress during start-up (creating groups, broadcasting weights), before a first step
    that may compile for minutes: they shorten only the limit for an idle rank.
    """
    if learned.from_before:
        return learned.marks >= settings.marks_min_again
    if learned.has_collectives and stretch == "waiting" and learned.calls >= settings.calls_min:
        return True
    calls_min = settings.calls_min_with_steps if learned.has_steps else settings.calls_min
    marks_min = settings.steps_min if learned.has_steps and stretch == "waiting" else settings.marks_min
    return learned.marks >= marks_min and learned.calls >= calls_min


def trains(learned: Learned, settings: Settings) -> bool:
    """Returns whether the job makes training steps: its log contains steps, or start-up is certainly over."""
    named = learned.has_steps and learned.calls >= settings.calls_min
    return named or has_begun(learned, settings, "running")


def quiet_limit_s(
    learned: Learned, settings: Settings, stretch: Stretch = "waiting", *, awaited: bool = False
) -> float:
    """Returns how long a standstill of this kind may last before it is a hang, in seconds.

    `awaited`: ranks are known to wait in a collective for the idle rank.
    """
    if settings.hang_timeout_s is not None:
        return settings.hang_timeout_s
    if stretch == "busy" or stretch == "unseen":
        return max(settings.silent_s, settings.quiet_factor * learned.still_s)
    if not has_begun(learned, settings, stretch):
        return _start_limit_s(learned, settings, stretch, awaited=awaited)
    has_pulse = learned.has_steps or learned.has_collectives
    floor_s = settings.floor_s if has_pulse else settings.floor_without_steps_s
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


def alone_limit_s(learned: Learned, settings: Settings, stretch: Stretch, *, asleep: bool) -> float | None:
    """Returns the limit in seconds for a single process that trains alone; None if there is none.

    A server or tool is idle until a request comes: without a step in its log, in this or an earlier attempt,
    only the platforms' rule applies. `asleep`: it sleeps for a duration of its own choice.
    """
    if settings.hang_timeout_s is not None:
        return settings.hang_timeout_s
    if not learned.has_steps:
        return None
    if stretch == "outside" and asleep and has_begun(learned, settings):
        usual_s = max(learned.waiting_s, learned.outside_s)
        return min(max(settings.alone_asleep_s, settings.quiet_factor * usual_s), settings.silent_s)
    limit_s = quiet_limit_s(learned, settings, stretch)
    return max(settings.alone_s, limit_s) if stretch == "waiting" else limit_s


def _start_limit_s(learned: Learned, settings: Settings, stretch: Stretch, *, awaited: bool) -> float:
    if stretch == "waiting" and awaited:
        return settings.start_awaited_s
    if stretch == "waiting" and learned.has_steps and learned.marks:
        return settings.first_steps_s
    return settings.silent_s if stretch == "running" else settings.start_s


def count_marks(learned: Learned, steps: int, *, grew: bool, moved: bool) -> Learned:
    """Returns the learned durations with the progress of this sample added to `marks` and `calls`.

    `steps`: number of new steps; `grew`: the log grew; `moved`: collectives progressed. The first step resets the
    learned durations, because start-up says nothing about training.
    """
    if steps and not learned.has_steps:
        return Learned(has_steps=True, has_collectives=learned.has_collectives or moved, marks=steps, calls=1)
    learned = replace(learned, has_collectives=True) if moved and not learned.has_collectives else learned
    marks = steps if learned.has_steps and not learned.has_collectives else max(steps, int(grew or moved))
    return replace(learned, marks=learned.marks + marks, calls=learned.calls + 1) if marks else learned


def learn(learned: Learned, stretch: Learned, kind: Stretch, *, moved: bool) -> tuple[Learned, Learned]:
    """Learns from a standstill that ended by itself; returns the learned durations and the start of the next
    standstill.

    If only CPU activity returned, the quiet part has ended; the time without a step, line or byte continues.
    Anything before an attempt's first progress is start-up and not learned.
    """
    if not moved and kind != "busy":
        return learned, stretch
    after = Learned() if moved else Learned(running_s=stretch.running_s, still_s=stretch.still_s)
    if learned.calls <= 1:
        return learned, after
    longest = replace(
        learned,
        waiting_s=max(learned.waiting_s, stretch.waiting_s),
        outside_s=max(learned.outside_s, stretch.outside_s),
        blocked_s=max(learned.blocked_s, stretch.blocked_s),
    )
    if moved:
        longest = replace(
            longest,
            running_s=max(learned.running_s, stretch.running_s),
            still_s=max(learned.still_s, stretch.still_s),
        )
    return longest, after


def lengthen(stretch: Learned, kind: Stretch, quiet_s: float, still_s: float) -> Learned:
    """Returns the present standstill with its durations extended, for each kind that it has been so far."""
    longer = replace(stretch, still_s=max(stretch.still_s, still_s))
    match kind:
        case "waiting":
            return replace(longer, waiting_s=max(longer.waiting_s, quiet_s))
        case "outside":
            return replace(longer, outside_s=max(longer.outside_s, quiet_s))
        case "blocked":
            return replace(longer, blocked_s=max(longer.blocked_s, quiet_s))
        case "running":
            return replace(longer, running_s=max(longer.running_s, quiet_s))
        case "busy" | "unseen":
            return longer
        case never:
            assert_never(never)
