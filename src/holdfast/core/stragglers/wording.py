"""Describes a straggler, one rank or all ranks of a node, in English and Chinese. Pure."""

from collections.abc import Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.steps import Straggler, StragglerSource

NODE_SHARE = 0.75  # share of slow ranks from which the node is named
TRUST = {"arrivals": 0.95, "log-times": 0.9, "device": 0.85, "cpu": 0.85, "awaited": 0.8}
HOW = {
    "log-times": ("by the times that ranks log", "依据各 rank 日志中的时间"),
    "arrivals": ("by when ranks enter collectives", "依据各 rank 进入集合通信的时刻"),
    "awaited": ("by samples of the ranks that others wait for", "依据其他 rank 等待的对象"),
    "cpu": (
        "by samples of the ranks that others wait for, and CPU throttling",
        "依据等待对象及其 CPU 被限流",
    ),
    "device": ("by its device", "依据其设备"),
}


class Slow(Struct, frozen=True, kw_only=True):
    """A slow rank with its evidence.

    `since`, `until`: steps; None if unknown, or if it is still slow. Shares: 0 to 1.
    """

    rank: int
    source: StragglerSource
    ratio: float | None = None  # own time divided by that of its peers
    since: int | None = None
    until: int | None = None
    is_from_start: bool = False
    sigmas: float = 0.0
    awaited: float | None = None  # share of the samples with any awaited rank in which it was awaited
    throttled: float | None = None  # share of the time in which its cgroup throttled it


class Together(Struct, frozen=True):
    """Slow ranks that are reported together: a single rank, or most ranks of a node."""

    ranks: tuple[Slow, ...]
    node: str = ""


def by_node(slow: Sequence[Slow], nodes: Mapping[int, str]) -> list[Together]:
    """Groups slow ranks: all of a node, if most of its ranks are slow, else each by itself."""
    if not slow:
        return []
    size: dict[str, int] = {}
    for node in nodes.values():
        size[node] = size.get(node, 0) + 1
    of_node: dict[str, list[Slow]] = {}
    for one in slow:
        if size.get(nodes.get(one.rank, ""), 0) > 1:
            of_node.setdefault(nodes[one.rank], []).append(one)
    whole = {
        node
        for node, ones in of_node.items()
        if len({one.rank for one in ones}) >= max(2, NODE_SHARE * size[node])
    }
    found = [Together(tuple(of_node[node]), node) for node in sorted(whole)]
    found += [Together((one,), nodes.get(one.rank, "")) for one in slow if nodes.get(one.rank) not in whole]
    return found


def straggler(together: Together) -> Straggler:
    """Returns the report on a straggler, with its explanation in English and Chinese."""
    ones = together.ranks
    first = ones[0]
    ratios = [one.ratio for one in ones if one.ratio is not None]
    steps = [one.since for one in ones if one.since is not None]
    found = Straggler(
        ranks=tuple(sorted({one.rank for one in ones})),
        node=together.node,
        ratio=round(median(ratios), 4) if ratios else None,
        source=first.source,
        first_step=min(steps) if steps else None,
        confidence=round(_confidence(ones), 3),
    )
    return replace(found, explanation=_english(found, together), explanation_zh=_chinese(found, together))


def _confidence(ones: Sequence[Slow]) -> float:
    first = ones[0]
    trust = TRUST[first.source]
    if first.source == "arrivals" and first.ratio is None:
        trust = TRUST["awaited"]
    if any(one.throttled for one in ones):
        trust = max(trust, 0.95)
    return trust - (0.25 if all(one.is_from_start for one in ones) else 0.0)


def who(found: Straggler) -> str:
    """Returns the name of a straggler: "rank 3 on n1", "node n1 (ranks 0, 1)"."""
    if len(found.ranks) == 1:
        return f"rank {found.ranks[0]}" + (f" on {found.node}" if found.node else "")
    return f"node {found.node} ({_some(found.ranks)})" if found.node else _some(found.ranks)


def who_zh(found: Straggler) -> str:
    """Returns the name of a straggler in Chinese."""
    if len(found.ranks) == 1:
        return f"rank {found.ranks[0]}" + (f"（节点 {found.node}）" if found.node else "")
    return f"节点 {found.node}（{_some(found.ranks)}）" if found.node else _some(found.ranks)


def in_few_words(one: Straggler) -> str:
    """Returns a straggler for a status line: "rank 2 +280 %"."""
    ranks = ", ".join(map(str, one.ranks))
    named = f"rank {ranks}" if len(one.ranks) == 1 else f"node {one.node}" if one.node else f"ranks {ranks}"
    return f"{named} {(one.ratio - 1) * 100:+.0f} %" if one.ratio is not None else named


def _some(ranks: Sequence[int]) -> str:
    return "ranks " + ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")


def _english(found: Straggler, together: Together) -> str:
    first = together.ranks[0]
    many = len(found.ranks) > 1
    said = (
        f"{who(found)} {'are' if many and not found.node else 'is'} slower than the others, which wait for "
    )
    said += "them" if many and not found.node else "it"
    if found.ratio is not None:
        said += f": its own work takes {found.ratio:.2f} times as long as that of its peers"
    if first.is_from_start:
        said += ", since the start (a heavier part of the model would look the same)"
    elif found.first_step is not None:
        said += f", since step {found.first_step}"
    if first.until is not None:
        said += f", until step {first.until}"
    said += f"; seen {HOW[found.source][0]}"
    throttled = max((one.throttled or 0.0 for one in together.ranks), default=0.0)
    if throttled:
        said += f"; the CPU quota of its cgroup throttled it {throttled:.0%} of the time"
    return said


def _chinese(found: Straggler, together: Together) -> str:
    first = together.ranks[0]
    said = f"{who_zh(found)} 比其他 rank 慢，其他 rank 在等待它"
    if found.ratio is not None:
        said += f"：自身计算耗时是同伴的 {found.ratio:.2f} 倍"
    if first.is_from_start:
        said += "，从一开始就如此（也可能是模型中较重的部分所致）"
    elif found.first_step is not None:
        said += f"，自第 {found.first_step} 步起"
    if first.until is not None:
        said += f"，到第 {first.until} 步为止"
    said += f"；{HOW[found.source][1]}"
    throttled = max((one.throttled or 0.0 for one in together.ranks), default=0.0)
    if throttled:
        said += f"；其 cgroup 的 CPU 配额使其 {throttled:.0%} 的时间被限流"
    return said
