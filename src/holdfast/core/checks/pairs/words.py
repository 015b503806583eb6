"""Converts the verdict on pair measurements to findings about each node, in English and Chinese. Pure.

Slow is a warning; slower than half of the others' speed is a failure. A node is called broken only if it reaches
almost no speed with each of several good partners.
"""

from collections.abc import Iterable, Sequence

from holdfast.core.checks.pairs.results import Blame, Measured, Verdict
from holdfast.model.checks import (
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    PASS,
    PEERS,
    SKIP,
    STATUSES,
    WARN,
    Fact,
    Finding,
    NodeChecks,
    Outcome,
)
from holdfast.model.signatures import Words

CHECK, AREA = "comm-pairs", "comm"
FAILED_BELOW, BROKEN_BELOW = 0.5, 0.25
BROKEN_PARTNERS = 3
NAMED_MAX = 6
LONGER = "--option comm-pairs.rounds=24"


def node_outcomes(
    measured: Measured, verdict: Verdict, *, late: bool = False, seconds: float = 0.0
) -> tuple[NodeChecks, ...]:
    """Returns an outcome for each node. `late`: the time limit was reached before everything was decided."""
    speeds = _speeds(measured)
    answers = []
    for node in measured.nodes:
        findings = [_finding(blame, node) for blame in verdict.blames if node in blame.nodes]
        if not findings:
            findings = [_without_blame(node, measured, verdict, speeds.get(node, {}), late=late)]
        status = max((finding.status for finding in findings), key=STATUSES.index)
        facts = _facts(measured, verdict, node, speeds.get(node, {}))
        outcome = Outcome(
            check=CHECK, area=AREA, status=status, findings=tuple(findings), facts=facts, seconds=seconds
        )
        answers.append(NodeChecks(node=node, outcomes=(outcome,), seconds=seconds))
    return tuple(answers)


def _speeds(measured: Measured) -> dict[str, dict[str, list[float]]]:
    """Returns all speeds in GB/s, by node and measurement."""
    found: dict[str, dict[str, list[float]]] = {}
    for sample in measured.pairs:
        for node in (sample.a, sample.b):
            for what, speed in sample.speeds.items():
                found.setdefault(node, {}).setdefault(what, []).append(speed)
    return found


def _facts(measured: Measured, verdict: Verdict, node: str, own: dict[str, list[float]]) -> tuple[Fact, ...]:
    """Returns the speeds of the node as facts; for the first node also the usual speeds, which are learned if
    all is well.
    """
    facts = [Fact(name=what, value=_middle(values), unit="GB/s") for what, values in own.items()]
    if node == measured.nodes[0] and not verdict.blames:
        facts += [
            Fact(device=learned_as(measured), name=what, value=speed, unit="GB/s", learn=True)
            for what, speed in verdict.expected.items()
        ]
    return tuple(facts)


def learned_as(measured: Measured) -> str:
    """Returns the baseline key of pairs of such nodes: "pairs:NVIDIA H100 80GB HBM3"."""
    return f"pairs:{kind_of(sample.model for sample in measured.singles)}"


def kind_of(models: Iterable[str]) -> str:
    """Returns the models of these devices as one name, at most two joined by "and"; "unknown" if there are
    none.
    """
    return " and ".join(sorted(set(filter(None, models)))[:2]) or "unknown"


def _without_blame(
    node: str, measured: Measured, verdict: Verdict, own: dict[str, list[float]], *, late: bool
) -> Finding:
    if node in verdict.unsure:
        slow, looks = verdict.unsure[node]
        return Finding(
            status=SKIP,
            why=f"slow in {slow} of {looks} rounds; whether it is the node, its partner or the link cannot be decided from so few: measure longer ({LONGER})",
        )
    if not own:
        why = "the time limit was reached before it was measured" if late else "no partner answered"
        return Finding(status=SKIP, why=why)
    what = max(own, key=_size_of)
    partners = {sample.other(node) for sample in measured.pairs if node in (sample.a, sample.b)}
    beside = (
        ""
        if len(measured.nodes) + len(measured.spares) > 2 or measured.usual
        else ", without a value for comparison"
    )
    text = f"{_speed(_middle(own[what]), 'GB/s')} ({what}) with {_count(len(partners), 'partner')}{beside}"
    if what not in verdict.expected:
        return Finding(status=PASS, measured=text)
    return Finding(
        status=PASS, measured=text, expected=f"about {_speed(verdict.expected[what], 'GB/s')}", whence=PEERS
    )


def _finding(blame: Blame, node: str) -> Finding:
    return {
        "communication": _communication,
        "compute": _compute,
        "wrong": _wrong,
        "silent": _silent,
        "link": _link,
        "group": _group,
        "split": _split,
        "one-of": _one_of,
    }[blame.kind](blame, node)


