"""Compares how nodes reach one another: GPUDirect, interfaces, ports, set-up, and when they began. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from holdfast.core.diagnosis.compare.comparison import (
    INIT_ADVICE,
    INIT_STATE,
    Comparison,
    first_of,
    host_of,
    who_of,
)
from holdfast.core.diagnosis.words.missing import spans
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

NET_PATH = "nccl-net-path"
GDR_STATE = "nccl-gdr-state"
RING_GDR = "nccl-ring-gdr"
INTERFACE = "nccl-bootstrap-interface"
PORT_ERROR = "ib-port-error"
PORT_ACTIVE = "ib-port-active"
STARTS = frozenset({"torchrun-starts", "torch-store-joined", INTERFACE, INIT_STATE})
# What a rank prints of the rings and trees that it has worked out: a list, in one go, that waits for nobody.
LISTED = late(r"NCCL INFO (?:Channel|Ring|Tree) (?P<at>\d{1,6})(?:/(?P<of>\d{1,6}))? :(?!.{1,200} via )")
# Of the machine that it has looked at, the same: never the last of what it prints there.
DRAWN = late(
    r"NCCL INFO (?:=== System :|CPU/\d|Pattern \d| *\+ (?:PCI|NVL|NIC|NET|SYS)\[| *\d{1,6} : (?:GPU|NET)/)"
)
SETTING = "nccl-setting"
VERSION = "nccl-version"
NOT_MET = "rendezvous_timeout"
# Both ends of a connection or a ring read these: unlike values hang or garble what they do together.
MUST_AGREE = frozenset(
    {
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_NET",
        "NCCL_NET_PLUGIN",
        "NCCL_IB_DISABLE",
        "NCCL_P2P_DISABLE",
        "NCCL_SHM_DISABLE",
        "NCCL_NVLS_ENABLE",
        "NCCL_COLLNET_ENABLE",
        "NCCL_CUMEM_ENABLE",
        "NCCL_BUFFSIZE",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
        "NCCL_NTHREADS",
        "NCCL_CROSS_NIC",
        "NCCL_SOCKET_FAMILY",
    }
)
APART_S = 60.0  # clocks of nodes differ by less; launchers that start together, too
LOCAL_INTERFACE = late(r"(?:lo|docker|virbr|veth|br-|cni|podman|lxcbr|tun|cali|flannel)[\w.-]*$")
GDR_ADVICE = Words(
    en="Bring all nodes to the same level: set the same NCCL_NET_GDR_LEVEL on all of them (0 turns GPUDirect RDMA off "
    "everywhere and shows whether it is the reason). On the nodes without: lsmod | grep nvidia_peermem (modprobe it after "
    "each driver update), ACS and IOMMU, place of card and GPU (nvidia-smi topo -m).",
    zh="使所有节点处于同一级别:各节点设置相同的 NCCL_NET_GDR_LEVEL(0 为全部关闭,可验证是否为其所致)。在未使用的节点检查:"
    "lsmod | grep nvidia_peermem(驱动更新后需 modprobe)、ACS 与 IOMMU、网卡与 GPU 的位置(nvidia-smi topo -m)。",
)


def compare_gdr(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """Nodes that send from GPU memory directly, beside nodes that do not."""
    direct: dict[str, bool] = {}
    lines: dict[str, Match] = {}
    for one in matches:
        uses = _uses_gdr(one)
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
        title=Words(
            en=f"GPUDirect RDMA on {counted(len(with_it), 'node')}, not on {len(without)}: {', '.join(without[:4])}",
            zh=f"{len(with_it)} 个节点使用 GPUDirect RDMA,{len(without)} 个未使用:{', '.join(without[:4])}",
        ),
        explanation=Words(
            en=f"{one_with} prints 'via NET/.../GDRDMA', {one_without} does not. The nodes are not set up alike: "
            "transfers between them are slow at best, and fail or hang at worst.",
            zh=f"{one_with} 打印 via NET/…/GDRDMA,而 {one_without} 没有:节点配置不一致,轻则变慢,重则失败或挂起。",
        ),
        advice=GDR_ADVICE,
        seen=tuple(lines.values()),
    )


def local_interface(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """Nodes of a job of several nodes that set up over an interface which no other node can reach."""
    chosen: dict[str, Match] = {}
    for one in matches:
        host = host_of(one, sources)
        if one.signature == INTERFACE and host is not None:
            chosen.setdefault(host, one)
    wrong = {
        host: one for host, one in chosen.items() if LOCAL_INTERFACE.match(one.captures.get("interface", ""))
    }
    if len(chosen) < 2 or not wrong:
        return None
    first = first_of(wrong.values())
    host = next(host for host, one in wrong.items() if one is first)
    name, address = first.captures.get("interface", ""), first.captures.get("address", "no address told")
    return Comparison(
        category="nccl_wrong_interface",
        first=first,
        role="cause",
        severity="warning",
        weight=0.88,
        culprits=tuple(Culprit(host=host) for host in sorted(wrong)),
        title=Words(
            en=f"NCCL on {host} uses {name} ({address}), which other nodes cannot reach",
            zh=f"{host} 上的 NCCL 使用了 {name}({address}),其他节点无法访问",
        ),
        explanation=Words(
            en=f"{name} leads to this node only; {len(chosen)} nodes take part.",
            zh=f"{name} 仅在本机可达,而作业有 {len(chosen)} 个节点。",
        ),
        advice=Words(
            en="Set NCCL_SOCKET_IFNAME (and GLOO_SOCKET_IFNAME) to the interface that joins the nodes, such as "
            "eth0, or exclude: NCCL_SOCKET_IFNAME=^docker0,lo,virbr0. ip -br addr shows the names.",
            zh="将 NCCL_SOCKET_IFNAME(及 GLOO_SOCKET_IFNAME)设为节点间互通的网卡,如 eth0,或排除:"
            "NCCL_SOCKET_IFNAME=^docker0,lo,virbr0;用 ip -br addr 查看网卡名。",
        ),
        seen=tuple(chosen.values()),
    )


def compare_settings(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """NCCL's settings that differ between nodes and must not: an image or a file brought them along on some."""
    values: dict[str, dict[str, Match]] = defaultdict(dict)  # name -> host -> first line
    for one in matches:
        host = host_of(one, sources)
        if one.signature == SETTING and host is not None and one.captures["name"] in MUST_AGREE:
            values[one.captures["name"]].setdefault(host, one)
    for name, by_host in sorted(values.items()):
        told = {host: one.captures["value"] for host, one in by_host.items()}
        if len(set(told.values())) > 1:
            odd = _rare(told)
            listed = ", ".join(f"{host}={value}" for host, value in sorted(told.items())[:4])
            return Comparison(
                category="nccl_config_error",
                first=first_of(by_host[host] for host in odd or by_host),
                role="cause",
                severity="warning",
                weight=0.82,
                culprits=tuple(Culprit(host=host) for host in sorted(odd)),
                title=Words(
                    en=f"{name} differs between nodes: {listed}", zh=f"{name} 在各节点上不一致:{listed}"
                ),
                explanation=Words(
                    en="Both sides of a collective must run it alike; unlike settings hang it or garble the data.",
                    zh="集合通信的各方设置必须一致,否则会挂起或数据错误。",
                ),
                advice=Words(
                    en=f"Look for {name} in the image, /etc/nccl.conf and the job's environment of each node; set "
                    "it alike everywhere, or nowhere.",
                    zh=f"检查各节点镜像、/etc/nccl.conf 与作业环境中的 {name};应处处一致,或都不设置。",
                ),
                seen=tuple(by_host.values()),
            )
    return None


