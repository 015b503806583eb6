"""Extracts from a launcher's output which of its processes ended, and how. Pure.

The wordings are signatures with `rank_end` (signatures/launcher_ends.toml). In all of them a line names the
process, the end, or both; the line with the end follows within a few lines.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.verdict.categories import SIGNAL_WORDS, SIGNALS
from holdfast.model.failures import LauncherWord
from holdfast.model.matches import Match, Search
from holdfast.model.signatures import Signature

REPORT_BYTES = 1 << 10  # at most, between the line that names the process and the line with its end
WORDS_MAX = 64
NUMBERS = {name: number for number, (name, _) in SIGNALS.items()} | SIGNAL_WORDS
WHO = ("rank", "local_rank", "task", "pid")


class Known(Struct, frozen=True, kw_only=True):
    """The known assignment of local ranks and process ids to ranks.

    `of_local`, `of_pid`: return the rank of a local rank, of a process id; None if unknown. `by_rank`: some ranks are
    known from their environment; then one Slurm task may run many ranks.
    """

    worker: int = 0
    of_local: Callable[[int], int | None] = lambda local_rank: local_rank
    of_pid: Callable[[int], int | None] = lambda pid: None
    by_rank: bool = False


def launcher_words(
    search: Search, signatures: Mapping[str, Signature], known: Known
) -> tuple[LauncherWord, ...]:
    """Returns the launcher's reports of ended processes in the order of their lines, the most detailed one
    per rank or process.
    """
    found: list[LauncherWord] = []
    last: tuple[int, int] | None = None  # source and offset of a line that says who and not how
    for one in search.matches:
        signature = signatures.get(one.signature)
        if signature is None or not signature.rank_end:
            continue
        word = _word(one, search, known)
        if any(name in one.captures for name in WHO):
            found.append(word)
            last = (one.source, one.offset) if word.code is None else None
        elif last is not None and last[0] == one.source and one.offset - last[1] <= REPORT_BYTES:
            found[-1] = replace(found[-1], code=word.code, text=f"{found[-1].text} {word.text}")
            last = None
    return _each_once(found)[:WORDS_MAX]


def _word(one: Match, search: Search, known: Known) -> LauncherWord:
    pid = _number(one.captures.get("pid")) or 0
    return LauncherWord(
        rank=_rank(one.captures, pid, known),
        worker=known.worker,
        pid=pid,
        code=_code(one.captures),
        at_s=one.writer.stamp_s or 0.0,
        text=" ".join(one.text.split()),
        file=search.sources[one.source].name,
    )


def _rank(captures: Mapping[str, str], pid: int, known: Known) -> int | None:
    if (rank := _number(captures.get("rank"))) is not None:
        return rank
    if (local := _number(captures.get("local_rank"))) is not None:
        return known.of_local(local)
    if (task := _number(captures.get("task"))) is not None:
        return None if known.by_rank else task
    return known.of_pid(pid) if pid else None


def _code(captures: Mapping[str, str]) -> int | None:
    """Returns the reported exit code, -N for signal N; None if the line has none."""
    if (number := _number(captures.get("signal"))) is not None:
        return -number
    if (number := NUMBERS.get(captures.get("name", ""))) is not None:
        return -number
    code = captures.get("code", "")
    return int(code) if code.removeprefix("-").isdigit() else None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _each_once(found: list[LauncherWord]) -> tuple[LauncherWord, ...]:
    kept: dict[tuple[int | None, int], LauncherWord] = {}
    for one in found:
        if one.rank is None and not one.pid:
            continue  # a task of many ranks, a local rank of another machine
        key = (one.rank, 0 if one.rank is not None else one.pid)
        held = kept.get(key)
        if held is None:
            kept[key] = one
        elif held.code is None:
            kept[key] = replace(one, at_s=held.at_s)
    return tuple(kept.values())
