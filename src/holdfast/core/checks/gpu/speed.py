"""Judges what slows GPUs down: heat, power, configured limits. Pure.

A throttle reason counts only if every sample within some time has it, because all GPUs reach their limits for
moments.
"""

from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.checks.gpu.readings import Gpu, Unread, advice, answered
from holdfast.core.plurals import counted
from holdfast.model.checks import BASELINE, PEERS, RULE, STATED, WARN, Baseline, Fact, Finding
from holdfast.model.signatures import Words

HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80
LOOKS_MIN = 2
POWER_SLACK = 0.02  # tolerance of a limit: it is set in watts and reported in milliwatts
MARGIN_MIN_C = 3  # minimum distance to the slowdown temperature of this GPU

_COOL = Words(
    en="Check fans, air flow and dust of {gpu}, and the room temperature; if only this GPU is hot, have its"
    " cooler inspected, and keep the node out of runs that wait for the slowest.",
    zh="检查 {gpu} 的风扇、风道、积灰与机房温度；若仅该 GPU 过热，检修其散热器，且不要让该节点参与同步训练。",
)
_POWER = Words(
    en="Check power supplies, their cables and the power limit of the rack: the board signals the GPU to slow down.",
    zh="检查电源、供电线缆与机柜功率限制：是主板要求 GPU 降频。",
)
_REASONS = (  # bit, description, category, advice; the first that applies is reported
    (HW_THERMAL, "too hot: the hardware halves its clocks", "thermal_throttle", _COOL),
    (POWER_BRAKE, "power brake: the system signals the GPU to use less power", "power_throttle", _POWER),
    (SW_THERMAL, "too hot: the driver lowers its clocks", "thermal_throttle", _COOL),
    (HW_SLOWDOWN, "slowed down by the hardware", "power_throttle", _POWER),
)


class Clocks(Struct, frozen=True, kw_only=True):
    """The clock limits of one GPU.

    `reasons`: mask of throttle reasons in each sample. `limit_w`, `default_w`: its current and default power
    limit.
    """

    gpu: Gpu
    reasons: tuple[int, ...] = ()
    limit_w: float | None = None
    default_w: float | None = None


class Heat(Struct, frozen=True, kw_only=True):
    """The temperatures of one GPU in degrees Celsius; None if unknown.

    `left`: degrees until throttling, if reported.
    """

    gpu: Gpu
    degrees: int | None = None
    slowdown: int | None = None
    left: int | None = None
    memory: int | None = None
    memory_max: int | None = None


def clock_facts(seen: Sequence[Clocks]) -> list[Fact]:
    """Returns facts on the power limit of each GPU, and of each model if all its GPUs agree."""
    facts = [
        Fact(name="power limit", value=round(one.limit_w), device=one.gpu.key, learn=True, unit="W")
        for one in seen
        if one.limit_w and one.gpu.key and one.limit_w >= (_usual(one, seen) or 0) * (1 - POWER_SLACK)
    ]
    for name in sorted({one.gpu.name for one in seen}):
        limits = {round(one.limit_w) for one in seen if one.gpu.name == name and one.limit_w}
        if len(limits) == 1:
            facts.append(Fact(name=f"power limit of {name}", value=f"{limits.pop()} W", same=True))
    return facts


def judge_clocks(seen: Sequence[Clocks], unread: Sequence[Unread], baseline: Baseline) -> list[Finding]:
    """Returns findings on GPUs that are throttled or have a low power limit."""
    troubles: list[Finding] = []
    silent = list(unread)
    good = 0
    passing = 0
    for one in seen:
        found = _held_back(one) or _capped(one, seen, baseline)
        troubles += found
        if not found and len(one.reasons) < LOOKS_MIN:
            silent.append(Unread(one.gpu.where, "the GPU does not report throttle reasons"))
        elif not found:
            good += 1
            passing += any(reason & mask for reason in one.reasons for mask, *_ in _REASONS)
    moments = f", {passing} for a moment" if passing else ""
    limits = sorted({f"{one.limit_w:.0f} W" for one in seen if one.limit_w})
    power = f"; power limit {', '.join(limits)}" if limits else ""
    measured = f"nothing slows {counted(good, 'GPU')} for long{moments}{power}"
    return answered(troubles, silent, good, measured=measured)


