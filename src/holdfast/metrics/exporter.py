"""Exports the metrics of one process over HTTP, to a file for node-exporter, or both, in its own thread.

The main loop passes the values to this thread, and only when metrics are requested. A hung disk or a slow
client blocks only this thread. An error is reported once, and the job continues.
"""

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.core.metrics.exposition import (
    OPEN_METRICS,
    SERIES_MAX,
    TEXT,
    bounded,
    wants_open_metrics,
    written,
)
from holdfast.core.metrics.node_samples import OwnFacts, own_samples
from holdfast.metrics.http_endpoint import Answer, listening, parsed, serve_one
from holdfast.model.monitoring.metrics import AnySample

FILE_EVERY_S = 15.0
COLLECT_WAIT_S = 1.0  # for the main loop, which runs ten times a second
END_WAIT_S = 2.0  # for the last file
POLL_S = 5.0
MESSAGES_MAX = 20  # messages per exporter
SUFFIX = ".prom"  # node-exporter reads only this suffix
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Exported(Struct, frozen=True, kw_only=True):
    """Where metrics are exported to. `address`: HOST:PORT of the HTTP endpoint. `exact`: use only this port;
    otherwise the first free port from it on.
    """

    address: str | None = None
    textfile: str | None = None
    exact: bool = True


# What the main loop passes, and the work left for this thread: reading small files, building samples.
Collect = Callable[[], Callable[[], Sequence[AnySample]]]


class Own(Struct, frozen=True, kw_only=True):
    """Metrics about Holdfast's own process: internal errors, whether the journal can be written, and rows
    lost.
    """

    faults: int = 0
    journal: bool | None = None
    rows_lost: int = 0


