"""Finds the ranks that block the others in a hang, from every rank's digest and process state. Pure.

The cause is at the end of the chains of the wait-for graph (`graph`). One end is reported: the one that most
waiting ranks lead to.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.flight import mismatch, reasons, slow, words
from holdfast.core.flight.gather import Scene, gather
from holdfast.core.flight.graph import Awaited, Waits, ends, reaches, waits
from holdfast.core.hang.culprits import ranks_named
from holdfast.model.flight.digests import Digest, Located, LocatedKind, RankLife
from holdfast.model.signatures import Words

ABSENT_SHARE = 8  # if more than one rank in eight has no record, the records were lost and prove nothing
FIRST = ("mismatch", "lag", "order", "missing", "network_or_device")  # precedence of ends with equal weight
WITNESSES = 8  # ranks whose earlier operations are compared
BARRIERS = ("barrier", "all_reduce_barrier", "allreduce_barrier")


class _End(Struct):
    """The ends of wait chains that have the same kind, joined."""

    kind: LocatedKind
    culprits: list[int]
    awaited: list[int]  # indexes of the operations at the end
    how: str = ""


def locate(
    digests: Sequence[Digest],
    world_size: int | None = None,
    lives: Mapping[int, RankLife] | None = None,
    *,
    stalled_s: float | None = None,
) -> Located | None:
    """Returns the blocking ranks and the reason; None if the job is healthy or progresses.

    Two successive digests of one rank show whether it progressed. `stalled_s`: measured time without
    progress; None: a wait no longer than others in the records counts as normal.
    """
    known = lives or {}
    scene = gather(digests, world_size)
    found = waits(scene, known)
    if not found.by_rank:
        # where a record is missing, its rank may have died, and then the others' last operations failed
        found = waits(scene, known, all_failed=bool(_believed(scene.absent, scene, known)))
        mismatch.find(found, scene, known)
        if not any(one.mismatch for one in found.awaited):
            return _nobody_waits(scene, known)
    mismatch.find(found, scene, known)
    end = _heaviest(_ends(found, scene, known), found)
    if end is None:
        return None
    root = found.awaited[end.awaited[0]] if end.awaited else None
    led = reaches(found, end.culprits, end.awaited)
    waiting = tuple(sorted(led - set(end.culprits)))
    if root is None:
        root = _most_awaited(found, end.culprits)
    if _moves(end, root, waiting, found, scene, known, stalled_s):
        return None
    return _located(end, root, waiting, found, scene, known, stalled_s)


def _nobody_waits(scene: Scene, lives: Mapping[int, RankLife]) -> Located | None:
    """Returns the result if no operation is pending: ranks without a record, or ranks that ended while others
    live.
    """
    absent = _believed(scene.absent, scene, lives)
    if not absent or not scene.ranks:
        return None
    why = reasons.common({rank: reasons.reason(lives.get(rank), is_absent=True) for rank in absent})
    text = words.described(absent, lives, why.kind, scene.absent)
    others = len(scene.ranks)
    return Located(
        kind=why.kind,
        category=why.category,
        culprits=absent,
        confidence=min(why.confidence, 0.5),
        why=words.joined(
            text,
            Words(en=f"the other {others} wait in no operation", zh=f"其余 {others} 个 rank 没有等待"),
        ),
    )


def _believed(
    ranks: Sequence[int] | frozenset[int], scene: Scene, lives: Mapping[int, RankLife]
) -> tuple[int, ...]:
    """Returns the ranks whose missing record is evidence: few ranks lack one, or the process state confirms
    it.
    """
    world = scene.world_size or len(scene.ranks) + len(scene.absent)
    gone = tuple(
        sorted(
            rank
            for rank in ranks
            if reasons.is_gone(lives.get(rank)) or (rank in lives and lives[rank].answered is False)
        )
    )
    if gone:
        return gone
    few = len(scene.absent) <= max(1, world // ABSENT_SHARE)
    return tuple(sorted(ranks)) if few else ()


def _ends(found: Waits, scene: Scene, lives: Mapping[int, RankLife]) -> list[_End]:
    """Returns the ends of all wait chains, joined by kind."""
    by_kind: dict[LocatedKind, _End] = {}

    def add(kind: LocatedKind, culprits: Sequence[int], awaited: Sequence[int], how: str = "") -> None:
        end = by_kind.setdefault(kind, _End(kind, [], [], how))
        end.culprits.extend(culprits)
        end.awaited.extend(awaited)

    sinks: list[int] = []
    for ranks, places in ends(found):
        if ranks and places:
            add("order", *_circle(ranks, places, found, scene))
        elif ranks:
            sinks.extend(ranks)
        else:
            for place in places:
                kind, culprits, how = _all_there(found.awaited[place], lives)
                add(kind, culprits, [place], how)
    missing, how = _missing(sinks, bool(by_kind), found, scene, lives)
    if missing:
        add("missing", missing, _lacking(found, sinks) if how else [], how)
    elif how == "circle":  # through sends that no record shows
        recorded = sorted({*found.by_rank, *sinks} - scene.absent)
        odd, known_by = mismatch.unusual(recorded, found, scene)
        add("order" if odd else "missing", odd or sinks, _lacking(found, odd), known_by or "guess")
    elif not by_kind and not scene.absent.isdisjoint(sinks):
        add("records_missing", (), _lacking(found, sinks))
    return list(by_kind.values())


def _lacking(found: Waits, ranks: Sequence[int]) -> list[int]:
    """Returns the indexes of operations that wait for any of these ranks."""
    wanted = set(ranks)
    return [place for place, one in enumerate(found.awaited) if not wanted.isdisjoint(one.lacking)]


def _missing(
    sinks: Sequence[int], others: bool, found: Waits, scene: Scene, lives: Mapping[int, RankLife]
) -> tuple[Sequence[int], str]:
    """Returns the ranks at fault among those at the ends of wait chains, and the basis of this conclusion.

    Ranks with a record come first: a missing record proves little while others are seen to be missing. A rank
    whose stack is in a send that no record shows (gloo) is waiting itself, for a rank that is not in a send.
    """
    sending = {rank for rank in sinks if reasons.in_send(lives.get(rank))}
    present = [rank for rank in sinks if rank not in scene.absent and rank not in sending]
    absent = _believed([rank for rank in sinks if rank in scene.absent], scene, lives)
    gone = [rank for rank in absent if reasons.is_gone(lives.get(rank))]
    if present or absent:
        return (sorted({*present, *gone}) if present else absent), ""
    if not sending or others:
        return (), ""
    outside = [
        rank for rank, life in lives.items() if rank not in found.by_rank and reasons.waits_outside(life)
    ]
    outside = outside or list(_believed(scene.absent, scene, lives))
    return (sorted(outside), "sends") if outside else ((), "circle")


def _all_there(awaited: Awaited, lives: Mapping[int, RankLife]) -> tuple[LocatedKind, Sequence[int], str]:
    """Returns the kind of an operation that all ranks have reached or on which they disagree, the ranks at
    fault, the basis.
    """
    if awaited.mismatch:
        return "mismatch", awaited.mismatch, ""
    gone = [rank for rank in awaited.waiters if reasons.is_gone(lives.get(rank))]
    if gone:
        return "missing", gone, "inside"
    if len(awaited.team.members) == 1 and awaited.team.members_known:
        return "lag", awaited.waiters, ""
    if awaited.done and len(awaited.waiters) <= len(awaited.done):
        return (
            ("network_or_device", (), "lag")
            if awaited.team.backend == "gloo"
            else ("lag", awaited.waiters, "")
        )
    return "network_or_device", (), ""


def _circle(
    ranks: Sequence[int], places: Sequence[int], found: Waits, scene: Scene
) -> tuple[Sequence[int], Sequence[int], str]:
    """Returns the culprits among ranks that wait for each other, their operations, and the basis.

    Culprits are the rank that most of the job waits for, ranks with an unusual operation, else those that most ranks wait for, else all of them.
    """
    odd, how = _out_of_step(ranks, places, found), "most"
    if not odd:
        odd, how = mismatch.unusual(ranks, found, scene)
    if not odd:
        counts = {rank: 0 for rank in ranks}
        for place in places:
            awaited = found.awaited[place]
            for rank in awaited.lacking:
                if rank in counts:
                    counts[rank] += len(awaited.waiters)
        most = max(counts.values())
        odd = tuple(rank for rank in ranks if counts[rank] == most)
        how = "most" if len(odd) < len(ranks) else ""
    first = [place for place in places if any(rank in found.awaited[place].lacking for rank in odd)]
    return odd, first or places, how


def _out_of_step(ranks: Sequence[int], places: Sequence[int], found: Waits) -> tuple[int, ...]:
    """Returns the rank that waits in a group of two while most of the job waits for it in a barrier; empty if
    there is none.

    In a group of two each rank waits for the other, so only the ranks outside of it show which of them left the
    others. History does not: a barrier is rare, and so unusual wherever it stands.
    """
    crowds = [found.awaited[place] for place in places]
    crowds = [
        one
        for one in crowds
        if len(one.waiters) > 2 and 2 * len(one.waiters) > len(found.by_rank) and _kind_of(one) in BARRIERS
    ]
    pairs = {
        rank
        for place in places
        if len(found.awaited[place].team.members) == 2
        for rank in found.awaited[place].waiters
    }
    awaited = {rank for one in crowds for rank in one.lacking if rank in ranks}
    return tuple(awaited) if len(awaited) == 1 and awaited <= pairs else ()


def _kind_of(awaited: Awaited) -> str:
    """Returns the kind of the operation in which the first of its waiters waits; empty if unknown."""
    group = awaited.team.digests.get(awaited.waiters[0]) if awaited.waiters else None
    kinds = [one.kind for one in group.waiting if one.sequence == awaited.sequence] if group else []
    return kinds[0] if kinds else ""


def _heaviest(several: Sequence[_End], found: Waits) -> _End | None:
    """Returns the end to which most waiting ranks lead; None without any."""

    def weight(end: _End) -> tuple[int, int]:
        led = reaches(found, end.culprits, end.awaited)
        return len(led), -FIRST.index(end.kind) if end.kind in FIRST else -len(FIRST)

    return max(several, key=weight, default=None)


def _most_awaited(found: Waits, culprits: Sequence[int]) -> Awaited | None:
    """Returns the operation that lacks the culprits and few others, which is nearest to the cause."""
    wanted = set(culprits)
    lacked = [one for one in found.awaited if wanted.intersection(one.lacking)]

    def nearness(one: Awaited) -> tuple[int, int, int, str]:
        return sum(rank not in wanted for rank in one.lacking), -len(one.waiters), one.sequence, one.team.name

    return min(lacked, key=nearness, default=None)


def _moves(
    end: _End,
    root: Awaited | None,
    waiting: Sequence[int],
    found: Waits,
    scene: Scene,
    lives: Mapping[int, RankLife],
    stalled_s: float | None,
) -> bool:
    """Returns whether an apparent wait is normal: it changed between two samples, or it is short."""
    if any(reasons.is_gone(lives.get(rank)) for rank in end.culprits):
        return False
    involved = [*end.culprits, *waiting]
    if scene.moved.intersection(involved):
        return not (root and slow.is_slow(end.culprits, root, stalled_s))
    if root is not None and root.team.backend == "gloo":
        if _stacks_disagree(end, root, lives) or (
            end.how == "lag" and not _has_stalled(found, scene, stalled_s)
        ):
            return True
    if stalled_s is not None or not slow.is_young(involved, found, scene):
        return False
    return not (root and end.kind == "missing" and slow.is_slow(end.culprits, root, stalled_s))


def _stacks_disagree(end: _End, root: Awaited, lives: Mapping[int, RankLife]) -> bool:
    """Returns whether the stacks were taken at another moment than the records, so that both contradict each
    other.

    Either missing ranks are inside the collective, or all that wait are outside.
    """
    if end.kind == "missing" and end.culprits:
        if all(reasons.in_collective(lives.get(rank)) for rank in end.culprits):
            return True
    return end.how == "lag" and all(reasons.waits_outside(lives.get(rank)) for rank in root.waiters)


def _has_stalled(found: Waits, scene: Scene, stalled_s: float | None) -> bool:
    """Returns whether a standstill was measured: by the caller, by two digests, or by the age of the pending
    operations.
    """
    if stalled_s is not None or scene.looked_twice:
        return True
    return any(scene.ranks[rank].taken_ms for rank in found.by_rank)


def _located(
    end: _End,
    root: Awaited | None,
    waiting: tuple[int, ...],
    found: Waits,
    scene: Scene,
    lives: Mapping[int, RankLife],
    stalled_s: float | None,
) -> Located:
    culprits = tuple(sorted(set(end.culprits)))
    kind, category, confidence = _reason(end, root, culprits, found, scene, lives, stalled_s)
    waiters = root.waiters if root else []
    shown = next((rank for rank in waiters if rank not in culprits), waiters[0] if waiters else None)
    first = found.first[shown] if shown is not None else None
    located = Located(
        kind=kind,
        category=category,
        culprits=culprits,
        waiting=waiting,
        group=root.team.name if root else "",
        about=root.team.about if root else "",
        operation=first.kind if first else "",
        sequence=root.sequence if root else 0,
        expected=first.signature if first and kind in ("mismatch", "order", "uneven") else "",
        got=_got(culprits, found, scene) if kind in ("mismatch", "order", "uneven") else "",
        confidence=confidence,
    )
    return _with_words(located, end, root, scene, lives)


def _got(culprits: Sequence[int], found: Waits, scene: Scene) -> str:
    for rank in culprits:
        if rank in found.first:
            return found.first[rank].signature
    digest = scene.ranks.get(culprits[0]) if culprits else None
    return digest.groups[digest.newest].last if digest is not None and digest.newest >= 0 else ""


def _reason(
    end: _End,
    root: Awaited | None,
    culprits: Sequence[int],
    found: Waits,
    scene: Scene,
    lives: Mapping[int, RankLife],
    stalled_s: float | None,
) -> tuple[LocatedKind, str, float]:
    match end.kind:
        case "missing":
            if root is not None and slow.is_slow(culprits, root, stalled_s):
                if not any(reasons.is_gone(lives.get(rank)) for rank in culprits):
                    return "straggler", "straggler", 0.8
            why = reasons.common(
                {rank: reasons.reason(lives.get(rank), is_absent=rank in scene.absent) for rank in culprits}
            )
            return why.kind, why.category, min(why.confidence, 0.4) if end.how == "guess" else why.confidence
        case "mismatch":
            if root is not None and _left_early(culprits, root, found, scene):
                return "uneven", "uneven_data", 0.8
            many = len(root.waiters) + len(root.done) + len(root.behind) if root else 0
            return "mismatch", "collective_mismatch", 0.95 if 2 * len(culprits) < many else 0.6
        case "order":
            if root is not None and _left_early(culprits, root, found, scene):
                return "uneven", "uneven_data", 0.8
            return (
                "order",
                "collective_mismatch",
                {"own": 0.9, "others": 0.85, "most": 0.6, "few": 0.5}.get(end.how, 0.4),
            )
        case "lag":
            return "lag", "gpu_fault", 0.9
        case "records_missing":
            return "records_missing", "collective_timeout", 0.3
        case _:
            category = "nccl_network_error" if end.how == "lag" else "collective_timeout"
            return "network_or_device", category, 0.6


def _left_early(culprits: Sequence[int], root: Awaited, found: Waits, scene: Scene) -> bool:
    """Returns whether the culprits went on to what follows the last batch: a barrier that none ran before."""
    for rank in culprits:
        first = found.first.get(rank)
        if first is None or first.kind not in BARRIERS:
            return False
        around = [scene.ranks[other] for other in (rank, *root.waiters[:WITNESSES]) if other in scene.ranks]
        if mismatch.has_followed(scene.ranks[rank], first, around):
            return False
    return bool(culprits)


def _with_words(
    located: Located, end: _End, root: Awaited | None, scene: Scene, lives: Mapping[int, RankLife]
) -> Located:
    culprits, waiting = located.culprits, located.waiting
    what = words.operation(root, located.operation) if root else "a collective"
    what_zh = words.operation_zh(root, located.operation) if root else "集合通信"
    wait = words.wait(waiting, culprits, what, what_zh)
    who = words.described(culprits, lives, located.kind, scene.absent)
    named, named_zh = ranks_named(culprits), words.ranks_zh(culprits)
    parts: tuple[Words, ...]
    match located.kind:
        case "mismatch":
            lead = Words(
                en=f"{named} ran {located.got}, the others {located.expected}, as {what}",
                zh=f"{named_zh} 在{what_zh}执行了 {located.got}，其他 rank 执行的是 {located.expected}",
            )
            parts = (lead, who if any(rank in lives for rank in culprits) else Words(en="", zh=""), wait)
        case "order" | "uneven" if located.got:
            lead = Words(
                en=f"{named} went on to {located.got} where others wait in {located.expected}",
                zh=f"{named_zh} 已转到 {located.got}，而其他 rank 在等待 {located.expected}",
            )
            parts = (lead, who if any(rank in lives for rank in culprits) else Words(en="", zh=""), wait)
        case "lag":
            lead = Words(
                en=f"{named} enqueued {what} like the others, which completed it: its device hangs",
                zh=f"{named_zh} 与其他 rank 一样提交了{what_zh}，其他 rank 已完成而它没有：设备停滞",
            )
            parts = (lead, Words(en="", zh=""), wait)
        case "network_or_device":
            many = len(root.waiters) if root else 0
            parts = (
                Words(
                    en=f"all {many} ranks arrived in {what}, which does not end: network or device fault",
                    zh=f"全部 {many} 个 rank 都已进入{what_zh}，但它没有结束：网络或设备问题",
                ),
            )
        case "records_missing":
            lost = len(scene.absent)
            parts = (
                Words(
                    en=f"records of {lost} ranks are missing, among them those that {len(waiting)} ranks wait for",
                    zh=f"缺少 {lost} 个 rank 的记录，其中包括 {len(waiting)} 个 rank 所等待的",
                ),
                wait,
            )
        case "straggler":
            parts = (
                Words(en=f"{named} enters the collective late each time", zh=f"{named_zh} 每次都到得晚"),
                who if any(rank in lives for rank in culprits) else Words(en="", zh=""),
                wait,
            )
        case _:
            never = Words(en="", zh="")
            if root is not None and end.how != "inside":
                never = Words(en=f"it never enqueued {what}", zh=f"从未提交{what_zh}")
            parts = (who, wait, never if not waiting else Words(en="", zh=""))
    return replace(located, why=words.joined(*parts))
