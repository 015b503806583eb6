"""Builds the wait-for graph of a hang: ranks wait in operations, operations wait for ranks. Pure.

An operation waits for its members that have not enqueued it; if all have, for those that are blocked in an
earlier one. The cause is at the end of the chains: a rank that waits for no other, an operation that all have
reached, or a cycle.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.flight.gather import UNKNOWN, Scene, Team
from holdfast.model.flight.digests import Digest, RankLife, Waiting

SEQUENCES_MAX = 32  # different pending operations of one team; with more, the job progresses
PEER_FAILED = (
    "connection closed by peer",
    "connection reset",
    "read error",
    "write error",
    "broken pipe",
    "remote process has exited",
    "remote process exited",
    "communicator was aborted",
    "timed out waiting",
    "watchdog caught collective operation timeout",
    "socket timeout",
    "application timeout caused pair closure",
    "connectfull mesh",
    "unhandled system error",
)


class Awaited:
    """A collective, send or receive in which ranks wait.

    For a send or receive, `sequence` is 0 and `pair` is (sender, receiver).
    """

    __slots__ = ("behind", "done", "key", "lacking", "mismatch", "pair", "sequence", "team", "waiters")

    def __init__(self, team: Team, sequence: int, pair: tuple[int, int] | None = None) -> None:
        self.team = team
        self.sequence = sequence
        self.pair = pair
        self.waiters: list[int] = []
        self.lacking: list[int] = []  # never enqueued it; those without a record too
        self.behind: list[int] = []  # enqueued it, but wait in an earlier operation
        self.done: list[int] = []  # for them it has ended
        self.mismatch: tuple[int, ...] = ()  # ranks that ran another operation than the rest

    @property
    def next_ranks(self) -> Sequence[int]:
        """Returns the ranks for which a pending operation waits directly."""
        if self.mismatch:
            return ()
        return self.lacking or self.behind


class Waits:
    """The wait-for graph of a hang.

    `awaited`: all operations in which ranks wait. `by_rank`: index of the operation in which each waiting rank waits.
    `first`: that operation in the rank's own record.
    """

    __slots__ = ("awaited", "by_rank", "failed", "first")

    def __init__(self) -> None:
        self.awaited: list[Awaited] = []
        self.by_rank: dict[int, int] = {}
        self.first: dict[int, Waiting] = {}
        self.failed: set[int] = set()  # ended with an error because others had


def is_victim(life: RankLife | None) -> bool:
    """Returns whether the error of a rank was caused by another rank's failure."""
    error = life.error.lower() if life else ""
    return bool(error) and any(words in error for words in PEER_FAILED)


def waits(scene: Scene, lives: Mapping[int, RankLife], *, all_failed: bool = False) -> Waits:
    """Builds the wait-for graph.

    `all_failed`: include operations that failed because another rank was gone.
    """
    found = Waits()
    places: dict[tuple[int, int, int, int], int] = {}
    waiting: list[tuple[int, int, Waiting]] = []
    for rank, digest in scene.ranks.items():
        where = _where(rank, digest, scene, all_failed or is_victim(lives.get(rank)), found)
        if where is not None:
            waiting.append((rank, *where))
    lowest = _lowest(waiting)
    for rank, team_place, first in waiting:
        team = scene.teams[team_place]
        pair = _pair(rank, first, team)
        sequence = min(first.sequence, lowest.get(team_place, first.sequence))
        key = (team_place, sequence, *(pair or (-1, -1)))
        place = places.get(key)
        if place is None:
            place = places[key] = len(found.awaited)
            found.awaited.append(Awaited(team, sequence, pair))
        found.awaited[place].waiters.append(rank)
        found.by_rank[rank] = place
        found.first[rank] = first
    for place, awaited in enumerate(found.awaited):
        _who_lacks(place, awaited, scene, found)
    return found


def _where(
    rank: int, digest: Digest, scene: Scene, has_failed: bool, found: Waits
) -> tuple[int, Waiting] | None:
    """Returns the team and the operation in which this rank has waited longest; None if it does not wait."""
    if digest.oldest >= 0:
        return scene.teams_of[rank][digest.oldest], digest.groups[digest.oldest].waiting[0]
    if digest.newest < 0 or not has_failed:
        return None
    group = digest.groups[digest.newest]  # on gloo an operation that failed looks completed
    if group.enqueued <= 0 or group.has_p2p:
        return None
    found.failed.add(rank)
    first = Waiting(group.last.partition(" ")[0], group.last, 0, group.enqueued, -1, group.last_ms, -1)
    return scene.teams_of[rank][digest.newest], first


