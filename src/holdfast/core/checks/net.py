"""Judges the network interface that a run would use, its counters, host names and ports. Pure.

sources: NCCL, src/misc/socket.cc (choice of the interface, NCCL_SOCKET_IFNAME); Linux,
Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics; bonding.rst
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.counter_rise import SINCE_BOOT
from holdfast.core.checks.node_findings import failed, passed, warned
from holdfast.core.plurals import counted
from holdfast.model.checks import ASKED, BASELINE, DEVICE_FAULT, RULE, Baseline, Finding

IFF_UP = 0x1
VIRTUAL_FIRST = ("lo", "docker")
CATEGORY_DOWN, CATEGORY_WRONG = "nic_down", "nccl_wrong_interface"


class Interface(Struct, frozen=True, kw_only=True):
    """A network interface of the node. `has_carrier`: None if unknown. `speed_mbps`: 0 if unknown.

    `members`: of a bond, whether each is up.
    """

    name: str
    is_set_up: bool = True
    state: str = "up"
    has_carrier: bool | None = None
    mtu: int = 0
    speed_mbps: int = 0
    duplex: str = ""
    is_physical: bool = False
    has_address: bool = False
    members: dict[str, bool] = {}

    @property
    def key(self) -> str:
        """Returns the interface's key in facts and in the baseline."""
        return f"nic:{self.name}"

    @property
    def is_up(self) -> bool:
        """Returns whether the link works. The state "unknown", which virtual interfaces and some drivers report,
        counts as working.
        """
        return (
            self.is_set_up and self.has_carrier is not False and self.state not in ("down", "lowerlayerdown")
        )


class Choice(Struct, frozen=True):
    """The interfaces that a library would use.

    `setting`: the variable that selects them; empty for the default.
    """

    setting: str
    wanted: str
    names: tuple[str, ...]


def nccl_choice(interfaces: Sequence[Interface], wanted: str) -> Choice:
    """Returns the interfaces that NCCL uses for its sockets.

    By NCCL_SOCKET_IFNAME: prefixes, `=` exact names, `^` all others; else ib*, then non-virtual ones.
    """
    able = [one.name for one in interfaces if one.has_address]
    if wanted:
        # An interface with only a routing table of its own shows no address here: no finding.
        names = _matching(able, wanted) or _matching([one.name for one in interfaces], wanted)
        return Choice("NCCL_SOCKET_IFNAME", wanted, tuple(names))
    fast = [name for name in able if name.startswith("ib")]
    plain = [name for name in able if not name.startswith(VIRTUAL_FIRST)]
    return Choice("", "", tuple(fast or plain or [name for name in able if name.startswith("docker")]))


def _matching(names: Sequence[str], wanted: str) -> list[str]:
    excludes, exact = wanted.startswith("^"), "=" in wanted[:2]
    words = [word.partition(":")[0] for word in wanted.lstrip("^=").split(",") if word]
    return [
        name
        for name in names
        if any(name == word if exact else name.startswith(word) for word in words) != excludes
    ]


def gloo_choice(interfaces: Sequence[Interface], wanted: str) -> Choice | None:
    """Returns the interfaces that gloo uses, by exact names; None if not set: then gloo uses the
    host's name.
    """
    if not wanted:
        return None
    there = {one.name for one in interfaces}
    return Choice(
        "GLOO_SOCKET_IFNAME", wanted, tuple(name for name in wanted.split(",") if name.strip() in there)
    )


def judge_choice(choice: Choice, interfaces: Sequence[Interface], baseline: Baseline) -> list[Finding]:
    """Returns findings: whether the interface that a run would use exists and is up."""
    if not choice.names:
        return [_no_match(choice, interfaces)] if choice.setting else []
    by_name = {one.name: one for one in interfaces}
    by = choice.setting or "the default order of NCCL"
    down = [by_name[name] for name in choice.names if not by_name[name].is_up]
    if choice.setting and len(down) == len(choice.names):
        return [_chosen_is_down(one, choice, baseline) for one in down]
    return [passed(f"{', '.join(choice.names[:8])} ({by})")]


