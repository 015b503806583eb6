"""Aligns the digests of many ranks: identifies which groups of different ranks are the same process group.

Pure.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from holdfast.core.flight.members import ranks_of
from holdfast.model.flight.digests import Digest, GroupDigest

UNKNOWN = -1  # progress in a group that is missing in the rank's record


class Team:
    """One process group, with the flight-record digests of its ranks. Ranks are global, in the order within the
    group.
    """

    __slots__ = ("about", "backend", "digests", "has_p2p", "members", "members_known", "name")

    def __init__(self, name: str, members: tuple[int, ...]) -> None:
        self.name = name
        self.members = members
        self.members_known = bool(members)
        self.about = ""
        self.backend = ""
        self.has_p2p = False
        self.digests: dict[int, GroupDigest] = {}

    def add(self, rank: int, group: GroupDigest) -> None:
        """Adds the flight-record digest of one rank."""
        self.digests[rank] = group
        self.about = self.about or group.about
        self.backend = self.backend or group.backend
        self.has_p2p = self.has_p2p or group.has_p2p


class Scene:
    """The aligned flight-record digests of all ranks.

    `teams_of[rank][slot]`: index of the process group (team) for this slot of the rank's digest.
    """

    __slots__ = ("absent", "looked_twice", "moved", "ranks", "teams", "teams_of", "world_size")

    def __init__(self, ranks: dict[int, Digest], moved: frozenset[int], world_size: int | None) -> None:
        self.ranks = ranks
        self.moved = moved
        self.looked_twice = False  # at any rank
        self.world_size = world_size
        self.teams: list[Team] = []
        self.teams_of: dict[int, list[int]] = {}
        self.absent: frozenset[int] = frozenset()

    def enqueued(self, team: Team, rank: int) -> int:
        """Returns the number of the last collective of the process group that the rank enqueued; UNKNOWN if its
        record lacks it.
        """
        group = team.digests.get(rank)
        if group is None:
            digest = self.ranks.get(rank)
            return UNKNOWN if digest is None or digest.is_wrapped or digest.unnamed else 0
        if team.has_p2p and not group.has_p2p and not group.first:
            return UNKNOWN  # its counter may count sends and receives
        return group.enqueued


def gather(digests: Sequence[Digest], world_size: int | None) -> Scene:
    """Aligns digests of many ranks.

    Of two digests of one rank the later is used, and the earlier shows whether it progressed.
    """
    ranks, moved = _latest(digests)
    scene = Scene(ranks, moved, world_size)
    scene.looked_twice = len(digests) > len(ranks)
    _form_teams(scene)
    for team in scene.teams:
        if not team.members:
            all_ranks = world_size is not None and (team.about == "default_pg" or team.name in ("0", ""))
            team.members = (
                tuple(range(world_size)) if all_ranks and world_size else tuple(sorted(team.digests))
            )
            team.members_known = all_ranks
    _name_the_unnamed(scene)
    wanted: set[int] = set(range(world_size)) if world_size is not None else set()
    for team in scene.teams:
        wanted.update(team.members)
    scene.absent = frozenset(wanted - ranks.keys())
    return scene


def _latest(digests: Iterable[Digest]) -> tuple[dict[int, Digest], frozenset[int]]:
    ranks: dict[int, Digest] = {}
    moved = set()
    for digest in digests:
        other = ranks.get(digest.rank)
        if other is not None:
            if _progress(other) != _progress(digest):
                moved.add(digest.rank)
            if _progress(other) >= _progress(digest):
                continue
        ranks[digest.rank] = digest
    return dict(sorted(ranks.items())), frozenset(moved)


def _progress(digest: Digest) -> tuple[int, int]:
    return sum(group.enqueued + group.completed for group in digest.groups), digest.last_ms


def _form_teams(scene: Scene) -> None:
    index: dict[tuple[str, object], int] = {}
    by_name: dict[str, list[int]] = {}
    unknown: list[tuple[int, int, GroupDigest]] = []
    for rank, digest in scene.ranks.items():
        places = scene.teams_of[rank] = [-1] * len(digest.groups)
        for slot, group in enumerate(digest.groups):
            if not group.members:
                unknown.append((rank, slot, group))
                continue
            key = (group.name, group.members)
            place = index.get(key)
            if place is None:
                place = index[key] = len(scene.teams)
                scene.teams.append(Team(group.name, ranks_of(group.members)))
                by_name.setdefault(group.name, []).append(place)
            places[slot] = place
            scene.teams[place].add(rank, group)
    sets: dict[int, frozenset[int]] = {}
    for rank, slot, group in unknown:
        place = _joined(rank, group.name, by_name, scene, sets)
        if place is None:
            key = (group.name, ())
            place = index.get(key)
            if place is None:
                place = index[key] = len(scene.teams)
                scene.teams.append(Team(group.name, ()))
        scene.teams_of[rank][slot] = place
        scene.teams[place].add(rank, group)


def _joined(
    rank: int, name: str, by_name: dict[str, list[int]], scene: Scene, sets: dict[int, frozenset[int]]
) -> int | None:
    """Returns the team with that name whose members, by other ranks' records, include this rank; None if
    there is none.
    """
    for place in by_name.get(name, ()):
        if place not in sets:
            sets[place] = frozenset(scene.teams[place].members)
        if rank in sets[place]:
            return place
    return None


def _name_the_unnamed(scene: Scene) -> None:
    """Assigns counters of groups without an operation in the ring buffer, which have only a local id, to
    teams.

    Ranks of one group run the same program, so they created their groups in the same order.
    """
    usual: dict[int, int] = {}
    for rank, digest in scene.ranks.items():
        counters = {status.group_id: status for status in digest.unnamed}
        if not counters:
            continue
        for slot, group in enumerate(digest.groups):
            if group.group_id >= 0:
                continue
            place = scene.teams_of[rank][slot]
            team = scene.teams[place]
            if place not in usual:
                ids = Counter(other.group_id for other in team.digests.values() if other.group_id >= 0)
                usual[place] = ids.most_common(1)[0][0] if ids else -1
            status = counters.get(usual[place])
            if status is not None:
                counted = replace(group, enqueued=status.enqueued, completed=status.completed)
            else:
                counted = replace(group, enqueued=UNKNOWN if usual[place] < 0 else 0)
            team.digests[rank] = counted