def _communication(blame: Blame, node: str) -> Finding:
    partners = _names(blame.partners)
    always = blame.times == blame.looks
    is_broken = always and _share(blame) < BROKEN_BELOW and len(blame.partners) >= BROKEN_PARTNERS
    when = "with every partner" if always else f"in {blame.times} of {blame.looks} rounds"
    how = f"cannot exchange data ({blame.error})" if blame.error else "is slow"
    return Finding(
        status=_status(blame),
        measured=_measured(blame),
        expected=_expected(blame),
        whence=_whence(blame),
        why=f"{node} {how} {when}, {partners} among them, which work well with others:"
        " the node or its network connection is bad",
        fault=DEVICE_FAULT if is_broken else NO_FAULT,
        category="nccl_network_error" if blame.error else "straggler",
        advice=Words(
            en=f"Keep {node} out of the run, and check its network card, cable and switch port (rate, errors, PCIe"
            f" width); measured {_measured(blame)}, expected {_expected(blame)}.",
            zh=f"请勿在训练中使用 {node}，并检查其网卡、线缆与交换机端口（速率、错误计数、PCIe 宽度）；"
            f"实测 {_measured_zh(blame)}，应为{_expected_zh(blame)}。",
        ),
    )


def _compute(blame: Blame, node: str) -> Finding:
    return Finding(
        status=_status(blame),
        device=blame.what,
        measured=f"{_speed(blame.speed, 'GFLOP/s')}, in {blame.times} of {blame.looks} rounds",
        expected=f"about {_speed(blame.expected, 'GFLOP/s')}, the median of nodes with the same devices",
        whence=PEERS,
        why=f"{node} multiplies matrices at {_share(blame):.0%} of the speed of nodes with the same devices",
        category="straggler",
        advice=Words(
            en=f"On {node}, look for other processes, throttled clocks, power caps and a missing CPU socket; if it"
            " stays slow, replace the node.",
            zh=f"请在 {node} 上检查是否有其他进程、降频、功耗限制或缺失的 CPU；若仍然慢，请更换该节点。"
            f"实测 {_speed(blame.speed, 'GFLOP/s')}，同类节点约 {_speed(blame.expected, 'GFLOP/s')}。",
        ),
    )


def _wrong(blame: Blame, node: str) -> Finding:
    return Finding(
        status=FAIL,
        device=blame.error.partition(":")[0],
        measured=f"{blame.error}, in {blame.times} of {blame.looks} rounds",
        expected="the same bits each time",
        whence="rule",
        why=f"{node} computes wrong results: {blame.error}",
        fault=DEVICE_FAULT,
        advice=Words(
            en=f"Keep {node} out of the run and test the device: its results cannot be trusted.",
            zh=f"请勿使用 {node} 并检修该设备：其计算结果不可信。",
        ),
    )


def _silent(blame: Blame, node: str) -> Finding:
    return Finding(
        status=FAIL,
        measured=f"no answer in {blame.times} of {_count(blame.looks, 'round')}",
        expected="an answer in each round",
        whence="rule",
        why=f"{node} does not answer: {blame.error}",
        category="",
        advice=Words(
            en=f"Check whether {node} is up, can be reached with the command of --via, and has this Python with torch and"
            " holdfast; otherwise leave it out of the run.",
            zh=f"请确认 {node} 已开机、可通过 --via 指定的方式到达，且有同样的 Python（含 torch 与 holdfast）；"
            "否则请将其移出训练。",
        ),
    )


def _link(blame: Blame, node: str) -> Finding:
    a, b = blame.nodes
    how = f"cannot exchange data ({blame.error})" if blame.error else "are slow with each other"
    return Finding(
        status=_status(blame),
        device=f"link {a} - {b}",
        measured=_measured(blame),
        expected=_expected(blame),
        whence=_whence(blame),
        why=f"{a} and {b} {how}, and each works well with others: the connection between the two is bad",
        category="nccl_network_error" if blame.error else "straggler",
        advice=Words(
            en=f"Check the path between {a} and {b} (switch ports, routes, a faulty link among parallel ones); until then keep one"
            f" of the two out of the run. Measured {_measured(blame)}, expected {_expected(blame)}.",
            zh=f"请检查 {a} 与 {b} 之间的链路（交换机端口、路由、多路径中的一条）；修复前请勿同时使用二者。"
            f"实测 {_measured_zh(blame)}，应为{_expected_zh(blame)}。",
        ),
    )


