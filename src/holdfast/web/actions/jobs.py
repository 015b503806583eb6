"""Stops and restarts jobs, acknowledges incidents and corrects verdicts, through the job's controller and
journal.
"""

import json
import re
from difflib import get_close_matches

from holdfast.core.verdict.categories import KINDS
from holdfast.jobs.call import made_up
from holdfast.jobs.requests import answer, has_controller, keep_remark
from holdfast.model.calls import AnyRequest, AskRemark, AskRestart, AskStop, RequestDone
from holdfast.model.documents.actions import Acknowledge, ActionResult, Correct, RestartJob, StopJob
from holdfast.web.data import Data
from holdfast.web.refusals import bad_request

_XID = re.compile(r"xid_\d{1,4}")
LINE_CHARACTERS_MAX = 500


def stop(data: Data, job: str, body: StopJob, by: str) -> ActionResult:
    """Stops a job. Raises Refusal, CallNotMade and NoLine."""
    return _asked(data, job, AskStop(call=made_up(), by=by, reason=body.reason, force=body.force))


def restart(data: Data, job: str, body: RestartJob, by: str) -> ActionResult:
    """Restarts a job. Raises Refusal, CallNotMade and NoLine."""
    return _asked(data, job, AskRestart(call=made_up(), by=by, reason=body.reason))


def acknowledge(data: Data, job: str, number: int, body: Acknowledge, by: str, at_s: float) -> ActionResult:
    """Acknowledges an incident. Raises Refusal, CallNotMade and NoLine."""
    word = AskRemark(call=made_up(), by=by, incident=number, text=body.text)
    return _remarked(data, job, word, at_s)


def correct(data: Data, job: str, number: int, body: Correct, by: str, at_s: float) -> ActionResult:
    """Corrects a verdict, and returns the draft of a signature for it.

    Raises Refusal, CallNotMade and NoLine.
    """
    if body.category not in KINDS and not _XID.fullmatch(body.category):
        near = get_close_matches(body.category, KINDS, n=3, cutoff=0.4)
        raise bad_request(f"there is no category {body.category}: see docs/labels.md", near)
    word = AskRemark(call=made_up(), by=by, incident=number, category=body.category, text=body.text)
    done = _remarked(data, job, word, at_s)
    line = _first_error(data, job, number)
    return ActionResult(
        done=done.done, text=f"{done.text}\n{signature_for(line, body.category)}" if line else done.text
    )


def signature_for(line: str, category: str) -> str:
    """Returns the draft of a signature for a log line, to be completed in a TOML file of the site."""
    quoted = json.dumps(line, ensure_ascii=False)
    return (
        f'[[signature]]\nid = ""\ncategory = "{category}"\npattern = {json.dumps(re.escape(line), ensure_ascii=False)}\n'
        f'title = {{ en = "", zh = "" }}\nexplanation = {{ en = "", zh = "" }}\nadvice = {{ en = "", zh = "" }}\n'
        f'source = ""\nmatches = [{quoted}]\nmisses = []'
    )


def _first_error(data: Data, job: str, number: int) -> str:
    """Returns the log line on which the verdict is based, without unprintable characters."""
    evidence = data.incident(job, number).evidence
    lines = [one for one in evidence if one.kind == "line"]
    chosen = next((one for one in lines if one.first_error), lines[0] if lines else None)
    if chosen is None:
        return ""
    return "".join(one for one in chosen.text if one.isprintable())[:LINE_CHARACTERS_MAX]


def _asked(data: Data, job: str, word: AnyRequest) -> ActionResult:
    data.place(job)
    line = data.line(job)
    try:
        return _result(answer(line, word))
    finally:
        line.close()


def _remarked(data: Data, job: str, word: AskRemark, at_s: float) -> ActionResult:
    place = data.place(job)
    if data.is_elsewhere(job) or has_controller(place):
        return _asked(data, job, word)
    return _result(keep_remark(place, word, at_s))


def _result(done: RequestDone) -> ActionResult:
    return ActionResult(done=done.done, text=done.text)
