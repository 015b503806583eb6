"""Compares the progress of ranks and nodes: epochs, steps, communicator setup and paths between nodes. Pure.

Two lines are enough to show that two ranks have made different progress. They do not show why the log ends there, so
the confidence is low. Tags, wordings and texts are in signatures/rules/comparison.toml.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.compare.comparison import Comparison, first_of, host_of
from holdfast.core.diagnosis.excerpt import is_excerpt
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.missing import spans
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

TOGETHER_S = 5.0  # lines of ranks that are in step are written within it
ONE_STEP = 1  # ranks in step print so far apart
TEXTS_MAX = 190  # of one signature in one log: above this, the last line of each rank may not have been kept


class Reached(Struct, frozen=True):
    """Progress of one rank or node by its last line. `epoch`, `at`: None if the line does not name them."""

    epoch: int | None
    at: int | None
    match: Match


def ranks_apart(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if the last lines of ranks or nodes name different epochs or steps; otherwise
    None.
    """
    last = _last_lines(matches, sources, known)
    if len(last) < 2 or not _are_together(last):
        return None
    return _epochs_apart(last, sources, known) or _steps_apart(last, sources, known)


def set_up_unfinished(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if some nodes, or one rank, started a communicator's setup and did not report its
    end.

    None if the other ranks did not report it either.
    """
    if not is_excerpt(sources):
        return None
    begun: dict[str, list[Match]] = defaultdict(list)
    done: set[str] = set()
    complete: dict[int, set[int]] = defaultdict(set)  # by the size of the communicator
    for one in matches:
        if not known.has("bootstrap-interface", one) and not known.has("communicator-set-up", one):
            continue
        is_done = known.says("set-up-complete", one.captures.get("state", ""))
        if is_done:
            complete[int(one.captures["world"])].add(int(one.captures["rank"]))
        host = host_of(one, sources)
        if host is not None:
            begun[host].append(one)
            done |= {host} if is_done else set()
    absent = sorted(set(begun) - done)
    missing = {rank for world, ranks in complete.items() for rank in set(range(min(world, 4096))) - ranks}
    if done and absent and len(absent) <= len(done):
        rank = next(iter(missing)) if len(missing) == len(absent) == 1 else None
        culprits = tuple(Culprit(rank=rank, host=host) for host in absent)
        first = first_of(one for host in absent for one in begun[host])
        return _unfinished(", ".join(absent), sorted(done), culprits, first, begun, known)
    set_up = [one for one in matches if known.has("communicator-set-up", one)]
    if len(complete) == 1 and len(missing) == 1 and not absent and len(set_up) > 1:
        (rank,) = missing
        return _unfinished(f"rank {rank}", [], (Culprit(rank=rank),), first_of(set_up), {"": set_up}, known)
    return None


def gdr_named_by_some(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if, in an excerpt, some nodes use GPUDirect RDMA and the lines about the channels of other
    nodes do not mention it; otherwise None.
    """
    if not is_excerpt(sources):
        return None
    direct: dict[str, Match] = {}
    within: dict[str, Match] = {}
    others: set[str] = set()
    for one in matches:
        host = host_of(one, sources)
        if host is None:
            continue
        if known.has("network-path", one) and "gdr" in one.captures:
            direct.setdefault(host, one)
        elif known.has("network-path", one):
            others.add(host)
        elif known.has("channel-within-node", one):
            within.setdefault(host, one)
    without = sorted(set(within) - set(direct) - others)
    if not direct or not without or others:
        return None
    named = ", ".join(sorted(direct)[:4])
    return Comparison(
        category="gdr_mismatch",
        first=first_of(direct.values()),
        role="cause",
        severity="warning",
        weight=0.7,
        action="fix_config",
        culprits=tuple(Culprit(host=host) for host in without),
        title=known.text("direct-memory-unnamed", named=named, without=", ".join(without[:4])),
        explanation=known.text("direct-memory-unnamed-why"),
        advice=known.text("direct-memory-advice"),
        seen=(*direct.values(), *(within[host] for host in without)),
        of_end=True,
    )


def _unfinished(
    who: str,
    done: Sequence[str],
    culprits: tuple[Culprit, ...],
    first: Match,
    begun: Mapping[str, Sequence[Match]],
    known: KnowledgeBase,
) -> Comparison:
    ready, ready_zh = ", ".join(done[:4]) or "the others", "、".join(done[:4]) or "其他 rank"
    return Comparison(
        category="nccl_init_failure",
        first=first,
        role="cause",
        severity="warning",
        weight=0.65,
        action="unknown",
        culprits=culprits,
        title=Words(
            en=f"{who} did not finish the setup of the communicator",
            zh=f"{who} 未完成通信域初始化",
        ),
        explanation=known.text("set-up-complete-elsewhere", ready=ready, ready_zh=ready_zh, who=who),
        advice=known.text("set-up-advice"),
        seen=tuple(one for lines in begun.values() for one in lines)[:16],
        of_end=True,
    )


def _last_lines(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> dict[Culprit, Reached]:
    """Returns the progress by rank, or by node if no line names a rank.

    Empty if a log has more lines than were kept.
    """
    counts: dict[tuple[int, str], int] = defaultdict(int)
    reached: dict[Culprit, Reached] = {}
    for one in matches:
        if not known.has("progress-of-rank", one):
            continue
        counts[(one.source, one.signature)] += 1
        who = _who(one, sources)
        if who is None:
            continue
        now = Reached(_number(one, "epoch"), _number(one, "at"), one)
        before = reached.get(who)
        if before is not None and _is_one_line(before.match, one):
            now = Reached(
                before.epoch if now.epoch is None else now.epoch,
                before.at if now.at is None else now.at,
                one,
            )
        if before is None or _place(one) >= _place(before.match):
            reached[who] = now
    if max(counts.values(), default=0) >= TEXTS_MAX:
        return {}
    ranks = {who: last for who, last in reached.items() if who.rank is not None}
    return ranks or reached  # a part of a line that names no rank is not another node's


def _who(one: Match, sources: Sequence[Source]) -> Culprit | None:
    rank = one.captures.get("rank") or one.writer.rank
    if rank is None:
        rank = sources[one.source].writer.rank
    if rank is not None:
        return Culprit(rank=int(rank))
    host = host_of(one, sources)
    return Culprit(host=host) if host else None


def _place(one: Match) -> tuple[int, int]:
    """Returns a sort key for the position of a line within its log.

    A line of a later log does not replace one of an earlier log, because they belong to different ranks.
    """
    return (one.source, max(one.offset, one.last_offset))


def _is_one_line(one: Match, other: Match) -> bool:
    return one.source == other.source and one.offset == other.offset


def _are_together(last: Mapping[Culprit, Reached]) -> bool:
    """Returns whether the lines were written at the same time, as far as their timestamps show."""
    stamps = [one.match.writer.stamp_s for one in last.values()]
    known = [stamp for stamp in stamps if stamp is not None]
    if len(known) < 2:
        return True
    return are_comparable(min(known), max(known)) and max(known) - min(known) <= TOGETHER_S


def _epochs_apart(
    last: Mapping[Culprit, Reached], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    epochs = {who: one.epoch for who, one in last.items() if one.epoch is not None}
    numbers = sorted(set(epochs.values()))
    if len(numbers) != 2 or numbers[1] - numbers[0] != 1:
        return None
    places = [last[who].at for who in epochs]
    places_known = [at for at in places if at is not None]
    is_same_place = len(places_known) == len(places) and max(places_known) - min(places_known) <= ONE_STEP
    if places_known and not is_same_place or not places_known and not is_excerpt(sources):
        return None  # a rank may begin an epoch while others end theirs
    behind = [who for who, epoch in epochs.items() if epoch == numbers[0]]
    ahead = [who for who, epoch in epochs.items() if epoch == numbers[1]]
    few = behind if len(behind) <= len(ahead) else ahead
    return Comparison(
        category="uneven_data",
        first=first_of(last[who].match for who in behind),
        role="cause",
        severity="warning",
        weight=0.85 if is_same_place else 0.6,
        action="fix_data",
        culprits=_sorted(few) if len(behind) != len(ahead) else (),
        title=Words(
            en=f"{_named(behind)} in epoch {numbers[0]}, {_named(ahead)} in epoch {numbers[1]}",
            zh=f"{_named_zh(behind)} 处于第 {numbers[0]} 轮，{_named_zh(ahead)} 已到第 {numbers[1]} 轮",
        ),
        explanation=Words(
            en="The ranks have unequal numbers of batches: a rank with fewer ends an epoch early, and the collectives no "
            "longer match. The log ends here.",
            zh="各 rank 的批次数不等：批次少的 rank 提前结束一轮，集合通信不再对应。日志到此为止。",
        ),
        advice=known.text("uneven-batches-advice"),
        seen=tuple(one.match for one in last.values())[:16],
        of_end=True,
    )


def _steps_apart(
    last: Mapping[Culprit, Reached], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if a minority of ranks is behind in steps.

    Only for excerpts: in complete logs, the watchdog's report decides.
    """
    places = {who: one.at for who, one in last.items() if one.at is not None}
    if len(places) < 3 or len({one.epoch for one in last.values()}) > 1 or not is_excerpt(sources):
        return None
    most = max(places.values())
    behind = [who for who, at in places.items() if most - at > ONE_STEP]
    if not behind or len(behind) * 2 >= len(places):
        return None
    at = ", ".join(str(places[who]) for who in _sorted(behind)[:4])
    return Comparison(
        category="collective_missing_rank",
        first=first_of(last[who].match for who in behind),
        role="cause",
        severity="warning",
        weight=0.6,
        action="unknown",
        culprits=_sorted(behind),
        title=Words(
            en=f"{_named(behind)} at step {at}, the others at {most}",
            zh=f"{_named_zh(behind)} 停在第 {at} 步，其他已到第 {most} 步",
        ),
        explanation=Words(
            en="Ranks that train together are at the same step. A rank that is behind keeps the others waiting.",
            zh="协同训练的 rank 应处于同一步，落后者会让其他 rank 等待。",
        ),
        advice=known.text("rank-behind-advice"),
        seen=tuple(one.match for one in last.values())[:16],
        of_end=True,
    )


def _sorted(who: Sequence[Culprit]) -> tuple[Culprit, ...]:
    return tuple(sorted(who, key=lambda one: (one.rank is None, one.rank or 0, one.host or "")))


def _named(who: Sequence[Culprit]) -> str:
    verb = "is" if len(who) == 1 else "are"
    return f"{_listed(who, 'rank', 'ranks')} {verb}"


def _named_zh(who: Sequence[Culprit]) -> str:
    return _listed(who, "rank", "rank")


def _listed(who: Sequence[Culprit], one: str, many: str) -> str:
    ranks = [culprit.rank for culprit in who if culprit.rank is not None]
    if ranks:
        return f"{one if len(ranks) == 1 else many} {spans(ranks)}"
    return ", ".join(sorted(culprit.host or "?" for culprit in who)[:4])


def _number(one: Match, name: str) -> int | None:
    text = one.captures.get(name)
    return int(text) if text else None
