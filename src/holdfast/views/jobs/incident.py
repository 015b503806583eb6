"""Builds the document of one incident: verdict, evidence, actions with reasons, cost. Pure."""

from collections.abc import Sequence
from datetime import tzinfo

from msgspec.structs import replace

from holdfast.core.checkpoints.words import checkpoint_words
from holdfast.core.compare.resume import resume_words
from holdfast.core.diagnosis.words.meanings import meaning_of
from holdfast.core.diagnosis.words.verdict_zh import advice_zh, in_chinese
from holdfast.core.job.story import IncidentStory, Summary
from holdfast.model.documents.incidents import Correction, EvidenceRow, IncidentDocument, IncidentLink
from holdfast.model.documents.jobs import LogLine
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Verdict
from holdfast.views.jobs.costs import cost_of, timeline
from holdfast.views.jobs.evidence import check_rows, evidence_rows
from holdfast.views.jobs.rows import incident_row
from holdfast.views.jobs.rungs import rung_rows
from holdfast.views.jobs.seen import NO_SCENE, Scene, Seen
from holdfast.views.sentence import sentence_zh

EVIDENCE_MAX = 64


def incident_document(
    incident: IncidentStory,
    summary: Summary,
    seen: Seen,
    scene: Scene = NO_SCENE,
    *,
    similar: tuple[IncidentLink, ...] = (),
    corrections: tuple[Correction, ...] = (),
    findings: Sequence[LogLine] = (),
    zone: tzinfo | None = None,
) -> IncidentDocument:
    """Returns the document of one incident.

    `scene`: contents of the incident's files, if they were read. `findings`: log lines of the job, in which
    alerts and device metrics become evidence.
    """
    verdict = incident.verdict
    evidence = evidence_rows(incident, findings)
    shown = kept_evidence(evidence)
    return IncidentDocument(
        job=seen.id,
        row=incident_row(incident, summary, seen, zone),
        title=title_words(verdict, incident),
        explanation=meaning_of(verdict.category) if verdict is not None else None,
        advice=advice_words(verdict),
        action=verdict.action if verdict is not None else "",
        problem=incident.problem,
        evidence=tuple(_with_surroundings(row, scene) for row in shown),
        evidence_total=len(evidence),
        stacks=scene.stacks,
        waits=scene.waits,
        kernel=scene.kernel,
        checks=check_rows(incident),
        rungs=rung_rows(incident, seen.policy),
        also=verdict.also if verdict is not None else {},
        timeline=timeline(incident),
        cost=cost_of(incident, summary.devices),
        step_before=incident.step_before,
        step_resumed=incident.step_resumed,
        resume=resume_words(incident.resume) if incident.resume else None,
        resume_verdict=str(incident.resume.get("verdict", "")),
        checkpoint=checkpoint_words(incident.checkpoint) if incident.checkpoint else None,
        similar=similar,
        corrections=corrections,
        has_bundle=scene.has_bundle,
    )


def kept_evidence(rows: tuple[EvidenceRow, ...], at_most: int = EVIDENCE_MAX) -> tuple[EvidenceRow, ...]:
    """Returns at most `at_most` rows of evidence in order, the first error among them."""
    if len(rows) <= at_most:
        return rows
    first = next((place for place, row in enumerate(rows) if row.first_error), 0)
    begin = max(0, min(first - at_most // 4, len(rows) - at_most))
    return rows[begin : begin + at_most]


def title_words(verdict: Verdict | None, incident: IncidentStory) -> Words:
    if verdict is None:
        return Words(en=incident.found, zh=sentence_zh(incident.found))
    zh = (
        verdict.title_zh or in_chinese(verdict.title) or f"{meaning_of(verdict.category).zh}：{verdict.title}"
    )
    return Words(en=verdict.title, zh=zh)


def advice_words(verdict: Verdict | None) -> Words | None:
    if verdict is None or not verdict.advice:
        return None
    return Words(en=verdict.advice, zh=verdict.advice_zh or advice_zh(verdict.advice))


def _with_surroundings(row: EvidenceRow, scene: Scene) -> EvidenceRow:
    if row.place is None:
        return row
    found = scene.surroundings.get((row.place.file, row.text))
    if found is None:
        return row
    place = replace(row.place, offset=found.offset)
    return replace(row, before=found.before, after=found.after, place=place)
