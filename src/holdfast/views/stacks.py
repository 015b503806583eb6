"""Formats groups of ranks with equal stacks, as text and JSON. Prints nothing.

In the text the outermost frame comes last, as in most stack dumps; control characters in quotations are
escaped.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from holdfast.core.hang.culprits import place_of
from holdfast.core.hang.stack_groups import Doing, StackGroup, ranges
from holdfast.model.flight.thread_stacks import ThreadStack
from holdfast.model.signatures import Words
from holdfast.settings.times import stamp
from holdfast.views.languages import Language, said
from holdfast.views.wrapping import cut, shown

FRAMES_SHOWN_MAX = 60  # of one thread; the rest is said to be there

IMPORTLIB = "<frozen importlib"
FRAME_COLUMNS_MAX = 200  # names of C++ templates have thousands
_SOURCE = {"native": "py-spy --native"}

_HEAD = Words(en="job {job}, attempt {attempt}, {at}: {n}", zh="作业 {job}，第 {attempt} 次尝试，{at}：{n}")
_STACKS = Words(en="{ranks} ranks in {groups} stacks", zh="{ranks} 个 rank，{groups} 种调用栈")
_ONE_STACK = Words(en="all {ranks} ranks in the same stack", zh="{ranks} 个 rank 的调用栈全部相同")
_ONE_RANK = Words(en="1 rank", zh="1 个 rank")
_NONE = Words(en="no stack could be collected", zh="未能取得任何调用栈")
_RANK = Words(en="rank {ranks}", zh="rank {ranks}")
_RANKS = Words(en="ranks {ranks} ({n})", zh="rank {ranks}（{n} 个）")
_AT = Words(en="{does} at {place}", zh="{does}，位于 {place}")
_IN = Words(en=", in {function}", zh="，在 {function} 中")
_COLON = Words(en=": ", zh="：")
_MISSING = Words(en="not complete:", zh="不完整：")
_MORE = Words(en="... and {n} more frames", zh="…… 另有 {n} 帧")
_IMPORT = Words(en="... {n} frames of importlib", zh="…… importlib 的 {n} 帧")
_THREAD = Words(en="thread {id} {name}", zh="线程 {id} {name}")
_KERNEL = Words(en="in the kernel:", zh="内核调用栈：")
_BY = Words(en="by {source}", zh="来源 {source}")
_DOES: dict[Doing, Words] = {
    "waits-for-ranks": Words(en="waits for other ranks", zh="等待其他 rank"),
    "sleeps": Words(en="sleeps", zh="休眠"),
    "runs": Words(en="runs", zh="正在运行"),
    "waits": Words(en="waits", zh="等待"),
    "blocked": Words(en="is blocked in the kernel", zh="阻塞在内核中"),
    "stopped": Words(en="is stopped", zh="已被停止"),
    "traced": Words(en="is paused by a debugger", zh="被调试器暂停"),
    "unknown": Words(en="is", zh="状态未知"),
}


class Missing(NamedTuple):
    """A rank of which no stack could be collected, and the reason."""

    rank: int
    why: str


class Seen(NamedTuple):
    """The stacks that `holdfast stacks` collected at `at_s` of the wall clock, and the ranks without a stack."""

    job: str
    attempt: int
    at_s: float
    groups: tuple[StackGroup, ...]
    missing: tuple[Missing, ...]


def document(seen: Seen, *, all_threads: bool) -> dict[str, Any]:
    """Returns the JSON document of `holdfast stacks`.

    `threads` in the document: those of one rank of each group; only the main thread unless all are requested.
    """
    return {
        "job": seen.job,
        "attempt": seen.attempt,
        "at": seen.at_s,
        "groups": [_group_document(group, all_threads=all_threads) for group in seen.groups],
        "missing": [one._asdict() for one in seen.missing],
    }


def report(seen: Seen, language: Language, *, all_threads: bool) -> Iterator[str]:
    head = said(_HEAD, language)
    count = _count(seen.groups, language)
    yield shown(head.format(job=seen.job, attempt=seen.attempt, at=stamp(seen.at_s), n=count))
    for group in seen.groups:
        yield ""
        yield shown(_title(group, language))
        yield from _body(group, language, all_threads=all_threads)
    if seen.missing:
        yield ""
        yield said(_MISSING, language)
        yield from _reasons(seen.missing, language)


def _count(groups: Sequence[StackGroup], language: Language) -> str:
    ranks = sum(len(group.ranks) for group in groups)
    words = _NONE if not groups else _ONE_RANK if ranks == 1 else _ONE_STACK if len(groups) == 1 else _STACKS
    return said(words, language).format(ranks=ranks, groups=len(groups))


def _title(group: StackGroup, language: Language) -> str:
    """Returns the headline of a group of equal stacks.

    ranks 0-2,5 (4): waits for other ranks at train.py:40 in backward, in all_reduce (S, futex_wait, by py-spy)
    """
    does = said(_DOES[group.doing], language)
    if group.own_frame:
        does = said(_AT, language).format(does=does, place=place_of(group.own_frame))
    if group.inner_frame != group.own_frame:
        does += said(_IN, language).format(function=group.inner_frame.rpartition(" ")[2])
    source = group.example.source
    by = said(_BY, language).format(source=_SOURCE.get(source, source))
    facts = ", ".join(part for part in (group.state, group.wait_channel, by) if part)
    return f"{_named(group.ranks, language)}{said(_COLON, language)}{does} ({facts})"


def _named(ranks: Sequence[int], language: Language) -> str:
    words = _RANK if len(ranks) == 1 else _RANKS
    return said(words, language).format(ranks=ranges(ranks), n=len(ranks))


def _body(group: StackGroup, language: Language, *, all_threads: bool) -> Iterator[str]:
    example = group.example
    threads = example.threads if all_threads else example.threads[:1]
    for thread in threads:
        if len(threads) > 1:
            yield (
                "  "
                + shown(said(_THREAD, language).format(id=thread.thread_id or "?", name=thread.name)).rstrip()
            )
        yield from _frames(thread.frames, language)
    if example.kernel_frames:
        yield "  " + said(_KERNEL, language)
        yield from _frames(example.kernel_frames, language)


def _frames(frames: Sequence[str], language: Language) -> Iterator[str]:
    """Yields the lines of a stack. Frames of Python's import machinery are folded into one line."""
    for is_importlib, part in groupby(frames[:FRAMES_SHOWN_MAX], lambda frame: frame.startswith(IMPORTLIB)):
        some = list(part)
        if is_importlib and len(some) > 1:
            yield "    " + said(_IMPORT, language).format(n=len(some))
            continue
        for frame in some:
            yield f"    {cut(shown(frame), FRAME_COLUMNS_MAX)}"
    if len(frames) > FRAMES_SHOWN_MAX:
        yield "    " + said(_MORE, language).format(n=len(frames) - FRAMES_SHOWN_MAX)


def _reasons(missing: Sequence[Missing], language: Language) -> Iterator[str]:
    """Yields one line for each reason why stacks are missing, with the ranks."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for one in missing:
        ranks[one.why].append(one.rank)
    for why, numbers in ranks.items():
        yield shown(f"  {_named(numbers, language)}{said(_COLON, language)}{why}")


def _group_document(group: StackGroup, *, all_threads: bool) -> dict[str, Any]:
    example = group.example
    return {
        "ranks": group.ranks,
        "doing": group.doing,
        "state": group.state,
        "wait_channel": group.wait_channel,
        "source": example.source,
        "own_frame": group.own_frame,
        "frames": example.threads[0].frames if example.threads else (),
        "kernel_frames": example.kernel_frames,
        "threads": [
            _thread_document(one) for one in (example.threads if all_threads else example.threads[:1])
        ],
    }


def _thread_document(thread: ThreadStack) -> dict[str, Any]:
    return {
        "id": thread.thread_id,
        "name": thread.name,
        "main": thread.is_main,
        "active": thread.is_active,
        "gil": thread.holds_gil,
        "frames": thread.frames,
    }