def _no_match(choice: Choice, interfaces: Sequence[Interface]) -> Finding:
    there = ", ".join(one.name for one in interfaces if one.name != "lo")[:200] or "none but lo"
    return failed(
        f"interfaces: {there}",
        f"an interface with a name as in {choice.setting}={choice.wanted}",
        ASKED,
        why=f"{choice.setting}={choice.wanted} names no interface of this node",
        en=f"Set {choice.setting} to an interface that every node has, or unset it.",
        zh=f"将 {choice.setting} 设为所有节点都有的网口，或取消该变量。",
        category=CATEGORY_WRONG,
    )


def _chosen_is_down(one: Interface, choice: Choice, baseline: Baseline) -> Finding:
    broken = one.is_physical and one.is_set_up and baseline.of(one.key, "up") is True
    return failed(
        _state(one),
        "up",
        ASKED,
        device=one.name,
        why=f"{choice.setting} names {one.name}, which is down",
        en=f"Bring {one.name} up (`ip link set {one.name} up`), check its cable, or choose another interface.",
        zh=f"启用 {one.name}（`ip link set {one.name} up`）、检查线缆，或改用其他网口。",
        category=CATEGORY_DOWN,
        fault=DEVICE_FAULT if broken else "",
    )


def _state(one: Interface) -> str:
    if not one.is_set_up:
        return "not set up"
    return "no carrier" if one.has_carrier is False else one.state


def judge_interface(one: Interface, baseline: Baseline) -> list[Finding]:
    """Returns findings about a network card or bond compared with the baseline, and about the members of a bond."""
    findings = _members(one, baseline)
    was_up = baseline.of(one.key, "up") is True
    if not one.is_up:
        return [*findings, _went_down(one)] if was_up else findings
    speed = baseline.of(one.key, "speed_mbps")
    if speed and 0 < one.speed_mbps < speed and not one.members:
        findings.append(_slower(one, int(speed)))
    if one.is_physical and one.duplex == "half" and one.speed_mbps >= 100:
        findings.append(_half(one))
    mtu = baseline.of(one.key, "mtu")
    if mtu and one.mtu and one.mtu != mtu:
        findings.append(_other_mtu(one, int(mtu)))
    return findings


def _members(one: Interface, baseline: Baseline) -> list[Finding]:
    known = baseline.of(one.key, "members")
    expected = set(str(known).split(",")) if known else set(one.members)
    down = [name for name, is_up in one.members.items() if not is_up and name in expected]
    lost = [name for name in sorted(expected) if known and name not in one.members]
    if not down and not lost or not one.is_set_up:
        return []
    names = ", ".join([*down, *lost])
    return [
        warned(
            f"{len(one.members) - len(down)} of {len(expected | set(one.members))} members up",
            "all members up",
            BASELINE if known else RULE,
            device=one.name,
            why=f"of the bond {one.name} {names} {'is' if len(down + lost) == 1 else 'are'} down or missing",
            en=f"Check cable and switch port of {names}; until then, the bond is slower and not redundant.",
            zh=f"检查 {names} 的线缆与交换机端口；恢复前绑定口带宽降低且无冗余。",
            category=CATEGORY_DOWN,
        )
    ]


def _went_down(one: Interface) -> Finding:
    return warned(
        _state(one),
        "up, as at the first good boot",
        BASELINE,
        device=one.name,
        why=f"{one.name} was up and is down now",
        en=f"Check cable and switch port of {one.name} (`ip link show {one.name}`, `ethtool {one.name}`).",
        zh=f"检查 {one.name} 的线缆与交换机端口（`ip link show {one.name}`、`ethtool {one.name}`）。",
        category=CATEGORY_DOWN,
    )


def _slower(one: Interface, before: int) -> Finding:
    return warned(
        f"{one.speed_mbps} Mb/s",
        f"{before} Mb/s",
        BASELINE,
        device=one.name,
        why=f"{one.name} runs at {one.speed_mbps / before:.0%} of the learned speed",
        en=f"Reseat or replace cable and transceiver of {one.name}; check the speed that the switch port allows.",
        zh=f"重新插拔或更换 {one.name} 的线缆与光模块；检查交换机端口允许的速率。",
        category="straggler",
    )


