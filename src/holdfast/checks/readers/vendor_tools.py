"""Runs command line tools of hardware vendors (`npu-smi`, `amd-smi`), each with a time limit.

Never raises.
"""

import os
import shutil
import time
from collections.abc import Sequence

from msgspec import Struct

from holdfast.observe.host.tool_run import ToolRun

PLACES = (
    "/usr/local/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/opt/rocm/bin",
)  # not always in the PATH of a service
LOOK_S = 0.01
WORDS_MAX = 200


class ToolOutput(Struct, frozen=True):
    """The output of a vendor tool. `why_not`: why there is no usable output, or empty."""

    text: str = ""
    why_not: str = ""


def tool_place(name: str) -> str | None:
    """Returns the path of a program; None if it is not installed."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), *PLACES)))


def tool_says(place: str, arguments: Sequence[str], within_s: float) -> ToolOutput:
    """Runs a vendor tool and returns its output, or an error text if it fails or exceeds the time limit."""
    words = [place, *arguments]
    shown = " ".join((os.path.basename(place), *arguments))
    until_s = time.monotonic() + within_s
    try:
        run = ToolRun(words, until_s)
    except OSError as error:
        return ToolOutput(why_not=f"`{shown}` cannot be started: {error.strerror or error}")
    while not run.poll(time.monotonic()):
        time.sleep(LOOK_S)
    text = run.output().decode("utf-8", "replace")
    if run.killed:
        return ToolOutput(why_not=f"`{shown}` did not finish within {within_s:g} s")
    if not text.strip():
        said = (run.errors().strip() or "nothing")[:WORDS_MAX]
        return ToolOutput(why_not=f"`{shown}` failed: {said}")
    return ToolOutput(text)
