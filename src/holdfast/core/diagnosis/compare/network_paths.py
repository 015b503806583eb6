"""Compares nodes of a job: GPUDirect RDMA, interfaces, ports, communicator setup and start times. Pure.

Tags, wordings and texts are in signatures/rules/comparison.toml.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from holdfast.core.diagnosis.compare.comparison import Comparison, first_of, host_of, minority, who_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.missing import spans
from holdfast.core.plurals import counted
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

NOT_MET = "rendezvous_timeout"
APART_S = 60.0  # clocks of nodes differ by less; launchers that start together, too


def compare_gdr(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if network cards of some nodes read GPU memory directly and those of others do
    not.
    """
    direct: dict[str, bool] = {}
    lines: dict[str, Match] = {}
    for one in matches:
        uses = _uses_gdr(one, known)
        host = host_of(one, sources)
        if uses is None or host is None:
            continue
        direct[host] = direct.get(host, False) or uses
        if not uses:
            lines.setdefault(host, one)
    with_it = sorted(host for host, uses in direct.items() if uses)
    without = sorted(host for host, uses in direct.items() if not uses)
    if not with_it or not without:
        return None
    one_with, one_without = with_it[0], without[0]
    return Comparison(
        category="gdr_mismatch",
        first=first_of(lines[host] for host in without),
        role="cause",
        severity="warning",
        weight=0.8,
        culprits=tuple(Culprit(host=host) for host in without),
        title=known.text(
            "direct-memory-differs",
            count=counted(len(with_it), "node"),
            with_it=len(with_it),
            without=len(without),
            named=", ".join(without[:4]),
        ),
        explanation=known.text("direct-memory-differs-why", one_with=one_with, one_without=one_without),
        advice=known.text("direct-memory-advice"),
        seen=tuple(lines.values()),
    )


