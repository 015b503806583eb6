"""Defines the stacks of a process's threads, from outside (py-spy) or inside (faulthandler)."""

from typing import Literal

from msgspec import Struct

# "py-spy": with the Python frames of all threads; "native": with native frames too; "kernel": only what /proc says.
StackSource = Literal["faulthandler", "py-spy", "native", "kernel", ""]
NATIVE = ":native "  # where a Python frame has its line: "/usr/lib/libc.so.6:native clock_nanosleep"


class ThreadStack(Struct, frozen=True, kw_only=True):
    """One thread and its frames, innermost first: "path/file.py:88 function", as parsers.stacks gives them.

    Paths are short where the dump has no others (py-spy's text). A native frame has its library and no line.
    """

    thread_id: int = 0  # the kernel's, where it is known; else pthread's; 0: neither
    name: str = ""
    is_main: bool = False
    is_active: bool = False  # it ran, by py-spy's own idea
    holds_gil: bool = False
    frames: tuple[str, ...] = ()


class RankStacks(Struct, frozen=True, kw_only=True):
    """One rank's stacks at one moment; if `threads` is empty, `why_not` gives the reason.

    The main thread is the first, if known.
    """

    rank: int
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    source: StackSource = ""
    why_not: str = ""
    state: str = "?"  # one letter of proc(5), as it was when the collection began; X: gone, ?: cannot be read
    wait_channel: str = ""
    kernel_frames: tuple[str, ...] = ()  # /proc/PID/stack of a blocked process, innermost first; root only
