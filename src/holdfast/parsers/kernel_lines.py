"""Finds in the kernel log the processes that the OOM killer ended. Pure; never raises on its input.

One kill writes several lines; kernels before 4.20 have no `oom-kill:` line:

    python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
    oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job/a,task=python,pid=629,uid=0
    Memory cgroup out of memory: Killed process 629 (python) total-vm:14119556kB, anon-rss:6538204kB, ...
    oom_reaper: reaped process 629 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB

source: Linux, mm/oom_kill.c and mm/memcontrol.c
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from holdfast.late_pattern import late

KILLS_MAX = 1000
CHOSEN = late(
    r"oom-kill:constraint=CONSTRAINT_(?P<constraint>\w+),.*?(?P<scope>global_oom|oom_memcg=(?P<limit>[^,]*))"
    r",task_memcg=(?P<memcg>[^,]*),task=(?P<name>.*?),pid=(?P<pid>\d{1,9}),uid="
)
KILLED = late(
    r"(?:(?P<why>Out of memory|Memory cgroup out of memory)(?: \([^)]*\))?: )?Kill(?:ed)? process (?P<pid>\d{1,9})"
    r",? ?(?:UID \d+, )?\((?P<name>.*?)\)(?=[ ,.]|$)"
)
KILLED_IN_CGROUP = late(r"Task in (?P<memcg>\S+) killed as a result of limit of (?P<limit>\S+)")
GROUP = late(r"Tasks in (?P<memcg>\S+) are going to be killed due to memory\.oom\.group set")
INTEREST = (b"oom-kill:", b"Kill", b"killed")


class OomKill(Struct, frozen=True, kw_only=True):
    """One process that the OOM killer ended. `is_cgroup`: a cgroup's limit was reached; None if unknown.

    `pid`: in the host's namespace; 0 for the whole cgroup, if no process is named. `memcg`: its cgroup.
    """

    pid: int
    name: str = ""
    is_cgroup: bool | None = None
    memcg: str = ""
    line: int  # counted from 0


def oom_kills(lines: Iterable[bytes]) -> tuple[OomKill, ...]:
    """Returns the processes that the OOM killer ended, each once, in the order of the lines; at most 1000."""
    kills: dict[int | str, OomKill] = {}
    memcg = ""  # named by an older kernel a few lines before the victim
    for number, raw in enumerate(lines):
        if not any(word in raw for word in INTEREST):
            continue
        text = raw.decode("utf-8", "replace")
        if limit := KILLED_IN_CGROUP.search(text):
            memcg = limit["memcg"]
        elif kill := _kill(text, number, memcg):
            key = kill.pid or kill.memcg
            kills[key] = _merged(kills.get(key), kill)
            memcg = ""
        if len(kills) >= KILLS_MAX:
            break
    return tuple(kills.values())


def oom_words(kill: OomKill) -> str:
    """Returns an OOM kill as text: "the kernel killed pid 629 (python): the memory limit of its cgroup was
    reached (/job)".
    """
    who = f"pid {kill.pid} ({kill.name})" if kill.pid else f"all processes of {kill.memcg}"
    if kill.is_cgroup is None:
        return f"the kernel killed {who}: out of memory"
    if not kill.is_cgroup:
        return f"the kernel killed {who}: the host was out of memory"
    return f"the kernel killed {who}: the memory limit of its cgroup was reached" + (
        f" ({kill.memcg})" if kill.memcg and kill.pid else ""
    )


def _kill(text: str, number: int, memcg: str) -> OomKill | None:
    if chosen := CHOSEN.search(text):
        in_cgroup = chosen["constraint"] == "MEMCG" or chosen["scope"] != "global_oom"
        return OomKill(
            pid=int(chosen["pid"]),
            name=chosen["name"],
            is_cgroup=in_cgroup,
            memcg=chosen["memcg"],
            line=number,
        )
    if killed := KILLED.search(text):
        why = killed["why"]
        in_cgroup_or_unsaid = (
            True if memcg or why == "Memory cgroup out of memory" else False if why else None
        )
        return OomKill(
            pid=int(killed["pid"]),
            name=killed["name"],
            is_cgroup=in_cgroup_or_unsaid,
            memcg=memcg,
            line=number,
        )
    if group := GROUP.search(text):
        return OomKill(pid=0, is_cgroup=True, memcg=group["memcg"], line=number)
    return None


def _merged(known: OomKill | None, new: OomKill) -> OomKill:
    """Merges the lines of one kill, each of which has a part of its data; the first one gives the line
    number.
    """
    if known is None:
        return new
    in_cgroup = known.is_cgroup if known.is_cgroup is not None else new.is_cgroup
    return replace(known, is_cgroup=in_cgroup, memcg=known.memcg or new.memcg, name=known.name or new.name)
