"""Lists which actions of the recovery ladder (rungs) were chosen for an incident, and why the others were rejected.
Pure.

It applies the rules of docs/ladder.md and `core.job.ladder` to the faults, the policy and the counters of the
incident.
"""

import re
from collections.abc import Callable

from msgspec import Struct

from holdfast.core.job.story import IncidentStory
from holdfast.core.job.story_parts import RungTaken
from holdfast.late_pattern import late
from holdfast.model.documents.incidents import RungRow
from holdfast.model.policy import Policy
from holdfast.model.signatures import Words
from holdfast.model.state import CheckFault, DeviceFault, HangFault, NodeFault
from holdfast.views.sentence import sentence_zh

BECAUSE = ", because "
HUNG = late(r"(?:the job|it) hung(?: again)? \((.*)\)", re.DOTALL)
ACTIONS_ZH = {
    "in-place": "结束所有进程，在原 worker 中重启",
    "hang-restart": "在原 worker 中重启",
    "replace-worker": "隔离节点并替换 worker",
    "reschedule-isolated": "隔离节点并重新调度作业",
    "reschedule-unconditional": "重新调度作业",
    "wait-for-node": "等待健康节点",
    "notify": "保持训练现状",
    "fail": "作业失败",
}
NO_DEVICE = Words(en="no device reported a recoverable fault", zh="没有设备报告可恢复的故障")
NOT_HEALED = Words(en="the device did not recover, or failed too often", zh="设备未恢复，或故障次数过多")
NO_HANG = Words(en="the job did not hang", zh="作业没有挂起")
HANG_OFF = Words(en="hang restart is off (--hang-restart)", zh="未开启挂起重启（--hang-restart）")
NO_NODE = Words(en="no node is at fault", zh="没有节点出错")
REPLACE_OFF = Words(
    en="replacing single workers is off (--replace-workers is not set)",
    zh="未允许单独替换 worker（未设置 --replace-workers）",
)
REPLACED = Words(en="all replacements are used up ({n})", zh="替换次数已用完（{n} 次）")
AWAY = Words(en="a node is at fault, so the job moves to other nodes", zh="有节点出错，作业将离开该节点")
OWN_RUNG = Words(en="hangs are handled by another rung", zh="挂起另有处理方式")
EXITS_OFF = Words(
    en="restart on such an exit is off (--unconditional-restart)",
    zh="此类退出不重启（--unconditional-restart）",
)
NO_RESTART = Words(
    en="no restart is allowed (--max-restarts is not set)", zh="未允许重启（未设置 --max-restarts）"
)
RESTARTED = Words(en="all restarts are used up ({n})", zh="重启次数已用完（{n} 次）")


class _Case(Struct, frozen=True, kw_only=True):
    """The facts about an incident that decide which rungs are possible."""

    policy: Policy
    is_hang: bool
    has_device: bool
    has_node: bool
    restarts: int  # before the choice
    replacements: int


def rung_rows(incident: IncidentStory, policy: Policy) -> tuple[RungRow, ...]:
    """Returns the chosen actions with their times, then the rejected ones in the order of the ladder."""
    chosen = [
        RungRow(rung=one.rung, why=one.why, says=_said(one), at_s=one.at_s, shadow=one.shadow)
        for one in incident.rungs
    ]
    if not chosen:
        return ()
    taken = {one.rung for one in chosen}
    case = _case(incident, policy)
    others = [
        RungRow(rung=rung, why=why.en, says=why, chosen=False)
        for rung, reason_of in _WHY_NOT.items()
        if rung not in taken and (why := reason_of(case))
    ]
    return (*chosen, *others)


def _said(taken: RungTaken) -> Words:
    """Returns a choice in both languages.

    For the rung `fail`, the journal has only the cause (core.job.ladder).
    """
    action, because, cause = taken.why.partition(BECAUSE)
    if not because and taken.rung == "fail":
        cause = action
    zh = ACTIONS_ZH.get(taken.rung, taken.rung)
    if (hang := HUNG.fullmatch(cause)) is not None:
        return Words(en=taken.why, zh=f"{zh}，原因：作业挂起（{sentence_zh(hang[1])}）")
    return Words(en=taken.why, zh=f"{zh}，原因：{sentence_zh(cause)}" if cause else zh)


def _case(incident: IncidentStory, policy: Policy) -> _Case:
    first = incident.rungs[0]
    faults = incident.faults
    counted = "schedule" in first.rung
    return _Case(
        policy=policy,
        is_hang=bool(faults) and isinstance(faults[0], HangFault),
        has_device=any(isinstance(fault, DeviceFault) for fault in faults),
        has_node=any(
            isinstance(fault, NodeFault | CheckFault) or (isinstance(fault, DeviceFault) and fault.steps_up)
            for fault in faults
        ),
        restarts=first.restarts - counted,
        replacements=first.replacements - (first.rung == "replace-worker"),
    )


def _in_place(case: _Case) -> Words | None:
    if not case.has_device:
        return NO_DEVICE
    if case.policy.max_restarts is None and case.policy.replace_workers is None:
        return NO_RESTART
    return NOT_HEALED if case.has_node else None


def _hang(case: _Case) -> Words | None:
    if not case.is_hang:
        return NO_HANG
    return None if case.policy.hang_restart else HANG_OFF


def _replace(case: _Case) -> Words | None:
    if not case.has_node:
        return NO_NODE
    if case.policy.replace_workers is None:
        return REPLACE_OFF
    if case.replacements >= case.policy.replace_workers:
        return _with_number(REPLACED, case.policy.replace_workers)
    return None


def _isolated(case: _Case) -> Words | None:
    return _no_restart(case) if case.has_node else NO_NODE


def _unconditional(case: _Case) -> Words | None:
    if refused := _no_restart(case):
        return refused
    if case.has_node:
        return AWAY
    if case.is_hang:
        return OWN_RUNG
    return None if case.policy.unconditional_restart else EXITS_OFF


def _no_restart(case: _Case) -> Words | None:
    if case.policy.max_restarts is None:
        return NO_RESTART
    if case.restarts >= case.policy.max_restarts:
        return _with_number(RESTARTED, case.policy.max_restarts)
    return None


def _with_number(words: Words, number: int) -> Words:
    return Words(en=words.en.format(n=number), zh=words.zh.format(n=number))


_WHY_NOT: dict[str, Callable[[_Case], Words | None]] = {
    "in-place": _in_place,
    "hang-restart": _hang,
    "replace-worker": _replace,
    "reschedule-isolated": _isolated,
    "reschedule-unconditional": _unconditional,
}
