"""`holdfast why`, against journals of the real controller."""

import json
import socket

import msgspec
import pytest

from cli.journals import (
    OOM,
    START_S,
    failure,
    hang_then_lost_node_then_success,
    one_failure_and_on,
    started,
    steps,
    submitted,
    write_job,
)
from holdfast.model.documents.incidents import IncidentDocument
from holdfast.model.documents.jobs import JobDocument
from holdfast.model.events import VerdictReached
from holdfast.model.policy import Policy
from holdfast.model.verdicts import Evidence


@pytest.fixture
def job(state):
    return write_job(state, "llama", one_failure_and_on())


def test_a_job_that_trains_again(holdfast, golden, job):
    with job.lock():
        code, out, err = holdfast("why", "llama")
        chinese = holdfast("why", "llama", "--lang", "zh")[1]
    golden("why-recovered.txt", out)
    golden("why-recovered-zh.txt", chinese)
    assert (code, err) == (0, "")


def test_a_job_that_failed(holdfast, golden, state):
    write_job(
        state, "llama", [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)], policy=Policy()
    )
    code, out, err = holdfast("why")
    golden("why-failed.txt", out)
    assert (code, err) == (0, "")


def test_a_job_whose_supervisor_and_ranks_are_gone(holdfast, golden, state):
    write_job(state, "llama", one_failure_and_on(), host=socket.gethostname())
    code, out, _ = holdfast("why")
    golden("why-dead.txt", out)
    assert code == 0


def test_an_incident_by_its_number(holdfast, golden, state):
    write_job(state, "llama", hang_then_lost_node_then_success())
    golden("why-lost-node.txt", holdfast("why", "--incident", "2")[1])
    code, out, err = holdfast("why", "--incident", "5")
    assert (code, out) == (1, "")
    assert "has no incident 5: it has had 2 incidents, numbered 1 to 2" in err


def test_a_job_without_an_incident(holdfast, state):
    events = [submitted(), *started(START_S + 1, 1), *steps(START_S + 5, 1, 1, 9)]
    with write_job(state, "llama", events).lock():
        code, out, _ = holdfast("why")
        told = msgspec.json.decode(holdfast("why", "--json")[1], type=JobDocument)
    assert code == 0
    assert out.startswith("Training since 15:19:59, step 9.\n")
    assert "no incident so far" in out
    assert told.row.state == "training"
    assert "has had no incident" in holdfast("why", "--incident", "1")[2]


def test_json_is_the_document_that_the_page_shows(holdfast, job):
    with job.lock():
        told = msgspec.json.decode(holdfast("why", "--json")[1], type=IncidentDocument)
    assert told.job == "llama"
    assert told.row.sentence.text.zh.startswith("15:22:18 rank 2")
    assert told.cost.by_cause["starting"] == 10.0


def test_the_first_line_of_it_is_the_sentence_of_the_documents(holdfast, job):
    with job.lock():
        out = holdfast("why")[1]
        told = json.loads(holdfast("why", "--json")[1])
    assert " ".join(out.split("\n\n")[0].split()) == told["row"]["sentence"]["text"]["en"]


def test_the_error_in_its_log_is_shown_with_the_lines_around_it(holdfast, state):
    file = "attempt-001/worker-0/rank-2.log"
    first = Evidence(text="ValueError: bad record 7", file=file, at_s=START_S + 49.5)
    verdict = msgspec.structs.replace(OOM, first_error=first, evidence=(first,))
    events = [submitted(), *started(START_S + 1, 1), *failure(START_S + 50, 1, 1)]
    events[-2] = VerdictReached(at_s=START_S + 51, incident=1, verdict=verdict)
    job = write_job(state, "llama", events, policy=Policy())
    job.worker(1, 2).mkdir(parents=True)
    job.worker(1, 0).mkdir(parents=True)
    (job.path / file).write_text("one\ntwo\nValueError: bad record 7\n\x1b[31mthree\x1b[0m\x07\n")
    out = holdfast("why")[1]
    shown = [line.strip() for line in out.splitlines()]
    at = shown.index("two")
    assert shown[at - 1 : at + 3] == ["one", "two", "ValueError: bad record 7", "three\ufffd"]
    assert "first error attempt-001/worker-0/rank-2.log  15:20:47.7" in out


def test_a_damaged_journal_says_so(holdfast, job):
    pages = bytearray(job.journal_path.read_bytes())
    at = pages.rindex(b'"step-reached"')
    pages[at + 5] ^= 1
    job.journal_path.write_bytes(pages)
    code, out, _ = holdfast("why", "llama")
    assert code == 0
    assert "ran out of GPU memory" in out
    assert "damaged" in out.rpartition("note")[2]


def test_no_such_job(holdfast, job):
    code, out, err = holdfast("why", "lama")
    assert (code, out) == (1, "")
    assert "there is no job lama" in err
    assert holdfast("why", "llama", "--lang", "fr")[0] == 2
