"""Judges the environment variables of a run against its node. Pure.

Values are passed without secrets, because they are shown.

source of the forms of values: NCCL, Environment Variables; CUDA C Programming Guide, CUDA Environment
Variables; OpenMP 5.2, 21; documentation of Gloo and UCX
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.asked import Asked
from holdfast.core.checks.env.variable_rules import (
    FABRIC,
    FILES,
    GPU_PAIRS,
    GPUS,
    LISTED,
    PROXIES,
    RULES,
    SAME_ON_ALL,
)
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.checks import ASKED, ENVIRONMENT_FAULT, FAIL, PASS, RULE, WARN, Fact, Finding
from holdfast.model.signatures import Words

LISTED_MAX = 12
VALUE_CHARS_MAX = 60
THREADS_TIMES_MAX = 1.5  # threads per core: slightly more than one is common and costs little
IDLE_CORES_MIN = 4  # cores per rank from which a single thread is too few
_SECRET_NAME = late(r"(?i)token|secret|passw|credential|api_?key|access_?key")


class Place(Struct, frozen=True, kw_only=True):
    """The devices, network interfaces and CPU cores of a node, against which environment variables are judged.

    `interfaces`, `rdma`: names; None if unknown. `rdma_up`: an RDMA port is active. `cores`: available to the run; 0
    if unknown. `absent`: files and folders named in variables that do not exist. `stubs`: folders of LD_LIBRARY_PATH
    whose libcuda.so.1 would be loaded and is a stub.
    """

    gpus: int = 0
    gpu_models: tuple[str, ...] = ()
    npus: int = 0
    interfaces: tuple[str, ...] | None = None
    rdma: tuple[str, ...] | None = None
    rdma_up: bool = False
    cores: float = 0.0
    absent: frozenset[str] = frozenset()
    stubs: tuple[str, ...] = ()
    from_files: Mapping[str, str] = {}  # by variable, the file that presets it
    binds: bool = False  # a program before the launch binds each rank to separate cores


def facts(env: Mapping[str, str]) -> Iterator[Fact]:
    """Yields facts on environment variables whose values must be equal on all nodes."""
    for name in SAME_ON_ALL:
        yield Fact(name=name, value=shown(name, env[name]) if name in env else "not set", same=True)


def of_variables(env: Mapping[str, str], asked: Asked, place: Place) -> list[Finding]:
    """Returns the findings about harmful variables; if there are none, one finding with status pass that lists what
    is set.
    """
    found = [
        *_by_table(env, asked, place),
        *_of_devices(env, asked, place),
        *_of_interfaces(env, place),
        *_of_threads(env, asked, place),
        *_of_libraries(env, place),
        *_of_proxies(env, asked),
    ]
    return found or [
        Finding(status=PASS, measured=listing(env), expected="nothing harmful to the run", whence=RULE)
    ]


def listing(env: Mapping[str, str]) -> str:
    """Returns the environment variables that are set, with their values, as text."""
    names = sorted(name for name in env if name.startswith(LISTED) or name.lower() in PROXIES)
    if not names:
        return "none is set"
    settings = [f"{name}={shown(name, env[name])}" for name in names[:LISTED_MAX]]
    more = f", and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(settings) + more


def shown(name: str, value: str) -> str:
    """Returns the value for display: masked if the variable's name indicates a secret, shortened if long."""
    if _SECRET_NAME.search(name):
        return "***"
    return value if len(value) <= VALUE_CHARS_MAX else value[: VALUE_CHARS_MAX - 3] + "..."


def _finding(
    name: str,
    value: str,
    why: str,
    advice: Words,
    *,
    expected: str,
    category: str = "config_error",
    status: str = WARN,
    fault: str = "",
) -> Finding:
    return Finding(
        status=status,
        device=name,
        measured=f"{name}={shown(name, value)}",
        expected=expected,
        whence=RULE if status == WARN else ASKED,
        why=why,
        advice=advice,
        fault=fault,
        category=category,
    )