def local_interface(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if nodes chose a network interface that no other node of the job can reach."""
    chosen: dict[str, Match] = {}
    for one in matches:
        host = host_of(one, sources)
        if known.has("bootstrap-interface", one) and host is not None:
            chosen.setdefault(host, one)
    wrong = {
        host: one
        for host, one in chosen.items()
        if known.says("interface-of-one-node", one.captures.get("interface", ""))
    }
    if len(chosen) < 2 or not wrong:
        return None
    first = first_of(wrong.values())
    host = next(host for host, one in wrong.items() if one is first)
    name, address = first.captures.get("interface", ""), first.captures.get("address", "no address given")
    return Comparison(
        category="nccl_wrong_interface",
        first=first,
        role="cause",
        severity="warning",
        weight=0.88,
        culprits=tuple(Culprit(host=host) for host in sorted(wrong)),
        title=known.text("local-interface", host=host, name=name, address=address),
        explanation=Words(
            en=f"{name} is reachable only from its own node, but the job has {len(chosen)} nodes.",
            zh=f"{name} 仅在本机可达，而作业有 {len(chosen)} 个节点。",
        ),
        advice=known.text("local-interface-advice"),
        seen=tuple(chosen.values()),
    )


def compare_settings(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if communication settings that must be equal differ between nodes."""
    values: dict[str, dict[str, Match]] = defaultdict(dict)  # name -> host -> first line
    for one in matches:
        host = host_of(one, sources)
        if known.has("communication-setting", one) and host is not None:
            values[one.captures["name"]].setdefault(host, one)
    for name, by_host in sorted(values.items()):
        value_of = {host: one.captures["value"] for host, one in by_host.items()}
        if len(set(value_of.values())) > 1 and known.says("must-agree", name):
            odd = minority(value_of)
            listed = ", ".join(f"{host}={value}" for host, value in sorted(value_of.items())[:4])
            return Comparison(
                category="nccl_config_error",
                first=first_of(by_host[host] for host in odd or by_host),
                role="cause",
                severity="warning",
                weight=0.82,
                culprits=tuple(Culprit(host=host) for host in sorted(odd)),
                title=Words(
                    en=f"{name} differs between nodes: {listed}", zh=f"{name} 在各节点上不一致：{listed}"
                ),
                explanation=Words(
                    en=(
                        "All ranks of a collective need the same settings; different ones cause hangs or "
                        "corrupt data."
                    ),
                    zh="集合通信的各方设置必须一致，否则会挂起或数据错误。",
                ),
                advice=known.text("unlike-settings-advice", name=name),
                seen=tuple(by_host.values()),
            )
    return None


def compare_versions(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if nodes run different versions of the communication library."""
    lines: dict[str, Match] = {}
    versions: dict[str, set[str]] = defaultdict(set)
    for one in matches:
        host = host_of(one, sources)
        if known.has("communication-version", one) and host is not None:
            versions[host].add(one.captures["version"])
            lines.setdefault(host, one)
    version_of = {host: next(iter(found)) for host, found in versions.items() if len(found) == 1}
    if len(set(version_of.values())) < 2:
        return None
    odd = minority(version_of)
    listed = ", ".join(f"{host}: {version}" for host, version in sorted(version_of.items())[:4])
    return Comparison(
        category="version_mismatch",
        first=first_of(lines[host] for host in odd or version_of),
        role="cause",
        severity="warning",
        weight=0.82,
        culprits=tuple(Culprit(host=host) for host in sorted(odd)),
        title=known.text("unlike-versions", listed=listed),
        explanation=Words(
            en="Ranks of one communicator must run the same version.",
            zh="同一通信域内所有 rank 的版本必须一致。",
        ),
        advice=known.text("unlike-versions-advice"),
        seen=tuple(lines.values()),
    )


def flapping_port(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if a port of a network card went down, whether it came up again or not."""
    lost = [one for one in matches if known.has("port-lost", one)]
    if not lost:
        return None
    first = first_of(lost)
    back = [
        one
        for one in matches
        if known.has("port-back", one) and one.source == first.source and one.last_offset > first.offset
    ]
    host, device = host_of(first, sources), first.captures.get("device")
    where = " ".join(part for part in (device, f"on {host}" if host else "") if part)
    where_zh = "".join(part for part in (f"{host} 的 " if host else "", device or "") if part)
    times = sum(one.count for one in lost)
    return Comparison(
        category="nic_link_flap" if back else "nic_down",
        first=first,
        role="cause",
        severity="error",
        weight=0.93 if back else 0.88,
        culprits=(Culprit(host=host, device=device),) if host or device else (),
        title=Words(
            en=f"a network port went down{' and came up again' if back else ''}{': ' if where else ''}{where}",
            zh=f"网络端口掉线{'后恢复（链路抖动）' if back else ''}{'：' if where else ''}{where_zh}",
        ),
        explanation=known.text("port-lost-why", counted=counted(times, "time"), times=times),
        advice=known.text("port-lost-advice"),
        seen=(*lost, *back),
    )


def compare_init(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if some ranks started a communicator's setup and did not finish, or never started."""
    cut_off = {number for number, source in enumerate(sources) if _ends_in_a_list(source, known)}
    started: dict[int, Counter[int]] = defaultdict(Counter)  # world -> rank -> how often
    done: dict[int, Counter[int]] = defaultdict(Counter)
    lines: dict[int, Match] = {}
    for one in matches:
        if not known.has("communicator-set-up", one) or one.source in cut_off:
            continue
        if one.captures["world"] != "1":
            world, rank = int(one.captures["world"]), int(one.captures["rank"])
            is_start = known.says("set-up-begins", one.captures["state"])
            (started if is_start else done)[world][rank] += one.count
            if is_start:
                lines.setdefault(rank, one)
    for world, ranks in sorted(started.items(), reverse=True):
        hung = sorted(rank for rank, count in ranks.items() if count > done[world][rank])
        if not hung or len(hung) * 2 < len(ranks):
            continue  # some are only cut off by the end of their logs
        absent = set(range(world)) - set(ranks)
        named = absent if absent and len(absent) <= len(ranks) else set()
        return Comparison(
            category="nccl_init_failure",
            first=lines[hung[0]],
            role="cause",
            severity="warning",
            weight=0.75,
            culprits=tuple(Culprit(rank=rank) for rank in sorted(named)),
            title=Words(
                en=f"the setup of a communicator of {world} ranks never completed"
                + (f"; rank {spans(named)} never started" if named else ""),
                zh=f"{world} 个 rank 的通信域初始化未完成"
                + (f"；rank {spans(named)} 从未开始" if named else ""),
            ),
            explanation=known.text("set-up-without-end", ranks=spans(hung)),
            advice=known.text("set-up-advice"),
            seen=tuple(lines[rank] for rank in hung),
        )
    return None


def _ends_in_a_list(source: Source, known: KnowledgeBase) -> bool:
    """Returns whether a log ends in the middle of a list that a rank prints at once, so the next lines are
    unknown.
    """
    if source.tail and known.says("machine-drawn", source.tail[-1]):
        return True
    listed = [found for line in source.tail if (found := known.found("ring-listed", line))]
    last = known.found("ring-listed", source.tail[-1]) if listed else None
    long = max((int(found["of"]) for found in listed if found["of"]), default=0)
    return last is not None and int(last["at"]) + 1 < long


def started_apart(
    matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase
) -> Comparison | None:
    """Returns a finding if a rendezvous failed because some workers started minutes after the others.

    The times are those of the workers' own clocks.
    """
    failed = [one for one in matches if one.category == NOT_MET and not known.has("worker-starts", one)]
    begun: dict[tuple[Culprit, int], float] = {}
    for one in matches:
        at_s = one.writer.stamp_s
        if known.has("worker-starts", one) and at_s is not None:
            who = who_of(one, sources)
            key = (who, one.source if who == Culprit() else -1)  # by log, where no line names rank or host
            begun[key] = min(at_s, begun.get(key, at_s))
    ends_s = min((one.writer.stamp_s for one in failed if one.writer.stamp_s is not None), default=None)
    begun = {
        (who, log): at_s
        for (who, log), at_s in begun.items()
        if log < 0
        or ends_s is None
        or at_s < ends_s  # an unnamed log that begins later may be of another run
    }
    if not failed or len(begun) < 2:
        return None
    earliest = min(begun.values())
    late = sorted((at_s, str(who), who) for (who, _), at_s in begun.items() if at_s - earliest >= APART_S)
    if not late:
        return None
    gap_s = late[-1][0] - earliest
    minutes = f"{gap_s / 60:.0f}"
    return Comparison(
        category=NOT_MET,
        first=first_of(failed),
        role="cause",
        weight=0.93,
        culprits=tuple(who for _, _, who in late[-8:] if who != Culprit()),
        title=Words(
            en=f"workers started {minutes} min apart, and the rendezvous timed out",
            zh=f"各 worker 启动时间相差 {minutes} 分钟，未能按时会合",
        ),
        explanation=Words(
            en=f"{len(late)} of {len(begun)} started at least {APART_S:.0f} s after the first, by their own clocks. "
            "Usual reasons: an image pull, a queue, or slow preparation.",
            zh=f"{len(begun)} 个中有 {len(late)} 个比最早者晚至少 {APART_S:.0f} 秒启动（以各自时钟计）："
            "拉取镜像、排队或准备过慢。",
        ),
        advice=known.text("started-apart-advice"),
        seen=tuple(failed),
    )


def _uses_gdr(one: Match, known: KnowledgeBase) -> bool | None:
    if known.has("direct-memory-state", one):
        return known.says("direct-memory-on", one.captures.get("state") or one.captures["gdr"])
    if known.has("network-path", one) and not known.says("over-sockets", one.captures.get("transport", "")):
        return "gdr" in one.captures
    return None
