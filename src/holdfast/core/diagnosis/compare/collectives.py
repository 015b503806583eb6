"""Compares lines of several ranks about one collective: which rank waits where, and which rank is missing.

Pure.

One watchdog line shows that a rank waited, but not for which rank. Several lines show more: a rank that logs
nothing while the others wait in one collective is missing; ranks that wait in different collectives diverged
earlier. Each rule returns at most one Comparison, and None if the evidence is too weak. Tags, wordings and
texts are in signatures/rules/comparison.toml.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.compare.apart import gdr_named_by_some, ranks_apart, set_up_unfinished
from holdfast.core.diagnosis.compare.comparison import Comparison, first_of, minority
from holdfast.core.diagnosis.compare.firewall import refused_by_firewall
from holdfast.core.diagnosis.compare.late import came_late
from holdfast.core.diagnosis.compare.network_paths import (
    compare_gdr,
    compare_init,
    compare_settings,
    compare_versions,
    flapping_port,
    local_interface,
    started_apart,
)
from holdfast.core.diagnosis.compare.waits import Wait, by_group, waits_in
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.missing import spans
from holdfast.late_pattern import late
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

EXCERPT_LINES = 10  # a log with its error in the first lines was cut out of a longer one
EARLY_SEQ = 3  # up to here it is set-up: the first barrier, the check of the model, the first gather
UNPRINTED = 12  # one rank in so many may end before its own watchdog prints (seen: 1 of 16, twice)
NUMBER = late(r"\d{1,7}")

Rule = Callable[[Sequence[Match], Sequence[Source], KnowledgeBase], Comparison | None]


def compare(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> tuple[Comparison, ...]:
    """Returns the findings of all rules, the most certain first; at most one for each match."""
    rules: tuple[Rule, ...] = (
        compare_fingerprints,
        uneven_epochs,
        came_late,
        compare_collectives,
        refused_by_firewall,
        flapping_port,
        compare_gdr,
        gdr_named_by_some,
        local_interface,
        compare_settings,
        compare_versions,
        compare_init,
        set_up_unfinished,
        ranks_apart,
        started_apart,
    )
    found: dict[int, Comparison] = {}
    for rule in rules:
        comparison = rule(matches, sources, known)
        if comparison is not None:
            found.setdefault(id(comparison.first), comparison)
    return tuple(sorted(found.values(), key=lambda one: -one.weight))


def compare_collectives(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding with the ranks that ran another collective or are missing from one, by the watchdog timeouts
    of all ranks; otherwise None.
    """
    waits = waits_in(matches, known)
    if not waits:
        return None
    groups = by_group(waits)
    for group in groups.values():
        parted = _parted(group, known)
        if parted is not None:
            return parted
    reported = _reported(waits, matches, known)
    if reported is not None:
        return reported
    ranks = _all_ranks(matches, sources, known)
    waiting = {wait.rank for wait in waits}
    silent = ranks - waiting
    if len(groups) > 1:
        return _across_groups(waits, silent, known)
    wait = _first(waits)
    whole = not wait.group or known.says("group-of-all", wait.group) or len(waiting) * 2 > len(ranks)
    few_silent = len(silent) * UNPRINTED <= len(ranks)
    # A number counts within one group: of one rank, without what it did before, it is no sign of a job's beginning.
    has_begun = len(waiting) > 1 or wait.match.line > EXCERPT_LINES
    early = 0 <= wait.seq <= EARLY_SEQ and has_begun
    if early and (few_silent or len(silent) > len(waiting)):
        return _stuck_at_start(waits, matches, known, all_there=few_silent and len(waiting) > 1)
    if whole and silent and len(silent) <= len(waiting):
        return _missing(waits, silent, known, weight=0.8 if len(silent) * 4 <= len(ranks) else 0.65)
    if whole and not silent and len(waiting) > 1:
        return _nobody_missing(waits, known)
    return None