def _by_table(env: Mapping[str, str], asked: Asked, place: Place) -> Iterator[Finding]:
    for rule in RULES:
        value = env.get(rule.name)
        if value is None or not re.fullmatch(rule.value, value.strip().lower()):
            continue
        if not _applies(rule.where, asked, place):
            continue
        file = place.from_files.get(rule.name)
        whence = f", set in {file}" if file else ""
        yield _finding(
            rule.name,
            value,
            f"{rule.name}={shown(rule.name, value)}{whence}: {rule.does.en}",
            Words(en=rule.advice.en, zh=f"{rule.does.zh}。{rule.advice.zh}"),
            expected="not set",
            category=rule.category,
        )
    for name in FILES:
        if env.get(name) and env[name] in place.absent:
            yield _finding(
                name,
                env[name],
                f"{name} names a file that does not exist: {shown(name, env[name])}",
                Words(en="Correct the path, or unset it.", zh="请修正路径或取消该变量。"),
                expected="an existing file",
                category="nccl_config_error",
            )


def _applies(where: str, asked: Asked, place: Place) -> bool:
    if where == GPUS:
        return place.gpus > 0
    if where == GPU_PAIRS:
        # These models have no direct copies, and frameworks ask to disable them.
        is_plain = bool(place.gpu_models) and all("GeForce" in model for model in place.gpu_models)
        return place.gpus > 1 and asked.ranks != 1 and not is_plain
    if where == FABRIC:
        return place.rdma_up and asked.nodes > 1
    return True


# Devices


def _of_devices(env: Mapping[str, str], asked: Asked, place: Place) -> Iterator[Finding]:
    for name, count in (("CUDA_VISIBLE_DEVICES", place.gpus), ("ASCEND_RT_VISIBLE_DEVICES", place.npus)):
        value = env.get(name)
        if value is None or not count or not value.strip() or value.strip() == "-1":
            continue  # none at all is meant: a run on processors
        yield from _of_visible(name, value, count, asked.ranks)


def _of_visible(name: str, value: str, count: int, ranks: int | None) -> Iterator[Finding]:
    listed = [one.strip() for one in value.split(",")]
    repeated = sorted({one for one in listed if listed.count(one) > 1})
    beyond = next((one for one in listed if one.isdigit() and int(one) >= count), "")
    seen = listed.index(beyond) if beyond else len(listed)
    if repeated:
        yield _finding(
            name,
            value,
            f"{name} names device {repeated[0]} more than once, so ranks share it or see none",
            Words(en=f"Name each device once in {name}.", zh=f"{name} 中每个设备只应出现一次。"),
            expected="each device once",
            category="launcher_config",
            status=FAIL if ranks and ranks > 1 else WARN,
            fault=ENVIRONMENT_FAULT if ranks and ranks > 1 else "",
        )
    elif ranks and seen < ranks:
        yield _finding(
            name,
            value,
            f"{counted(ranks, 'rank is', 'ranks are')} to run here, but {name} leaves them {counted(seen, 'device')}",
            Words(
                en=f"Name {counted(ranks, 'device')} in {name}, or start {counted(seen, 'rank') if seen else 'fewer ranks'} on this node.",
                zh=f"请在 {name} 中列出 {ranks} 个设备，或将本节点 rank 数减为 {seen or '更少'}。",
            ),
            expected=f"{counted(ranks, 'device')} for {counted(ranks, 'rank')}",
            category="launcher_config",
            status=FAIL,
        )
    elif beyond:
        yield _finding(
            name,
            value,
            f"{name} names device {beyond}, and this node has {count}: it and those after it are not seen",
            Words(en=f"Name devices from 0 to {count - 1}.", zh=f"请仅列出 0 到 {count - 1} 的设备。"),
            expected=f"devices 0 to {count - 1}",
            category="launcher_config",
        )


# Networks


def _of_interfaces(env: Mapping[str, str], place: Place) -> Iterator[Finding]:
    if place.interfaces is not None:
        for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            value = env.get(name, "")
            exact = name.startswith("GLOO_")
            if value and not _any_chosen(value, place.interfaces, exact):
                is_sure = not exact and place.gpus > 0
                yield _finding(
                    name,
                    value,
                    f"{name} leaves no network interface of this node, which has {_few(place.interfaces)}",
                    Words(
                        en=f"Set {name} to an interface of this node that reaches the others, or unset it.",
                        zh=f"请将 {name} 设为本节点可互通的网卡，或取消该变量。",
                    ),
                    expected="an interface of this node",
                    category="nccl_wrong_interface",
                    status=FAIL if is_sure else WARN,
                    fault=ENVIRONMENT_FAULT if is_sure else "",
                )
    yield from _of_rdma(env, place)


