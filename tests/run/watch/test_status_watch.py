"""`holdfast status --watch` on a real terminal, beside a real job, with real keys."""

import shutil
import signal
import subprocess

import pytest

from run.place import HOLDFAST
from run.terminal import CURSOR_OFF, CURSOR_ON, SCREEN_OFF, SCREEN_ON, Terminal

WATCH = (HOLDFAST, "status", "--watch")


@pytest.fixture
def terminal(place):
    opened = []

    def start(*words, **size):
        opened.append(Terminal(words or WATCH, place.env, **size))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def job(place):
    run = place.ranks(2)
    run.prints("step 3")
    return run


def is_as_before(terminal):
    """No screen of its own, the cursor to be seen, keys as they were."""
    text = terminal.text
    return (
        text.rindex(SCREEN_OFF) > text.rindex(SCREEN_ON)
        and text.rindex(CURSOR_ON) > text.rindex(CURSOR_OFF)
        and terminal.modes == terminal.modes_before
    )


def test_it_shows_the_job_goes_on_and_leaves_with_q(place, job, terminal):
    screen = terminal()
    screen.shows("job t: ")
    screen.shows("training, step ")
    screen.shows("worker 0")
    screen.shows("ranks 0-1 run")
    screen.shows("attempt 1 runs on ")
    screen.shows("Updated ", times=3)
    assert screen.modes != screen.modes_before
    screen.press("q")
    assert screen.code() == 0
    assert is_as_before(screen)
    assert job.process.poll() is None


def test_ctrl_c_leaves_it_and_the_job_goes_on(place, job, terminal):
    screen = terminal()
    screen.shows("Updated ")
    screen.press("\x03")
    assert screen.code() == 0
    assert is_as_before(screen)
    assert "Traceback" not in screen.text
    assert job.process.poll() is None


def test_ended_from_outside_it_gives_the_terminal_back(place, job, terminal):
    screens = {number: terminal() for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, screen in screens.items():
        screen.shows("Updated ")
        screen.process.send_signal(number)
        assert screen.code() == 128 + number
        assert is_as_before(screen)


def test_the_end_of_the_job_is_shown_and_stays(place, job, terminal):
    screen = terminal()
    screen.shows("Updated ")
    place.go()
    assert screen.code() == 0
    assert is_as_before(screen)
    after = screen.text.rpartition(SCREEN_OFF)[2]
    assert "phase      succeeded" in after
    assert job.code() == 0


def test_a_job_that_has_ended_is_shown_at_once(place, job, terminal):
    place.go()
    assert job.code() == 0
    screen = terminal()
    assert screen.code() == 0
    assert "phase      succeeded" in screen.text.rpartition(SCREEN_OFF)[2]


def test_ctrl_z_gives_the_shell_its_terminal_and_fg_takes_it_again(place, job, terminal):
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash, for its job control")
    shell = terminal(bash, "--norc", "--noprofile", "-i")
    shell.press(" ".join(WATCH) + "\r")
    shell.shows("Updated ")
    shell.press("\x1a")
    shell.shows("Stopped")
    shell.shows(SCREEN_OFF)
    shell.press("fg\r")
    shell.shows(SCREEN_ON, times=2)
    shell.press("q")
    shell.shows(SCREEN_OFF, times=2)
    shell.press("echo left with $?\r")
    shell.shows("left with 0")
    shell.press("exit\r")
    assert shell.code() == 0


def test_a_narrow_and_low_terminal(place, job, terminal):
    screen = terminal(columns=30, lines=6)
    screen.shows("q: quit")
    screen.press("q")
    assert screen.code() == 0


def test_it_is_refused_where_there_is_no_terminal(place, job):
    refusals = {
        WATCH: "--watch needs a terminal",
        (*WATCH, "--json"): "--watch and --json cannot be used together",
    }
    for words, refusal in refusals.items():
        told = subprocess.run(words, env=place.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (told.returncode, told.stdout) == (2, "")
        assert refusal in told.stderr
    assert "log --follow" in subprocess.run(WATCH, env=place.env, capture_output=True, text=True).stderr
