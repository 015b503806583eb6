"""Part of the shim: records the exception that ends a rank.

Loaded by `sitecustomize` at that moment; Python 3.6.
"""

import json
import os
import time
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Protocol

    class Rank(Protocol):
        """`sitecustomize.Rank`."""

        number: int
        pid: int

        def write(self, ending: str, data: bytes) -> None: ...


MESSAGE_BYTES_MAX = 4 << 10
TRACEBACK_BYTES_MAX = 64 << 10


def write_error(
    rank: "Rank", kind: "type[BaseException]", error: BaseException, trace: "TracebackType | None"
) -> None:
    """Writes `rank-N.error.json`: type, message, traceback and the user's own line. Raises OSError."""
    try:
        message = str(error)
    except Exception:  # a broken __str__ of the user's; the traceback has its own words for it
        message = "<exception str() failed>"
    lines = traceback.format_exception(kind, error, trace)
    record = {
        "rank": rank.number,
        "pid": rank.pid,
        "type": kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}",
        "message": _cut(message, MESSAGE_BYTES_MAX),
        "traceback": _cut("".join(lines), TRACEBACK_BYTES_MAX),
        "frame": _cut(_frame(trace), MESSAGE_BYTES_MAX),
        "time": time.time(),
    }
    rank.write("error.json", (json.dumps(record) + "\n").encode())


def _frame(trace: "TracebackType | None") -> str:
    """Returns the innermost frame of the user's own code, "train.py:88 main"; without one, the innermost
    of all.
    """
    library = os.path.dirname(os.__file__) + os.sep
    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    innermost = own = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        file = code.co_filename
        innermost = f"{os.path.basename(file)}:{trace.tb_lineno} {code.co_name}"
        if not (file.startswith((library, here, "<frozen")) or "-packages" + os.sep in file):
            own = innermost
        trace = trace.tb_next
    return own or innermost


def _cut(text: str, bytes_max: int) -> str:
    """Shortens a text in its middle: the first cause is at the start, the last line at the end."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > bytes_max:
        half = bytes_max // 2 - 8
        data = data[:half] + b"\n[...]\n" + data[-half:]
    return data.decode("utf-8", "ignore")
