"""`holdfast mcp`, asked by the SDK's own client over stdin and stdout: short answers, and evidence that can be fetched."""

import asyncio
import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli import journals
from holdfast.journal.jobdir import StateDir
from holdfast.model.events import AttemptStopped, WorkerExited

LOG = b"step 119\nstep 120\nTraceback (most recent call last):\nCUDA out of memory\ntoken=hf_abcdefghijklmnopqrstuvwxyz0123456789\n"


def jobs_in(root: Path) -> StateDir:
    state = StateDir(root)
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


class Asker:
    """One server and one client of it, for many questions."""

    def __init__(self, state: StateDir) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._begin(state))

    async def _begin(self, state: StateDir) -> None:
        begun, self._over = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with client_of(state) as self._client:
                begun.set()
                await self._over.wait()

        # One task enters and leaves the client, as its library asks for.
        self._held = asyncio.create_task(hold())
        waiting = asyncio.create_task(begun.wait())
        await asyncio.wait((self._held, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not begun.is_set():
            waiting.cancel()
            await self._held

    def ask(self, *questions: tuple[str, dict[str, Any]]) -> list[str]:
        """The texts of the answers; each is an error's text where the tool refuses."""

        async def run() -> list[str]:
            answers = [await self._client.call_tool(name, arguments) for name, arguments in questions]
            return [answer.content[0].text for answer in answers]

        return self._runner.run(run())

    def tools(self) -> list[Any]:
        async def run() -> list[Any]:
            return (await self._client.list_tools()).tools  # type: ignore[no-any-return]

        return self._runner.run(run())

    def close(self) -> None:
        async def run() -> None:
            self._over.set()
            await self._held

        self._runner.run(run())
        self._runner.close()


@pytest.fixture(scope="module")
def asker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    """Nothing that is asked changes a job."""
    one = Asker(jobs_in(tmp_path_factory.mktemp("state")))
    yield one
    one.close()


def client_of(state: StateDir) -> Any:
    """The SDK's client of a server of its own. Imported here: each process of xdist collects this file, and few run it."""
    mcp = importlib.import_module("mcp")
    return mcp.Client(
        mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "holdfast", "mcp", "--state-dir", str(state.root)]
        )
    )


def test_jobs_why_and_evidence(asker: Asker) -> None:
    jobs, why, good = asker.ask(("jobs", {}), ("why", {"job": "llama"}), ("why", {"job": "before"}))
    assert "llama: " in jobs and "before: succeeded" in jobs
    assert "gpu_oom, 97% sure" in why and "rank 2" in why
    assert good.startswith("before: succeeded")
    ids = re.findall(r"\[(\d+\.\d+)\]", why)
    assert ids
    for text in asker.ask(*(("evidence", {"job": "llama", "id": one}) for one in ids)):
        assert text.startswith("[")


def test_the_log_is_searched_and_secrets_are_masked(asker: Asker) -> None:
    found, last, bad = asker.ask(
        ("log", {"job": "llama", "pattern": "out of mem"}),
        ("log", {"job": "llama", "rank": 2}),
        ("log", {"job": "llama", "pattern": "("}),
    )
    assert "CUDA out of memory" in found and "step 119" not in found
    assert "step 119" in last and "hf_abcdefghij" not in last
    assert "cannot be searched" in bad


def test_a_job_is_compared_with_the_last_good_run(asker: Asker) -> None:
    (text,) = asker.ask(("compare", {"job": "llama"}))
    assert "against before" in text and "--lr 0.1" in text


def test_another_policy_decides_otherwise(asker: Asker) -> None:
    other, same, wrong, unread = asker.ask(
        ("what_if", {"job": "llama", "settings": '{"max_restarts": null, "unconditional_restart": false}'}),
        ("what_if", {"job": "llama", "settings": "{}"}),
        ("what_if", {"job": "llama", "settings": '{"max_restart": 8}'}),
        ("what_if", {"job": "llama", "settings": "max_restarts=8"}),
    )
    assert "was: reschedule-unconditional" in other and "fail" in other.splitlines()[2]
    assert same.splitlines()[1].removeprefix("was: ") == same.splitlines()[2].partition(": ")[2]
    assert "max_restarts" in wrong and "not valid JSON" in unread


def test_every_answer_is_short_and_mistakes_are_explained(tmp_path: Path) -> None:
    state = jobs_in(tmp_path)
    for number in range(60):
        journals.write_job(state, f"many-{number}-{'x' * 40}", journals.one_failure_and_on())
    with closing(Asker(state)) as asker:
        long, missing, no_id, path = asker.ask(
            ("jobs", {}),
            ("why", {"job": "nobody"}),
            ("evidence", {"job": "llama", "id": "9.9"}),
            ("why", {"job": "../llama"}),
        )
    assert len(long.encode()) <= 2_000 and "more" in long
    assert "no job nobody" in missing and "no evidence" in no_id and "llama" in path


def test_only_reading_is_offered(asker: Asker) -> None:
    tools = asker.tools()
    assert {tool.name for tool in tools} == {
        "jobs", "why", "incidents", "evidence", "log", "compare", "what_if",
    }  # fmt: skip
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