def compare_fingerprints(
    matches: Sequence[Match], _sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding with the rank that most others report as different, if each rank compared its call with the
    others'; otherwise None.
    """
    compared = [one for one in matches if known.has("call-compared", one) and "peer" in one.captures]
    named: dict[int, set[int]] = defaultdict(set)  # rank -> the ranks that name it
    for one in compared:
        mine, theirs = int(one.captures["rank"]), int(one.captures["peer"])
        named[theirs].add(mine)
        named[mine].add(theirs)
    ranks = sorted(named, key=lambda rank: (-len(named[rank]), rank))
    if len(ranks) < 3 or len(named[ranks[0]]) <= len(named[ranks[1]]):
        return None
    odd = ranks[0]
    first = compared[0]
    own = next((one.captures["mine"] for one in compared if int(one.captures["rank"]) == odd), "")
    own = own or next(one.captures["theirs"] for one in compared if int(one.captures["peer"]) == odd)
    return Comparison(
        category="collective_mismatch",
        first=first,
        role="cause",
        weight=0.97,
        culprits=(Culprit(rank=odd),),
        title=Words(
            en=f"rank {odd} calls a different collective than the others: {own}",
            zh=f"rank {odd} 执行的集合通信与其他 rank 不同：{own}",
        ),
        explanation=Words(
            en=f"Each rank compared its call with the others'; {len(named[odd])} of them name rank {odd}.",
            zh=f"各 rank 比较了彼此的调用，其中 {len(named[odd])} 个指向 rank {odd}。",
        ),
        advice=known.text("parted-advice"),
        seen=tuple(compared),
    )


def uneven_epochs(
    matches: Sequence[Match], _sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if ranks wait in collectives of different epochs: the ranks ahead had fewer
    batches.
    """
    waits = waits_in(matches, known)
    epochs: dict[int, int] = {}
    lines = []
    for one in matches:
        rank = one.writer.rank
        if known.has("epoch-named", one) and rank is not None:
            epochs[rank] = max(int(one.captures["epoch"]), epochs.get(rank, -1))
            lines.append(one)
    if not waits or len(set(epochs.values())) < 2:
        return None
    last = max(epochs.values())
    ahead = {rank for rank, epoch in epochs.items() if epoch == last}
    if last - min(epochs.values()) > 1:
        return None  # too far apart for a job in step: other numbers are meant
    return Comparison(
        category="uneven_data",
        first=_first(waits).match,
        weight=0.8,
        culprits=tuple(Culprit(rank=rank) for rank in sorted(ahead)) if _is_minority(ahead, epochs) else (),
        title=Words(
            en=f"rank {spans(ahead)} is in epoch {last}, the others still in {last - 1}",
            zh=f"rank {spans(ahead)} 已进入第 {last} 轮，其余仍在第 {last - 1} 轮",
        ),
        explanation=Words(
            en="The ranks have unequal numbers of batches: a rank with fewer ends the epoch early, and the "
            "collectives no longer match.",
            zh="各 rank 的批次数不等：批次少的 rank 提前结束本轮，集合通信不再对应。",
        ),
        advice=known.text("uneven-batches-advice"),
        seen=tuple(lines[:16]),
    )


def _parted(group: Sequence[Wait], known: KnowledgeBase) -> Comparison | None:
    """Returns a finding if ranks of one process group wait in different calls."""
    if len({wait.rank for wait in group}) < 2:
        return None
    calls = {wait.rank: wait.call for wait in group}
    numbers = {wait.seq for wait in group}
    sizes = {wait.rank: wait.sizes for wait in group}
    if len(numbers) > 1:
        lowest = {rank for rank, (seq, _) in calls.items() if seq == min(numbers)}
        highest = {rank for rank, (seq, _) in calls.items() if seq == max(numbers)}
        odd = lowest if len(lowest) * 2 <= len(calls) else highest
        what = Words(en="are at different collectives", zh="停在不同的集合通信")
    elif len(set(calls.values())) > 1:
        odd = minority(calls)
        what = Words(en="run different operations", zh="执行了不同的操作")
    elif known.says("same-sizes-for-all", group[0].op) and len(set(sizes.values())) > 1:
        odd = minority(sizes)
        what = Words(en="pass different sizes to the same collective", zh="向同一集合通信传入了不同大小")
    else:
        return None
    first = _first(group)
    kinds = Counter((wait.seq, wait.op, wait.sizes[-1]) for wait in group)
    listed = "; ".join(
        f"{op}{f' #{seq}' if seq >= 0 else ''}{f' of {size}' if size else ''}: "
        f"rank {spans(wait.rank for wait in group if (wait.seq, wait.op, wait.sizes[-1]) == (seq, op, size))}"
        for (seq, op, size), _ in kinds.most_common(4)
    )
    return Comparison(
        category="collective_mismatch",
        first=first.match,
        weight=0.88,
        culprits=tuple(Culprit(rank=rank) for rank in sorted(odd)),
        title=Words(en=f"the ranks {what.en}: {listed}", zh=f"各 rank {what.zh}：{listed}"),
        explanation=Words(
            en="They diverged earlier: each waits for a collective that the others do not call.",
            zh="它们在此之前已经分叉：各自等待对方不会执行的调用。",
        ),
        advice=known.text("parted-advice"),
        seen=tuple(wait.match for wait in group),
    )


def _reported(waits: Sequence[Wait], matches: Iterable[Match], known: KnowledgeBase) -> Comparison | None:
    """Returns the missing ranks from a comparison by the ranks themselves (desync report, flight records)."""
    reports = [one for one in matches if known.has("absent-ranks-report", one)]
    absent = {int(number) for one in reports for number in NUMBER.findall(one.captures["ranks"])}
    absent -= {wait.rank for wait in waits}
    if not absent:
        return None
    found = _missing(waits, absent, known, weight=0.92)
    return replace(found, seen=(*found.seen, *reports), explained=tuple(reports))


def _across_groups(waits: Sequence[Wait], silent: set[int], known: KnowledgeBase) -> Comparison | None:
    """Returns a finding if ranks wait in several process groups at once.

    They wait for a rank that waits in none, or for one another.
    """
    waiting = {wait.rank for wait in waits}
    if silent and len(silent) <= len(waiting):
        return _missing(waits, silent, known, weight=0.7)
    cut_off = len(silent) > len(waiting) and _first(waits).match.line <= EXCERPT_LINES
    if cut_off and any(not wait.group for wait in waits):
        return None  # most ranks and the names of groups were cut away: the rest is useless
    groups = sorted({f"{wait.op} in {wait.group or '?'}" for wait in waits})
    return Comparison(
        category="collective_mismatch",
        first=_first(waits).match,
        weight=0.6 if not silent else 0.5,
        title=Words(
            en=f"ranks wait in several process groups at the same time: {'; '.join(groups[:4])}",
            zh=f"rank 同时在多个进程组中等待：{'; '.join(groups[:4])}",
        ),
        explanation=Words(
            en="Collectives of two process groups deadlock: the ranks entered them in different orders.",
            zh="不同进程组的集合通信相互交叉：部分 rank 先进入一个组，其余先进入另一个组。",
        ),
        advice=known.text("parted-advice"),
        seen=tuple(wait.match for wait in waits),
    )


def _missing(waits: Sequence[Wait], silent: set[int], known: KnowledgeBase, *, weight: float) -> Comparison:
    first = _first(waits)
    number = f" #{first.seq}" if first.seq >= 0 else ""
    waiting = {wait.rank for wait in waits}
    return Comparison(
        category="collective_missing_rank",
        first=first.match,
        weight=weight,
        culprits=tuple(Culprit(rank=rank) for rank in sorted(silent)),
        title=Words(
            en=f"rank {spans(silent)} did not enter {first.op}{number}",
            zh=f"rank {spans(silent)} 未进入 {first.op}{number}",
        ),
        explanation=Words(
            en=f"Rank {spans(waiting)} waited there until the watchdog timed out; rank {spans(silent)} has no record "
            "of waiting.",
            zh=f"rank {spans(waiting)} 一直等待直到 watchdog 超时，而 rank {spans(silent)} 没有等待记录。",
        ),
        advice=known.text("missing-rank-advice"),
        seen=tuple(wait.match for wait in waits),
    )


def _stuck_at_start(
    waits: Sequence[Wait], matches: Iterable[Match], known: KnowledgeBase, *, all_there: bool
) -> Comparison:
    """Returns the finding that the first collectives hang.

    No rank has trained yet, so the path between the GPUs may never have worked.
    """
    first = _first(waits)
    path = _doubtful_path(matches, known)
    there_en = "All ranks entered it, and it never completed" if all_there else "It never completed"
    there_zh = "所有 rank 均已加入，但始终未完成" if all_there else "始终未完成"
    return Comparison(
        category="p2p_failure" if path else "nccl_init_failure",
        first=first.match,
        weight=0.75 if path else 0.7 if all_there else 0.5,
        title=Words(
            en=f"{first.op} #{first.seq}, one of the first of the job, never completed",
            zh=f"作业最初的集合通信 {first.op} #{first.seq} 始终未完成",
        ),
        explanation=Words(
            en=f"{there_en}: data cannot be transferred between GPUs"
            + (f" ({path.en})." if path else ", or a rank is still in an earlier step."),
            zh=f"{there_zh}：数据无法在 GPU 间传输"
            + (f"({path.zh})。" if path else "，或有 rank 仍停在之前的步骤。"),
        ),
        advice=known.text("direct-copies-advice") if path else known.text("set-up-advice"),
        seen=tuple(wait.match for wait in waits),
    )


def _doubtful_path(matches: Iterable[Match], known: KnowledgeBase) -> Words | None:
    """Returns a reason to suspect peer-to-peer copies between the GPUs of a node; None if there is none."""
    for one in matches:
        setting = "{name}={value}".format_map(one.captures) if known.has("communication-setting", one) else ""
        if known.says("copies-by-memcpy", setting):
            return known.text("copies-by-memcpy")
        if known.has("access-control", one) and known.says("access-control-on", one.text):
            return known.text("access-control-on")
    return None


def _nobody_missing(waits: Sequence[Wait], known: KnowledgeBase) -> Comparison:
    first = _first(waits)
    number = f" #{first.seq}" if first.seq >= 0 else ""
    return Comparison(
        category="collective_timeout",
        first=first.match,
        weight=0.65,
        title=Words(
            en=f"all {len(waits)} ranks entered {first.op}{number}, and it never completed",
            zh=f"全部 {len(waits)} 个 rank 均已进入 {first.op}{number}，但始终未完成",
        ),
        explanation=Words(
            en="No rank is missing, and all make the same call: the network or a GPU stalled, or the operation "
            "takes longer than the timeout.",
            zh="没有缺席者，调用也一致：网络或某张 GPU 停滞，或该操作耗时超过超时时间。",
        ),
        advice=known.text("all-joined-advice"),
        seen=tuple(wait.match for wait in waits),
    )


def _all_ranks(matches: Iterable[Match], sources: Iterable[Source], known: KnowledgeBase) -> set[int]:
    """Returns all ranks from 0 to the highest one that any line names."""
    named = [one.writer.rank for one in sources]
    for one in matches:
        named.append(one.writer.rank)
        if known.has("run-gave-up-on-rank", one):
            named.append(int(one.captures["rank"]))
        elif known.has("communicator-set-up", one):
            named.append(int(one.captures["world"]) - 1)
    ranks = {rank for rank in named if rank is not None and rank < 1 << 20}
    return set(range(max(ranks) + 1)) if ranks else set()


def _is_minority(ranks: set[int], among: Mapping[int, int]) -> bool:
    return len(ranks) * 2 < len(among)


def _first(waits: Iterable[Wait]) -> Wait:
    every = list(waits)
    first = first_of(wait.match for wait in every)
    return next(wait for wait in every if wait.match is first)
