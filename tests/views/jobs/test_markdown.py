"""An incident as Markdown: complete, in both languages, and text from outside stays text."""

from msgspec.structs import replace

from cli.journals import one_failure_and_on
from holdfast.model.documents.incidents import Correction, EvidenceRow, IncidentDocument
from holdfast.views.jobs.incident import incident_document
from holdfast.views.jobs.markdown import incident_markdown
from views.jobs.test_documents import seen, summary_of

HOSTILE = "x`</td><script>alert(1)</script> | **bold** token=hf_abcdefghijklmnopqrstuvwxyz0123456789"


def document() -> IncidentDocument:
    summary = summary_of(one_failure_and_on())
    return incident_document(summary.incidents[0], summary, seen())


def test_a_ticket_has_what_the_page_says() -> None:
    text = incident_markdown(document())
    assert "`gpu_oom`, 97% sure" in text and "rank 2" in text and "### Evidence" in text
    assert "CUDA out of memory" in text and "llama" in text
    assert "### 证据" in incident_markdown(document(), "zh")


def test_text_from_outside_stays_text() -> None:
    hostile = EvidenceRow(id="1.1", text=HOSTILE)
    correction = Correction(category="other|x", text=HOSTILE, by="<ana>", at_s=1.0)
    text = incident_markdown(
        replace(document(), evidence=(hostile,), evidence_total=40, corrections=(correction,))
    )
    assert "hf_abcdefgh" not in text
    spans = text.replace("\\`", "").split("`")
    assert len(spans) % 2 == 1  # every code span is closed
    assert not any("<script>" in outside.replace("\\<", "") for outside in spans[::2])
    assert "39 further pieces of evidence" in text and "**bold**" not in "".join(spans[::2])
