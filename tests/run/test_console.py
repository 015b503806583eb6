"""The console: whoever reads it, or does not, the training goes on."""

import os
import subprocess
import time

from holdfast.core.job.decision import Decision
from holdfast.journal.jobdir import StateDir
from holdfast.model.events import HangFound, VerdictReached
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.model.state import Choice, Ended, Job, Running, State
from holdfast.model.verdicts import Verdict
from holdfast.supervise.one_machine import Supervisor
from holdfast.views.console import Console
from run.place import wait_for

CHATTY = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); echo line $i of many that nobody may ever read; done; echo end >$NOTES/end"


def test_a_reader_that_has_enough_after_one_line(place):
    """`holdfast run … | head -1`"""
    read_end, write_end = os.pipe()
    with (
        open(read_end, "rb") as pipe,
        subprocess.Popen(["head", "-1"], stdin=pipe, stdout=subprocess.PIPE) as head,
    ):
        run = place.shell(CHATTY, stdout=write_end)
        os.close(write_end)
        pipe.close()
        assert head.stdout.read() == b"line 1 of many that nobody may ever read\n"
    assert run.code() == 0
    assert place.note("end") == "end"
    assert (place.worker() / "stdout").read_bytes().count(b"\n") == 30000


def test_a_pipe_that_nobody_reads(place):
    read_end, write_end = os.pipe()
    try:
        run = place.shell(CHATTY, stdout=write_end)
        os.close(write_end)
        assert run.code() == 0
        assert place.note("end") == "end"
    finally:
        os.close(read_end)


def test_closed_output_and_error(place):
    run = place.start(
        "run", "--job", "t", "--", "sh", "-c", "echo hello; exit 5",
        prefix=("sh", "-c", 'exec "$@" >&- 2>&- <&-', "sh"),
    )  # fmt: skip
    assert run.code() == 5
    assert (place.worker() / "stdout").read_text() == "hello\n"


def test_a_full_disk_under_the_console(place):
    with open("/dev/full", "wb") as full:
        run = place.shell("echo hello; exit 5", stdout=full)
        assert run.code() == 5


def test_a_slow_reader_gets_every_line(place):
    """What is read in the end is complete: nothing of it is dropped because the pipe was full for a while.

    The command ends once it is being read: nobody waits for long for one who does not read.
    """
    read_end, write_end = os.pipe()
    run = place.shell(f"{CHATTY}; until [ -e $NOTES/go ]; do sleep 0.05; done", stdout=write_end)
    os.close(write_end)
    place.note("end")
    with open(read_end, "rb") as pipe:
        lines = [pipe.readline()]
        place.go()
        assert len([*lines, *pipe]) == 30000
    assert run.code() == 0


def test_binary_output_and_invalid_text(place):
    body = bytes(range(256)) * 200 + "\xff\xfe naïve\n".encode("latin-1") + b"\xf0\x28\x8c\x28\n"
    (place.path / "body").write_bytes(body)
    run = place.shell('cat "$NOTES/body"; cat "$NOTES/body" >&2; exit 4')
    assert run.code() == 4
    assert (place.worker() / "stdout").read_bytes() == body
    assert (place.worker() / "stderr").read_bytes() == body


def test_a_line_of_10_megabytes(place):
    run = place.python("import sys; sys.stdout.write('x' * 10_000_000 + '\\nafter\\n')")
    assert run.code() == 0
    assert (place.worker() / "stdout").stat().st_size == 10_000_007
    assert "after\n" in run.out


def test_a_script_that_never_logs(place):
    run = place.shell("exec sleep 0.3")
    assert run.code() == 0
    assert run.out == ""


def test_a_line_without_an_end_is_shown_at_the_end(place):
    run = place.shell("printf 'the last words'; exit 1")
    assert run.code() == 1
    assert "the last words" in run.out
    wait_for("the index", lambda: (place.worker() / "stdout").read_text() == "the last words")


def test_a_reader_too_slow_for_what_was_printed_at_the_end(place):
    """The last lines are still waiting when the command ends: who reads on gets them all."""
    read_end, write_end = os.pipe()
    run = place.python("import sys; sys.stdout.write(('x' * 99 + '\\n') * 20_000)", stdout=write_end)
    os.close(write_end)
    got = 0
    with open(read_end, "rb", buffering=0) as pipe:
        while block := pipe.read(8192):
            got += len(block)
            if got < 1 << 18:
                time.sleep(0.01)
    assert got == 2_000_000
    assert run.code() == 0


def test_the_end_is_said_though_nothing_was_left_to_wait_for(tmp_path):
    """The last worker can be gone before the verdict: then one decision is both the rung and the end."""
    verdict = Verdict(category="unknown", class_="unknown", title="nothing says why", confidence=0.2)
    why = "nothing says why; a restart is off"
    over = State(Job(), Ended(outcome="failed", code=3, reason=why))
    words = tmp_path / "words"
    with words.open("wb") as file:
        console = Console(words_fd=file.fileno())
        choice = Choice(incident=1, rung="fail", why=why)
        event = VerdictReached(at_s=1.0, incident=1, verdict=verdict)
        console.decided(event, Decision(over, why=why, choice=choice))
    said = [line.split(" ", 2)[2] for line in words.read_text().splitlines()]
    assert said[1:] == [f"action: fail the job, because {why}", f"failed: {why}"]


def test_a_hang_its_verdict_and_the_action_are_whole_sentences(tmp_path):
    title = "rank 1 waits at train.py:20; 1 rank waits for it"
    reason = f"{title}; no step, log line or I/O for 6 s"
    hang = HangFound(at_s=1.0, attempt=1, hang="quiet", culprits=(1,), reason=reason)
    verdict = Verdict(
        category="collective_missing_rank", class_="communication", title=title, confidence=0.95
    )
    why = f"restart in the same workers, because the job hung ({reason})"
    running = State(Job(), Running(since_s=0.0))
    words = tmp_path / "words"
    with words.open("wb") as file:
        console = Console(words_fd=file.fileno())
        console.decided(hang, Decision(running, why=f"hang (quiet): {reason}"))
        choice = Choice(incident=1, rung="hang-restart", why=why)
        console.decided(
            VerdictReached(at_s=2.0, incident=1, verdict=verdict), Decision(running, why=why, choice=choice)
        )
    said = [line.split(" ", 2)[2] for line in words.read_text().splitlines()]
    assert said == [
        f"hang (quiet): {reason}",
        f"verdict: collective_missing_rank (95%): {title}",
        f"action: {why}",
    ]


class Broken(Console):
    """A fault of our own, at every line of the training."""

    def echo(self, chunk):
        raise ZeroDivisionError("of our own")


def test_a_fault_of_holdfast_does_not_end_the_training(place, tmp_path):
    job = StateDir(place.state).create("t", 0.0)
    words = tmp_path / "words"
    with words.open("wb") as file:
        console = Broken(quiet=False, words_fd=file.fileno())
        settings = RunSettings(
            command=("sh", "-c", "echo one; sleep 0.3; echo two; exit 3"),
            state_dir=str(place.state),
            policy=Policy(),
        )
        assert Supervisor(settings, job, console, place.env, str(tmp_path)).submit() == 3
    assert (place.worker() / "stdout").read_text() == "one\ntwo\n"
    assert (
        "an internal error of Holdfast, which continues: ZeroDivisionError('of our own')" in words.read_text()
    )