def _of_rdma(env: Mapping[str, str], place: Place) -> Iterator[Finding]:
    value = env.get("NCCL_IB_HCA", "")
    if value and place.rdma and not _any_chosen(value, place.rdma, False):
        yield _finding(
            "NCCL_IB_HCA",
            value,
            f"NCCL_IB_HCA leaves no RDMA device of this node, which has {_few(place.rdma)}: NCCL goes over TCP",
            Words(
                en="Set it to devices of this node (ibv_devices), or unset it.",
                zh="请设为本节点的 RDMA 设备（ibv_devices），或取消。",
            ),
            expected="an RDMA device of this node",
            category="nccl_wrong_interface",
        )
    if env.get("NCCL_NET", "").upper() == "IB" and place.gpus and place.rdma == ():
        yield _finding(
            "NCCL_NET",
            env["NCCL_NET"],
            "NCCL_NET=IB asks for RDMA, and this node has no RDMA device",
            Words(
                en="Unset it, or find out why the devices are missing.",
                zh="请取消，或排查 RDMA 设备缺失原因。",
            ),
            expected="an RDMA device",
            category="nccl_config_error",
        )
    value = env.get("UCX_NET_DEVICES", "")
    known = (*(place.interfaces or ()), *(place.rdma or ()))
    names = [one.partition(":")[0] for one in value.split(",") if one]
    if names and known and place.interfaces is not None and place.rdma is not None:
        if "all" not in names and not any(one in known for one in names):
            yield _finding(
                "UCX_NET_DEVICES",
                value,
                f"UCX_NET_DEVICES names no device of this node, which has {_few(known)}",
                Words(en="Correct it, or unset it.", zh="请修正或取消。"),
                expected="a device of this node",
                category="nccl_wrong_interface",
            )


def _any_chosen(value: str, names: Sequence[str], exact: bool) -> bool:
    """Returns whether a selection of devices leaves any.

    NCCL's form: prefixes; after `=` whole names; after `^` excluded names; ports after a colon.
    """
    excludes = value.startswith("^") and not exact
    value = value[1:] if excludes else value
    whole = exact or value.startswith("=")
    wanted = [one.partition(":")[0] for one in value.removeprefix("=").split(",") if one]
    hits = {name for name in names for one in wanted if name == one or (not whole and name.startswith(one))}
    if excludes:
        return bool(set(names) - hits - {"lo"}) or not set(names) - {"lo"}
    return bool(hits)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "") if names else "none"


# Threads


def _of_threads(env: Mapping[str, str], asked: Asked, place: Place) -> Iterator[Finding]:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if value := env.get(name, "").strip():
            yield from _of_count(name, value, asked.ranks, place)
    value = env.get("OMP_PROC_BIND", "").strip().lower()
    pins = value in ("true", "close", "spread", "master", "primary") or env.get("GOMP_CPU_AFFINITY")
    if pins and asked.ranks and asked.ranks > 1 and not place.binds:
        name = "OMP_PROC_BIND" if value else "GOMP_CPU_AFFINITY"
        yield _finding(
            name,
            env[name],
            f"{name} ties the threads of all {asked.ranks} ranks to the same first cores",
            Words(
                en="Unset it, or give each rank cores of its own (numactl, srun --cpu-bind).",
                zh="请取消，或为每个 rank 绑定各自的核（numactl、srun --cpu-bind）。",
            ),
            expected="not set, or cores for each rank",
        )


