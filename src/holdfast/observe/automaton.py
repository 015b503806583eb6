"""All signatures as one automaton: where in a block of text may which of them stand?

Two engines answer alike. Hyperscan reads all patterns in one go; its compiled database is kept in a cache, as
compiling takes seconds. The engine of Python's `re` needs nothing, and is the quicker one for a few small logs.
Both report too much rather than too little: who asks confirms each report with the signature's own pattern.
"""

import hashlib
import os
import platform
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from holdfast.model.signatures import Signature
from holdfast.observe.byte_patterns import TooLoose, literal, loosened
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
CACHE_FILES_MAX = 8
CPU_FLAGS = re.compile(rb"^(?:flags|Features)\s*:(.*)$", re.MULTILINE)


class Engine(Protocol):
    """Finds candidates. For one thread; `fork` gives one for another."""

    def fork(self) -> "Engine": ...

    def candidates(self, text: Text, size: int) -> list[Candidate]:
        """Those in `text[:size]`, whose lines end with newlines only, by their offsets."""
        ...


class PlainEngine:
    """Python's `re`, one pattern after the other; those whose literal is nowhere in the text are not even compiled."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._expressions = [(literal(one.pattern), _loosened(one)) for one in signatures]
        self._compiled: dict[int, re.Pattern[bytes]] = {}

    def fork(self) -> "PlainEngine":
        return self

    def candidates(self, text: Text, size: int) -> list[Candidate]:
        found: list[Candidate] = []
        for number, (word, expression) in enumerate(self._expressions):
            if text.find(word, 0, size) >= 0:
                pattern = self._compiled.get(number)
                if pattern is None:
                    pattern = self._compiled[number] = re.compile(expression, re.MULTILINE)
                found += [(number, match.end()) for match in pattern.finditer(text, 0, size)]
        found.sort(key=_by_offset)
        return found


class FastEngine:
    """Hyperscan. It lets other threads run while it scans."""

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
    """The engine for these signatures. `is_small`: so little text that compiling is not worth while.

    `cache`: a folder for compiled databases; None: none is kept. Whatever is wrong with it is no error.
    raises: SignatureError, for a pattern that the empty line matches
    """
    if hyperscan is None or not signatures:
        return PlainEngine(signatures)
    place = cache and cache / f"{_key(signatures)}.hs"
    database = place and _kept(place)
    if not database:
        if is_small:
            return PlainEngine(signatures)
        database = _compiled(signatures)
        if place:
            _keep(place, hyperscan.dumpb(database))
    return FastEngine(database)


def _by_offset(candidate: Candidate) -> int:
    return candidate[1]


def _loosened(signature: Signature) -> bytes:
    try:
        return loosened(signature.pattern)
    except (TooLoose, re.error) as error:
        raise SignatureError(f"{signature.id}: {error}") from error


def _compiled(signatures: Sequence[Signature]) -> "hyperscan.Database":
    expressions = [_loosened(signature) for signature in signatures]
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
    """Which signature it is that cannot be compiled; all of them where each can."""
    for signature, expression in zip(signatures, expressions, strict=True):
        try:
            hyperscan.Database().compile(
                expressions=[expression], ids=[0], elements=1, flags=[hyperscan.HS_FLAG_MULTILINE]
            )
        except hyperscan.error:
            return signature.id
    return "all signatures together"


def _key(signatures: Sequence[Signature]) -> str:
    """Changes with the patterns, their order and the processor; Hyperscan itself knows its own versions."""
    about = hashlib.blake2b(digest_size=16)
    about.update(f"{MAGIC!r} {platform.machine()} ".encode())
    with suppress(OSError):
        flags = CPU_FLAGS.search(Path("/proc/cpuinfo").read_bytes())
        about.update(flags[1] if flags else b"")
    for signature in signatures:
        about.update(signature.pattern.encode("utf-8", "surrogatepass") + b"\0")
    return about.hexdigest()


def _kept(place: Path) -> "hyperscan.Database | None":
    """What the cache holds, if it is whole and our own: Hyperscan trusts the bytes that it is given."""
    try:
        with place.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.geteuid() or about.st_mode & 0o022:
                return None
            content = file.read()
    except OSError:
        return None
    head = len(MAGIC) + DIGEST_BYTES
    serialized = content[head:]
    if content[:head] != MAGIC + _digest(serialized):
        return None
    try:
        return hyperscan.loadb(serialized, hyperscan.HS_MODE_BLOCK)
    except hyperscan.error:  # of another version, or of another processor
        return None


def _keep(place: Path, serialized: bytes) -> None:
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _drop_old(place.parent)
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix="new-", delete=False) as file:
            try:
                file.write(MAGIC + _digest(serialized) + serialized)
                file.flush()
                os.replace(file.name, place)
            except OSError:
                os.unlink(file.name)
                raise


def _drop_old(folder: Path) -> None:
    """Each change of a signature leaves a database of a megabyte behind."""
    kept = sorted(folder.glob("*.hs"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in kept[CACHE_FILES_MAX - 1 :]:
        path.unlink()


def _digest(serialized: bytes) -> bytes:
    return hashlib.blake2b(serialized, digest_size=DIGEST_BYTES).digest()
