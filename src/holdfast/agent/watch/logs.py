"""Searches the training's output and the kernel log for signatures while an attempt runs.

Reports new matches and keeps a bounded number of them for the diagnosis. Draws no conclusions.
"""

import atexit
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from holdfast.core.diagnosis.candidates import filled
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Search, Source
from holdfast.model.signatures import EXCEPTION, Signature, Words
from holdfast.observe.logs.excerpts import TAIL_LINE_MAX, TAIL_LINES
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.processes.watcher import Watcher
from holdfast.observe.search.rule_store import package_rules
from holdfast.parsers.log_lines.line_heads import writer_of_name
from holdfast.parsers.signature_files import SignatureError

KERNEL = "kernel.log"
NO_WORDS = Words(en="", zh="")
LOOK_S = 0.5
LOWEST = 19
MATCHES_MAX = 2000
ENDS_S = 5.0  # how long the end of a process waits for its signatures
KERNEL_LINES_MAX = 2000
TEXT_MAX = 200
WAITING_BYTES_MAX = 4 << 20  # of output that comes before the signatures are there
SURVIVED_S = 2.0  # steps so long after a fault are no lines that were on their way already
NEW_MAX = 20  # reported for one attempt


class Signatures:
    """The signatures of this run, loaded and compiled in a thread, so that the training does not wait.

    `load` reads them and may raise SignatureError or OSError. `cache`: folder for compiled signatures. `left_out`:
    signatures that `load` could not use. `why_not`: why none can be used; the run continues without. `then`: is
    called in the same thread once they are loaded; what it raises is ignored. `searches_logs`: without it, the
    search is only for a few lines, and is not compiled: on a new machine that takes seconds of a core.
    """

    def __init__(
        self,
        load: Callable[[], KnowledgeBase],
        cache: Path | None,
        left_out: Sequence[str] = (),
        then: Callable[["Signatures"], object] | None = None,
        *,
        searches_logs: bool = True,
    ) -> None:
        self.cache = cache
        self.by_id = KnowledgeBase((), package_rules())  # until the signatures are read
        self.why_not = ""
        self._reported = ""
        self._left_out, self._left_out_noted = left_out, False
        self._source, self._then = load, then
        self._is_small = not searches_logs
        self._compiled: Watcher | None = None
        self._ready = threading.Event()
        thread = threading.Thread(target=self._load, name="holdfast-signatures", daemon=True)
        thread.start()
        # A match that hyperscan finds after the interpreter has ended is a segmentation fault: its callback needs Python.
        atexit.register(thread.join, ENDS_S)

    @property
    def is_over(self) -> bool:
        """Returns whether loading the signatures has finished, successfully or not."""
        return self._ready.is_set()

    def news(self) -> str:
        """Returns why the signatures cannot be used, once; empty otherwise."""
        why, self._reported = (self.why_not if self.why_not != self._reported else ""), self.why_not
        if why:
            return f"known failures are not recognised in this run: {why}"
        if self._left_out and self.is_over and not self._left_out_noted:
            self._left_out_noted = True
            return f"some of the site's signatures are left out: {'; '.join(self._left_out)}"
        return ""

    def watcher(self) -> Watcher | None:
        """Returns a new matcher of log lines for an attempt; None until the signatures are loaded."""
        if not self._ready.is_set() or self.why_not:
            return None
        return self._compiled and self._compiled.another()

    def wait(self, timeout_s: float) -> bool:
        return self._ready.wait(timeout_s) and not self.why_not

    def _load(self) -> None:
        with suppress(OSError):  # compiling takes seconds the first time, and the training is starting
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
        try:
            found = self._source()
            lean = tuple(_lean(one) for one in found.values())
            rules = found.rules
            del found
            self._compiled = Watcher(lean, cache=self.cache, is_small=self._is_small)
            self.by_id = KnowledgeBase(lean, rules)
        except (SignatureError, OSError) as error:
            self.why_not = str(error)
        finally:
            self._ready.set()
        if self._then is not None and not self.why_not:
            with suppress(Exception):  # the run does not need it
                self._then(self)
        _give_memory_back()


def _lean(one: Signature) -> Signature:
    """Returns a signature without examples, explanations and the other language, which a run's record does
    not need.
    """
    return replace(
        one,
        matches=(),
        misses=(),
        source="",
        explanation=NO_WORDS,
        title=replace(one.title, zh=""),
        advice=replace(one.advice, zh=""),
    )