def _half(one: Interface) -> Finding:
    return warned(
        "half duplex",
        "full duplex",
        RULE,
        device=one.name,
        why=f"{one.name} cannot send and receive at the same time",
        en=f"Let both ends negotiate: `ethtool -s {one.name} autoneg on`; replace the cable if it stays.",
        zh=f"让两端自动协商：`ethtool -s {one.name} autoneg on`；若无效请更换线缆。",
        category="straggler",
    )


def _other_mtu(one: Interface, before: int) -> Finding:
    return warned(
        f"MTU {one.mtu}",
        f"MTU {before}",
        BASELINE,
        device=one.name,
        why=f"the MTU of {one.name} differs from the learned value; where MTUs of peers differ, large messages hang",
        en=f"`ip link set {one.name} mtu {before}`, and in the configuration that is used at boot.",
        zh=f"执行 `ip link set {one.name} mtu {before}`，并修改开机配置。",
        category="nccl_network_error",
    )


class Traffic(Struct, frozen=True, kw_only=True):
    """The counters of an interface, since its creation."""

    packets: int = 0
    errors: int = 0
    missed: int = 0
    carrier_lost: int = 0


ERRORS_LEAST, ERRORS_SHARE = 100, 1e-5  # a healthy link has none
MISSED_LEAST, MISSED_SHARE = 10_000, 1e-3  # packets for which the node had no buffer
FLAPS_BOOT, FLAPS_A_DAY_BOOT = 10, 2.0


def judge_traffic(name: str, seen: Traffic, flaps: tuple[int, float, str]) -> list[Finding]:
    """Returns findings about the error counters of an interface.

    `flaps`: number of carrier losses, the duration in seconds, and the starting point of the count.
    """
    found = []
    packets = max(seen.packets, 1)
    if seen.errors >= ERRORS_LEAST and seen.errors / packets >= ERRORS_SHARE:
        found.append(
            warned(
                f"{counted(seen.errors, 'error')} in {counted(seen.packets, 'packet')}",
                f"fewer than 1 in {1 / ERRORS_SHARE:,.0f}",
                RULE,
                device=name,
                why=f"{name} corrupts packets: {seen.errors / packets:.2g} of them are corrupt",
                en=f"Replace cable and transceiver of {name}; check the counters of the switch port.",
                zh=f"更换 {name} 的线缆与光模块；查看交换机端口计数。",
                category="nccl_network_error",
            )
        )
    if seen.missed >= MISSED_LEAST and seen.missed / packets >= MISSED_SHARE:
        found.append(
            warned(
                f"{seen.missed} missed of {seen.packets} packets",
                f"fewer than 1 in {1 / MISSED_SHARE:,.0f}",
                RULE,
                device=name,
                why=f"{name} drops packets because its queues are full",
                en=f"Enlarge its ring buffers (`ethtool -G {name} rx 4096`); check which core handles its interrupts.",
                zh=f"增大网卡环形缓冲（`ethtool -G {name} rx 4096`），并检查处理其中断的 CPU 核。",
                category="nccl_network_error",
            )
        )
    if _flaps_too_much(flaps):
        found.append(_flapped(name, flaps))
    return found


def _flaps_too_much(flaps: tuple[int, float, str]) -> bool:
    times, over_s, since = flaps
    days = over_s / 86400
    if since == SINCE_BOOT:
        return times >= FLAPS_BOOT and times / max(days, 1.0) >= FLAPS_A_DAY_BOOT
    return times >= 1 and times >= days


def _flapped(name: str, flaps: tuple[int, float, str]) -> Finding:
    times, over_s, since = flaps
    return warned(
        f"carrier lost {counted(times, 'time')} in {over_s / 3600:.1f} h since {since}",
        "the carrier is lost less than once a day",
        RULE,
        device=name,
        why=f"the link of {name} goes down and comes back",
        en=f"Reseat or replace cable and transceiver of {name}; check the log of the switch port.",
        zh=f"重新插拔或更换 {name} 的线缆与光模块；查看交换机端口日志。",
        category="nic_link_flap",
    )


