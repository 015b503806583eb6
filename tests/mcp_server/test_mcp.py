"""`holdfast mcp`, asked by the SDK's own client over stdin and stdout: short answers, and evidence that can be fetched."""

import asyncio
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cli import journals
from holdfast.journal.jobdir import StateDir
from holdfast.model.events import AttemptStopped, WorkerExited

LOG = b"step 119\nstep 120\nTraceback (most recent call last):\nCUDA out of memory\ntoken=hf_abcdefghijklmnopqrstuvwxyz0123456789\n"


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    state = StateDir(tmp_path)
    good = [
        journals.submitted(),
        *journals.started(journals.START_S + 1, 1),
        *journals.steps(journals.START_S + 10, 1, 1, 200),
        WorkerExited(at_s=journals.START_S + 300, attempt=1, worker=0, code=0),
        AttemptStopped(at_s=journals.START_S + 301, attempt=1),
    ]
    journals.write_job(state, "before", good)
    job = journals.write_job(
        state, "llama", journals.one_failure_and_on(), command=(*journals.COMMAND, "--lr", "0.1")
    )
    worker = job.worker(1, 0)
    worker.mkdir(parents=True)
    (worker / "rank-2.log").write_bytes(LOG)
    return state


def client_of(state: StateDir) -> Any:
    """The SDK's client of a server of its own. Imported here: each process of xdist collects this file, and few run it."""
    mcp = importlib.import_module("mcp")
    return mcp.Client(
        mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "holdfast", "mcp", "--state-dir", str(state.root)]
        )
    )


def ask(state: StateDir, *questions: tuple[str, dict[str, Any]]) -> list[str]:
    """The texts of the answers; each is an error's text where the tool refuses."""

    async def run() -> list[str]:
        async with client_of(state) as client:
            answers = [await client.call_tool(name, arguments) for name, arguments in questions]
        return [answer.content[0].text for answer in answers]  # type: ignore[union-attr]

    return asyncio.run(run())


def test_jobs_why_and_evidence(state: StateDir) -> None:
    jobs, why, good = ask(state, ("jobs", {}), ("why", {"job": "llama"}), ("why", {"job": "before"}))
    assert "llama: " in jobs and "before: succeeded" in jobs
    assert "gpu_oom, 97% sure" in why and "rank 2" in why
    assert good.startswith("before: succeeded")
    ids = re.findall(r"\[(\d+\.\d+)\]", why)
    assert ids
    for text in ask(state, *(("evidence", {"job": "llama", "id": one}) for one in ids)):
        assert text.startswith("[")


def test_the_log_is_searched_and_secrets_are_masked(state: StateDir) -> None:
    found, last, bad = ask(
        state,
        ("log", {"job": "llama", "pattern": "out of mem"}),
        ("log", {"job": "llama", "rank": 2}),
        ("log", {"job": "llama", "pattern": "("}),
    )
    assert "CUDA out of memory" in found and "step 119" not in found
    assert "step 119" in last and "hf_abcdefghij" not in last
    assert "cannot be searched" in bad


def test_a_job_is_compared_with_the_last_good_run(state: StateDir) -> None:
    (text,) = ask(state, ("compare", {"job": "llama"}))
    assert "against before" in text and "--lr 0.1" in text


def test_another_policy_decides_otherwise(state: StateDir) -> None:
    other, same, wrong, unread = ask(
        state,
        ("what_if", {"job": "llama", "settings": '{"max_restarts": null, "unconditional_restart": false}'}),
        ("what_if", {"job": "llama", "settings": "{}"}),
        ("what_if", {"job": "llama", "settings": '{"max_restart": 8}'}),
        ("what_if", {"job": "llama", "settings": "max_restarts=8"}),
    )
    assert "was: reschedule-unconditional" in other and "fail" in other.splitlines()[2]
    assert same.splitlines()[1].removeprefix("was: ") == same.splitlines()[2].partition(": ")[2]
    assert "max_restarts" in wrong and "not valid JSON" in unread


def test_every_answer_is_short_and_mistakes_are_explained(state: StateDir) -> None:
    for number in range(60):
        journals.write_job(state, f"many-{number}-{'x' * 40}", journals.one_failure_and_on())
    long, missing, no_id, path = ask(
        state,
        ("jobs", {}),
        ("why", {"job": "nobody"}),
        ("evidence", {"job": "llama", "id": "9.9"}),
        ("why", {"job": "../llama"}),
    )
    assert len(long.encode()) <= 2_000 and "more" in long
    assert "no job nobody" in missing and "no evidence" in no_id and "llama" in path


def test_only_reading_is_offered(state: StateDir) -> None:
    async def run() -> None:
        async with client_of(state) as client:
            tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == {
            "jobs", "why", "incidents", "evidence", "log", "compare", "what_if",
        }  # fmt: skip
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)

    asyncio.run(run())
