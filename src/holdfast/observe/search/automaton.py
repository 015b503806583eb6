"""Searches a text for all signatures at once, and returns candidate places.

Two engines give the same results. Hyperscan reads all patterns in one pass; its compiled database is cached,
because compiling takes seconds. The engine with Python's `re` needs no preparation, and is faster for a few
small logs. Both may report too many places: callers confirm each candidate with the signature's own pattern.
"""

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Protocol, TypeAlias

import msgspec

from holdfast.model.signatures import Signature
from holdfast.observe.search import byte_patterns
from holdfast.observe.search.byte_patterns import Loose, TooLoose, loosened
from holdfast.observe.search.ready_made import loosened_patterns
from holdfast.parsers.signature_files import SignatureError

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan = None  # type: ignore[assignment]

Text: TypeAlias = bytes | bytearray
Candidate: TypeAlias = tuple[
    int, int
]  # number of the signature, offset behind its match: never in another line

MAGIC = b"holdfast automaton 1\n"
DIGEST_BYTES = 32
CACHE_FILES_MAX = 10
DIGITS = b"0123456789"
KINDS_MAX = 20_000  # of lines, that are remembered
CPU_FLAGS = re.compile(rb"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)


class Engine(Protocol):
    """Interface of a search engine that finds candidate places of signatures.

    For one thread; `fork` makes one for another.
    """

    def fork(self) -> "Engine": ...

    def candidates(self, text: Text, size: int) -> list[Candidate]:
        """Returns candidate places in `text[:size]`, ordered by offset. Lines must end with newlines only."""
        ...


class PlainEngine:
    """Search engine with Python's `re`: one pattern after another, each only on lines with one of its words.

    Most lines of a job differ only in their numbers. Words are first searched in one line of each kind, and
    only those that a new kind of line contains are searched in the whole text.
    """

    def __init__(self, patterns: Sequence[Loose]) -> None:
        self._patterns = patterns
        self._kinds_of_words = [tuple(map(_without_numbers, loose.any_of)) for loose in patterns]
        self._compiled: dict[int, re.Pattern[bytes]] = {}
        self._possible = {number for number, loose in enumerate(patterns) if not loose.any_of}
        self._known_kinds: set[bytes] = set()
        self._learning = Lock()

    def fork(self) -> "PlainEngine":
        return self

    def candidates(self, text: Text, size: int) -> list[Candidate]:
        found: list[Candidate] = []
        text = bytes(text[:size])
        kinds = set(_without_numbers(text).split(b"\n"))
        here = b"\n".join(kinds)
        small_text, small_here = text.lower(), here.lower()
        for number in self._possible_for(kinds):
            loose = self._patterns[number]
            where, kinds_here = (small_text, small_here) if loose.caseless else (text, here)
            kinds_of_words = zip(loose.any_of, self._kinds_of_words[number], strict=True)
            words = [word for word, kind in kinds_of_words if kind in kinds_here]
            if words or not loose.any_of:
                for start, stop in _lines_with(words, where):
                    matches = self._pattern(number).finditer(text, start, stop)
                    found += [(number, match.end()) for match in matches]
        found.sort(key=_by_offset)
        return found

    def _possible_for(self, kinds: set[bytes]) -> list[int]:
        """Returns the numbers of patterns that may match lines of these kinds, or of all kinds seen
        before.
        """
        with self._learning:
            new = kinds - self._known_kinds
            here = b"\n".join(new)
            small = here.lower()
            self._possible |= {
                number
                for number, loose in enumerate(self._patterns if new else ())
                if number not in self._possible
                and any(kind in (small if loose.caseless else here) for kind in self._kinds_of_words[number])
            }
            if len(self._known_kinds) < KINDS_MAX:
                self._known_kinds |= new
            return sorted(self._possible)

    def _pattern(self, number: int) -> re.Pattern[bytes]:
        pattern = self._compiled.get(number)
        if pattern is None:
            pattern = self._compiled[number] = re.compile(self._patterns[number].expression, re.MULTILINE)
        return pattern


class FastEngine:
    """Search engine with Hyperscan. It releases the GIL while it scans."""

    def __init__(self, database: "hyperscan.Database") -> None:
        self._database = database
        self._scratch = hyperscan.Scratch(database)

    def fork(self) -> "FastEngine":
        return FastEngine(self._database)

    def candidates(self, text: Text, size: int) -> list[Candidate]:
        found: list[Candidate] = []

        def on_match(number: int, start: int, end: int, flags: int, context: object) -> None:
            found.append((number, end))

        self._database.scan(memoryview(text)[:size], on_match, scratch=self._scratch)  # type: ignore[type-var]
        return found


def engine(signatures: Sequence[Signature], cache: Path | None, *, is_small: bool = False) -> Engine:
    """Returns a search engine for these signatures.

    `is_small`: the text is too small for compiling to pay off.

    `cache`: folder for compiled patterns; None means no cache. A cache that cannot be used is ignored. Raises
    SignatureError for a pattern that matches the empty line.
    """
    key = _key(signatures) if cache else ""
    fast = cache and cache / f"{key}.{platform.machine()}.hs"
    if hyperscan is not None and signatures:
        database = _loaded(fast)
        if database is None and not is_small:
            database = _compiled(signatures)
            _keep(fast, hyperscan.dumpb(database))
        if database is not None:
            return FastEngine(database)
    return PlainEngine(_loose(signatures, cache and cache / f"{key}.loose"))


def _loose(signatures: Sequence[Signature], place: Path | None) -> list[Loose]:
    built = loosened_patterns()
    if all(one.pattern in built for one in signatures):
        return [built[one.pattern] for one in signatures]
    kept = _kept(place)
    if kept is not None:
        with suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(kept, type=list[Loose])
    made = [_loosened(one, built) for one in signatures]
    _keep(place, msgspec.msgpack.encode(made))
    return made


def _without_numbers(text: bytes) -> bytes:
    return text.translate(None, DIGITS)


def _lines_with(any_of: Sequence[bytes], text: bytes) -> Iterator[tuple[int, int]]:
    """Yields start and end of lines that contain one of the words; the whole text if no word is known.

    A line may be yielded several times.
    """
    if not any_of:
        yield 0, len(text)
    for word in any_of:
        at = text.find(word)
        while at >= 0:
            stop = text.find(b"\n", at)
            stop = len(text) if stop < 0 else stop
            yield text.rfind(b"\n", 0, at) + 1, stop
            at = text.find(word, stop)


def _by_offset(candidate: Candidate) -> int:
    return candidate[1]


def _loosened(signature: Signature, built: Mapping[str, Loose]) -> Loose:
    if (known := built.get(signature.pattern)) is not None:
        return known
    try:
        if "(?<" in signature.pattern:
            re.compile(signature.pattern)  # only this finds a lookbehind that has no fixed length
        return loosened(signature.pattern)
    except (TooLoose, re.error) as error:
        raise SignatureError(f"{signature.id}: {error}") from error


def _compiled(signatures: Sequence[Signature]) -> "hyperscan.Database":
    built = loosened_patterns()
    expressions = [_loosened(signature, built).expression for signature in signatures]
    count = len(expressions)
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=expressions,
            ids=list(range(count)),
            elements=count,
            flags=[hyperscan.HS_FLAG_MULTILINE] * count,
        )
    except hyperscan.error as error:
        raise SignatureError(f"{_refused(signatures, expressions)} cannot be compiled: {error}") from error
    return database


