"""Finds ranks that ran another operation than the others of their group at the same sequence number. Pure.

The majority is right. A tie is decided by history: the operation that usually follows the previous one is
right.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import pairwise

from holdfast.core.flight.gather import Scene
from holdfast.core.flight.graph import Awaited, Waits
from holdfast.late_pattern import late
from holdfast.model.flight.digests import Digest, GroupDigest, RankLife, Waiting

ENTRY = 3  # bytes per operation in `Digest.order`
CONTEXT_MAX = 4  # earlier operations that are compared
TAIL = 8  # operations before the pending one, among which one may have been skipped

# source: gloo/transport/tcp/pair.cc, the check of the size that a peer announces
WRONG_SIZE = late(r"op\.preamble\.length <= op\.nbytes\. (?P<received>\d+) vs (?P<own>\d+)")

Token = tuple[int, int]  # the group's number in its process, and the hash of the operation


def key_at(group: GroupDigest, sequence: int) -> int:
    """Returns the hash of the rank's operation with that sequence number; 0 if unknown."""
    for one in group.waiting:
        if one.sequence == sequence:
            return one.key
    at = 2 * (sequence - group.keys_from)
    if not group.keys_from or not 0 <= at < len(group.keys):
        return 0
    return int.from_bytes(group.keys[at : at + 2], "big")


def find(found: Waits, scene: Scene, lives: Mapping[int, RankLife]) -> None:
    """Sets the deviating ranks of each collective operation for which ranks recorded different operations."""
    collectives = [awaited for awaited in found.awaited if awaited.pair is None]
    for awaited in collectives:
        awaited.mismatch = _minority(awaited, scene, found.failed)
    if any(awaited.mismatch for awaited in collectives):
        return
    witnesses = {rank: (int(sizes["received"]), int(sizes["own"])) for rank, sizes in _wrong_sizes(lives)}
    touched = [awaited for awaited in collectives if any(rank in witnesses for rank in awaited.lacking)]
    for awaited in touched:
        awaited.mismatch = _new_ones(awaited, witnesses)
    if touched and not any(awaited.mismatch for awaited in touched):
        most = max(touched, key=lambda one: (len(one.waiters), -one.sequence, one.team.name))
        most.mismatch = _odd_witnesses(witnesses, most.lacking)


def _minority(awaited: Awaited, scene: Scene, failed: Set[int]) -> tuple[int, ...]:
    digests = awaited.team.digests
    ranks = [rank for rank in (*awaited.waiters, *awaited.behind, *awaited.done) if rank in digests]
    first = awaited.sequence
    if not failed.isdisjoint(awaited.waiters):  # which of its operations failed is not known
        first = min((digests[rank].keys_from or first for rank in ranks), default=first)
    for sequence in range(first, awaited.sequence + 1):
        by_key: dict[int, list[int]] = {}
        for rank in ranks:
            key = key_at(digests[rank], sequence)
            if key:
                by_key.setdefault(key, []).append(rank)
        if len(by_key) > 1:
            return _fewest(awaited, sequence, by_key, scene)
    return ()


def _fewest(awaited: Awaited, sequence: int, by_key: dict[int, list[int]], scene: Scene) -> tuple[int, ...]:
    most = max(len(ranks) for ranks in by_key.values())
    leaders = [key for key, ranks in by_key.items() if len(ranks) == most]
    if len(leaders) > 1:
        leaders = _pending_elsewhere(leaders, {rank for ranks in by_key.values() for rank in ranks}, scene)
    right = leaders if len(leaders) == 1 else _usual(awaited, sequence, by_key, leaders, scene)
    wrong = [rank for key, ranks in by_key.items() if key not in right for rank in ranks]
    if not wrong:  # undecidable
        wrong = [rank for ranks in by_key.values() for rank in ranks]
    return tuple(sorted(wrong))


# gloo ends a process that receives more bytes than it expects; it leaves no record, and is mostly a neighbour
# of the rank that sent them. A rank that runs the same operation as before is innocent; of the ended ones, a
# rank whose own size is unusual is at fault.


def _wrong_sizes(lives: Mapping[int, RankLife]) -> Iterator[tuple[int, re.Match[str]]]:
    for rank, life in lives.items():
        sizes = WRONG_SIZE.search(life.error)
        if sizes:
            yield rank, sizes