def _of_count(name: str, value: str, ranks: int | None, place: Place) -> Iterator[Finding]:
    first = value.split(",")[0].strip()
    if not first.isdigit() or int(first) == 0:
        yield _finding(
            name,
            value,
            f"{name}={value} is not a number of threads and is ignored",
            Words(
                en=f"Set {name} to the number of cores for each rank, such as 8.",
                zh=f"请将 {name} 设为每个 rank 的核数。",
            ),
            expected="a whole number from 1",
        )
        return
    threads = int(first)
    if not ranks or not place.cores:
        return
    each = max(int(place.cores // ranks), 1)
    if threads > 1 and threads * ranks > place.cores * THREADS_TIMES_MAX:
        yield _finding(
            name,
            value,
            f"{ranks} ranks of {threads} threads each share {place.cores:g} cores",
            Words(en=f"Set {name} to {each} or less.", zh=f"请将 {name} 设为不超过 {each}。"),
            expected=f"at most {counted(each, 'thread')} for each of {ranks} ranks on {place.cores:g} cores",
        )
    elif threads == 1 and not place.gpus and not place.npus and each >= IDLE_CORES_MIN:
        yield _finding(
            name,
            value,
            f"each rank computes with one thread, and there are {each} cores for it",
            Words(
                en=f"Set {name} to {each}: this node has no GPU.",
                zh=f"本节点无 GPU，请将 {name} 设为 {each}。",
            ),
            expected=f"{counted(each, 'thread')} for each of {ranks} ranks on {place.cores:g} cores",
        )


# Libraries and proxies


def _of_libraries(env: Mapping[str, str], place: Place) -> Iterator[Finding]:
    for path in place.stubs if place.gpus else ():
        yield _finding(
            "LD_LIBRARY_PATH",
            path,
            f"LD_LIBRARY_PATH has {path}, whose stub libcuda.so.1 is loaded in place of the driver's",
            Words(
                en=f"Take {path} out of LD_LIBRARY_PATH.", zh=f"请从 LD_LIBRARY_PATH 移除 {path}（stub 库）。"
            ),
            expected="the libcuda.so.1 of the driver",
            category="cuda_init_error",
            status=FAIL,
            fault=ENVIRONMENT_FAULT,
        )
    for path in re.split(r"[:\s]+", env.get("LD_PRELOAD", "")):
        if path and path in place.absent:
            yield _finding(
                "LD_PRELOAD",
                path,
                f"LD_PRELOAD names {path}, which does not exist: it is not loaded",
                Words(en="Correct the path, or unset it.", zh="请修正路径或取消该变量。"),
                expected="an existing library",
            )


def _of_proxies(env: Mapping[str, str], asked: Asked) -> Iterator[Finding]:
    """Yields findings on proxies that affect the rendezvous, which use HTTP or gRPC: etcd, or a tool that
    redirects sockets.
    """
    meeting = asked.meeting
    if meeting is None or not meeting.host or _is_loopback(meeting.host):
        return
    catches_all = "proxychains" in env.get("LD_PRELOAD", "") or "tsocks" in env.get("LD_PRELOAD", "")
    names = [name for name in env if name.lower() in ("http_proxy", "all_proxy") and env[name]]
    name = "LD_PRELOAD" if catches_all else names[0] if names else ""
    if not name or not (catches_all or meeting.backend.startswith("etcd")):
        return
    no_proxy = env.get("no_proxy", env.get("NO_PROXY", ""))
    if not catches_all and is_spared(meeting.host, no_proxy):
        return
    yield _finding(
        name,
        env[name],
        f"the rendezvous at {meeting.host} goes through the proxy of {name}",
        Words(
            en=f"Add {meeting.host} to no_proxy and NO_PROXY, or unset {name}.",
            zh=f"请将 {meeting.host} 加入 no_proxy 与 NO_PROXY，或取消 {name}。",
        ),
        expected=f"{meeting.host} in no_proxy",
        category="rendezvous_timeout",
    )


def is_spared(host: str, no_proxy: str) -> bool:
    """Returns whether `no_proxy` covers the host: by name, domain, or address prefix (10.0.0.0/8 too)."""
    for one in (entry.strip().lower() for entry in no_proxy.split(",")):
        if one == "*" or (one and (host.lower() == one or host.lower().endswith("." + one.lstrip(".")))):
            return True
        if one.count("/") == 1 and _in_network(host, one):
            return True
        if one.endswith((".*", ".")) and host.startswith(one.rstrip("*")):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    address, _, bits = network.partition("/")
    ours, theirs = _number(host), _number(address)
    if ours is None or theirs is None or not bits.isdigit() or int(bits) > 32:
        return False
    return ours >> (32 - int(bits)) == theirs >> (32 - int(bits))


def _number(address: str) -> int | None:
    parts = address.split(".")
    if len(parts) != 4 or not all(part.isdigit() and int(part) < 256 for part in parts):
        return None
    return sum(int(part) << shift for part, shift in zip(parts, (24, 16, 8, 0), strict=True))


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