def _refused(signatures: Sequence[Signature], expressions: Sequence[bytes]) -> str:
    """Returns the name of the signature that Hyperscan cannot compile, or "all signatures together"."""
    for signature, expression in zip(signatures, expressions, strict=True):
        try:
            hyperscan.Database().compile(
                expressions=[expression], ids=[0], elements=1, flags=[hyperscan.HS_FLAG_MULTILINE]
            )
        except hyperscan.error:
            return signature.id
    return "all signatures together"


def _key(signatures: Sequence[Signature]) -> str:
    """Returns a cache key that changes with the patterns, their order, the CPU, and the code that loosens
    patterns.
    """
    about = hashlib.blake2b(Path(byte_patterns.__file__).read_bytes(), digest_size=16)
    with suppress(OSError):
        flags = CPU_FLAGS.search(Path("/proc/cpuinfo").read_bytes())
        about.update(flags[1] if flags else b"")
    for signature in signatures:
        about.update(signature.pattern.encode("utf-8", "surrogatepass") + b"\0")
    return about.hexdigest()


def _loaded(place: Path | None) -> "hyperscan.Database | None":
    kept = _kept(place)
    try:
        return hyperscan.loadb(kept, hyperscan.HS_MODE_BLOCK) if kept else None
    except hyperscan.error:  # of another version, or for another processor
        return None


def _kept(place: Path | None) -> bytes | None:
    """Returns a cached database if it is complete and owned by this user, because Hyperscan trusts its
    bytes; else None.
    """
    try:
        content = place and _own(place)
    except OSError:
        return None
    head = len(MAGIC) + DIGEST_BYTES
    if not content or content[:head] != MAGIC + _digest(content[head:]):
        return None
    return content[head:]


def _own(place: Path) -> bytes | None:
    with place.open("rb") as file:
        about = os.fstat(file.fileno())
        if about.st_uid != os.geteuid() or about.st_mode & 0o022:
            return None
        return file.read()


def _keep(place: Path | None, content: bytes) -> None:
    if place is None:
        return
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _drop_old(place.parent)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix="new-", delete=False) as file:
            try:
                file.write(MAGIC + _digest(content) + content)
                file.flush()
                os.replace(file.name, place)
            except OSError:
                os.unlink(file.name)
                raise


def _drop_old(folder: Path) -> None:
    """Deletes the oldest cached databases; each change of a signature leaves one of a megabyte behind."""
    kept = [path for path in folder.iterdir() if path.suffix in (".hs", ".loose")]
    kept.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[CACHE_FILES_MAX - 1 :]:
        path.unlink()


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
