"""`holdfast report`: one file with everything in it, secrets masked."""

import json
import re

import pytest

from cli import journals
from holdfast.cli.main import main
from holdfast.journal.jobdir import StateDir

SECRET = "hf_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def state(tmp_path):
    state = StateDir(tmp_path)
    job = journals.write_job(
        state, "llama", journals.one_failure_and_on(), command=(*journals.COMMAND, f"--token={SECRET}")
    )
    worker = job.worker(2, 0)
    worker.mkdir(parents=True)
    (worker / "stdout").write_text(f"step 1\n</script><b>token={SECRET}\n")
    return tmp_path


def documents_of(html):
    data = re.search(r'<script type="application/json" id="first">(.*?)</script>', html, re.DOTALL)[1]
    return json.loads(data)


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main(["report", *words])
    return ended.value.code


def test_the_file_has_every_document_of_its_job(state, capfd):
    assert run("llama", "--state-dir", str(state)) in (0, None)
    html = capfd.readouterr().out
    first = documents_of(html)
    assert first["start"] == "/jobs/llama/incidents/1"
    assert set(first["documents"]) == {
        "/jobs/llama",
        "/jobs/llama/log",
        "/jobs/llama/files",
        "/jobs/llama/incidents/1",
        "/jobs/llama/incidents/1/markdown",
        "/jobs/llama/steps",
        "/jobs/llama/output",
    }
    assert first["documents"]["/jobs/llama/output"]["lines"][0]["text"] == "step 1"
    assert SECRET not in html and "</script><b>" not in html
    assert "src=" not in html.split('<script type="application/json"')[0]


def test_a_file_is_written_whole_and_mistakes_are_said(state, capfd):
    target = state / "incident.html"
    assert run("llama", "--state-dir", str(state), "-o", str(target), "--lang", "zh") in (0, None)
    assert target.read_text().startswith('<!doctype html>\n<html lang="zh-CN">')
    assert run("llama", "--state-dir", str(state), "--incident", "9") == 1
    assert run("llama", "--state-dir", str(state), "-o", "/proc/none/x.html") == 1
    said = capfd.readouterr().err
    assert "no incident 9" in said and "cannot be written" in said
    assert [path.name for path in state.iterdir() if "part" in path.name] == []