class Exporter:
    """Exporter of the metrics of one process.

    `part`: which process: "controller", "agent" or "server". `own`: returns metrics about the process; called
    in the exporter's thread. `tell`: receives messages for the user; called from `turn`.
    """

    def __init__(
        self,
        exported: Exported,
        part: str,
        versions: tuple[str, str],
        collect: Collect,
        own: Callable[[], Own],
        tell: Callable[[str], None],
    ) -> None:
        """Starts the export. `versions`: of Holdfast and of Python.

        Never raises: an error becomes a message.
        """
        self.address = ""  # HOST:PORT of the listener; empty: none
        self._part, self._versions = part, versions
        self._collect, self._own, self._tell = collect, own, tell
        self._started_s = time.time()
        self._wanted = False
        self._handed: tuple[Callable[[], Sequence[AnySample]], float] | None = None
        self._news = threading.Condition()
        self._took_s = 0.0
        self._unsaid: deque[str] = deque(maxlen=MESSAGES_MAX)
        self._has_failed = False
        self._is_ending = False
        self._file = Path(exported.textfile) if exported.textfile else None
        self._file_trouble = ""
        self._listener = self._listening(exported) if exported.address else None
        self._woken, self._wake = -1, -1
        self._asked = -1  # readable for the main loop while a request waits for values
        self._thread: threading.Thread | None = None
        if self._file is not None and self._file.suffix != SUFFIX:
            tell(
                f"metrics are not written to {self._file}: node-exporter reads only files that end with "
                f"{SUFFIX}"
            )
            self._file = None
        if self._listener is not None or self._file is not None:
            self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._asked = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            self._thread = threading.Thread(target=self._run, name="holdfast-metrics", daemon=True)
            self._thread.start()

    def _listening(self, exported: Exported) -> socket.socket | None:
        address = exported.address or ""
        try:
            host, port = parsed(address)
            listener = listening(host, port, exact=exported.exact)
        except (OSError, ValueError) as error:
            self._tell(f"metrics are not served at {address}: {error}; the job continues without metrics")
            return None
        host, port = listener.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._tell(f"metrics: http://{self.address}/metrics")
        return listener

    # The main loop ----------------------------------------------------------------------------------------

    def channels(self) -> list[int]:
        """Returns the descriptors that become readable when metrics are requested, for the main loop to
        wait on.
        """
        return [self._asked] if self._asked >= 0 else []

    def turn(self) -> None:
        """Passes the current values to the exporter's thread if they were requested. To be called in each
        turn of the main loop.
        """
        while self._unsaid:
            self._tell(self._unsaid.popleft())
        if self._wanted:
            self._hand_over()

    def close(self) -> None:
        """Writes the last values to the file and closes the listener."""
        if self._thread is None:
            return
        self._hand_over()
        self._is_ending = True
        with suppress(OSError):
            os.write(self._wake, b"x")
        self._thread.join(END_WAIT_S)
        while self._unsaid:
            self._tell(self._unsaid.popleft())
        if self._thread.is_alive():  # a hung disk: the process need not wait for it
            return
        if self._listener is not None:
            self._listener.close()
        for descriptor in (self._woken, self._wake, self._asked):
            os.close(descriptor)
        self._asked = -1
        self._thread = None

    def _hand_over(self) -> None:
        self._wanted = False
        with suppress(BlockingIOError):
            os.eventfd_read(self._asked)
        rest = self._collect()
        with self._news:
            self._handed = (rest, time.monotonic())
            self._news.notify_all()

    # The thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            if self._listener is not None:
                selector.register(self._listener, selectors.EVENT_READ)
            file_s = time.monotonic()
            while not self._is_ending:
                wait_s = POLL_S if self._file is None else max(0.0, file_s - time.monotonic())
                ready = [key.fileobj for key, _ in selector.select(wait_s)]
                if self._listener is not None and self._listener in ready:
                    serve_one(self._listener, self._answer)
                if self._file is not None and time.monotonic() >= file_s:
                    file_s = time.monotonic() + FILE_EVERY_S
                    self._write_file()
        if self._file is not None:
            self._write_file()

    def _answer(self, accept: str) -> Answer:
        is_open = wants_open_metrics(accept)
        return Answer(self._text(is_open=is_open), OPEN_METRICS if is_open else TEXT)

    def _text(self, *, is_open: bool) -> bytes | None:
        try:
            return self._newest(is_open=is_open)
        except Exception as error:  # noqa: BLE001 - one metric that cannot be made must not end all of them for good
            if not self._has_failed:
                self._unsaid.append(f"metrics cannot be computed: {error!r}; please report it")
            self._has_failed = True
            return None

    def _newest(self, *, is_open: bool) -> bytes | None:
        """Returns the newest values as text, or older ones if the main loop is blocked; None if there are
        none yet.
        """
        with self._news:
            before = self._handed
            if not self._is_ending:
                self._wanted = True
                os.eventfd_write(self._asked, 1)
                self._news.wait_for(lambda: self._handed is not before, COLLECT_WAIT_S)
            handed = self._handed
        if handed is None:
            return None
        rest, at_s = handed
        begun_s = time.monotonic()
        samples, dropped = bounded(rest(), SERIES_MAX - 20)
        own = own_samples(
            self._own_facts(),
            snapshot_age_s=begun_s - at_s,
            exposition_s=self._took_s,
            dropped=dropped,
        )
        text = written((*samples, *own), open_metrics=is_open)
        self._took_s = time.monotonic() - begun_s
        return text

    def _own_facts(self) -> OwnFacts:
        own = self._own()
        return own_facts(
            self._part,
            self._versions,
            self._started_s,
            faults=own.faults,
            journal=own.journal,
            rows_lost=own.rows_lost,
        )

    def _write_file(self) -> None:
        """Writes the file atomically. Reports an error once, and again only after a success."""
        assert self._file is not None
        text = self._text(is_open=False)
        if text is None:
            return
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}.new")
        try:
            new.write_bytes(text)
            os.replace(new, self._file)
            self._file_trouble = ""
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            if not self._file_trouble:
                self._unsaid.append(
                    f"metrics cannot be written to {self._file}: {error}; Holdfast tries again"
                )
            self._file_trouble = str(error)


def own_facts(
    part: str,
    versions: tuple[str, str],
    started_s: float,
    *,
    faults: int = 0,
    journal: bool | None = None,
    rows_lost: int = 0,
) -> OwnFacts:
    """Returns the facts about this process that are exported as metrics. `versions`: of Holdfast and of
    Python.
    """
    times = os.times()
    return OwnFacts(
        part=part,
        version=versions[0],
        python=versions[1],
        started_s=started_s,
        cpu_s=times.user + times.system,
        resident_bytes=_resident_bytes(),
        faults=faults,
        journal=journal,
        rows_lost=rows_lost,
    )


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
