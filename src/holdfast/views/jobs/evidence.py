"""Lists the evidence of an incident in order of time: log lines, exits, checks. Marks the first error.

Pure.
"""

import math
import re
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.core.hang.stack_groups import ranges
from holdfast.core.job.story import IncidentStory
from holdfast.core.job.story_lines import ALERT
from holdfast.core.job.story_parts import RankEnd
from holdfast.core.verdict.sentences import ended_by, exit_words
from holdfast.model.documents.incidents import CheckRow, EvidenceRow
from holdfast.model.documents.jobs import LogLine
from holdfast.model.documents.parts import LinePlace, Who
from holdfast.model.events import CheckFinding
from holdfast.model.signatures import Words
from holdfast.model.state import HangFault, NodeFault
from holdfast.model.verdicts import Evidence
from holdfast.views.sentence import sentence_zh

TEXT_MAX = 4_096
DEVICE_METRICS = "device-metrics"  # the kind of finding with device metrics from Prometheus
ALERT_BEFORE_S = 1_800.0  # an alert so long before an incident is evidence
MONITORED_MAX = 16  # of an incident, the newest
PLACED = re.compile(r"attempt-(?P<attempt>\d+)/worker-(?P<worker>\d+)/(?:rank-(?P<rank>\d+))?")


def evidence_rows(incident: IncidentStory, findings: Sequence[LogLine] = ()) -> tuple[EvidenceRow, ...]:
    """Returns all evidence of an incident in order of time.

    An item without a time follows the item that caused it. `findings`: log lines of the job; alerts and device
    metrics near the time of the incident become evidence. Their ids follow all others, because they may arrive later.
    """
    rows = _distinct(_in_time([*_faults(incident), *_exits(incident), *_lines(incident)]))
    rows += [_monitored(line) for line in findings if _is_about(line, incident)][-MONITORED_MAX:]
    numbered = [replace(row, id=f"{incident.number}.{place}") for place, row in enumerate(rows, 1)]
    return tuple(_in_time(numbered))


def _is_about(line: LogLine, incident: IncidentStory) -> bool:
    """Returns whether a log line is an alert near the time of the incident, or device metrics of the
    incident.
    """
    if line.finding == DEVICE_METRICS:
        return line.incident == incident.number
    if line.finding != ALERT:
        return False
    end_s = incident.found_at_s + incident.took_s if incident.took_s is not None else math.inf
    return incident.found_at_s - ALERT_BEFORE_S <= line.at_s <= end_s


def _monitored(line: LogLine) -> EvidenceRow:
    kind = "alert" if line.finding == ALERT else "metrics"
    return EvidenceRow(id="", text=line.text[:TEXT_MAX], kind=kind, at_s=line.at_s)


def check_rows(incident: IncidentStory) -> tuple[CheckRow, ...]:
    return tuple(_check(finding) for finding in incident.troubles)


def place_of(file: str, line: int | None, offset: int | None = None) -> LinePlace | None:
    """Returns where a piece of evidence is: file, attempt and worker, relative to the job's folder; None without a
    file.
    """
    if not file:
        return None
    found = PLACED.search(file)
    number = {key: int(value) for key, value in found.groupdict().items() if value} if found else {}
    return LinePlace(
        file=file,
        line=line,
        offset=offset,
        attempt=number.get("attempt"),
        worker=number.get("worker"),
        rank=number.get("rank"),
    )


def _lines(incident: IncidentStory) -> list[EvidenceRow]:
    verdict = incident.verdict
    if verdict is None:
        return []
    facts = list(verdict.evidence)
    first = verdict.first_error
    if first is not None and first not in facts:
        facts.insert(0, first)
    return [_line(one, incident, is_first=one == first) for one in facts]


def _line(one: Evidence, incident: IncidentStory, *, is_first: bool) -> EvidenceRow:
    place = place_of(one.file, one.line, one.offset)
    who = None
    if place is not None and (place.rank is not None or place.worker is not None):
        node = incident.nodes.get(place.worker) if place.worker is not None else None
        who = Who(rank=place.rank, worker=place.worker, node=node)
    kernel = one.file.endswith("kernel.log") or one.text.startswith("NVRM:")
    says = Words(en=one.says, zh=sentence_zh(one.says)) if one.says else None
    return EvidenceRow(
        id="",
        text=one.text[:TEXT_MAX],
        kind="kernel" if kernel else "line",
        says=says,
        at_s=one.at_s,
        who=who,
        place=place,
        signature=one.signature,
        first_error=is_first,
    )


def _exits(incident: IncidentStory) -> list[EvidenceRow]:
    """Returns a row for each rank that ended with an error. Equal exits at the same second form one row."""
    groups: dict[tuple[int | None, str, int], list[RankEnd]] = {}
    for one in incident.exits:
        if one.code:
            groups.setdefault((one.code, one.reason, round(one.at_s)), []).append(one)
    rows = []
    for (code, reason, _), ends in groups.items():
        first = ends[0]
        node = incident.nodes.get(first.worker)
        names = sorted(one.rank for one in ends if one.rank is not None)
        if names:
            who = f"rank {names[0]}" if len(names) == 1 else f"ranks {ranges(names)}"
        else:
            who = "the command" if len(incident.nodes) < 2 else f"the command of worker {first.worker}"
        was = "were" if len(names) > 1 else "was"
        how = f"{was} {ended_by(code)}" if code is not None and code < 0 else f"ended with {exit_words(code)}"
        rows.append(
            EvidenceRow(
                id="",
                text=f"{who} {how}" + (f": {reason}" if reason else ""),
                kind="exit",
                at_s=first.at_s,
                who=Who(rank=first.rank, worker=first.worker, node=node),
            )
        )
    return rows


def _faults(incident: IncidentStory) -> list[EvidenceRow]:
    """Returns rows for faults that are neither log lines nor exits: hangs and lost nodes."""
    rows = []
    for fault in incident.faults:
        if isinstance(fault, HangFault):
            who = Who(rank=fault.culprits[0]) if fault.culprits else None
            rows.append(_seen("hang", fault.reason, incident.found_at_s, who))
        elif isinstance(fault, NodeFault):
            text = f"node {fault.node} is lost: {fault.reason}"
            rows.append(_seen("node", text, incident.found_at_s, Who(node=fault.node)))
    return rows


def _seen(kind: str, text: str, at_s: float, who: Who | None) -> EvidenceRow:
    says = sentence_zh(text)
    return EvidenceRow(
        id="",
        text=text[:TEXT_MAX],
        kind=kind,
        says=Words(en=text[:TEXT_MAX], zh=says[:TEXT_MAX]) if says != text else None,
        at_s=at_s,
        who=who,
    )


def _check(finding: CheckFinding) -> CheckRow:
    return CheckRow(
        node=finding.node,
        check=finding.check,
        status=finding.status,
        text=finding.text,
        device=finding.device,
        advice=finding.advice,
    )


def _in_time(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Sorts rows by time. A row without a time stays behind the row before it."""
    keyed: list[tuple[float, int, EvidenceRow]] = []
    last_s = float("-inf")
    for number, row in enumerate(rows):
        last_s = row.at_s if row.at_s is not None else last_s
        keyed.append((last_s, number, row))
    return [row for _, _, row in sorted(keyed, key=lambda one: one[:2])]


def _distinct(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    kept: dict[tuple[str, str], EvidenceRow] = {}
    for row in rows:
        key = (row.text, row.place.file if row.place is not None else "")
        known = kept.get(key)
        if known is None or (row.first_error and not known.first_error):
            kept[key] = row
    return list(kept.values())
