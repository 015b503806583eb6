"""Signals reach the command as they would without Holdfast; once ends cleanly, twice at once."""

import os
import signal

import pytest

from run.place import wait_for

# Says which signal came, and takes its time to end with a code of its own.
POLITE = """
import os, signal, sys
def end(number, frame):
    open(os.environ["NOTES"] + "/got", "a").write(f"{signal.Signals(number).name}\\n")
    sys.exit(40 + number)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, end)
print("ready", flush=True)
while True: signal.pause()
"""
# Does not end, whatever it is sent, and has a child that does not either.
STUBBORN = """
import os, signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
os.fork()
print("ready", flush=True)
while True: signal.pause()
"""
LISTENING = """
import os, signal
def note(number, frame): open(os.environ["NOTES"] + "/got", "a").write(f"{signal.Signals(number).name}\\n")
signal.signal(signal.SIGUSR1, note)
signal.signal(signal.SIGUSR2, note)
print("ready", flush=True)
while not os.path.exists(os.environ["NOTES"] + "/enough"): signal.sigtimedwait((), 0.05)
"""


@pytest.mark.parametrize(
    ("sent", "got"),
    [("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("SIGQUIT", "SIGQUIT"), ("SIGHUP", "SIGTERM")],
)
def test_once_lets_the_command_end_by_itself(place, sent, got):
    run = place.python(POLITE).prints("ready")
    run.signal(getattr(signal, sent))
    assert run.code() == 40 + getattr(signal, got)
    assert place.note("got") == got
    assert f"{sent}: ending the job gracefully" in run.err


def test_as_a_terminal_sends_it_to_the_whole_group(place):
    run = place.python(POLITE).prints("ready")
    os.killpg(run.pid, signal.SIGINT)  # the group is this run's own: it leads a new session
    assert run.code() == 40 + signal.SIGINT
    assert place.notes("got") == ["SIGINT"]


def test_twice_ends_it_at_once(place):
    run = place.python(STUBBORN).prints("ready")
    run.signal(signal.SIGINT)
    run.says("send the signal again to end it at once")
    run.signal(signal.SIGINT)
    assert run.code() in (130, 137)
    place.nothing_left()


def test_a_command_that_does_not_listen_is_ended_after_its_grace(place):
    run = place.python(STUBBORN, "--grace", "1s").prints("ready")
    run.signal(signal.SIGTERM)
    assert run.code() in (143, 137)
    place.nothing_left()


def test_other_signals_are_passed_on(place):
    run = place.python(LISTENING).prints("ready")
    run.signal(signal.SIGUSR1)
    wait_for("the first", lambda: place.notes("got") == ["SIGUSR1"])
    run.signal(signal.SIGUSR2)
    wait_for("the second", lambda: place.notes("got") == ["SIGUSR1", "SIGUSR2"])
    (place.path / "enough").touch()
    assert run.code() == 0


def test_a_stop_before_the_command_has_started(place):
    """The signal comes as early as it can; nothing is left and the code says which it was."""
    run = place.shell("sleep 1000")
    run.says("its record")
    run.signal(signal.SIGTERM)
    assert run.code() == 143
    place.nothing_left()


def test_a_hangup_means_nothing_to_a_detached_run(place):
    run = place.python(POLITE, "--detach").prints("ready")
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    assert run.code() == 40 + signal.SIGTERM
    assert "SIGHUP" not in run.err


def test_a_hangup_means_nothing_under_nohup(place):
    run = place.python(POLITE, prefix=("nohup",)).prints("ready")
    run.signal(signal.SIGHUP)
    run.signal(signal.SIGTERM)
    assert run.code() == 40 + signal.SIGTERM
    assert "SIGHUP" not in run.err


def test_a_job_that_is_held_for_people_is_let_go(place):
    run = place.shell("exit 3", "--keep-on-failure", "1000s").says("action: fail")
    assert run.process.poll() is None
    run.signal(signal.SIGINT)
    assert run.code() == 3
    place.nothing_left()


def test_a_stop_in_the_middle_of_a_recovery(place):
    """The failed attempt is being ended, slowly: no new one is started."""
    flags = ("--grace", "60s", "--max-restarts", "9", "--unconditional-restart")
    script = STUBBORN.replace("os.fork()", 'print("step 1 loss 1", flush=True)').replace(
        "while True: signal.pause()", "if os.fork(): os.kill(os.getpid(), 9)\nwhile True: signal.pause()"
    )
    run = place.python(script, *flags).says("action: ")
    run.signal(signal.SIGTERM)
    run.says("send the signal again to end it at once")
    run.signal(signal.SIGTERM)
    assert run.code() in (143, 137)
    assert len(place.events("attempt-started")) == 1
    place.nothing_left()
