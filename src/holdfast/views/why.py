"""Builds the output of `holdfast why`: the sentence, the evidence, the actions with reasons, the cost, the
advice.

It uses the documents that the web page shows. Log text is escaped. Prints nothing.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, tzinfo

from holdfast.core.plurals import counted
from holdfast.core.verdict.sentences import FOLLOWED
from holdfast.model.documents.incidents import EvidenceRow, IncidentDocument, RungRow
from holdfast.model.documents.jobs import JobDocument
from holdfast.model.documents.parts import Cost, LinePlace, Who
from holdfast.model.signatures import Words
from holdfast.views.jobs.incident import kept_evidence
from holdfast.views.jobs.phase import at_step
from holdfast.views.jobs.rungs import AWAY, NO_DEVICE, NO_HANG, NO_NODE, OWN_RUNG
from holdfast.views.languages import Language, said
from holdfast.views.lines import Line
from holdfast.views.phase_zh import phase_zh, reason_zh
from holdfast.views.sentence import clock, span
from holdfast.views.wrapping import cut, cut_left, shown, wrapped

EVIDENCE_MAX, WHO_MAX, ALSO_MAX = 8, 4, 4
DONE_LINES = 2  # per rung; its cause is shown above
LABEL = 12
INDENT = " " * LABEL
CLOCK_COLUMNS = 14
SAYS_MIN = 24  # columns for the meaning of a line; where fewer are left, it is not shown

_JOB = Words(en="job", zh="作业")
_VERDICT = Words(en="verdict", zh="结论")
_CULPRIT = Words(en="culprit", zh="责任方")
_FIRST = Words(en="first error", zh="首个错误")
_EVIDENCE = Words(en="evidence", zh="证据")
_OF = Words(en="{n} of {total}", zh="{total} 条中的 {n} 条")
_DONE = Words(en="done", zh="已处理")
_NOT_DONE = Words(en="not done", zh="未采取")
_COST = Words(en="cost", zh="代价")
_RESUMED = Words(en="losses", zh="损失值")
_CHECKPOINT = Words(en="checkpoint", zh="检查点")
_TO_DO = Words(en="to do", zh="建议")
_ALSO = Words(en="also", zh="其他可能")
_MORE = Words(en="more", zh="更多")
_NOTE = Words(en="note", zh="注意")
_STATE = Words(en="state", zh="状态")
_INCIDENT = Words(
    en="incident {n} of {total}, found {at}, attempt {attempt}",
    zh="第 {n}/{total} 次故障，发现于 {at}，第 {attempt} 次尝试",
)
_NONE = Words(en="no incident so far", zh="目前没有故障")
_SURE = Words(en="{n:.0%} sure", zh="置信度 {n:.0%}")
_NO_VERDICT = Words(en="none yet: the evidence is being gathered", zh="尚无：正在收集证据")
_FAILED = Words(en="the job failed: ", zh="作业失败：")
# Reasons that a reader sees without this line: the fault was none of those that these rungs are for.
_PLAIN = frozenset(words.en for words in (NO_DEVICE, NO_HANG, NO_NODE, AWAY, OWN_RUNG))
_SHADOW = Words(en="shadow mode, nothing was done: ", zh="仅记录，未执行：")
_DEVICES = Words(en=" x {devices} = {hours:.2f} device-hours", zh=" x {n} 个设备 = {hours:.2f} 卡时")
_REPEATED = Words(en="{steps} repeated", zh="重算 {n} 步")
_STEP = Words(en="step", zh="步")
_PARTS = {
    "detection": Words(en="detection", zh="发现"),
    "unsupervised": Words(en="unsupervised", zh="无人监管"),
    "diagnosis": Words(en="diagnosis", zh="定位"),
    "isolation": Words(en="isolation", zh="隔离"),
    "stopping": Words(en="stopping", zh="停止"),
    "placing": Words(en="placing", zh="安排节点"),
    "waiting": Words(en="waiting for a node", zh="等待节点"),
    "checks": Words(en="checks", zh="检查"),
    "healing": Words(en="healing", zh="恢复设备"),
    "starting": Words(en="starting", zh="启动"),
    "standing": Words(en="standing", zh="停滞"),
    "kept": Words(en="kept for inspection", zh="保留现场"),
    "repeated-steps": Words(en="repeated steps", zh="重算"),
}


def report(
    job: JobDocument,
    incident: IncidentDocument | None,
    language: Language,
    width: int,
    zone: tzinfo | None = None,
    *,
    asked: bool = False,
) -> Iterator[Line]:
    """Yields the lines of `holdfast why`. `incident`: the incident to explain; None if there is none.

    `asked`: True if the user named an incident, whose summary then comes first.
    """
    page = _Page(language, width, zone)
    head = incident.row.sentence if incident is not None and asked else job.row.sentence
    yield from page.wrapped(said(head.text, language), "strong")
    if incident is not None and incident.row.sentence != head:
        yield from page.wrapped(said(incident.row.sentence.text, language), "strong")
    yield Line()
    yield from page.job(job, incident)
    if incident is not None:
        yield from page.verdict(incident)
        yield from page.evidence(incident)
        yield from page.done(incident)
        yield from page.cost(incident.cost)
        yield from page.resumed(incident)
        yield from page.to_do(incident)
    yield from page.more(job, incident)
    for warning in job.warnings:
        yield from page.row(_NOTE, warning)


class _Page:
    """Settings of the output: language, width, time zone."""

    def __init__(self, language: Language, width: int, zone: tzinfo | None) -> None:
        self._language, self._width, self._zone = language, width, zone

    def wrapped(self, text: str, style: str = "") -> Iterator[Line]:
        for line in wrapped(shown(text), self._width):
            yield Line(line, style)

    def row(self, label: Words, text: str, style: str = "") -> Iterator[Line]:
        """Yields a label and its text, wrapped below the text's first column."""
        name = _padded(said(label, self._language))
        for line in wrapped(shown(text), max(20, self._width - LABEL)):
            yield Line(name + line, style)
            name = INDENT

    def job(self, job: JobDocument, incident: IncidentDocument | None) -> Iterator[Line]:
        row = job.row
        if incident is None:
            text = said(_NONE, self._language)
        else:
            text = said(_INCIDENT, self._language).format(
                n=incident.row.number,
                total=row.incidents,
                at=self._stamp(incident.row.found_at_s),
                attempt=incident.row.attempt,
            )
        yield from self.row(_JOB, f"{row.name}: {text}")
        words = at_step(job.phase_words, row.step)
        if self._language == "zh":
            words = phase_zh(words, incident.title if incident is not None else None)
        elif row.state not in words:
            words = f"{row.state}: {words}"
        yield from self.row(_STATE, words)

    def verdict(self, incident: IncidentDocument) -> Iterator[Line]:
        row = incident.row
        if not row.category:
            yield from self.row(_VERDICT, said(_NO_VERDICT, self._language))
            return
        sure = said(_SURE, self._language).format(n=row.confidence or 0.0)
        names = ", ".join(dict.fromkeys(filter(None, (row.category, row.class_))))
        yield from self.row(_VERDICT, f"{said(incident.title, self._language)} ({names}, {sure})")
        if row.who:
            named = "; ".join(_who(one) for one in row.who[:WHO_MAX])
            more = f" +{len(row.who) - WHO_MAX}" if len(row.who) > WHO_MAX else ""
            yield from self.row(_CULPRIT, named + more)
        if incident.also:
            others = ", ".join(f"{name} {sure:.0%}" for name, sure in list(incident.also.items())[:ALSO_MAX])
            yield from self.row(_ALSO, others)

    def evidence(self, incident: IncidentDocument) -> Iterator[Line]:
        rows = kept_evidence(incident.evidence, EVIDENCE_MAX)
        first = next((row for row in incident.evidence if row.first_error), None)
        if first is not None:
            where = f"{place_words(first.place)}  " if first.place is not None else ""
            yield from self.row(_FIRST, where + self._moment(first))
            for line in (*first.before, *wrapped(shown(first.text), self._width - LABEL)[:3], *first.after):
                yield Line(
                    INDENT + cut(shown(line), self._width - LABEL), "error" if line in first.text else "quiet"
                )
        if not rows:
            return
        count = said(_OF, self._language).format(n=len(rows), total=incident.evidence_total)
        yield from self.row(_EVIDENCE, count)
        for row in rows:
            yield self._evidence(row)

    def done(self, incident: IncidentDocument) -> Iterator[Line]:
        for rung in incident.rungs:
            if rung.chosen:
                yield from self.row(
                    _DONE, cut(shown(self._rung(rung, incident.title)), DONE_LINES * (self._width - LABEL))
                )
        if any(rung.chosen and rung.rung == "fail" for rung in incident.rungs):
            return  # its reason says already why nothing else was done
        others = [self._why(rung) for rung in incident.rungs if not rung.chosen and rung.why not in _PLAIN]
        if others:
            yield from self.row(_NOT_DONE, "; ".join(dict.fromkeys(others)))

    def cost(self, cost: Cost | None) -> Iterator[Line]:
        if cost is None or not cost.lost_s:
            return
        text = said(span(cost.lost_s), self._language)
        if cost.devices:
            text += said(_DEVICES, self._language).format(
                devices=counted(cost.devices, "device"), n=cost.devices, hours=cost.device_hours
            )
        parts = [
            f"{said(_PARTS.get(what, Words(en=what, zh=what)), self._language)} {said(span(seconds), self._language)}"
            for what, seconds in cost.by_cause.items()
            if round(seconds)
        ]
        text += f": {', '.join(parts)}" if parts else ""
        if cost.steps_repeated:
            steps = counted(cost.steps_repeated, "step")
            text += "; " + said(_REPEATED, self._language).format(steps=steps, n=cost.steps_repeated)
        yield from self.row(_COST, text)

    def resumed(self, incident: IncidentDocument) -> Iterator[Line]:
        if incident.checkpoint is not None:
            yield from self.row(_CHECKPOINT, said(incident.checkpoint, self._language))
        if incident.resume is not None:
            yield from self.row(_RESUMED, said(incident.resume, self._language))

    def to_do(self, incident: IncidentDocument) -> Iterator[Line]:
        if incident.advice is not None:
            yield from self.row(_TO_DO, said(incident.advice, self._language))
        for check in incident.checks:
            if check.advice:
                yield from self.row(_TO_DO, f"{check.node}: {check.text}. {check.advice}")

    def more(self, job: JobDocument, incident: IncidentDocument | None) -> Iterator[Line]:
        name = job.row.name
        words = [f"holdfast log {name}"]
        rank = (
            next((one.rank for one in incident.row.who if one.rank is not None), None) if incident else None
        )
        if incident is not None and rank is not None:
            words.append(f"holdfast logs {name} --rank {rank} --attempt {incident.row.attempt}")
        if incident is not None and incident.has_bundle:
            words.append(f"holdfast diagnose {name}")
        for place, text in enumerate(words):
            yield from self.row(_MORE if not place else Words(en="", zh=""), text)

    def _evidence(self, row: EvidenceRow) -> Line:
        says = said(row.says, self._language) if row.says is not None else ""
        text = shown(row.text)
        many = f" x{row.count}" if row.count > 1 else ""
        place = ""
        if row.place is not None:
            where = place_words(row.place)
            place = f"  {cut_left(where, max(12, self._width // 3))}"
        room = max(20, self._width - len("  ") - CLOCK_COLUMNS - len(place) - len(many))
        if _says_more(row) and (left := room - len(text) - len("  []")) >= SAYS_MIN:
            text += f"  [{cut(shown(says), left)}]"
        line = f"  {self._moment(row):<{CLOCK_COLUMNS}}{cut(text, room)}{many}{place}"
        return Line(line, "error" if row.first_error else "")

    def _rung(self, rung: RungRow, title: Words) -> str:
        before = said(_SHADOW, self._language) if rung.shadow else ""
        at = f"{clock(rung.at_s, self._zone)} " if rung.at_s is not None else ""
        if rung.rung != "fail":
            return f"{at}{before}{self._why(rung)}"
        why = reason_zh(rung.why, title) if self._language == "zh" else rung.why
        return f"{at}{before}{said(_FAILED, self._language)}{why}"

    def _why(self, rung: RungRow) -> str:
        return said(rung.says, self._language) if rung.says is not None else rung.why

    def _moment(self, row: EvidenceRow) -> str:
        """Formats a time with tenths of a second: `03:12:07.2`."""
        if row.at_s is None:
            return ""
        return f"{clock(row.at_s, self._zone)}.{int(row.at_s * 10) % 10}"

    def _stamp(self, at_s: float) -> str:
        return f"{datetime.fromtimestamp(at_s, self._zone):%Y-%m-%d %H:%M:%S}"


def _says_more(row: EvidenceRow) -> bool:
    """Returns True if the explanation of a line says more than the line itself."""
    if row.says is None or row.says.en in ("", FOLLOWED):
        return False
    return row.says.en not in row.text and row.text not in row.says.en


def place_words(place: LinePlace) -> str:
    """Formats a position in a log: `attempt-001/worker-0/rank-2.log:1812`."""
    return f"{place.file}:{place.line}" if place.line is not None else place.file


def _who(one: Who) -> str:
    parts: Sequence[str] = (
        f"rank {one.rank}" if one.rank is not None else "",
        f"worker {one.worker}" if one.worker is not None else "",
        one.node or "",
        f"device {one.device}" if one.device else "",
    )
    return ", ".join(filter(None, parts))


def _padded(name: str) -> str:
    """Pads a label to the width of its column; a Chinese character takes two columns."""
    wide = sum(2 if ord(letter) > 0x2E7F else 1 for letter in name)
    return name + " " * max(1, LABEL - wide)
