"""Defines the stacks of a process's threads, collected from outside (py-spy) or inside (faulthandler)."""

from typing import Literal

from msgspec import Struct

# "py-spy": Python frames of all threads; "native": native frames too; "kernel": only what /proc contains.
StackSource = Literal["faulthandler", "py-spy", "native", "kernel", ""]
NATIVE = ":native "  # where a Python frame has its line: "/usr/lib/libc.so.6:native clock_nanosleep"


class ThreadStack(Struct, frozen=True, kw_only=True):
    """The stack of one thread, innermost frame first: "path/file.py:88 function", as parsers.stacks returns frames.

    Paths are short if the dump contains only short ones (py-spy's text). A native frame has the name of its library
    and no line number.
    """

    thread_id: int = 0  # the kernel's id, if known; else pthread's; 0: neither
    name: str = ""
    is_main: bool = False
    is_active: bool = False  # py-spy considered it running
    holds_gil: bool = False
    frames: tuple[str, ...] = ()


class RankStacks(Struct, frozen=True, kw_only=True):
    """The stacks of one rank at one moment; if `threads` is empty, `why_not` gives the reason.

    The main thread is the first, if known.
    """

    rank: int
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    source: StackSource = ""
    why_not: str = ""
    state: str = "?"  # one letter of proc(5), when the collection began; X: gone, ?: cannot be read
    wait_channel: str = ""
    kernel_frames: tuple[str, ...] = ()  # /proc/PID/stack of a blocked process, innermost first; root only
