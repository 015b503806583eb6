"""Describes the ranks that block a job in English and Chinese: "rank 2 waits at train.py:88 in load; 3 ranks
wait for it". Pure.
"""

from collections.abc import Mapping, Sequence

from holdfast.core.flight.gather import Team
from holdfast.core.flight.graph import Awaited, is_victim
from holdfast.core.hang.culprits import SLEEP_CHANNELS, place_of, plural, ranks_named, users_frame
from holdfast.core.hang.stack_groups import ranges
from holdfast.model.flight.digests import LocatedKind, RankLife
from holdfast.model.signatures import Words

CULPRITS_DESCRIBED = 4
ERROR_CHARS = 120

DOES = {
    "dead": ("has ended", "已退出"),
    "stopped": ("is stopped", "被暂停"),
    "blocked": ("is blocked in the kernel", "阻塞在内核中"),
    "waiting_outside": ("waits", "在等待"),
    "writing": ("writes", "正在写入"),
    "compiling": ("compiles", "正在编译"),
    "running": ("runs", "正在运行"),
    "comm_wait": ("waits", "在等待"),
    "unknown": ("is", "位于"),
}
NEVER = ("never enqueued it", "从未加入")


def ranks_zh(ranks: Sequence[int]) -> str:
    """Formats a set of ranks in Chinese."""
    return ranks_named(ranks).replace("ranks ", "rank ")


def place(frames: Sequence[str]) -> str:
    """Returns the position of the user's own frame in a stack, as formatted by `place_of`; empty without a
    stack.
    """
    frame = users_frame(frames)
    return place_of(frame) if frame else ""


def operation(awaited: Awaited, kind: str) -> str:
    """Returns an operation as text: "all_reduce #812 of group dp0", "send 0->4 in group pp"."""
    name = team_name(awaited.team)
    if awaited.pair is None:
        return f"{kind} #{awaited.sequence} of group {name}"
    sender, receiver = awaited.pair
    return f"{kind} in group {name}" if sender == receiver else f"{kind} {sender}->{receiver} in group {name}"


def operation_zh(awaited: Awaited, kind: str) -> str:
    """Returns an operation as Chinese text."""
    name = team_name(awaited.team)
    if awaited.pair is None:
        return f"通信组 {name} 的 {kind} #{awaited.sequence}"
    sender, receiver = awaited.pair
    return f"通信组 {name} 的 {kind}" + ("" if sender == receiver else f" {sender}->{receiver}")


def does(rank: int, life: RankLife | None, kind: LocatedKind, *, is_absent: bool) -> Words:
    """Returns what a culprit is doing, in English and Chinese: "rank 2 waits at train.py:88 in load
    (futex_wait)".
    """
    if life is None or life == RankLife():
        if is_absent:
            return Words(en=f"rank {rank} left no record", zh=f"rank {rank} 没有留下记录")
        return Words(en=f"rank {rank}", zh=f"rank {rank}")
    if (
        kind in ("mismatch", "order")
        and not life.frames
        and (life.rank_class == "unknown" or is_victim(life))
    ):
        return Words(en="", zh="")  # its operation has been described; its end adds nothing
    en, zh = DOES[life.rank_class]
    if life.rank_class == "unknown" and kind == "stopped":
        en, zh = DOES["stopped"]
    elif life.wait_channel.startswith(SLEEP_CHANNELS) and life.rank_class in ("unknown", "waiting_outside"):
        en, zh = "sleeps", "在休眠"
    elif life.rank_class == "unknown" and not life.frames:
        en, zh = ("left no record", "没有留下记录") if is_absent else ("is known to be running", "仍在运行")
    if life.exit_code is not None:
        en, zh = _ended(life.exit_code)
    at = place(life.frames)
    channel = f" ({life.wait_channel})" if life.wait_channel not in ("", "0") else ""
    error = f": {life.error.strip()[:ERROR_CHARS]}" if life.error and kind not in ("stopped",) else ""
    at_zh = "" if not at else f" {at}" if zh == DOES["unknown"][1] else f"，位于 {at}"
    return Words(
        en=f"rank {rank} {en}" + (f" at {at}" if at else "") + channel + error,
        zh=f"rank {rank} {zh}{at_zh}{channel}{error}",
    )


def _ended(code: int) -> tuple[str, str]:
    if code < 0:
        return f"was killed by signal {-code}", f"被信号 {-code} 杀死"
    return f"has ended with exit code {code}", f"已退出，退出码 {code}"


def described(
    culprits: Sequence[int], lives: Mapping[int, RankLife], kind: LocatedKind, absent: frozenset[int]
) -> Words:
    """Returns descriptions of culprits in English and Chinese; equal ones are merged."""
    alike: dict[str, list[int]] = {}
    first: dict[str, Words] = {}
    for rank in culprits:
        text = does(rank, lives.get(rank), kind, is_absent=rank in absent)
        shape = text.en.replace(f"rank {rank}", "rank N", 1)
        alike.setdefault(shape, []).append(rank)
        first.setdefault(shape, text)
    shown = list(alike.items())[:CULPRITS_DESCRIBED]
    en = [first[shape].en.replace(f"rank {ranks[0]}", ranks_named(ranks), 1) for shape, ranks in shown]
    zh = [first[shape].zh.replace(f"rank {ranks[0]}", ranks_zh(ranks), 1) for shape, ranks in shown]
    return Words(en="; ".join(en), zh="；".join(zh))


def wait(waiting: Sequence[int], culprits: Sequence[int], what: str, what_zh: str) -> Words:
    """Returns a sentence on which ranks wait in which operation, in English and Chinese."""
    if not waiting:
        return Words(en=f"in {what}", zh=what_zh)
    many = len(waiting)
    it = plural(culprits, "it", "them")
    return Words(
        en=f"{many} {plural(waiting, 'rank waits', 'ranks wait')} for {it} in {what}",
        zh=f"{many} 个 rank 在{what_zh} 中等待" + ("它" if len(culprits) == 1 else "它们"),
    )


def joined(*parts: Words) -> Words:
    """Joins descriptions in both languages with semicolons, without empty ones."""
    return Words(
        en="; ".join(part.en for part in parts if part.en), zh="；".join(part.zh for part in parts if part.zh)
    )


def team_name(team: Team) -> str:
    """Returns the group's name in its script; without one (PyTorch: `undefined`), the name with its ranks."""
    if team.about and team.about != "undefined":
        return team.about
    return f"{team.name} (ranks {ranges(team.members)})" if team.members_known else team.name
