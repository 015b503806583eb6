"""Finds out-of-memory kills, in cgroup counters and in the kernel log.

It only reads, and never waits. A missing or unreadable file is a result, not an error.
"""

import os
import re
from collections import deque
from pathlib import Path

PROC = Path("/proc")
CGROUP_ROOT = Path("/sys/fs/cgroup")
KMSG = Path("/dev/kmsg")
RECORD_MAX_BYTES = 8192  # the kernel refuses a smaller buffer than its record with EINVAL
LINES_MAX = 20_000
RECORDS_MAX = 10 * LINES_MAX
# "6,339,5140900,-;NET: Registered PF_INET6" ; lines beginning with a space repeat it for machines
RECORD = re.compile(rb"(?P<level>\d+),(?P<sequence>\d+),(?P<at_us>\d+),[^;]*;(?P<text>[^\n]*)")
PRINTED_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


class OomWatch:
    """Counter of OOM kills in the cgroup of a process, since its creation.

    The cgroup is found while the process lives, because it cannot be found after its end. A cgroup counts the
    kills of all its processes, so a kill may concern another process than this one.
    """

    def __init__(self, pid: int, *, proc: Path = PROC, cgroup_root: Path = CGROUP_ROOT) -> None:
        self.counter = _counter_file(pid, proc, cgroup_root)
        self._seen = self._count()

    def new_kills(self) -> int | None:
        """Returns the number of OOM kills since the last call; None if the counter cannot be read."""
        count = self._count()
        if count is None:
            return None
        before, self._seen = self._seen or 0, count
        return max(0, count - before)

    def _count(self) -> int | None:
        if self.counter is None:
            return None
        try:
            text = self.counter.read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else None


def _counter_file(pid: int, proc: Path, cgroup_root: Path) -> Path | None:
    """Returns the cgroup file that counts OOM kills: memory.events (v2) or memory.oom_control (v1); None
    for the root cgroup.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    tries = [one for line in lines for one in _candidates(line, cgroup_root)]
    return next((path for path in tries if _is_file(path)), None)


def _candidates(line: str, cgroup_root: Path) -> list[Path]:
    """Returns paths at which the cgroup in a line of /proc/PID/cgroup may have its counter of OOM kills.

        0::/job/a     (v2)     or     4:memory:/job/a     (v1)

    In a container the path may be the host's, so the root of the hierarchy is included.
    """
    number, _, rest = line.partition(":")
    controllers, _, path = rest.partition(":")
    below = path.strip("/")
    if "memory" in controllers.split(","):
        root = cgroup_root / "memory"
        return [root / below / "memory.oom_control", root / "memory.oom_control"]
    if number == "0" and not controllers:
        roots = [cgroup_root, cgroup_root / "unified"]
        return [root / place / "memory.events" for root in roots for place in (below, "")]
    return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


class NewKernelLines:
    """Lines of /dev/kmsg that the kernel writes after the creation of this object.

    The file stays open at the place that was read last: each record takes a read of its own, so that to read all records of a
    long log takes a tenth of a second. Nothing blocks. A log that cannot be read has no lines.

    source: Linux, Documentation/ABI/testing/dev-kmsg
    """

    def __init__(self, path: Path = KMSG) -> None:
        self._lines: deque[bytes] = deque(maxlen=LINES_MAX)
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._file = -1
            return
        try:
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            self.close()

    def read(self) -> tuple[bytes, ...]:
        """Returns all lines since the creation, oldest first, at most the last LINES_MAX."""
        if self._file >= 0:
            self._lines += read_lines(self._file)[0]
        return tuple(self._lines)

    def close(self) -> None:
        """Closes the log. What was read until now stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_lines(file: int, records_max: int = RECORDS_MAX) -> tuple[list[bytes], str]:
    """Returns the texts of all current records of /dev/kmsg, and why reading ended early, or "". See `read_records`."""
    records, why = read_records(file, records_max)
    return [unescaped(match["text"]) for record in records for match in RECORD.finditer(record)], why


def read_records(file: int, records_max: int = RECORDS_MAX) -> tuple[list[bytes], str]:
    """Returns all current records of /dev/kmsg, and why reading ended early, or "".

    One read returns one record.

    `records_max`: limit, because a log that is written faster than it is read has no end.
    """
    records: list[bytes] = []
    for _ in range(records_max):
        try:
            record = os.read(file, RECORD_MAX_BYTES)
        except BlockingIOError:
            break  # no more for now
        except BrokenPipeError:
            continue  # records were overwritten before they were read: go on with the oldest there is
        except OSError as error:
            return records, error.strerror or str(error)
        if not record:
            break
        records.append(record)
    return records, ""


def unescaped(text: bytes) -> bytes:
    return PRINTED_ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), text)
