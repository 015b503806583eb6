"""Formats documents as short texts for AI agents: at most 2,000 bytes, each claim with an evidence id.

Pure.
"""

from collections.abc import Iterable, Sequence

from holdfast.core.job.wording import culprit_words
from holdfast.model.documents.incidents import EvidenceRow, IncidentDocument
from holdfast.model.documents.jobs import JobDocument, JobRow
from holdfast.model.documents.output import OutputPage
from holdfast.model.documents.parts import Who
from holdfast.model.verdicts import Culprit
from holdfast.parsers.log_lines.secrets import masked
from holdfast.settings.times import stamp

TEXT_BYTES_MAX = 2_000
QUOTE_CHARS_MAX = 240
EVIDENCE_SHOWN = 6
CUT = "… (more: request one of the ids with `evidence`)"


def fitted(lines: Iterable[str]) -> str:
    """Returns as many lines as the limit allows, with a last line that marks the cut."""
    kept: list[str] = []
    room = TEXT_BYTES_MAX - len(CUT.encode()) - 1
    for line in lines:
        room -= len(line.encode()) + 1
        if room < 0:
            return "\n".join((*kept, CUT))
        kept.append(line)
    return "\n".join(kept)


def quoted(text: str, chars_max: int = QUOTE_CHARS_MAX) -> str:
    """Returns one line with secrets masked and control characters removed."""
    line = " ".join("".join(c if c.isprintable() or c.isspace() else "?" for c in masked(text)).split())
    return line if len(line) <= chars_max else line[: chars_max - 1] + "…"


def jobs_text(rows: Sequence[JobRow]) -> str:
    """Returns one line per job: id, state, step, restarts and its sentence."""
    if not rows:
        return "There are no jobs."
    return fitted(
        f"{row.id}: {row.state}"
        + (f", step {row.step}" if row.step is not None else "")
        + (f", {row.restarts} restarts" if row.restarts else "")
        + f". {quoted(row.sentence.text.en)}"
        for row in rows
    )


def job_text(document: JobDocument) -> str:
    """Returns the text of a job without an incident, or the overview of a job with several."""
    row = document.row
    lines = [
        f"{row.id}: {row.state}. {quoted(row.sentence.text.en)}",
        f"command: {quoted(row.command)}",
        f"attempt {row.attempt}, {document.counters.restarts} restarts; nodes {', '.join(row.nodes) or 'unknown'}",
    ]
    lines += [
        f"incident {one.number} at {stamp(one.found_at_s)}: {quoted(one.sentence.text.en)}"
        for one in reversed(document.incidents)
    ]
    return fitted(lines)


def why_text(document: IncidentDocument) -> str:
    """Returns the sentence, the verdict, its evidence by id, the actions and the advice."""
    row = document.row
    sure = f", {row.confidence:.0%} sure" if row.confidence is not None else ""
    lines = [
        quoted(row.sentence.text.en),
        f"incident {row.number} of {document.job}, found {stamp(row.found_at_s)}: {row.category or 'no verdict yet'}{sure}",
        f"title: {quoted(document.title.en)}",
    ]
    if row.who:
        lines.append(f"culprits: {'; '.join(_who(one) for one in row.who[:4])}")
    lines += [f"action: {one.rung}: {quoted(one.why)}" for one in document.rungs if one.chosen][-2:]
    if document.advice:
        lines.append(f"advice: {quoted(document.advice.en, 400)}")
    lines += [evidence_line(one) for one in ranked(document.evidence)[:EVIDENCE_SHOWN]]
    left = document.evidence_total - min(EVIDENCE_SHOWN, len(document.evidence))
    if left > 0:
        ids = ", ".join(one.id for one in ranked(document.evidence)[EVIDENCE_SHOWN : EVIDENCE_SHOWN + 20])
        lines.append(f"{left} more pieces of evidence{': ' + ids if ids else ''}")
    return fitted(lines)


def ranked(evidence: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Sorts evidence: the first error, then explained lines, then the rest; each by time."""
    return sorted(evidence, key=lambda one: (not one.first_error, one.says is None))


def evidence_line(row: EvidenceRow) -> str:
    """Returns `[3.12] first error 15:26:12 attempt-001/worker-0/rank-2.log:1812: CUDA out of memory`."""
    place = row.place
    where = f" {place.file}" + (f":{place.line}" if place.line is not None else "") if place else ""
    when = f" {stamp(row.at_s)}" if row.at_s is not None else ""
    mark = " first error" if row.first_error else ""
    says = f" ({quoted(row.says.en, 120)})" if row.says else ""
    return f"[{row.id}]{mark}{when}{where}: {quoted(row.text)}{says}"


def evidence_text(row: EvidenceRow, around: OutputPage | None) -> str:
    """Returns one piece of evidence with the lines around it."""
    lines = [evidence_line(row)]
    if around is not None:
        lines += [
            f"{'>' if line.place.offset == (row.place.offset if row.place else None) else ' '} {quoted(line.text)}"
            for line in around.lines
        ]
    else:
        lines += [f"  {quoted(text)}" for text in row.before]
        lines += [f"> {quoted(row.text)}"] * bool(row.before or row.after)
        lines += [f"  {quoted(text)}" for text in row.after]
    return fitted(lines)


def compared_text(job: JobDocument, good: JobDocument, differences: Sequence[tuple[str, str, str]]) -> str:
    """Returns the comparison of two jobs. `differences`: name, in this job, in the successful job."""
    head = f"{job.row.id} ({job.row.state}) against {good.row.id} ({good.row.state}, the last successful run of the same script)"
    if not differences:
        return fitted([head, "no difference in command, settings, version, nodes or speed"])
    return fitted([head, *(f"{name}: {quoted(here)} | {quoted(there)}" for name, here, there in differences)])


def _who(who: Who) -> str:
    return culprit_words(Culprit(rank=who.rank, worker=who.worker, host=who.node, device=who.device))
