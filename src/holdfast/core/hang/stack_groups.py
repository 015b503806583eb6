"""Groups ranks with equal stacks, outliers first, and describes what a group is doing. Pure.

Stacks are compared by functions, files and lines. Addresses of native frames differ between processes, and
faulthandler writes `wrapper` where py-spy writes `_exception_logger.<locals>.wrapper`: both count as equal.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.core.hang.culprits import SLEEP_CHANNELS, users_frame, waits_for_others
from holdfast.late_pattern import late
from holdfast.model.flight.thread_stacks import NATIVE, RankStacks, ThreadStack

# What the main threads of a group do. "waits-for-ranks": in a collective, or in backward, which runs them.
Doing = Literal["waits-for-ranks", "sleeps", "runs", "waits", "blocked", "stopped", "traced", "unknown"]
NativePlace = Literal["interpreter", "library", "kernel", "unknown"]

HELD = "DTt"  # process states in which a rank belongs to a separate group, whatever its stack
DOING_BY_STATE: dict[str, Doing] = {"D": "blocked", "T": "stopped", "t": "traced", "R": "runs"}
LINE = late(r":(?:\d+|\?\?\?) ")
ADDRESS = late(r"0x[0-9a-fA-F]+$")
INTERPRETER = late(r"^(libpython[\d.]*\w*(\.so.*|\.dylib)?|python[\d.]*\w*|pypy[\d.]*)$")
SYSTEM = late(r"^(libc|libpthread|libm|librt|ld-linux|ld-musl|libc-|linux-vdso|vdso)\b|^\[?vdso\]?$")
# Functions of the C library that wait in the kernel, unlike functions such as memcpy.
SYSTEM_CALL = late(
    r"^_*(libc_|GI_|lll_|sys_)*(pthread_)?"
    r"(clock_nanosleep|nanosleep|sleep|usleep|p?poll|p?select|epoll_p?wait\w*|futex\w*|syscall|read\w*|write\w*|p(read|write)\w*"
    r"|send\w*|recv\w*|accept4?|connect|open\w*|close|f?(data)?sync\w*|ioctl|flock|fcntl\w*|wait(pid|id|4|3)?|lock_wait\w*"
    r"|mutex_lock\w*|cond_\w*wait\w*|rwlock_\w+|sem_\w*wait\w*|new_sem_\w*wait\w*|join\w*|clockjoin\w*|pause|sigwait\w*"
    r"|sigtimedwait|stat\w*|fstat\w*|lseek\w*|unlink\w*|rename\w*|getdents\w*|mmap\w*|munmap|madvise)"
    r"(_nocancel|_time64|_internal|64)*(@.*)?$"
)


class StackGroup(Struct, frozen=True, kw_only=True):
    """Ranks with equal stacks.

    `example`: the stack of the first rank, or of the first one with native frames.
    """

    ranks: tuple[int, ...]
    example: RankStacks
    doing: Doing
    state: str  # the most common process state
    wait_channel: str
    own_frame: (
        str  # the innermost frame that is not a library's, "train.py:88 load"; "" where there is no stack
    )
    inner_frame: str  # the innermost Python frame

    @property
    def frames(self) -> tuple[str, ...]:
        """Returns the frames of the main thread, innermost first; kernel frames if there are no others."""
        threads = self.example.threads
        return threads[0].frames if threads else self.example.kernel_frames


def grouped(
    collected: Iterable[RankStacks], *, by_line: bool = True, all_threads: bool = False
) -> tuple[StackGroup, ...]:
    """Returns groups of ranks with equal stacks, smallest first, then by rank.

    Ranks without a stack are in no group.

    `by_line` False: ignore line numbers. `all_threads`: compare the other threads too.
    """
    known = [one for one in collected if one.threads or one.source == "kernel"]
    # If only some ranks have native frames, these are ignored in comparisons.
    same = _Comparison(by_line=by_line, native=all(one.source == "native" for one in known))
    groups: dict[Hashable, list[RankStacks]] = defaultdict(list)
    for one in known:
        groups[same.key(one, all_threads=all_threads)].append(one)
    made = [_group(sorted(members, key=lambda one: one.rank)) for members in groups.values()]
    return tuple(sorted(made, key=lambda group: (len(group.ranks), group.ranks)))


def ranges(ranks: Iterable[int]) -> str:
    """Formats ranks as ranges: "0-3,5,7"."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def python_frames(frames: Sequence[str]) -> tuple[str, ...]:
    """Returns the Python frames of a stack, without native ones."""
    return tuple(frame for frame in frames if NATIVE not in frame)


