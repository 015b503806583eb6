"""Judges host faults that several lines show together. Pure.

These are OOM kills, storage servers that fail and recover, and error rates. Links and machine checks have modules
of their own.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from holdfast.core.diagnosis.devices.judgements import (
    Judgement,
    device_above,
    headers,
    host_of,
    in_order,
)
from holdfast.core.diagnosis.events.boot import removable_disks
from holdfast.core.diagnosis.events.links import link_changes
from holdfast.core.diagnosis.events.machine_checks import machine_checks
from holdfast.core.diagnosis.events.outages import back_words, is_back, merged, outage_s
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words

SHORT_OUTAGE_S = 60.0  # of a file server
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
        *link_changes(ordered, sources, known),
        *_storage(ordered, sources, known),
        *_corrected(ordered, sources, known),
        *_widths(ordered, known),
        *_crashes(ordered, sources, known),
        *machine_checks(ordered, sources, known),
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
            en=f"killed process: {who or 'unknown'}" + (f"; limit of {limit}" if limit else ""),
            zh=f"被杀进程：{who_zh or '未知'}" + (f"，限额 {limit}" if limit else ""),
        ),
        explained=tuple(report[1:]),
        confidence=0.97 if is_cgroup or is_global else 0.8,
    )


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
        has_recovered = is_back(downs, ups)
        outages_s = [length for down in downs if (length := outage_s(down, ups)) is not None]
        longest_s = max(outages_s, default=None) if has_recovered else None
        short = longest_s is not None and longest_s < SHORT_OUTAGE_S
        found.append(
            Judgement(
                first=downs[0],
                category="nfs_lustre_stall",
                severity="warning" if short else "error",
                host=host or None,
                decided_by="recovered" if has_recovered else "signature",
                why=back_words(1, longest_s)
                if has_recovered
                else Words(en="it did not recover", zh="未恢复"),
                explained=tuple(one for one in (*downs, *slow) if one is not downs[0]),
                confidence=0.85,
            )
        )
    return merged(found)


def _corrected(ordered: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> list[Judgement]:
    """Returns judgements on corrected errors.

    They are a cause if there are many, or if the log contains little else and no job continues.
    """
    is_going_on = any(source.last_step_offset is not None for source in sources)
    by_part: dict[tuple[int, str, str], list[Match]] = defaultdict(list)
    detailed = {
        one.source for one in ordered if known.has("corrected-error-location", one)
    }  # which memory it was
    heads = [one for one in ordered if known.has("corrected-error-header", one) and one.source in detailed]
    for one in ordered:
        is_header = known.has("corrected-error-header", one)
        if known.has("corrected-error", one) and not (is_header and one.source in detailed):
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
    return merged(found)


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
    return merged(
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
    return merged(found)


def _counted(captures: Mapping[str, str]) -> int:
    count = captures.get("count", "")
    return int(count[:9]) if count.isdigit() else 1
