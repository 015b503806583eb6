"""Judges which processes use GPUs and how GPUs are divided: other processes, memory without an owner, MIG.

Pure.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.checks.gpu.readings import RESET, Gpu, Unread, advice, answered
from holdfast.core.plurals import counted
from holdfast.model.checks import ASKED, PEERS, RULE, STATED, WARN, Finding
from holdfast.model.signatures import Words

MIB = 1 << 20
HELD_MIN = 512 * MIB  # sum over other processes: monitors and services hold less
OWNERLESS_MIN = 2048 * MIB  # memory held by the driver itself varies by hundreds of MiB
NAMED_MAX = 3
SERVICES = ("nvidia-cuda-mps", "nv-hostengine", "dcgm", "Xorg", "gnome-shell", "nvidia-persiste")


class Holder(Struct, frozen=True, kw_only=True):
    """A process that uses memory of a GPU. `bytes`: None if unknown. `is_here`: it is visible in /proc."""

    pid: int
    name: str = ""
    bytes: int | None = None
    is_own: bool = False
    is_here: bool = True


class Use(Struct, frozen=True, kw_only=True):
    """The use of one GPU's memory.

    `used`: bytes, without the driver's reserve if `is_exact`; None if unknown.
    """

    gpu: Gpu
    holders: tuple[Holder, ...] = ()
    used: int | None = None
    total: int | None = None
    is_exact: bool = False
    is_divided: bool = False  # MIG: processes are listed by instance


def judge_use(seen: Sequence[Use], unread: Sequence[Unread], is_training: bool = False) -> list[Finding]:
    """Returns warnings on other processes that use a GPU, and on used memory that no visible process holds.

    `is_training`: the job's own ranks hold memory. The driver may list them by pids of the host, which are
    not visible in a container.
    """
    shown = [_visible(use) for use in seen] if is_training else seen
    troubles = [
        finding for use in shown if (finding := _foreign(use) or (None if is_training else _ownerless(use)))
    ]
    used = sum(use.used or 0 for use in seen)
    measured = f"no other process uses {counted(len(seen), 'GPU')}; {used / MIB:.0f} MiB in use in all"
    return answered(
        troubles,
        unread,
        len(seen) - len(troubles),
        measured=measured,
        expected="no other process",
        whence=RULE,
    )


def _visible(use: Use) -> Use:
    return replace(use, holders=tuple(one for one in use.holders if one.is_here))


def _foreign(use: Use) -> Finding | None:
    others = [one for one in use.holders if not one.is_own and not one.name.startswith(SERVICES)]
    held = sum(one.bytes or 0 for one in others)
    if held < HELD_MIN:
        return None
    named = ", ".join(_named(one) for one in sorted(others, key=lambda one: -(one.bytes or 0))[:NAMED_MAX])
    more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
    words = Words(
        en="Find their owner (`nvidia-smi`, `ps -p {pids}`), end processes left by an earlier job, or use a free"
        " node.",
        zh="确认占用者（`nvidia-smi`、`ps -p {pids}`），结束先前作业的残留进程，或申请空闲节点。",
    )
    pids = ",".join(str(one.pid) for one in others[:NAMED_MAX])
    return Finding(
        status=WARN,
        device=use.gpu.where,
        measured=f"{held / MIB:.0f} MiB held by {named}{more}",
        expected="no other process",
        whence=RULE,
        why=f"other processes hold {held / MIB:.0f} MiB of the GPU's memory: {named}{more}",
        advice=advice(words, use.gpu.where, pids=pids),
        category="gpu_busy",
    )


def _named(one: Holder) -> str:
    size = f", {one.bytes / MIB:.0f} MiB" if one.bytes is not None else ""
    name = one.name or ("not visible here" if not one.is_here else "?")
    return f"pid {one.pid} ({name}{size})"


def _ownerless(use: Use) -> Finding | None:
    """Returns a finding on used memory that no visible process holds: one that ended abnormally, or in
    another container.
    """
    if use.used is None or use.is_divided or use.holders or not use.total:
        return None
    limit = max(OWNERLESS_MIN, use.total // 20 if use.is_exact else use.total // 10)
    if use.used < limit:
        return None
    words = Words(
        en="Look for processes that hold /dev/nvidia* (`fuser -v /dev/nvidia*`, on the host and not in a container); if"
        " there is none, reset {gpu}.",
        zh="在宿主机（而非容器内）查找占用 /dev/nvidia* 的进程（`fuser -v /dev/nvidia*`）；若没有，重置 {gpu}。",
    )
    return Finding(
        status=WARN,
        device=use.gpu.where,
        measured=f"{use.used / MIB:.0f} MiB in use, by no visible process",
        expected=f"below {limit / MIB:.0f} MiB",
        whence=RULE,
        why="GPU memory is in use, but no visible process holds it",
        advice=advice(words, use.gpu.where),
        category="gpu_busy",
    )


class Division(Struct, frozen=True, kw_only=True):
    """The MIG state of one GPU. `parts`: number of instances that CUDA can use; None if unknown."""

    gpu: Gpu
    is_on: bool = False
    will_be_on: bool = False
    parts: int | None = None


def judge_division(seen: Sequence[Division], unread: Sequence[Unread], ranks: int | None) -> list[Finding]:
    """Returns findings on MIG: the ranks of one run need whole GPUs.

    A process sees only one instance, and NCCL cannot connect two instances of a GPU.
    """
    on = [one for one in seen if one.is_on]
    troubles = [_pending(one) for one in seen if one.is_on != one.will_be_on]
    if on and len(on) < len(seen) and _of_one_model(seen):
        troubles.append(
            _mig(
                on[0].gpu.where if len(on) == 1 else "",
                f"on for {len(on)} of {counted(len(seen), 'GPU')}",
                "the same on all",
                PEERS,
                "MIG is on for some GPUs of the node only",
            )
        )
    elif on and ranks is not None and ranks > 1:
        why = f"MIG is on, and {ranks} ranks that work together need whole GPUs"
        troubles.append(_mig("", f"on for {counted(len(on), 'GPU')}", "off", ASKED, why))
    elif ranks:
        troubles += [
            _mig(one.gpu.where, "on, and not one instance", "instances", ASKED, "MIG is on without any instance: CUDA sees no device there")
            for one in on
            if one.parts == 0
        ]  # fmt: skip
    parts = sum(one.parts or 0 for one in on)
    measured = f"on for {counted(len(on), 'GPU')} with {counted(parts, 'instance')}" if on else "off"
    return answered(troubles, unread, len(seen), measured=measured)


def _of_one_model(seen: Sequence[Division]) -> bool:
    return len({one.gpu.name for one in seen}) == 1


def _pending(one: Division) -> Finding:
    now, later = ("on", "off") if one.is_on else ("off", "on")
    return Finding(
        status=WARN,
        device=one.gpu.where,
        measured=now,
        expected=later,
        whence=STATED,
        why=f"MIG is {now} and will be {later} after the next reset of the GPU",
        advice=advice(RESET, one.gpu.where),
        category="gpu_busy",
    )


def _mig(where: str, measured: str, expected: str, whence: str, why: str) -> Finding:
    words = Words(
        en="Switch MIG off on all GPUs of the run (`nvidia-smi -mig 0`, then reset them), or start in each"
        " instance a separate run with one rank.",
        zh="在本次训练的所有 GPU 上关闭 MIG（`nvidia-smi -mig 0` 后重置），或每个实例只运行一个独立 rank。",
    )
    return Finding(
        status=WARN,
        device=where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=why,
        advice=words,
        category="launcher_config",
    )