def where_native(threads: Sequence[ThreadStack]) -> NativePlace:
    """Returns where the main thread of a native dump is: in Python itself, in a library, or in a system call.

    A Python loop has no native frame inside its innermost Python one, or only some of the interpreter; a long
    call into C has a library's. A frame of the C library that is no system call belongs to its caller; its
    names are often stripped, so for an idle thread it counts as a system call.
    """
    main = threads[0] if any(thread.is_main for thread in threads) else None
    if main is None or not any(NATIVE in frame for thread in threads for frame in thread.frames):
        return "unknown"
    for frame in main.frames:
        if NATIVE not in frame:
            return "interpreter"
        library, _, function = frame.partition(NATIVE)
        name = library.rpartition("/")[2]
        if INTERPRETER.match(name):
            return "interpreter"
        if not SYSTEM.match(name):
            return "library"
        if SYSTEM_CALL.match(function) or not main.is_active:
            return "kernel"
    return "unknown"


# What makes stacks equal ---------------------------------------------------------------------------------


class _Comparison:
    """Computes keys that are equal for equal stacks, with a cache, because most ranks have a stack that
    occurred before.
    """

    def __init__(self, *, by_line: bool, native: bool) -> None:
        self._by_line, self._native = by_line, native
        self._seen: dict[tuple[str, ...], Hashable] = {}

    def key(self, one: RankStacks, *, all_threads: bool) -> Hashable:
        held = one.state if one.state in HELD else ""
        if not one.threads:
            return held, one.wait_channel, self._frames(one.kernel_frames)
        main, *others = (self._frames(thread.frames) for thread in one.threads)
        return held, main, frozenset(Counter(others).items()) if all_threads else None

    def _frames(self, frames: tuple[str, ...]) -> Hashable:
        if frames not in self._seen:
            counted = frames if self._native else python_frames(frames)
            self._seen[frames] = tuple(self._frame(frame) for frame in counted)
        return self._seen[frames]

    def _frame(self, frame: str) -> str:
        if NATIVE in frame:
            return ADDRESS.sub("0x", frame)
        where, _, function = frame.rpartition(" ")
        if not self._by_line:
            where = LINE.sub(" ", f"{where} ")
        return f"{where} {function.rpartition('.')[2]}"


# What a group does ---------------------------------------------------------------------------------------


def _group(members: list[RankStacks]) -> StackGroup:
    (state, channel), _ = Counter((one.state, one.wait_channel) for one in members).most_common(1)[0]
    example = next((one for one in members if one.source == "native"), members[0])
    frames = python_frames(example.threads[0].frames) if example.threads else ()
    return StackGroup(
        ranks=tuple(one.rank for one in members),
        example=example,
        doing=_doing(state, channel, frames),
        state=state,
        wait_channel=channel,
        own_frame=users_frame(frames),
        inner_frame=frames[0] if frames else "",
    )


def _doing(state: str, channel: str, frames: Sequence[str]) -> Doing:
    """Returns what a group is doing.

    States D, T and t come first, then waiting for ranks, which in NCCL means spinning.
    """
    if state in HELD:
        return DOING_BY_STATE[state]
    if waits_for_others(frames):
        return "waits-for-ranks"
    if state == "R":
        return "runs"
    if state in "SI":
        return "sleeps" if channel.startswith(SLEEP_CHANNELS) else "waits"
    return "unknown"
