"""Checks network interfaces: the one that a training would use, changes against the baseline, error
counters.
"""

from collections.abc import Iterator, Sequence

from holdfast.checks.readers.interfaces import interfaces, traffic
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.counter_rise import Sample, risen
from holdfast.core.checks.net import (
    Interface,
    gloo_choice,
    judge_choice,
    judge_interface,
    judge_retransmitted,
    judge_traffic,
    nccl_choice,
)
from holdfast.core.checks.node_findings import passed, skipped
from holdfast.core.plurals import counted
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    EPILOG,
    MANUAL,
    ON_FAILURE,
    PASS,
    PROLOG,
    Fact,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words
from holdfast.observe.host.node_counters import parse_paired_lines

NONE = "no network interface is visible"


def look_at_interfaces(scene: Scene) -> Iterator[Seen]:
    found = interfaces(NodeFiles(scene))
    if not found:
        yield skipped(NONE)
        return
    nccl = nccl_choice(found, scene.env.get("NCCL_SOCKET_IFNAME", ""))
    gloo = gloo_choice(found, scene.env.get("GLOO_SOCKET_IFNAME", ""))
    findings = judge_choice(nccl, found, scene.baseline)
    findings += judge_choice(gloo, found, scene.baseline) if gloo else []
    named = {finding.device for finding in findings if finding.status != PASS}
    findings += [
        finding
        for one in _judged(found)
        for finding in judge_interface(one, scene.baseline)
        if finding.device not in named
    ]
    yield from findings or [
        passed("only the loopback interface" if len(found) == 1 else "no interface has an address")
    ]
    for one in _judged(found):
        yield from _facts(one)
    names = (gloo or nccl).names
    chosen = sorted(
        (one for one in found if one.name in names), key=lambda one: not (one.is_physical or one.members)
    )
    if chosen and chosen[0].mtu:
        yield Fact(name="MTU of the interface that the training uses", value=chosen[0].mtu, same=True)


def _judged(found: Sequence[Interface]) -> list[Interface]:
    """Returns physical interfaces and bonds.

    Others, such as bridges and virtual interfaces of containers, come and go.
    """
    return [one for one in found if one.is_physical or one.members]


def _facts(one: Interface) -> Iterator[Fact]:
    if not one.is_up:
        return
    learned: dict[str, str | int | bool] = {"up": True, "mtu": one.mtu, "speed_mbps": one.speed_mbps}
    if one.members:
        learned["members"] = ",".join(sorted(name for name, is_up in one.members.items() if is_up))
    for name, value in learned.items():
        if value:
            yield Fact(name=name, value=value, device=one.key, learn=True)


def look_at_errors(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    cards = [one for one in interfaces(files) if one.is_physical and one.is_up]
    uptime_s = files.uptime_s()
    findings: list[Finding] = []
    facts: list[Fact] = []
    for one in cards:
        seen = traffic(files, one.name)
        flaps = risen(seen.carrier_lost, _learned(scene, one), now_s=scene.now_s, uptime_s=uptime_s)
        findings += judge_traffic(one.name, seen, flaps)
        facts.append(Fact(name="carrier_lost", value=seen.carrier_lost, device=one.key, learn=True))
        facts.append(Fact(name="carrier_counted_s", value=scene.now_s, device=one.key, learn=True))
    tcp = parse_paired_lines(files.text("/proc/net/snmp")).get("Tcp", {})
    findings += judge_retransmitted(tcp.get("OutSegs", 0), tcp.get("RetransSegs", 0))
    yield from findings or [_nothing_wrong(cards, tcp)]
    yield from facts


def _learned(scene: Scene, one: Interface) -> Sample | None:
    lost, at_s = (scene.baseline.of(one.key, name) for name in ("carrier_lost", "carrier_counted_s"))
    return Sample(int(lost), float(at_s)) if lost is not None and at_s is not None else None


def _nothing_wrong(cards: Sequence[Interface], tcp: dict[str, int]) -> Finding:
    if not cards and not tcp:
        return skipped("no network counters can be read")
    again = tcp.get("RetransSegs", 0) / max(tcp.get("OutSegs", 0), 1)
    return passed(f"{counted(len(cards), 'card')}; {again:.2%} of TCP segments retransmitted")


CHECKS = (
    Check(
        Spec(
            name="net-interfaces",
            area="net",
            what=Words(
                en="network interfaces, and which one the training would use",
                zh="网卡接口状态，以及训练会使用哪个接口",
            ),
            contexts=(BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_interfaces,
    ),
    Check(
        Spec(
            name="net-errors",
            area="net",
            what=Words(
                en="errors, dropped packets and link flaps of network interfaces",
                zh="网卡的错误、丢包与链路抖动",
            ),
            contexts=(BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_errors,
    ),
)