def _lowest(waiting: Sequence[tuple[int, int, Waiting]]) -> dict[int, int]:
    """Returns, for teams with very many pending operations, the sequence number from which on they are
    merged.
    """
    sequences: dict[int, set[int]] = {}
    for _, team_place, first in waiting:
        if first.sequence:
            sequences.setdefault(team_place, set()).add(first.sequence)
    return {
        place: sorted(several)[SEQUENCES_MAX - 1]
        for place, several in sequences.items()
        if len(several) > SEQUENCES_MAX
    }


def _pair(rank: int, first: Waiting, team: Team) -> tuple[int, int] | None:
    """Returns sender and receiver as global ranks; (rank, rank) if the other side is unknown."""
    if first.sequence:
        return None
    known = 0 <= first.peer < len(team.members) and team.members_known
    other = team.members[first.peer] if known else rank
    return (rank, other) if first.kind.endswith("send") else (other, rank)


def _who_lacks(place: int, awaited: Awaited, scene: Scene, found: Waits) -> None:
    if awaited.pair is not None:
        _who_lacks_pair(place, awaited, scene, found)
        return
    team, sequence = awaited.team, awaited.sequence
    for rank in team.members:
        if rank in scene.absent:
            awaited.lacking.append(rank)
            continue
        if found.by_rank.get(rank) == place:
            continue
        enqueued = scene.enqueued(team, rank)
        if enqueued == UNKNOWN:
            continue
        if enqueued < sequence:
            awaited.lacking.append(rank)
            continue
        group = team.digests.get(rank)
        if group is None or group.completed >= sequence:
            awaited.done.append(rank)
        elif rank in found.by_rank:
            awaited.behind.append(rank)


def _who_lacks_pair(place: int, awaited: Awaited, scene: Scene, found: Waits) -> None:
    """Determines whether the other side of a send or receive has posted its part."""
    assert awaited.pair is not None
    sender, receiver = awaited.pair
    for rank, other, receives in ((receiver, sender, True), (sender, receiver, False)):
        if rank == other or found.by_rank.get(rank) == place:
            continue
        if rank in scene.absent:
            awaited.lacking.append(rank)
            continue
        group = awaited.team.digests.get(rank)
        index = awaited.team.members.index(other)
        posted = group is not None and any(
            peer == index and (receives_open if receives else sends_open) > 0
            for peer, sends_open, receives_open in group.p2p
        )
        (awaited.behind if posted and rank in found.by_rank else awaited.lacking).append(rank)


def ends(found: Waits) -> list[tuple[list[int], list[int]]]:
    """Returns the ends of all wait chains as (ranks, operations): strongly connected components without
    outgoing edges.

    Tarjan's algorithm (SIAM J. Comput. 1972), without recursion. Nodes: ranks as they are, operations as
    ~index.
    """
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    final: set[int] = set()  # numbered, and in a component that is closed
    result: list[tuple[list[int], list[int]]] = []

    def follows(node: int) -> Sequence[int]:
        if node < 0:
            return found.awaited[~node].next_ranks
        place = found.by_rank.get(node)
        return () if place is None else (~place,)

    for start in found.by_rank:
        if start in number:
            continue
        work = [(start, iter(follows(start)))]
        number[start] = low[start] = len(number)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is not None:
                if following not in number:
                    number[following] = low[following] = len(number)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(follows(following))))
                elif following in on_stack:
                    low[node] = min(low[node], number[following])
                continue
            work.pop()
            if work:
                parent = work[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == number[node]:
                component = _pop(stack, on_stack, node)
                if not any(other in final for member in component for other in follows(member)):
                    result.append((sorted(n for n in component if n >= 0), [~n for n in component if n < 0]))
                final.update(component)
    return result


def _pop(stack: list[int], on_stack: set[int], node: int) -> list[int]:
    component = []
    while True:
        member = stack.pop()
        on_stack.discard(member)
        component.append(member)
        if member == node:
            return component


def reaches(found: Waits, ranks: Sequence[int], awaited: Sequence[int]) -> set[int]:
    """Returns the waiting ranks whose chains lead to any of these ranks or operations."""
    into: dict[int, list[int]] = {}
    for place, one in enumerate(found.awaited):
        for rank in one.next_ranks:
            into.setdefault(rank, []).append(place)
    todo = [*ranks, *(~place for place in awaited)]
    seen = set(todo)
    while todo:
        node = todo.pop()
        before = [~place for place in into.get(node, ())] if node >= 0 else found.awaited[~node].waiters
        for other in before:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return {node for node in seen if node >= 0 and node in found.by_rank}
