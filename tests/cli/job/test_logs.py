"""`holdfast logs`: the training's output, chosen by worker, rank, attempt, time and text."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.journals import START_S, started, submitted, write_job
from holdfast.observe.logs.index import IndexWriter


class Log:
    """One file of a worker and its index."""

    def __init__(self, job, attempt, worker, source):
        folder = job.worker(attempt, worker)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / source
        self._path.touch()
        self._index = IndexWriter(self._path, lambda text: None)

    def write(self, at_s, text):
        with self._path.open("ab") as file:
            file.write(text)
        self._index.append(at_s, self._path.stat().st_size)

    def close(self):
        self._index.close()


@pytest.fixture
def job(state):
    job = write_job(state, "llama", [submitted(), *started(START_S + 1, 1)])
    for attempt, worker, source, lines in [
        (1, 0, "stdout", [(1, b"loading\n"), (3, b"step 1\n")]),
        (1, 0, "rank-2.log", [(2, b"rank two \xff\n"), (4, b"RuntimeError: boom\n")]),
        (1, 1, "stderr", [(2.5, b"a warning\n")]),
        (2, 0, "stdout", [(60, b"loading\n"), (120, b"step 2\n")]),
    ]:
        log = Log(job, attempt, worker, source)
        for after_s, text in lines:
            log.write(START_S + after_s, text)
        log.close()
    return job


def test_all_lines_in_order_of_time(holdfast, golden, job):
    code, out, err = holdfast("logs", "llama")
    golden("logs.txt", out)
    assert (code, err) == (0, "")


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        (["--worker", "1"], ["a warning"]),
        (["--worker", "0-1", "--rank", "2"], ["rank two \\xff", "RuntimeError: boom"]),
        (["--worker", "1-3"], ["a warning"]),
        (["--attempt", "2"], ["loading", "step 2"]),
        (["--rank", "2"], ["rank two \\xff", "RuntimeError: boom"]),
        (["--grep", "^(Runtime|Key)Error"], ["RuntimeError: boom"]),
        (["--since", "2026-01-01 15:20:58"], ["loading", "step 2"]),
        (["--since", "1767280800.5", "--until", "1767280801.5"], ["a warning", "step 1"]),
        (["--attempt", "9"], []),
    ],
)
def test_lines_are_chosen(holdfast, job, flags, lines):
    code, out, _ = holdfast("logs", "--no-prefix", *flags)
    assert (code, out.splitlines()) == (0, lines)


def test_that_no_line_fits_is_said(holdfast, job):
    assert holdfast("logs", "llama", "--rank", "7") == (
        0,
        "",
        "holdfast: job llama has no output line that matches these filters\n",
    )


@pytest.mark.parametrize(
    ("flags", "has"),
    [
        (["--worker", "7"], "has output of workers 0-1 only"),
        (["--attempt", "9"], "has output of attempts 1-2 only"),
        (["--worker", "1", "--attempt", "2"], "has no output line that matches these filters"),
    ],
)
def test_which_workers_and_attempts_there_are_is_said(holdfast, job, flags, has):
    assert holdfast("logs", "llama", *flags) == (0, "", f"holdfast: job llama {has}\n")


def test_json_lines(holdfast, job):
    out = holdfast("logs", "--json", "--rank", "2")[1]
    first, second = map(json.loads, out.splitlines())
    assert (first["attempt"], first["worker"], first["rank"], first["source"]) == (1, 0, 2, "rank-2.log")
    assert first["text"] == "rank two \\xff"
    assert (second["at_s"], second["exact"]) == (START_S + 4, True)


def test_a_line_whose_time_nobody_noted_is_marked(holdfast, state):
    job = write_job(state, "llama", [submitted()])
    folder = job.worker(1, 0)
    folder.mkdir(parents=True)
    (folder / "stdout").write_text("alone\n")
    assert holdfast("logs")[1].startswith("~")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--since", "yesterday"], "--since: 'yesterday' is not a time: write it like"),
        (["--until", "10 parsecs ago"], "--until"),
        (["--grep", "("], "--grep: '(' is not a regular expression"),
        (["--worker", "x"], "--worker: 'x' is not a list of workers such as 0,4-6"),
        (["--sinse", "1"], "did you mean --since?"),
    ],
)
def test_what_cannot_be_asked(holdfast, job, flags, says):
    code, out, err = holdfast("logs", *flags)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_follow_gives_each_line_once_and_ends_with_the_supervisor(job):
    words = [Path(sys.executable).with_name("holdfast"), "logs", "--follow", "--no-prefix", "--attempt", "2"]
    lock = job.lock()
    log = Log(job, 2, 0, "stdout")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        first = [follower.stdout.readline() for _ in range(2)]
        log.write(START_S + 120, b"step 3\nstep 4\n")
        log.write(START_S + 121, b"step 5\n")
        first.append(follower.stdout.readline())
        lock.release()
        rest = follower.stdout.readlines()
    log.close()
    assert [*first, *rest] == ["loading\n", "step 2\n", "step 3\n", "step 4\n", "step 5\n"]
    assert follower.returncode == 0
