"""Judges device faults: the first cause of each incident, and the action. Pure.

The action is taken from the most trusted source: the driver's recovery action (Xid 154, nvidia-smi), then
state flags (row remap failed or pending), then the text beyond the code, then repetition on one device or on
many, then the table of codes. A judgement names the source that decided, and the sources that would act
differently.

Exoneration: an application error (Xid 13, 31, 43) on several GPUs, or the same fault on many devices within
30 s, is caused by the program, and the nodes stay in use.
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.diagnosis.devices.codes import recovery
from holdfast.core.diagnosis.devices.events import (
    Event,
    accounts_for,
    episodes,
    events,
    is_same_device,
)
from holdfast.core.diagnosis.devices.judgements import (
    Judgement,
    device_above,
    distinct_devices,
    headers,
    in_order,
    same_device,
    seconds_between,
)
from holdfast.core.diagnosis.devices.words import advice_of, title_of
from holdfast.core.diagnosis.events.boot import boot_complaints
from holdfast.core.diagnosis.events.host import judge_hosts
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.code_facts import CodeTables
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Role, Severity, Words

KINDS_MAX = 400  # different faults of one episode that are compared; more would take too long
TOGETHER_S = 30.0
MANY = 3
REPEAT_APART_S = 600.0  # the same code so much later is a second fault, not the tail of the first
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error", "fatal")


class Opinion(Struct, frozen=True):
    """The action that one source of information recommends for a device fault. `by`: name of the source, as in
    Judgement.decided_by.
    """

    by: str
    action: str
    why: Words | None = None


def judge(
    matches: Sequence[Match], sources: Sequence[Source], tables: CodeTables, known: KnowledgeBase
) -> tuple[Judgement, ...]:
    """Returns the judgement on every incident of devices and hosts, in order of their first matches.

    `matches`: all matches of a search; those of unknown signatures are skipped. A match belongs to at most
    one judgement. Complaints that a start of the machine explains are judged first, and explain nothing else.
    """
    at_boot = boot_complaints(in_order(matches), known)
    calm = {id(judgement.first) for judgement in at_boot}
    matches = [one for one in matches if id(one) not in calm]
    seen = events(matches, sources, tables, known)
    flags = _flags(matches, known)
    found = [judgement for episode in episodes(seen) for judgement in _of_episode(episode, seen, flags)]
    found = [_worded(judgement, known) for judgement in _exonerated(_one_each(found), seen, known)]
    taken = {id(one) for judgement in found for one in (judgement.first, *judgement.explained)}
    found += [
        judgement for judgement in judge_hosts(matches, sources, known) if id(judgement.first) not in taken
    ]
    found += at_boot
    return tuple(sorted(found, key=lambda judgement: (judgement.first.source, judgement.first.offset)))


class Flag(Struct, frozen=True):
    """A line in which a tool reports the state of a GPU. `device`: empty if unknown."""

    match: Match
    device: str


def _flags(matches: Sequence[Match], known: KnowledgeBase) -> list[Flag]:
    named = headers(matches, known.tagged("gpu-section"))
    return [Flag(one, device_above(one, named)) for one in matches if known.has("gpu-state-flag", one)]


def _of_episode(episode: Sequence[Event], seen: Sequence[Event], flags: Sequence[Flag]) -> list[Judgement]:
    """Returns one judgement for each category of the episode's unexplained events.

    A fault that repeats on one device is evaluated once, because error storms write the same line thousands
    of times.
    """
    same: dict[tuple[object, ...], list[Event]] = defaultdict(list)
    for event in episode:
        same[event.likeness].append(event)
    firsts = [alike[0] for alike in same.values()][:KINDS_MAX]
    explainers = {
        id(effect): [
            cause
            for at, cause in enumerate(firsts)
            if at != place and accounts_for(cause, effect, at < place)
        ]
        for place, effect in enumerate(firsts)
    }
    roots = [event for event in firsts if not explainers[id(event)]] or firsts[:1]
    owner = _owners(firsts, explainers, roots)
    groups: dict[str, list[Event]] = defaultdict(list)
    for root in roots:
        groups[root.match.category].append(root)
    likely = roots[0].match.category
    followers: dict[str, list[Event]] = defaultdict(list)
    for likeness, alike in same.items():
        category = owner.get(likeness, likely)
        followers[category] += [event for event in alike if event is not groups[category][0]]
    return [_judgement(group, followers[category], seen, flags) for category, group in groups.items()]


def _owners(
    firsts: Sequence[Event], explainers: dict[int, list[Event]], roots: Sequence[Event]
) -> dict[tuple[object, ...], str]:
    """Returns, for each kind of event, the category of the root event that explains it, directly or
    indirectly.
    """
    owner = {root.likeness: root.match.category for root in roots}
    for effect in firsts:
        ahead, known = [effect], {id(effect)}
        while ahead and effect.likeness not in owner:
            for cause in explainers[id(ahead.pop(0))]:
                if cause.likeness in owner:
                    owner[effect.likeness] = owner[cause.likeness]
                    break
                if id(cause) not in known:
                    known.add(id(cause))
                    ahead.append(cause)
    return owner


def _one_each(found: Sequence[Judgement]) -> list[Judgement]:
    """Returns the judgements with those on the same fault of the same device or node merged."""
    same: dict[tuple[str, str | None, str], list[Judgement]] = defaultdict(list)
    for judgement in found:
        device = judgement.devices[0] if judgement.devices else ""
        same[(judgement.category, judgement.host, device)].append(judgement)
    return [
        group[0]
        if len(group) == 1
        else replace(
            group[0],
            devices=distinct_devices(device for one in group for device in one.devices),
            explained=(
                *group[0].explained,
                *(match for one in group[1:] for match in (one.first, *one.explained)),
            ),
        )
        for group in same.values()
    ]


def _judgement(
    group: Sequence[Event], followers: Sequence[Event], seen: Sequence[Event], flags: Sequence[Flag]
) -> Judgement:
    root = group[0]
    opinions = _opinions(group, followers, seen, flags)
    decider = opinions[0] if opinions else Opinion("signature", "")
    verdicts = root.fact.verdicts if root.fact else {}
    others = {opinion.by: opinion.action for opinion in opinions[1:]}
    disagree = tuple(
        f"{source}: {action}"
        for source, action in {**others, **verdicts}.items()
        if decider.action and action != decider.action and source != decider.by
    )
    lost = (
        [event for event in followers if event.is_lost] if root.kind == "bus" else []
    )  # devices behind the port
    devices = distinct_devices(event.device for event in (*group, *lost))
    if not devices and root.is_lost:  # the next line names it
        devices = distinct_devices(event.device for event in followers if event.is_lost)
    return Judgement(
        first=root.match,
        category=root.match.category,
        role=_role(root),
        severity=_severity(group, decider.action),
        action=decider.action,
        devices=devices,
        host=root.node or None,
        decided_by=decider.by,
        why=decider.why,
        disagree=disagree,
        explained=tuple(event.match for event in followers),
        fact=root.fact,
        confidence=0.95 if root.gravity >= 2 else 0.85,
    )


def _severity(group: Sequence[Event], action: str) -> Severity:
    """Returns the severity of a device fault.

    A fault that needs an action ended the process, so it is at least an error, whatever the table of codes
    says.
    """
    grave = max(event.gravity for event in group)
    return SEVERITIES[max(grave, 2) if action not in ("", "none") else grave]


def _role(root: Event) -> Role:
    if root.is_further_detail or root.has("recovery-announcement-xid") and root.sub and root.sub.is_harmless:
        return "context"
    if root.kind in ("sxid", "fabric") and not root.is_fatal_word and root.fact is not None:
        verdicts = "; ".join(f"{source}: {action}" for source, action in root.fact.verdicts.items())
        return "context" if root.known.says("counted-as-no-fault", verdicts) else "cause"
    if root.kind == "npu" and root.code and (root.fact is None or root.fact.severity == "info"):
        return "context"  # not a code of an NPU, or one on which the vendor's own platform does not act
    return "cause"


def _opinions(
    group: Sequence[Event], followers: Sequence[Event], seen: Sequence[Event], flags: Sequence[Flag]
) -> list[Opinion]:
    """Returns the recommended actions, those of the most trusted source first; sources without one are
    left out.
    """
    root = group[0]
    near = [*group, *followers]
    found = [
        _announced(root, near, flags),
        _flagged(root, near, flags),
        _decoded(group),
        _repeated(root, seen),
        Opinion("table", root.fact.action, root.fact.meaning) if root.fact and root.fact.action else None,
    ]
    return [opinion for opinion in found if opinion is not None]


def _announced(root: Event, near: Sequence[Event], flags: Sequence[Flag]) -> Opinion | None:
    """Returns the recovery that the driver announced last for the GPU, else the recovery that a tool shows.

    None if there is neither.
    """
    said = [
        event.sub
        for event in near
        if event.has("recovery-announcement-xid")
        and event.sub is not None
        and (event is root or is_same_device(event, root) or not root.device)
    ]
    asking = [sub for sub in said if not sub.is_harmless]
    if said:
        sub = (asking or said)[-1]
        return Opinion("recovery action", sub.action, sub.says)
    advised = (
        recovery(flag.match.captures.get("name", ""), root.known.text("recovery-advised"), root.known)
        for flag in flags
        if root.known.has("recovery-advised", flag.match) and _is_of(flag, root)
    )
    needed = next((one for one in advised if one is not None and not one.is_harmless), None)
    return Opinion("recovery action", needed.action, needed.says) if needed else None


def _flagged(root: Event, near: Sequence[Event], flags: Sequence[Flag]) -> Opinion | None:
    """Returns the action for a row remap that failed or waits for a reset; None if no tool reports one."""
    if not (root.has("ecc-error-xid") or root.has("ecc-record-xid")):
        return None
    subs = [
        event.sub
        for event in near
        if event.has("row-remap-xid")
        and event.sub is not None
        and (event is root or is_same_device(event, root))
    ]
    own = [flag.match for flag in flags if _is_of(flag, root)]
    for action, is_flagged, says in (
        (
            "isolate_node",
            any(root.known.has("row-remap-failed", one) for one in own),
            Words(en="a row remap failed", zh="行重映射失败"),
        ),
        (
            "reset_gpu",
            any(root.known.has("row-remap-pending", one) for one in own),
            Words(en="a row remap waits for a reset", zh="行重映射待重置后生效"),
        ),
    ):
        if is_flagged:
            return Opinion("state flags", action, says)
        for sub in subs:
            if sub.action == action:
                return Opinion("state flags", action, sub.says)
    return None


def _is_of(flag: Flag, root: Event) -> bool:
    return not flag.device or not root.device or same_device(flag.device, root.device)


def _decoded(group: Sequence[Event]) -> Opinion | None:
    root = group[0]
    if root.kind in ("sxid", "fabric"):
        grave = (
            root.fact is not None and root.fact.severity == "error"
        )  # uncorrectable, though not called fatal
        if root.is_fatal_word:
            return None if root.fact is None or root.fact.action != "none" else Opinion("sub-code", "none")
        return Opinion("sub-code", "reset_gpu" if grave else "none")
    is_of_no_link = all(root.known.says("no-single-link", one.match.text) for one in group)
    if root.has("link-xid") and len(group) > 1 and is_of_no_link:
        says = Words(
            en="several GPUs of the node at the same time, and not only one link",
            zh="同一节点多块 GPU 同时出现，且不限于某条链路",
        )
        return Opinion("sub-code", "reboot_node", says)
    return Opinion("sub-code", root.sub.action, root.sub.says) if root.sub and root.sub.action else None


def _repeated(root: Event, seen: Sequence[Event]) -> Opinion | None:
    """Returns the action for an error code that repeats on one device and on no other; otherwise None."""
    rule = root.fact.repeats if root.fact else None
    if rule is None:
        return None
    again = [event for event in seen if event.code == root.code and event.kind == root.kind]
    if any(event.device and not is_same_device(event, root) for event in again):
        return None
    times = [
        between
        for event in again
        if (between := seconds_between(root.match, event.match)) is not None
        and REPEAT_APART_S <= abs(between) <= rule.within_s
    ]
    if len(times) + 1 < rule.count:
        return None
    says = Words(
        en=f"{len(times) + 1} times on this device and on no other within a day",
        zh=f"一天内仅在该设备上出现 {len(times) + 1} 次",
    )
    return Opinion("repetition", rule.action, says)


def _exonerated(found: Sequence[Judgement], seen: Sequence[Event], known: KnowledgeBase) -> list[Judgement]:
    """Returns the judgements, changed to blame the program where several devices have the same fault.

    That holds for an application error on several devices, and for any fault on many devices at the same
    time.
    """
    programs = [event for event in seen if event.kind == "xid" and event.has("program-xid")]
    several = _devices(programs) > 1
    return [
        _blames_program(judgement)
        if several and known.is_of("program-xid", judgement.category) or _is_of_many(judgement, seen)
        else judgement
        for judgement in found
    ]


def _worded(judgement: Judgement, known: KnowledgeBase) -> Judgement:
    device = judgement.devices[0] if judgement.devices else ""
    return replace(
        judgement,
        title=title_of(judgement.fact, device, known),
        advice=advice_of(judgement.fact, judgement.action, device, known),
    )


def _is_of_many(judgement: Judgement, seen: Sequence[Event]) -> bool:
    fact = judgement.fact
    if (
        fact is None
        or fact.kind != "xid"
        or not fact.program
        or fact.cause not in ("app", "driver", "unknown")
    ):
        return False
    near = [
        event
        for event in seen
        if event.code == fact.code
        and (between := seconds_between(judgement.first, event.match)) is not None
        and abs(between) <= TOGETHER_S
    ]
    return _devices(near) >= MANY


def _devices(group: Sequence[Event]) -> int:
    return len({(event.node, event.device.split(".")[0]) for event in group if event.device})


def _blames_program(judgement: Judgement) -> Judgement:
    kept = (*judgement.disagree, f"{judgement.decided_by}: {judgement.action}")
    return replace(
        judgement,
        action="fix_code",
        decided_by="exoneration",
        why=Words(
            en="several GPUs show it: the cause is the program, not the node",
            zh="多块 GPU 同时出现：原因是程序，不是节点",
        ),
        disagree=kept if judgement.action != "fix_code" else judgement.disagree,
    )
