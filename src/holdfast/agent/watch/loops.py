"""Samples the stacks of ranks that run while others wait for them, to distinguish a loop from real work.

Takes ten non-blocking stacks in 2.5 s. If all ten are equal, it takes a native stack, and up to two more while the
rank is inside a call: a Python loop makes short calls too, and the first native stack outside a call decides. Runs
once per stall, and at growing intervals while the stall lasts. `poll` drives it from the agent's loop; nothing here
waits.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.core.hang.stack_groups import NativePlace, python_frames, where_native
from holdfast.model.flight.thread_stacks import NATIVE, ThreadStack
from holdfast.model.samples import StackTrend
from holdfast.observe.processes.pyspy import Ask, Collection, Sampling, tool_path

SAMPLES, SAMPLES_S = 10, 2.5
NATIVE_S = 3.0
NATIVE_STACKS = 3
AGAIN_S = 10.0  # doubled with each look
FORGET_S = 60.0  # without suspicion: the next standstill is another


class LoopWatch:
    """Detector of endless loops in running ranks. `clock`: of the job. `trends`: the last result by rank."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.trends: dict[int, StackTrend] = {}
        self._folder = folder
        self._clock = clock
        self._looks: dict[int, _Look] = {}
        self._next_s: dict[int, float] = {}
        self._gap_s: dict[int, float] = {}

    def poll(self, suspects: Mapping[int, tuple[int, int]]) -> None:
        """Continues to take stack samples of the suspected ranks.

        `suspects`: by rank the pid and the thread that runs the script (0 means the main thread), for ranks
        that run while others wait; empty if there are none.
        """
        now_s = self._clock()
        for rank, (pid, thread) in suspects.items():
            if rank not in self._looks and now_s >= self._next_s.get(rank, 0.0):
                self._looks[rank] = _Look(Ask(rank, pid, self._folder, thread), now_s)
        for rank, look in list(self._looks.items()):
            if look.poll(self._clock):
                del self._looks[rank]
                self._keep(rank, look)

    def _keep(self, rank: int, look: "_Look") -> None:
        now_s = self._clock()
        gap_s = self._gap_s.get(rank, AGAIN_S)
        if now_s - self._next_s.get(rank, 0.0) > FORGET_S:
            gap_s = AGAIN_S
        self._gap_s[rank] = 2 * gap_s
        self._next_s[rank] = now_s + gap_s
        if look.trend is not None:
            self.trends[rank] = look.trend

    def close(self) -> None:
        """Ends the sampling of all ranks."""
        for look in self._looks.values():
            look.close()
        self._looks.clear()


class _Look:
    """One rank, once."""

    def __init__(self, ask: Ask, at_s: float) -> None:
        self.trend: StackTrend | None = None
        self._ask, self._from_s = ask, at_s
        self._sampling = Sampling(ask, samples=SAMPLES, over_s=SAMPLES_S, tool=tool_path())
        self._native: Collection | None = None
        self._native_stacks = 0
        self._sampling.start()

    def poll(self, clock: Callable[[], float]) -> bool:
        """Continues one examination. Returns True once it is finished."""
        if self._native is not None:
            if not self._native.poll():
                return False
            seen = self._native.result()[0]
            inside = _inside(seen.threads)
            if inside == "library" and self._native_stacks < NATIVE_STACKS:
                self._ask_natively()
                return False
            assert self.trend is not None
            self.trend = replace(self.trend, inside=inside)
            return True
        if not self._sampling.poll():
            return False
        stacks = {tuple(_functions(frames)) for frames in self._sampling.frames}
        if not stacks:
            return True
        self.trend = StackTrend(
            rank=self._ask.rank,
            from_s=self._from_s,
            to_s=clock(),
            samples=len(self._sampling.frames),
            distinct=len(stacks),
        )
        if len(stacks) > 1:
            return True
        self._ask_natively()
        return False

    def _ask_natively(self) -> None:
        if self._native is not None:
            self._native.close()
        self._native = Collection([self._ask], NATIVE_S, native=True, signal_first=False, tool=tool_path())
        self._native.start()
        self._native_stacks += 1

    def close(self) -> None:
        self._sampling.close()
        if self._native is not None:
            self._native.close()


def _inside(threads: Sequence[ThreadStack]) -> NativePlace:
    """Returns whether a native stack is in Python itself or in other native code.

    Garbage collection and regular expressions run in the interpreter's own C code, but are calls that may
    take long.
    """
    place = where_native(threads)
    if place == "interpreter" and threads and threads[0].frames and NATIVE in threads[0].frames[0]:
        return "library"
    return place


def _functions(frames: tuple[str, ...]) -> list[str]:
    """Returns file and function of each frame, so that a loop over two lines counts as one."""
    named = (frame.rpartition(" ") for frame in python_frames(frames))
    return [f"{where.rpartition(':')[0]} {function}" for where, _, function in named]