def _give_memory_back() -> None:
    """Returns memory to the operating system that loading and compiling took, because glibc would keep it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class LogWatch:
    """The signature matches in the logs of one attempt. `base`: prefix of a log's name in evidence, such as
    "attempt-001/worker-0".
    """

    def __init__(self, signatures: Signatures, base: str) -> None:
        self.kernel_lines: deque[bytes] = deque(maxlen=KERNEL_LINES_MAX)
        self._signatures = signatures
        self._base = base
        self._watcher: Watcher | None = None
        self._waiting: list[Chunk] = []
        self._waiting_bytes = 0
        self._seen: dict[tuple[int, int, str], tuple[float, Match]] = {}
        self._tails: dict[str, deque[bytes]] = {}
        self._ends: dict[str, int] = {}
        self._step_s: float | None = None
        self._reported: set[str] = set()
        self._broken = False
        self._unread: list[Chunk] = []
        self._looked_s = float("-inf")

    @property
    def signatures(self) -> KnowledgeBase:
        return self._signatures.by_id

    def step_seen(self, at_s: float) -> None:
        """Records that training made a step at this time."""
        self._step_s = at_s

    def news(self, chunks: Sequence[Chunk], at_s: float, *, now: bool = False) -> list[str]:
        """Processes new output. Returns a sentence for each new match, as look() finds them.

        If matching fails with an internal error, returns a sentence about it; the attempt continues without
        matches.
        """
        if self._broken:
            return []
        try:
            return [text for one in self.look(chunks, at_s, now=now) if (text := self.sentence_of(one))]
        except Exception as error:  # noqa: BLE001 - hundreds of rules must not end the watch over the ranks
            self._broken = True
            return [
                f"known failures are no longer recognised in this attempt: {type(error).__name__}: {error}"
            ]

    def look(self, chunks: Sequence[Chunk], at_s: float, *, now: bool = False) -> list[Match]:
        """Processes new output. Returns signature matches that are new in this attempt.

        Runs twice a second, or at once with `now`: its cost hardly depends on the number of lines.
        """
        for chunk in chunks:
            self._remember(chunk)
        self._unread += chunks
        if not now and at_s - self._looked_s < LOOK_S:
            return []
        self._looked_s = at_s
        chunks, self._unread = self._unread, []
        watcher = self._watcher = self._watcher or self._signatures.watcher()
        if watcher is None:
            self._hold_back(chunks)
            return []
        held, self._waiting = self._waiting, []
        new: list[Match] = []
        for chunk in (*held, *chunks):
            for match in watcher.look([chunk]):
                new += self._keep(match, chunk.at_s)
        return new

    def sentence_of(self, match: Match) -> str:
        """Returns a sentence about a new fault; "" if the line is no fault by itself."""
        signature = self._signatures.by_id[match.signature]
        if (
            signature.id == EXCEPTION
            or self._signatures.by_id.says("line-of-code", match.text)
            or self._is_known_better(match)
        ):
            return ""
        if signature.role != "cause" or signature.severity not in ("fatal", "error"):
            return ""
        names = self._watcher.sources if self._watcher else []
        title = filled(signature.title.en, match.captures)
        return f"{title} ({names[match.source]}: {match.text.strip()[:TEXT_MAX]})"

    def _is_known_better(self, match: Match) -> bool:
        """Returns whether another signature matches the same line with a higher confidence."""
        weight = self._signatures.by_id[match.signature].weight
        same = (
            self._signatures.by_id[one.signature]
            for _, one in self._seen.values()
            if (one.source, one.offset) == (match.source, match.offset)
        )
        return any(other.role == "cause" and other.weight > weight for other in same)

    def search(self) -> Search:
        """Returns all matches as a Search, with times of the job's clock."""
        names = self._watcher.sources if self._watcher else []
        survived: dict[int, int] = {}
        for at_s, match in self._seen.values():
            if self._step_s is not None and at_s < self._step_s - SURVIVED_S:
                survived[match.source] = max(survived.get(match.source, 0), match.last_offset + 1)
        sources = [
            Source(
                name=name if name == KERNEL else f"{self._base}/{name}",
                size_bytes=self._ends.get(name, 0),
                writer=writer_of_name(name),
                last_step_offset=None if name == KERNEL else survived.get(number),
                last_three_steps_offset=None if name == KERNEL else survived.get(number),
                tail=self._tail(name),
            )
            for number, name in enumerate(names)
        ]
        matches = sorted((one for _, one in self._seen.values()), key=lambda one: (one.source, one.offset))
        return Search(sources=tuple(sources), matches=tuple(matches))

    def offsets(self) -> dict[str, tuple[int, ...]]:
        """Returns for each log the byte offsets of matched causes, for excerpts."""
        names = self._watcher.sources if self._watcher else []
        found: dict[str, list[int]] = {}
        for _, match in self._seen.values():
            if self._signatures.by_id[match.signature].role == "cause":
                found.setdefault(names[match.source], []).append(match.offset)
        return {name: tuple(sorted(offsets)[:8]) for name, offsets in found.items()}

    def _keep(self, match: Match, at_s: float) -> Iterable[Match]:
        key = (match.source, match.offset, match.signature)
        known = self._seen.get(key)
        if known is None and len(self._seen) >= MATCHES_MAX:
            return ()
        # The time of arrival, because time stamps of lines have many forms and clocks.
        first_s = known[0] if known else at_s
        stamped = replace(match, writer=replace(match.writer, stamp_s=first_s))
        self._seen[key] = (first_s, stamped)
        if match.signature in self._reported or len(self._reported) >= NEW_MAX:
            return ()
        self._reported.add(match.signature)
        return (stamped,)

    def _remember(self, chunk: Chunk) -> None:
        tail = self._tails.setdefault(chunk.source, deque(maxlen=TAIL_LINES))
        tail.extend(chunk.lines[-TAIL_LINES:])
        self._ends[chunk.source] = chunk.offset
        if chunk.source == KERNEL:
            self.kernel_lines.extend(chunk.lines)

    def _tail(self, name: str) -> tuple[str, ...]:
        return tuple(line[:TAIL_LINE_MAX].decode("utf-8", "replace") for line in self._tails.get(name, ()))

    def _hold_back(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            size = sum(map(len, chunk.lines))
            if self._waiting_bytes + size <= WAITING_BYTES_MAX:
                self._waiting_bytes += size
                self._waiting.append(chunk)
