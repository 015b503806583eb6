"""Reads the kernel log since boot, and searches it for known errors (signatures).

Sources, in this order: /dev/kmsg, the file that syslog writes, journalctl. Each line gets its seconds since
boot in front.
"""

import os
import re
import shutil
import time
from collections import deque
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as package_files

from msgspec import Struct

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.model.matches import Search
from holdfast.model.signatures import Signature
from holdfast.observe.host.kernel import RECORD, read_records, unescaped
from holdfast.observe.host.tool_run import ToolRun
from holdfast.observe.logs.blocks import of_lines
from holdfast.observe.search.automaton import Engine, engine
from holdfast.observe.search.sweep import Allowance, Caps, Knowledge, Sweep, made
from holdfast.parsers.signature_files import parse

KMSG = "/dev/kmsg"
SYSLOGS = ("/var/log/kern.log", "/var/log/messages")
JOURNAL = ("journalctl", "--dmesg", "--boot", "--output=short-monotonic", "--quiet", "--lines=20000")
JOURNAL_WITHIN_S = 3.0
SYSLOG_BYTES = 16 << 20  # of the end of a file
LINES_MAX = 20_000
LINES_AT_ONCE = 2000  # the search needs many times the memory of the text it is given
MEMORY_BYTES = 8 << 20
NAME = "kernel.log"
BOOT_LINE = re.compile(rb"Linux version \d+\.\d+")
UPTIME = re.compile(rb"\[ *(\d{1,9}\.\d{6})\]")
KERNEL_LINE = re.compile(rb"\bkernel: ?|^\[")


class KernelLines(Struct, frozen=True):
    """Kernel log lines since boot, each with its seconds since boot if known.

    `source`: the file or tool they come from; empty if no log can be read, for the reason `why_not`.
    """

    lines: tuple[tuple[float | None, bytes], ...] = ()
    source: str = ""
    why_not: str = ""


def read_kernel_lines(files: NodeFiles) -> KernelLines:
    lines, why = _of_kmsg(files)
    if lines:
        return KernelLines(tuple(lines[-LINES_MAX:]), "kmsg")
    for path in SYSLOGS:
        lines = _of_syslog(files, path)
        if lines:
            return KernelLines(tuple(lines[-LINES_MAX:]), path)
    if files.root == "/" and (program := shutil.which(JOURNAL[0])):
        lines = _of_journal(program)
        if lines:
            return KernelLines(tuple(lines[-LINES_MAX:]), JOURNAL[0])
    return KernelLines(why_not=f"the kernel log cannot be read: {why}")


def _of_kmsg(files: NodeFiles) -> tuple[list[tuple[float | None, bytes]], str]:
    try:
        descriptor = os.open(files.place(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return [], f"{KMSG}: {error.strerror}"
    try:
        records, why = read_records(descriptor)
    finally:
        os.close(descriptor)
    # A device gives a record in each read; a file, pieces that go on where the last one ended.
    text = b"".join(
        record if record.endswith(b"\n") or len(record) > 4096 else record + b"\n" for record in records
    )
    del records
    found: deque[tuple[float | None, bytes]] = deque(maxlen=LINES_MAX)
    for match in RECORD.finditer(text):
        if int(match["level"]) < 8:  # facility 0: what programs write there is not the kernel's
            at_s = int(match["at_us"]) / 1e6
            found.append((at_s, _with_time(at_s, unescaped(match["text"]))))
    return list(found), f"{KMSG}: {why or 'it is empty'}"


def _of_syslog(files: NodeFiles, path: str) -> list[tuple[float | None, bytes]]:
    place = files.place(path)
    try:
        with place.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - SYSLOG_BYTES))
            lines = file.read(SYSLOG_BYTES).split(b"\n")
    except OSError:
        return []
    lines = [line for line in lines if KERNEL_LINE.search(line)]
    boots = [number for number, line in enumerate(lines) if BOOT_LINE.search(line)]
    return [(_uptime(line), line) for line in lines[boots[-1] if boots else 0 :]]


def _of_journal(program: str) -> list[tuple[float | None, bytes]]:
    try:
        run = ToolRun((program, *JOURNAL[1:]), time.monotonic() + JOURNAL_WITHIN_S)
    except OSError:
        return []
    while not run.poll(time.monotonic()):
        time.sleep(0.02)
    return [(_uptime(line), line) for line in run.output().split(b"\n") if line]


def _uptime(line: bytes) -> float | None:
    found = UPTIME.search(line)
    return float(found[1]) if found else None


def _with_time(at_s: float, line: bytes) -> bytes:
    return b"[%12.6f] %s" % (at_s, line)


@cache
def kernel_signatures() -> tuple[Signature, ...]:
    """Returns the signatures of kernel log lines only; loading all signatures takes longer than a boot
    check may.
    """
    folder = package_files("holdfast.signatures")
    names = sorted(file.name for file in folder.iterdir() if re.fullmatch(r"kernel_\w+\.toml", file.name))
    return tuple(one for name in names for one in parse((folder / name).read_text(encoding="utf-8"), name))


@cache
def _kernel_engine() -> Engine:
    return engine(kernel_signatures(), None, is_small=True)


def searched(lines: Sequence[bytes]) -> Search:
    """Searches these kernel log lines for known errors (kernel signatures), and returns the matches."""
    knowledge = Knowledge(kernel_signatures())
    sweep = Sweep(NAME, knowledge, _kernel_engine(), Caps(), Allowance(MEMORY_BYTES))
    offset = 0
    for first in range(0, len(lines), LINES_AT_ONCE):
        some = lines[first : first + LINES_AT_ONCE]
        sweep.take(of_lines(some, offset))
        offset += sum(len(line) + 1 for line in some)
    source, entries = sweep.finish()
    return Search(sources=(source,), matches=tuple(made(entry, 0, knowledge) for entry in entries))