SEGMENTS_LEAST, AGAIN_LEAST, AGAIN_SHARE = 10_000, 500, 0.03


def judge_retransmitted(sent: int, again: int) -> list[Finding]:
    """Returns a finding on TCP retransmissions of the whole node since boot."""
    if sent < SEGMENTS_LEAST or again < AGAIN_LEAST or again / sent < AGAIN_SHARE:
        return []
    return [
        warned(
            f"{again / sent:.1%} of {sent} TCP segments retransmitted",
            f"less than {AGAIN_SHARE:.0%}",
            RULE,
            why=f"the network loses packets: {again / sent:.1%} of what TCP sent had to be sent again",
            en="Compare with the other nodes; if only this one, check its cable, switch port and MTU.",
            zh="与其他节点对比；若仅此节点如此，请检查其线缆、交换机端口与 MTU。",
            category="nccl_network_error",
        )
    ]


class Resolved(Struct, frozen=True, kw_only=True):
    """A host name and its addresses; `error`: why there are none.

    `ours`: those that are addresses of this node.
    """

    name: str
    addresses: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    error: str = ""


def judge_hostname(host: Resolved, nodes: int, env: Mapping[str, str]) -> Finding:
    """Returns the finding on the node's own host name, whose address gloo and others send to their peers on
    other nodes.
    """
    if nodes < 2:
        return passed(", ".join(host.addresses) or f"{host.name} has no address; one node needs none")
    if env.get("GLOO_SOCKET_IFNAME") and not host.error:
        return passed(f"{', '.join(host.addresses)}; gloo uses GLOO_SOCKET_IFNAME")
    if host.error:
        return warned(
            f"{host.name}: {host.error}",
            "an address of this node",
            ASKED,
            why=f"the name of this node, {host.name}, cannot be resolved here",
            en=f"Add {host.name} with the address of the training network to DNS or /etc/hosts.",
            zh=f"在 DNS 或 /etc/hosts 中为 {host.name} 添加训练网络的地址。",
            category="rendezvous_timeout",
        )
    if _are_loopback(host.addresses):
        return warned(
            f"{host.name} is {', '.join(host.addresses)}",
            "an address that other nodes reach",
            ASKED,
            why=f"{host.name} resolves to a loopback address, which gloo would send to the other nodes",
            en="Put the real address into /etc/hosts instead of 127.0.1.1, or set GLOO_SOCKET_IFNAME.",
            zh="将 /etc/hosts 中的 127.0.1.1 改为真实地址，或设置 GLOO_SOCKET_IFNAME。",
            category="rendezvous_timeout",
        )
    if not host.ours:
        return warned(
            f"{host.name} is {', '.join(host.addresses)}",
            "an address of this node",
            ASKED,
            why=f"{host.name} resolves to an address that this node does not have",
            en=f"Correct the entry of {host.name} in DNS or /etc/hosts.",
            zh=f"更正 DNS 或 /etc/hosts 中 {host.name} 的记录。",
            category="rendezvous_timeout",
        )
    return passed(f"{host.name} is {', '.join(host.ours)}")


def judge_meeting_host(host: Resolved) -> Finding:
    """Returns the finding on the host name of the rendezvous."""
    if host.error:
        return failed(
            f"{host.name}: {host.error}",
            "an address",
            ASKED,
            device=host.name,
            why=f"the address of the first node, {host.name}, cannot be resolved here",
            en="Correct MASTER_ADDR or the endpoint of the command, or add the name to DNS or /etc/hosts.",
            zh="更正 MASTER_ADDR 或命令中的地址，或在 DNS、/etc/hosts 中添加该名称。",
            category="rendezvous_timeout",
        )
    return passed(f"{host.name} is {', '.join(host.addresses[:4])}", host.name)


def _are_loopback(addresses: Sequence[str]) -> bool:
    return all(address.startswith("127.") or address == "::1" for address in addresses)