def _group(blame: Blame, node: str) -> Finding:
    names = _names(blame.nodes)
    return Finding(
        status=_status(blame),
        device=f"group of {len(blame.nodes)}",
        measured=_measured(blame),
        expected=_expected(blame),
        whence=_whence(blame),
        why=f"{names} work well with each other and are slow with the other {_count(blame.others, 'node')}:"
        " their connection to the others is bad, not one of the nodes",
        category="nccl_network_error" if blame.error else "straggler",
        advice=Words(
            en=f"Check what {names} share: the switch, its uplinks, the rack. Replacing single nodes will not help.",
            zh=f"请检查 {names} 共用的部分：交换机、上行链路、机柜。更换单个节点没有帮助。"
            f"实测 {_measured_zh(blame)}，应为{_expected_zh(blame)}。",
        ),
    )


def _split(blame: Blame, node: str) -> Finding:
    """Returns the finding on two or more parts, none with most of the nodes; the network may be designed this
    way.
    """
    names = _names(blame.nodes)
    return Finding(
        status=WARN if blame.error else PASS,
        measured=_measured(blame),
        expected=_expected(blame),
        whence=_whence(blame),
        why=f"{names} work well with each other and are slower with the other {_count(blame.others, 'node')}; which"
        " side is the slow one, or whether the network is built this way, is unknown",
        advice=Words(
            en=f"Check whether {names} and the others are connected as intended.",
            zh=f"请确认 {names} 与其余节点之间的连接是否符合设计。",
        ),
    )


def _one_of(blame: Blame, node: str) -> Finding:
    names = _names(blame.nodes)
    are_two = len(blame.nodes) == 2
    which = (
        f"one of {names} is bad, or the link between them"
        if are_two
        else f"most of {names} are bad, or their connection is"
    )
    lacks = (
        "a third node is needed to find out which"
        if are_two
        else "nodes known to be good are needed to find out which"
    )
    return Finding(
        status=WARN,
        measured=_measured(blame),
        expected=_expected(blame) if blame.expected else "an exchange of data",
        whence=_whence(blame) if blame.expected else "rule",
        why=f"{which}; {lacks}",
        category="nccl_network_error" if blame.error else "straggler",
        advice=Words(
            en=f"Run it again with more nodes, or with one known to be good: --option comm-pairs.spares=NODE ({names}"
            f" reached {_measured(blame)}).",
            zh=f"请加入更多节点，或用 --option comm-pairs.spares=节点 指定一个已知正常的节点后重试"
            f"（{names} 实测 {_measured_zh(blame)}）：现有节点无法判断是哪一个有问题。",
        ),
    )


def _share(blame: Blame) -> float:
    return blame.speed / blame.expected if blame.expected else 0.0


def _status(blame: Blame) -> str:
    return FAIL if blame.error or _share(blame) < FAILED_BELOW else WARN


def _whence(blame: Blame) -> str:
    return BASELINE if blame.whence == "baseline" else PEERS


def _measured(blame: Blame) -> str:
    if blame.error and not blame.speed:
        return f"nothing ({blame.error}), {blame.times} of {_count(blame.looks, 'time')}"
    return f"{_speed(blame.speed, 'GB/s')} ({blame.what}), {blame.times} of {_count(blame.looks, 'time')}"


def _measured_zh(blame: Blame) -> str:
    what = f"{_speed(blame.speed, 'GB/s')}（{blame.what}）" if blame.speed else f"无法通信（{blame.error}）"
    return f"{what}，{blame.looks} 次中 {blame.times} 次"


def _expected(blame: Blame) -> str:
    if not blame.expected:
        return "the speed of other pairs"
    whence = "the learned value" if blame.whence == "baseline" else "the speed of other pairs"
    return f"about {_speed(blame.expected, 'GB/s')}, {whence}"


def _expected_zh(blame: Blame) -> str:
    if not blame.expected:
        return "其他节点对的速度"
    whence = "此前学到的值" if blame.whence == "baseline" else "其他节点对的水平"
    return f"约 {_speed(blame.expected, 'GB/s')}（{whence}）"


def _speed(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}"


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _names(names: Sequence[str]) -> str:
    """Returns names of nodes: "gpu-01 and gpu-02", or "gpu-01, gpu-02, … and 5 more"."""
    if len(names) > NAMED_MAX:
        return f"{', '.join(names[: NAMED_MAX - 1])} and {len(names) - NAMED_MAX + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "others"


def _size_of(what: str) -> float:
    """Returns the bytes in the name of a measurement ("all-reduce 8 MiB"), for sorting only."""
    number, _, unit = what.rpartition(" ")
    scale = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}.get(unit, 1)
    try:
        return float(number.rpartition(" ")[2]) * scale
    except ValueError:
        return 0.0
