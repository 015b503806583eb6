"""Decides whether a copy of a checkpoint may be made in memory, and when it has to go. Pure."""

from typing import Literal

from msgspec import Struct

from holdfast.core.checks.node_findings import size

# What has to stay free beside a copy, as shares of the whole. Ranks that start or save need memory of their own.
SPARE_SHARE = 0.10
SHORT_SHARE = 0.05  # less than this: the copy is dropped

Limit = Literal["setting", "shm", "memory", "cgroup"]


class Room(Struct, frozen=True, kw_only=True):
    """The memory of a node, in bytes. `shm`: the file system of the copies. `limit`: as set by the user.

    `cgroup_limit_bytes`, `cgroup_free_bytes`: of the level with the least memory left; None without a limit.
    """

    limit_bytes: int
    shm_bytes: int
    shm_free_bytes: int
    memory_bytes: int
    available_bytes: int
    cgroup_limit_bytes: int | None = None
    cgroup_free_bytes: int | None = None


class Fit(Struct, frozen=True, kw_only=True):
    """Whether a checkpoint can be copied into memory. `drops_first`: only after the present copy is dropped.

    If it cannot: `limit` names the limit that it exceeds, and `most_bytes` is the largest copy that this limit allows.
    """

    drops_first: bool = False
    limit: Limit | Literal[""] = ""
    most_bytes: int = 0

    @property
    def refused(self) -> bool:
        return self.limit != ""


def fit(need_bytes: int, held_bytes: int, room: Room) -> Fit:
    """Decides whether a copy of `need_bytes` can be made beside one of `held_bytes`, which is dropped first if not."""
    most = _most(room)
    if all(need_bytes + (held_bytes if one == "setting" else 0) <= free for one, free in most.items()):
        return Fit()
    free_after = {one: free if one == "setting" else free + held_bytes for one, free in most.items()}
    tightest = min(free_after, key=lambda one: free_after[one])
    if need_bytes > free_after[tightest]:
        return Fit(limit=tightest, most_bytes=max(0, free_after[tightest]))
    return Fit(drops_first=True)


def _most(room: Room) -> dict[Limit, int]:
    """Returns how many bytes may be added under each limit. Those of the setting count what is held."""
    found: dict[Limit, int] = {
        "setting": room.limit_bytes,
        "shm": room.shm_free_bytes - int(SPARE_SHARE * room.shm_bytes),
        "memory": room.available_bytes - int(SPARE_SHARE * room.memory_bytes),
    }
    if room.cgroup_limit_bytes is not None and room.cgroup_free_bytes is not None:
        found["cgroup"] = room.cgroup_free_bytes - int(SPARE_SHARE * room.cgroup_limit_bytes)
    return found


def shortage(room: Room) -> Limit | Literal[""]:
    """Returns which memory is so short that the copy has to be dropped; empty if none is."""
    if room.available_bytes < SHORT_SHARE * room.memory_bytes:
        return "memory"
    if room.shm_free_bytes < SHORT_SHARE * room.shm_bytes:
        return "shm"
    limit, free = room.cgroup_limit_bytes, room.cgroup_free_bytes
    if limit is not None and free is not None and free < SHORT_SHARE * limit:
        return "cgroup"
    return ""


def limit_words(limit: str, room: Room) -> str:
    """Names a limit with its size: "the setting ram-checkpoints (2 GiB)"."""
    if limit == "setting":
        return f"the setting ram-checkpoints ({size(room.limit_bytes)})"
    if limit == "shm":
        return f"/dev/shm ({size(room.shm_free_bytes)} of {size(room.shm_bytes)} free)"
    if limit == "cgroup":
        free, whole = room.cgroup_free_bytes or 0, room.cgroup_limit_bytes or 0
        return f"the memory limit of the cgroup ({size(free)} of {size(whole)} free)"
    return f"the memory of the node ({size(room.available_bytes)} of {size(room.memory_bytes)} available)"
