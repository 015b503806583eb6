"""Formats an incident as Markdown for a ticket: the sentence, a table, the evidence, the actions. Pure."""

from holdfast.core.job.wording import culprit_words
from holdfast.model.documents.incidents import EvidenceRow, IncidentDocument
from holdfast.model.documents.parts import Who
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit
from holdfast.parsers.log_lines.secrets import masked
from holdfast.settings.times import stamp
from holdfast.views.languages import Language, said
from holdfast.views.sentence import span

EVIDENCE_MAX = 12
QUOTE_CHARS_MAX = 400
HEADS = {
    "job": Words(en="job", zh="作业"),
    "found": Words(en="found", zh="发现时间"),
    "cause": Words(en="cause", zh="原因"),
    "who": Words(en="who", zh="定位"),
    "action": Words(en="action", zh="处置"),
    "cost": Words(en="cost", zh="损失"),
    "resumed": Words(en="losses", zh="损失值"),
    "checkpoint": Words(en="checkpoint", zh="检查点"),
    "advice": Words(en="Advice", zh="建议"),
    "evidence": Words(en="Evidence", zh="证据"),
    "more": Words(en="further pieces of evidence", zh="条其他证据"),
    "sure": Words(en="sure", zh="置信度"),
    "corrections": Words(en="Corrections by users", zh="人工更正"),
}


def incident_markdown(document: IncidentDocument, language: Language = "en") -> str:
    """Returns the Markdown of an incident.

    Masks secrets, and escapes log text so that it cannot end its code span or table cell.
    """
    row = document.row

    def head(name: str) -> str:
        return said(HEADS[name], language)

    lines = [
        f"**{_plain(said(row.sentence.text, language))}**",
        "",
        f"| | {_cell(said(document.title, language))} |",
        "|---|---|",
    ]
    lines += [
        f"| {head('job')} | `{_code(document.job)}`, incident {row.number} |",
        f"| {head('found')} | {stamp(row.found_at_s)} |",
    ]
    if row.category:
        sure = f", {row.confidence:.0%} {head('sure')}" if row.confidence is not None else ""
        lines.append(f"| {head('cause')} | `{_code(row.category)}`{sure} |")
    if row.who:
        lines.append(f"| {head('who')} | {_cell('; '.join(map(_who, row.who)))} |")
    chosen = [one for one in document.rungs if one.chosen]
    if chosen:
        lines.append(f"| {head('action')} | {_cell(chosen[-1].why)} |")
    if document.cost is not None:
        hours = f", {document.cost.device_hours:.2g} GPU·h" if document.cost.devices else ""
        lines.append(f"| {head('cost')} | {said(span(document.cost.lost_s), language)}{hours} |")
    if document.checkpoint is not None:
        lines.append(f"| {head('checkpoint')} | {_cell(said(document.checkpoint, language))} |")
    if document.resume is not None:
        lines.append(f"| {head('resumed')} | {_cell(said(document.resume, language))} |")
    if document.advice is not None:
        lines += ["", f"### {head('advice')}", "", _plain(said(document.advice, language))]
    shown = document.evidence[:EVIDENCE_MAX]
    if shown:
        lines += ["", f"### {head('evidence')}", "", *(_evidence(one, language) for one in shown)]
        left = document.evidence_total - len(shown)
        if left > 0:
            lines.append(f"- {left} {head('more')}")
    if document.corrections:
        lines += ["", f"### {head('corrections')}", ""]
        lines += [
            f"- `{_code(one.category)}`: {_plain(one.text)} ({_plain(one.by)}, {stamp(one.at_s)})"
            for one in document.corrections
        ]
    return "\n".join(lines) + "\n"


def _evidence(row: EvidenceRow, language: Language) -> str:
    when = f"{stamp(row.at_s)} " if row.at_s is not None else ""
    where = ""
    if row.place is not None:
        where = (
            f" (`{_code(row.place.file)}"
            + (f":{row.place.line}" if row.place.line is not None else "")
            + "`)"
        )
    says = f" {_plain(said(row.says, language))}" if row.says is not None else ""
    text = f"`{_code(row.text)}`"
    return f"- {when}{f'**{text}**' if row.first_error else text}{where}{says}"


def _who(who: Who) -> str:
    return culprit_words(Culprit(rank=who.rank, worker=who.worker, host=who.node, device=who.device))


def _line(text: str) -> str:
    shown = "".join(c if c.isprintable() or c.isspace() else "?" for c in masked(text))
    line = " ".join(shown.split())
    return line if len(line) <= QUOTE_CHARS_MAX else line[: QUOTE_CHARS_MAX - 1] + "…"


def _code(text: str) -> str:
    """Escapes a text for a code span, also inside a table."""
    return _line(text).replace("`", "'").replace("|", "\\|")


def _plain(text: str) -> str:
    """Escapes characters with a meaning in Markdown and HTML."""
    line = _line(text)
    for mark in "\\`*_[]<>#|":
        line = line.replace(mark, f"\\{mark}")
    return line


def _cell(text: str) -> str:
    return _plain(text)
