"""Judges host faults that several lines show together. Pure.

These are OOM kills, links and storage servers that fail and recover, and error rates.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.devices.judgements import (
    Judgement,
    device_above,
    headers,
    host_of,
    in_order,
    seconds_between,
)
from holdfast.core.diagnosis.events.boot import boot_complaints, is_at_boot, removable_disks
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words

SHORT_OUTAGE_S = 60.0  # of a file server
SHORT_BREAK_S = 30.0  # of a link: collectives wait 4.3 s eight times by default
CORRECTED_MANY = 10
CORRECTED_FEW = 0.35  # the weight of a few of them: nothing failed
EXCERPT_BYTES = 32 << 10
REPORT_BYTES = 16 << 10  # between two lines of one report of the OOM killer


def judge_hosts(matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements on OOM kills, links, network storage, corrected errors, narrow PCIe links and crashes of
    hosts.
    """
    ordered = in_order(matches)
    return [
        *_kills(ordered, sources, known),
        *_links(ordered, sources, known),
        *_storage(ordered, sources, known),
        *_corrected(ordered, sources, known),
        *_widths(ordered, known),
        *_crashes(ordered, sources, known),
        *boot_complaints(ordered, known),
        *removable_disks(ordered, known),
    ]


def _kills(ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns one judgement for each report of the OOM killer; its first match is the line that starts the
    report.
    """
    reports: list[list[Match]] = []
    for one in ordered:
        if not known.has("oom-report", one):
            continue
        current = reports[-1] if reports else None
        if known.has("oom-report-trace", one) and not _is_within(one, current):
            continue
        if current is None or current[0].source != one.source or _begins(one, current, known):
            reports.append([one])
        else:
            current.append(one)
    return [_kill(report, host_of(report[0], sources, known), known) for report in reports]


def _is_within(one: Match, report: Sequence[Match] | None) -> bool:
    last = report[-1] if report else None
    return last is not None and last.source == one.source and one.offset - last.offset < REPORT_BYTES


def _begins(one: Match, report: Sequence[Match], known: KnowledgeBase) -> bool:
    if known.has("oom-report-begins", one):
        return True
    pids = {other.captures["pid"] for other in report if "pid" in other.captures}
    pid = one.captures.get("pid")
    return bool(pids) and pid is not None and pid not in pids


def _kill(report: Sequence[Match], host: str, known: KnowledgeBase) -> Judgement:
    is_cgroup = any(known.has("oom-of-cgroup", one) for one in report)
    is_global = any(known.has("oom-of-host", one) for one in report)
    name = next((one.captures["name"] for one in report[1:] if "name" in one.captures), "")
    pid = next((one.captures["pid"] for one in report if "pid" in one.captures), "")
    limit = next((one.captures["limit"] for one in report if "limit" in one.captures), "")
    asker = report[0].captures.get("name", "") if known.has("oom-report-begins", report[0]) else ""
    killed = name or asker
    parts = [killed, f"pid {pid}" if pid else "", f"memory requested by {asker}" if name and asker else ""]
    who = ", ".join(part for part in parts if part)
    who_zh = killed + (f"(pid {pid})" if pid else "")
    return Judgement(
        first=report[0],
        category="cgroup_oom" if is_cgroup else "host_oom",
        severity="fatal",
        host=host or None,
        why=Words(
            en=f"killed: {who or 'a process'}" + (f"; limit of {limit}" if limit else ""),
            zh=f"被杀进程：{who_zh or '未知'}" + (f"，限额 {limit}" if limit else ""),
        ),
        explained=tuple(report[1:]),
        confidence=0.97 if is_cgroup or is_global else 0.8,
    )


def _links(ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements on network links: flapped if the link came up again, otherwise down.

    Changes during a boot are no fault.
    """
    by_name: dict[tuple[str, str], list[Match]] = defaultdict(list)
    boots = [one for one in ordered if known.has("kernel-boot", one)]
    for one in ordered:
        if known.has("link-down", one) or known.has("link-up", one):
            name = one.captures.get("name") or one.captures.get("device", "")
            by_name[(host_of(one, sources, known), name)].append(one)
    found = []
    for (host, name), seen in by_name.items():
        downs = [one for one in seen if known.has("link-down", one)]
        ups = [one for one in seen if known.has("link-up", one)]
        if not downs:
            continue
        is_back = _is_back(downs, ups) or _came_between(downs, ups)
        is_boot = all(is_at_boot(one, boots) for one in downs)
        outage_s = _outage_s(downs[0], ups) if is_back else None
        times = sum(one.count for one in downs)
        short = is_back and times == 1 and outage_s is not None and outage_s < SHORT_BREAK_S
        found.append(
            Judgement(
                first=downs[0],
                category="nic_link_flap" if is_back else "nic_down",
                role="context" if is_boot else "cause",
                severity="warning" if short or is_boot else "error",
                devices=(name,) if name else (),
                host=host or None,
                decided_by="recovered" if is_back else "signature",
                why=_back_words(times, outage_s) if is_back else Words(en="it did not recover", zh="未恢复"),
                explained=tuple(one for one in downs if one is not downs[0]),
                confidence=0.85 if is_back else 0.8,
                title=_flap_title(name, host, outage_s if times == 1 else None) if is_back else None,
            )
        )
    return _merged(found)


def _storage(ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements on storage servers that do not respond, with the length of the outage if they
    recovered.
    """
    by_server: dict[tuple[str, str], list[Match]] = defaultdict(list)
    for one in ordered:
        if known.has("storage-down", one) or known.has("storage-up", one):
            is_of_one = not known.has("storage-of-many-servers", one)
            server = one.captures.get("peer", "") if is_of_one else ""
            by_server[(host_of(one, sources, known), server)].append(one)
    found = []
    for (host, _), seen in by_server.items():
        downs = [one for one in seen if known.has("storage-down", one)]
        ups = [one for one in seen if known.has("storage-up", one)]
        if not downs:
            continue
        slow = [one for one in downs if known.says("slow-storage-reply", one.text)]
        downs = [one for one in downs if one not in slow] or downs
        is_back = _is_back(downs, ups)
        outages_s = [length for down in downs if (length := _outage_s(down, ups)) is not None]
        outage_s = max(outages_s, default=None) if is_back else None
        short = outage_s is not None and outage_s < SHORT_OUTAGE_S
        found.append(
            Judgement(
                first=downs[0],
                category="nfs_lustre_stall",
                severity="warning" if short else "error",
                host=host or None,
                decided_by="recovered" if is_back else "signature",
                why=_back_words(1, outage_s) if is_back else Words(en="it did not recover", zh="未恢复"),
                explained=tuple(one for one in (*downs, *slow) if one is not downs[0]),
                confidence=0.85,
            )
        )
    return _merged(found)


def _corrected(ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements on corrected errors.

    They are a cause if there are many, or if the log contains little else and no job continues.
    """
    is_going_on = any(source.last_step_offset is not None for source in sources)
    by_part: dict[tuple[int, str, str], list[Match]] = defaultdict(list)
    told = {
        one.source for one in ordered if known.has("corrected-error-location", one)
    }  # which memory it was
    heads = [one for one in ordered if known.has("corrected-error-header", one) and one.source in told]
    for one in ordered:
        is_header = known.has("corrected-error-header", one)
        if known.has("corrected-error", one) and not (is_header and one.source in told):
            part = one.captures.get("device") or one.captures.get("name", "")
            by_part[(one.source, one.signature, part)].append(one)
    found = []
    for (source, _, part), seen in by_part.items():
        events = sum(max(one.count, _counted(one.captures)) for one in seen)
        is_many = events >= CORRECTED_MANY
        is_shown = not is_going_on and _is_excerpt(source, ordered, sources)
        found.append(
            Judgement(
                first=seen[0],
                category=seen[0].category,
                role="cause" if is_many or is_shown else "context",
                severity="warning",
                action="none",
                devices=(part,) if part and ":" in part else (),
                host=host_of(seen[0], sources, known) or None,
                why=Words(en=f"{events} corrected errors in all", zh=f"共 {events} 个已纠正错误"),
                explained=(*seen[1:], *(one for one in heads if one.source == source)),
                confidence=0.75 if is_many else CORRECTED_FEW,
            )
        )
    return _merged(found)


def _is_excerpt(source: int, ordered: Sequence[Match], sources: Sequence[Source]) -> bool:
    """Returns whether a log is an excerpt that a person selected: it is small, and most of it is about
    faults.
    """
    if source >= len(sources) or sources[source].size_bytes >= EXCERPT_BYTES:
        return False
    lines = {one.offset: len(one.text) * one.count for one in ordered if one.source == source}
    return sum(lines.values()) * 2 >= sources[source].size_bytes


def _crashes(ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements on crashes of unknown programs.

    Such programs crash on healthy nodes too, so a crash counts only if the log contains little else.
    """
    seen = [
        one
        for one in ordered
        if known.has("crash-of-program", one) and _is_excerpt(one.source, ordered, sources)
    ]
    return _merged(
        [
            Judgement(
                first=one,
                category=one.category,
                severity="fatal",
                host=host_of(one, sources, known) or None,
                confidence=0.7,
            )
            for one in seen
        ]
    )


def _widths(ordered: Sequence[Match], known: KnowledgeBase) -> list[Judgement]:
    named = headers(ordered, known.tagged("pci-device-section"))
    found = [
        Judgement(
            first=one,
            category="pcie_link_downgrade",
            severity="warning",
            devices=tuple(device for device in (device_above(one, named),) if device),
            confidence=0.7,
        )
        for one in ordered
        if known.has("narrow-pcie-link", one)
    ]
    return _merged(found)


def _merged(found: Sequence[Judgement]) -> list[Judgement]:
    """Returns the judgements with those of the same category, role and host merged: several switch ports,
    several DIMMs.
    """
    groups: dict[tuple[str, str, str | None], list[Judgement]] = defaultdict(list)
    for judgement in found:
        groups[(judgement.category, judgement.role, judgement.host)].append(judgement)
    made = []
    for group in groups.values():
        group.sort(key=lambda judgement: (judgement.first.source, judgement.first.offset))
        head, rest = group[0], group[1:]
        worst = next((one for one in group if one.severity == "error"), head)
        made.append(
            replace(
                head,
                severity=worst.severity,
                devices=tuple(dict.fromkeys(name for one in group for name in one.devices)),
                explained=(
                    *head.explained,
                    *(one for other in rest for one in (other.first, *other.explained)),
                ),
            )
        )
    return made


def _came_between(downs: Sequence[Match], ups: Sequence[Match]) -> bool:
    """Returns whether something was up between two failures, whatever its current state is."""
    return any(
        down.source == up.source and down.offset < up.last_offset and up.offset < other.last_offset
        for down in downs
        for other in downs
        for up in ups
        if other.source == down.source and other.last_offset > down.offset
    )


def _is_back(downs: Sequence[Match], ups: Sequence[Match]) -> bool:
    """Returns whether something came up again after its last failure."""
    last = max(downs, key=lambda one: (one.source, one.last_offset))
    return any(
        up.source == last.source
        and max(up.offset, up.last_offset) > max(last.offset, last.last_offset)
        or up.source != last.source
        and (between := seconds_between(last, up)) is not None
        and between >= 0
        for up in ups
    )


def _outage_s(down: Match, ups: Sequence[Match]) -> float | None:
    """Returns the seconds from the first failure to the next recovery; None without comparable times."""
    lengths = [length for up in ups if (length := seconds_between(down, up)) is not None and length >= 0]
    return min(lengths, default=None)


def _back_words(times: int, outage_s: float | None) -> Words:
    length_en = f", {outage_s:.0f} s" if outage_s is not None else ""
    length_zh = f"，{outage_s:.0f} 秒" if outage_s is not None else ""
    return Words(
        en=f"{times} interruption(s){length_en}, then recovered", zh=f"中断 {times} 次{length_zh}，随后恢复"
    )


def _flap_title(name: str, host: str, outage_s: float | None) -> Words:
    where = " ".join(part for part in (name, f"on {host}" if host else "") if part)
    where_zh = " ".join(part for part in (host, name) if part)
    length_en = f" for {outage_s:.0f} s" if outage_s is not None else ""
    length_zh = f" {outage_s:.0f} 秒" if outage_s is not None else ""
    return Words(
        en=f"a network link was down{length_en} and came up again" + (f": {where}" if where else ""),
        zh=f"网络链路中断{length_zh}后恢复" + (f"：{where_zh}" if where_zh else ""),
    )


def _counted(captures: Mapping[str, str]) -> int:
    count = captures.get("count", "")
    return int(count[:9]) if count.isdigit() else 1
