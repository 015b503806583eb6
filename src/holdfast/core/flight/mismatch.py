"""Ranks that ran another operation than the others of their group at the same sequence. Pure.

The majority is right, whoever it is. A tie is decided by what the ranks did earlier: the operation that usually
follows here is the right one.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from holdfast.core.flight.gather import Scene
from holdfast.core.flight.graph import Awaited, Waits
from holdfast.model.digests import Digest, GroupDigest

ENTRY = 3  # bytes of `Digest.order` an operation
CONTEXT_MAX = 4  # operations looked back
TAIL = 8  # operations before the one it waits in: a skipped one may lie there

Token = tuple[int, int]  # the group as its process numbers it, and what was run


def key_at(group: GroupDigest, sequence: int) -> int:
    """What the rank ran at that sequence, as a hash; 0: not known."""
    for one in group.waiting:
        if one.sequence == sequence:
            return one.key
    at = 2 * (sequence - group.keys_from)
    if not group.keys_from or not 0 <= at < len(group.keys):
        return 0
    return int.from_bytes(group.keys[at : at + 2], "big")


def find(found: Waits, scene: Scene) -> None:
    """Marks each awaited operation that ranks disagree on."""
    for place, awaited in enumerate(found.awaited):
        if awaited.pair is None:
            awaited.mismatch = _minority(place, awaited, found, scene)


def _minority(place: int, awaited: Awaited, found: Waits, scene: Scene) -> tuple[int, ...]:
    by_key: dict[int, list[int]] = {}
    told = awaited.team.told
    for rank in (*awaited.waiters, *awaited.behind, *awaited.done):
        key = key_at(told[rank], awaited.sequence) if rank in told else 0
        if key:
            by_key.setdefault(key, []).append(rank)
    if len(by_key) < 2:
        return ()
    most = max(len(ranks) for ranks in by_key.values())
    leaders = [key for key, ranks in by_key.items() if len(ranks) == most]
    right = leaders if len(leaders) == 1 else _usual(awaited, by_key, leaders, scene)
    wrong = [rank for key, ranks in by_key.items() if key not in right for rank in ranks]
    if not wrong:  # nothing tells them apart
        wrong = [rank for ranks in by_key.values() for rank in ranks]
    return tuple(sorted(wrong))


def _usual(
    awaited: Awaited, by_key: dict[int, list[int]], leaders: Collection[int], scene: Scene
) -> Collection[int]:
    """Of the tied operations those that followed most often where the ranks were before."""
    history = [
        _keys_before(awaited.team.told[rank], awaited.sequence) for ranks in by_key.values() for rank in ranks
    ]
    for length in range(CONTEXT_MAX, 0, -1):
        seen: Counter[int] = Counter()
        for keys in history:
            context = keys[-length:]
            if len(context) < length or 0 in context:
                continue
            for at in range(length, len(keys)):
                if keys[at - length : at] == context:
                    seen[keys[at]] += 1
        best = max((seen[key] for key in leaders), default=0)
        if best:
            return [key for key in leaders if seen[key] == best]
    return _usual_elsewhere(awaited, leaders, scene)


def _keys_before(group: GroupDigest, sequence: int) -> list[int]:
    many = min(len(group.keys) // 2, max(0, sequence - group.keys_from))
    return [int.from_bytes(group.keys[2 * at : 2 * at + 2], "big") for at in range(many)]


def _usual_elsewhere(awaited: Awaited, leaders: Collection[int], scene: Scene) -> Collection[int]:
    """What groups of the same kind do at that sequence, or did anywhere."""
    seen: Counter[int] = Counter()
    kin = _kin(awaited.team.about or awaited.team.name)
    for team in scene.teams:
        if team is awaited.team or _kin(team.about or team.name) != kin:
            continue
        for group in team.told.values():
            seen[key_at(group, awaited.sequence)] += 1
    best = max((seen[key] for key in leaders), default=0)
    return [key for key in leaders if best and seen[key] == best] or list(leaders)


def _kin(name: str) -> str:
    """`tp0` and `tp1` are alike."""
    return name.rstrip("0123456789").rstrip("_-[ ")


# --- circles


def tokens(digest: Digest) -> list[Token]:
    """Its last operations over all groups."""
    ids = [group.group_id for group in digest.groups]
    order = digest.order
    return [
        (
            ids[order[at]] if order[at] < len(ids) else -1,
            int.from_bytes(order[at + 1 : at + ENTRY], "big"),
        )
        for at in range(0, len(order) - ENTRY + 1, ENTRY)
    ]


def unusual(ranks: Sequence[int], found: Waits, scene: Scene) -> tuple[tuple[int, ...], str]:
    """Of ranks that wait in a circle, those whose last steps are none that they, or most others, took before.

    Gives also how it is known: "own" by what the rank did earlier, "others" by what its peers do, "" not at all.
    """
    own = {rank: tokens(scene.ranks[rank]) for rank in ranks}
    start = {rank: max(1, _place(found, rank, own[rank]) - TAIL) for rank in ranks}
    answers = {rank: _strays(own[rank], start[rank]) for rank in ranks}
    odd = tuple(rank for rank in ranks if answers[rank])
    if odd and any(answers[rank] is False for rank in ranks):
        return odd, "own"
    steps = {rank: set(pairwise(own[rank][start[rank] - 1 :])) for rank in ranks}
    taken = _steps_taken(scene, set().union(*steps.values()))
    rarest = {
        rank: min((taken[step] for step in several), default=0) for rank, several in steps.items() if several
    }
    least, most = min(rarest.values(), default=0), max(rarest.values(), default=0)
    rare = tuple(rank for rank, count in rarest.items() if count == least)
    return (rare, "others") if 2 * least <= most and len(rare) < len(rarest) else ((), "")


def _place(found: Waits, rank: int, own: Sequence[Token]) -> int:
    position = found.first[rank].position if rank in found.first else -1
    return position if 0 <= position < len(own) else len(own) - 1


def _strays(own: Sequence[Token], start: int) -> bool | None:
    """Whether it took a step lately that never followed what it did before; None: it was never there before."""
    was_there = False
    for at in range(start, len(own)):
        for length in range(min(CONTEXT_MAX, at), 0, -1):
            context = own[at - length : at]
            followed = {own[end] for end in range(length, at) if own[end - length : end] == context}
            if followed:
                was_there = True
                if own[at] not in followed:
                    return True
                break
    return False if was_there else None


def _steps_taken(scene: Scene, steps: Collection[tuple[Token, Token]]) -> Counter[tuple[Token, Token]]:
    """How many ranks ever took each of these steps."""
    taken: Counter[tuple[Token, Token]] = Counter()
    for digest in scene.ranks.values():
        taken.update(set(pairwise(tokens(digest))).intersection(steps))
    return taken


def has_run(digest: Digest, key: int) -> bool:
    """Whether the rank ran an operation like this before its last one."""
    own = tokens(digest)
    return any(token[1] == key for token in own[:-1])