def _held_back(one: Clocks) -> list[Finding]:
    if len(one.reasons) < LOOKS_MIN:
        return []
    always = one.reasons[0]
    for reason in one.reasons[1:]:
        always &= reason
    for mask, words, category, what_to_do in _REASONS:
        if always & mask:
            return [
                Finding(
                    status=WARN,
                    device=one.gpu.where,
                    measured=f"{words}, in {len(one.reasons)} of {len(one.reasons)} samples",
                    expected="not for long",
                    whence=STATED,
                    why=words,
                    advice=advice(what_to_do, one.gpu.where),
                    category=category,
                )
            ]
    return []


def _capped(one: Clocks, seen: Sequence[Clocks], baseline: Baseline) -> list[Finding]:
    """Returns a finding on a power limit below that of the other GPUs, or below the learned one; equal limits
    are intended.
    """
    if not one.limit_w:
        return []
    learned = baseline.of(one.gpu.key, "power limit")
    usual = _usual(one, seen)
    if isinstance(learned, int | float) and one.limit_w < learned * (1 - POWER_SLACK):
        expected, whence = float(learned), BASELINE
    elif (
        usual
        and one.limit_w < usual * (1 - POWER_SLACK)
        and one.default_w
        and one.limit_w < one.default_w * (1 - POWER_SLACK)
    ):
        expected, whence = usual, PEERS
    else:
        return []
    words = Words(
        en="Set it back: `nvidia-smi -i {gpu} -pl {watts}`; training runs only as fast as its slowest GPU.",
        zh="恢复功率上限：`nvidia-smi -i {gpu} -pl {watts}`；训练速度取决于最慢的 GPU。",
    )
    return [
        Finding(
            status=WARN,
            device=one.gpu.where,
            measured=f"power limit {one.limit_w:.0f} W",
            expected=f"{expected:.0f} W",
            whence=whence,
            why=f"the power limit is {one.limit_w:.0f} W, and {expected:.0f} W is usual on this node",
            advice=advice(words, one.gpu.where, watts=f"{expected:.0f}"),
            category="power_throttle",
        )
    ]


def _usual(one: Clocks, seen: Sequence[Clocks]) -> float | None:
    """Returns the power limit that most other GPUs of its model have; None if there is none."""
    others = [
        other.limit_w
        for other in seen
        if other is not one and other.limit_w and other.gpu.name == one.gpu.name
    ]
    if not others:
        return None
    most = max(set(others), key=others.count)
    return most if 2 * others.count(most) > len(others) else None


def judge_heat(seen: Sequence[Heat], unread: Sequence[Unread]) -> list[Finding]:
    """Returns findings on GPUs that are close to their slowdown temperature."""
    troubles: list[Finding] = []
    silent = list(unread)
    good: list[Heat] = []
    for one in seen:
        found = _hot(one)
        troubles += found
        if not found and _left(one) is None:
            silent.append(Unread(one.gpu.where, "the GPU does not report its slowdown temperature"))
        elif not found:
            good.append(one)
    hottest = max((one.degrees or 0 for one in good), default=0)
    nearest = min((_left(one) or 0 for one in good), default=0)
    measured = f"at most {hottest} °C, {nearest} °C below their slowdown at least"
    return answered(
        troubles, silent, len(good), measured=measured, expected=f"more than {MARGIN_MIN_C} °C", whence=STATED
    )


def _left(one: Heat) -> int | None:
    if one.left is not None:
        return one.left
    if one.degrees is None or not one.slowdown:
        return None
    return one.slowdown - one.degrees


def _hot(one: Heat) -> list[Finding]:
    left = _left(one)
    if left is not None and left <= MARGIN_MIN_C:
        degrees = f"{one.degrees} °C, " if one.degrees is not None else ""
        return [
            _heat(one, f"{degrees}{left} °C below its slowdown", f"more than {MARGIN_MIN_C} °C", RULE, "it")
        ]
    if one.memory is not None and one.memory_max and one.memory >= one.memory_max:
        return [_heat(one, f"memory {one.memory} °C", f"below {one.memory_max} °C", STATED, "its memory")]
    return []


def _heat(one: Heat, measured: str, expected: str, whence: str, what: str) -> Finding:
    return Finding(
        status=WARN,
        device=one.gpu.where,
        measured=measured,
        expected=expected,
        whence=whence,
        why=f"{what} is about to be slowed down by heat: {measured}",
        advice=advice(_COOL, one.gpu.where),
        category="thermal_throttle",
    )