def compare_versions(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """Nodes that run unlike versions of NCCL."""
    lines: dict[str, Match] = {}
    versions: dict[str, set[str]] = defaultdict(set)
    for one in matches:
        host = host_of(one, sources)
        if one.signature == VERSION and host is not None:
            versions[host].add(one.captures["version"])
            lines.setdefault(host, one)
    told = {host: next(iter(found)) for host, found in versions.items() if len(found) == 1}
    if len(set(told.values())) < 2:
        return None
    odd = _rare(told)
    listed = ", ".join(f"{host}: {version}" for host, version in sorted(told.items())[:4])
    return Comparison(
        category="version_mismatch",
        first=first_of(lines[host] for host in odd or told),
        role="cause",
        severity="warning",
        weight=0.82,
        culprits=tuple(Culprit(host=host) for host in sorted(odd)),
        title=Words(en=f"nodes run unlike versions of NCCL: {listed}", zh=f"各节点 NCCL 版本不一致:{listed}"),
        explanation=Words(
            en="Ranks of one communicator must run the same version.",
            zh="同一通信域内所有 rank 的版本必须一致。",
        ),
        advice=Words(
            en="Use one image on all nodes; look for another libnccl.so in LD_LIBRARY_PATH or LD_PRELOAD.",
            zh="所有节点使用同一镜像;检查 LD_LIBRARY_PATH 与 LD_PRELOAD 中的其他 libnccl.so。",
        ),
        seen=tuple(lines.values()),
    )


def flapping_port(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """A port of a network card that went down: and came up again, or not."""
    lost = [one for one in matches if one.signature == PORT_ERROR]
    if not lost:
        return None
    first = first_of(lost)
    back = [
        one
        for one in matches
        if one.signature == PORT_ACTIVE and one.source == first.source and one.last_offset > first.offset
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
            zh=f"网络端口掉线{'后恢复(链路抖动)' if back else ''}{':' if where else ''}{where_zh}",
        ),
        explanation=Words(
            en=f"NCCL was told of it {counted(times, 'time')}; transfers over it fail when the break outlasts the retries.",
            zh=f"NCCL 收到 {times} 次端口事件;中断超过重试时间时传输失败。",
        ),
        advice=Words(
            en="Check cable, transceiver and switch port (mlxlink -d DEV -m -e); drain the node if it comes back. "
            "NCCL_IB_TIMEOUT=22 waits 4.096 us x 2^22, 17 s, for each of NCCL_IB_RETRY_CNT=7 tries.",
            zh="检查线缆、光模块与交换机端口(mlxlink -d DEV -m -e);若重复出现则下线节点。"
            "NCCL_IB_TIMEOUT=22 时单次等待 4.096 微秒 × 2^22(约 17 秒),共 NCCL_IB_RETRY_CNT=7 次。",
        ),
        seen=(*lost, *back),
    )


def compare_init(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """Ranks that began to set up a communicator and did not come to its end; others never began."""
    cut_off = {number for number, source in enumerate(sources) if _ends_in_a_list(source)}
    started: dict[int, Counter[int]] = defaultdict(Counter)  # world -> rank -> how often
    done: dict[int, Counter[int]] = defaultdict(Counter)
    lines: dict[int, Match] = {}
    for one in matches:
        if one.signature == INIT_STATE and one.source not in cut_off and one.captures["world"] != "1":
            world, rank = int(one.captures["world"]), int(one.captures["rank"])
            is_start = one.captures["state"] == "START"
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
                en=f"the set-up of a communicator of {world} never ended"
                + (f"; rank {spans(named)} never began" if named else ""),
                zh=f"{world} 个 rank 的通信域初始化未完成"
                + (f";rank {spans(named)} 从未开始" if named else ""),
            ),
            explanation=Words(
                en=f"'Init START' without 'Init COMPLETE' on rank {spans(hung)}.",
                zh=f"rank {spans(hung)} 只有 Init START 而没有 Init COMPLETE。",
            ),
            advice=INIT_ADVICE,
            seen=tuple(lines[rank] for rank in hung),
        )
    return None


