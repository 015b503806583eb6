"""Checks whether the system clock is synchronised, and by how much it is off if a time service reports it.

source: adjtimex(2); chronyc(1)
"""

import ctypes
import shutil
import time
from collections.abc import Iterator

from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.host import ClockState, chrony_offset_s, judge_clock
from holdfast.model.checks import BOOT, CONTINUOUS, MANUAL, ON_FAILURE, PROLOG, Fact, Scene, Spec
from holdfast.model.signatures import Words
from holdfast.observe.host.tool_run import ToolRun

UNSYNCHRONISED = 0x0040  # STA_UNSYNC
ERROR_MAX_US = 16_000_000  # the kernel's own "unknown"
CHRONY = ("chronyc", "-c", "-n", "tracking")
WITHIN_S = 1.0


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


def look_at_clock(scene: Scene) -> Iterator[Seen]:
    offset_s = None if scene.training or scene.context == CONTINUOUS else _of_chrony()
    synced, error_s = _of_kernel()
    yield judge_clock(
        ClockState(
            synced=synced,
            estimated_error_s=error_s,
            offset_s=offset_s,
            source="chrony" if offset_s is not None else "",
        )
    )
    if offset_s is not None:
        yield Fact(name="clock offset", value=offset_s, unit="s")


def _of_kernel() -> tuple[bool | None, float | None]:
    """Returns from the kernel whether the clock is synchronised, and its estimated error in seconds; None
    where unknown.
    """
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except AttributeError:
        return None, None
    if state < 0:
        return None, None
    error_s = timex.esterror / 1e6 if 0 <= timex.esterror < ERROR_MAX_US else None
    return not timex.status & UNSYNCHRONISED, error_s


def _of_chrony() -> float | None:
    """Returns the clock offset in seconds as chrony reports it; None if chrony does not run here."""
    program = shutil.which(CHRONY[0])
    if program is None:
        return None
    try:
        run = ToolRun((program, *CHRONY[1:]), time.monotonic() + WITHIN_S)
    except OSError:
        return None
    while not run.poll(time.monotonic()):
        time.sleep(0.01)
    return chrony_offset_s(run.output().decode("utf-8", "replace"))


CHECKS = (
    Check(
        Spec(
            name="host-clock",
            area="host",
            what=Words(en="the clock is synchronised", zh="时钟是否同步"),
            contexts=(BOOT, PROLOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_clock,
    ),
)
