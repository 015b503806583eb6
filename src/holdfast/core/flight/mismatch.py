"""Ranks that ran another operation than the others of their group at the same sequence. Pure.

The majority is right, whoever it is. A tie is decided by what the ranks did earlier: the operation that usually
follows here is the right one.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from holdfast.core.flight.gather import Scene
from holdfast.core.flight.graph import Awaited, Waits
from holdfast.model.digests import Digest, GroupDigest

ENTRY = 3  # bytes of `Digest.order` an operation
CONTEXT_MAX = 4  # operations looked back


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


def tokens(digest: Digest) -> list[tuple[int, int]]:
    """Its last operations over all groups: the group as its process numbers it, and what was run."""
    ids = [group.group_id for group in digest.groups]
    order = digest.order
    return [
        (
            ids[order[at]] if order[at] < len(ids) else -1,
            int.from_bytes(order[at + 1 : at + ENTRY], "big"),
        )
        for at in range(0, len(order) - ENTRY + 1, ENTRY)
    ]


def unusual(ranks: Iterable[int], found: Waits, scene: Scene) -> tuple[tuple[int, ...], str]:
    """Of ranks that wait in a circle, those whose last step is none that they, or most others, took before.

    Gives also how it is known: "own" by what the rank did earlier, "others" by what its peers do, "" not at all.
    """
    odd, known = [], 0
    for rank in ranks:
        answer = _is_unusual(scene.ranks[rank], found.first[rank].position)
        known += answer is not None
        if answer:
            odd.append(rank)
    if odd and known > len(odd):
        return tuple(odd), "own"
    steps: dict[int, tuple[object, ...]] = {}
    for rank in ranks:
        before, last = _last_step(scene.ranks[rank], found.first[rank].position)
        if before:
            steps[rank] = (*before[-1:], last)
    common = _steps_taken(scene, {step for step in steps.values()})
    if len(set(steps.values())) > 1:
        best = max(common[step] for step in steps.values())
        rare = tuple(rank for rank, step in steps.items() if 2 * common[step] <= best)
        if rare and len(rare) < len(steps):
            return rare, "others"
    return (), ""


def _last_step(digest: Digest, position: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    all_tokens = tokens(digest)
    at = position if 0 <= position < len(all_tokens) else len(all_tokens) - 1
    return (all_tokens[:at], all_tokens[at]) if all_tokens else ([], (-1, 0))


def _is_unusual(digest: Digest, position: int) -> bool | None:
    """Whether what it waits in has never followed what it did before; None: it was never there before."""
    before, last = _last_step(digest, position)
    followed: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for length in range(1, min(CONTEXT_MAX, len(before)) + 1):
        context = before[-length:]
        for at in range(length, len(before)):
            if before[at - length : at] == context:
                followed[length].add(before[at])
    if not followed:
        return None
    return last not in followed[max(followed)]


def _steps_taken(scene: Scene, steps: Collection[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """How many ranks ever took each of these steps."""
    taken: Counter[tuple[object, ...]] = Counter()
    for digest in scene.ranks.values():
        own = tokens(digest)
        pairs = set(zip(own, own[1:], strict=False))
        taken.update(step for step in steps if step in pairs)
    return taken


def has_run(digest: Digest, key: int) -> bool:
    """Whether the rank ran an operation like this before its last one."""
    own = tokens(digest)
    return any(token[1] == key for token in own[:-1])