def _new_ones(awaited: Awaited, witnesses: Collection[int]) -> tuple[int, ...]:
    """Returns the ranks that run an operation here that they did not run recently, if they are few."""
    digests = awaited.team.digests
    new = []
    for rank in (*awaited.waiters, *awaited.done, *awaited.behind):
        past = _keys_before(digests[rank], awaited.sequence) if rank in digests else []
        if past and key_at(digests[rank], awaited.sequence) not in past:
            new.append(rank)
    return tuple(sorted(new)) if len(new) <= len(witnesses) else ()


def _odd_witnesses(witnesses: Mapping[int, tuple[int, int]], lacking: Collection[int]) -> tuple[int, ...]:
    common = Counter(size for pair in witnesses.values() for size in pair).most_common(1)[0][0]
    odd = [rank for rank, (_, own) in witnesses.items() if own != common] if len(witnesses) > 1 else []
    return tuple(sorted(odd or set(witnesses).intersection(lacking)))


def _pending_elsewhere(leaders: list[int], tied: Collection[int], scene: Scene) -> list[int]:
    """Returns those of the tied operations in which most ranks of the rest of the job wait; all if none does."""
    seen = Counter(
        key
        for rank, digest in scene.ranks.items()
        if rank not in tied
        for key in {one.key for group in digest.groups for one in group.waiting}
    )
    best = max(seen[key] for key in leaders)
    return [key for key in leaders if best and seen[key] == best] or leaders


def _usual(
    awaited: Awaited, sequence: int, by_key: dict[int, list[int]], leaders: Collection[int], scene: Scene
) -> Collection[int]:
    """Returns those of the tied operations that most often followed the ranks' previous operations."""
    history = [
        _keys_before(awaited.team.digests[rank], sequence) for ranks in by_key.values() for rank in ranks
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
    return _usual_elsewhere(awaited, sequence, leaders, scene)


def _keys_before(group: GroupDigest, sequence: int) -> list[int]:
    many = min(len(group.keys) // 2, max(0, sequence - group.keys_from))
    return [int.from_bytes(group.keys[2 * at : 2 * at + 2], "big") for at in range(many)]


def _usual_elsewhere(
    awaited: Awaited, sequence: int, leaders: Collection[int], scene: Scene
) -> Collection[int]:
    """Returns those of the tied operations that groups of the same kind ran at that sequence number, or at
    any.
    """
    seen: Counter[int] = Counter()
    kin = _kin(awaited.team.about or awaited.team.name)
    for team in scene.teams:
        if team is awaited.team or _kin(team.about or team.name) != kin:
            continue
        for group in team.digests.values():
            seen[key_at(group, sequence)] += 1
    best = max((seen[key] for key in leaders), default=0)
    return [key for key in leaders if best and seen[key] == best] or list(leaders)


def _kin(name: str) -> str:
    """Returns the name of a group without its number, equal for "tp0" and "tp1"."""
    return name.rstrip("0123456789").rstrip("_-[ ")


# --- circles


def tokens(digest: Digest) -> list[Token]:
    """Returns the last operations in a rank's flight record, over all groups, as hashes."""
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
    """Returns, of ranks that wait in a cycle, those whose last operations deviate from their own or from
    others' history.

    Also returns the basis: "own" for the rank's own history, "others" for its peers', "few" if only pending
    operations are known, "" if there is none.
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
    if 2 * least > most or len(rare) == len(rarest):
        return (), ""
    return rare, "others" if any(_has_history(scene.ranks[rank]) for rank in ranks) else "few"


def _has_history(digest: Digest) -> bool:
    """Returns whether the rank's record contains completed operations; some programs dump only
    pending ones.
    """
    return sum(group.waits for group in digest.groups) < digest.operations


def _place(found: Waits, rank: int, own: Sequence[Token]) -> int:
    position = found.first[rank].position if rank in found.first else -1
    return position if 0 <= position < len(own) else len(own) - 1


def _strays(own: Sequence[Token], start: int) -> bool | None:
    """Returns whether the rank recently ran an operation that never followed the one before; None if that one
    is new too.
    """
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
    """Returns the number of ranks that ever ran each of these pairs of successive operations."""
    taken: Counter[tuple[Token, Token]] = Counter()
    for digest in scene.ranks.values():
        taken.update(set(pairwise(tokens(digest))).intersection(steps))
    return taken


def has_followed(digest: Digest, last: Waiting, around: Sequence[Digest]) -> bool:
    """Returns whether this rank's pending operation ever followed its last completed one, on any rank."""
    own = tokens(digest)
    at = last.position if 0 <= last.position < len(own) else len(own) - 1
    if at < 1:
        return False
    step = (own[at - 1], own[at])
    return any(step in pairwise(tokens(one)[: at if one is digest else None]) for one in around)