def _ends_in_a_list(source: Source) -> bool:
    """A log whose last line stands in the midst of such a list was cut off there: what came next is not known."""
    if source.tail and DRAWN.search(source.tail[-1]):
        return True
    listed = [found for line in source.tail if (found := LISTED.search(line))]
    last = LISTED.search(source.tail[-1]) if listed else None
    long = max((int(found["of"]) for found in listed if found["of"]), default=0)
    return last is not None and int(last["at"]) + 1 < long


def started_apart(matches: Sequence[Match], sources: Sequence[Source]) -> Comparison | None:
    """A rendezvous that failed because some came minutes after the others, by their own clocks."""
    failed = [one for one in matches if one.category == NOT_MET and one.signature not in STARTS]
    begun: dict[tuple[Culprit, int], float] = {}
    for one in matches:
        at_s = one.writer.stamp_s
        if one.signature in STARTS and at_s is not None:
            who = who_of(one, sources)
            key = (who, one.source if who == Culprit() else -1)  # whose log it is, where nothing says whose
            begun[key] = min(at_s, begun.get(key, at_s))
    ends_s = min((one.writer.stamp_s for one in failed if one.writer.stamp_s is not None), default=None)
    begun = {
        (who, log): at_s
        for (who, log), at_s in begun.items()
        if log < 0
        or ends_s is None
        or at_s < ends_s  # a log of nobody's that begins later may be of another run
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
            en=f"workers started {minutes} min apart and did not meet in time",
            zh=f"各 worker 启动时间相差 {minutes} 分钟,未能按时会合",
        ),
        explanation=Words(
            en=f"{len(late)} of {len(begun)} began at least {APART_S:.0f} s after the first, by their own clocks: "
            "an image that is pulled, a queue, a slow preparation.",
            zh=f"{len(begun)} 个中有 {len(late)} 个比最早者晚至少 {APART_S:.0f} 秒启动(以各自时钟计):"
            "拉取镜像、排队或准备过慢。",
        ),
        advice=Words(
            en="Start them together (gang scheduling), pull images beforehand, or wait longer: torchrun "
            "--rdzv-conf join_timeout=1800, init_process_group(timeout=timedelta(minutes=60)).",
            zh="使用 gang 调度同时启动、提前拉取镜像,或延长等待:torchrun --rdzv-conf join_timeout=1800、"
            "init_process_group(timeout=timedelta(minutes=60))。",
        ),
        seen=tuple(failed),
    )


def _uses_gdr(one: Match) -> bool | None:
    if one.signature == NET_PATH and one.captures.get("transport") != "Socket":
        return "gdr" in one.captures
    if one.signature == GDR_STATE:
        return one.captures["state"] == "Enabled"
    if one.signature == RING_GDR:
        return one.captures["gdr"] == "1"
    return None


def _rare(values: dict[str, str]) -> set[str]:
    """Who does not say what most say; empty where there is no most."""
    ((usual, count), *_) = Counter(values.values()).most_common()
    return {who for who, value in values.items() if value != usual} if count * 2 > len(values) else set()
