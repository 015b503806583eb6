"""What `holdfast run` exits with is what the command would have."""

import pytest

from holdfast.cli.line.command_line import exit_code


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill -15 $$", 143), ("kill -11 $$", 139)],
)
def test_the_commands_own_code(place, script, code):
    assert place.shell(script).code() == code
    place.nothing_left()
    assert place.events()[-1]["kind"] == "attempt-stopped"


def test_a_command_that_is_not_there(place):
    run = place.run("--", "no-such-command-here")
    assert run.code() == 127
    assert "No such file or directory: no-such-command-here\n" in run.err
    assert "Traceback" not in run.err


def test_a_command_that_may_not_be_run(place):
    script = place.path / "script"
    script.write_text("#!/bin/sh\n")
    run = place.run("--", script)
    assert run.code() == 126
    assert f"Permission denied: {script}\n" in run.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--",),
        ("--no-such-flag", "--", "true"),
        ("--max-restarts", "0", "--", "true"),
        ("--nproc-per-node", "zero", "x.py"),
    ],
)
def test_what_cannot_be_understood(place, words, monkeypatch, capsys):
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    assert exit_code(["run", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not place.state.exists() or not list(place.state.glob("jobs/*"))


def test_a_name_that_no_job_can_have(place):
    run = place.start("run", "--job", "a/b", "--", "true")
    assert run.code() == 2
    assert run.err.count("\n") == 1
    assert not place.state.exists() or not list(place.state.glob("jobs/*"))


def test_an_empty_command(place):
    run = place.run("--", "")
    assert run.code() == 2
    assert "COMMAND" in run.err


def test_a_folder_of_the_commands_own(place):
    """It runs where `holdfast run` was called, with its arguments as they were given."""
    run = place.run("--", "sh", "-c", 'pwd; printf "%s|" "$@"', "sh", "a b", "", "--job", "ü")
    assert run.code() == 0
    assert run.out.splitlines() == [str(place.path), "a b||--job|ü|"]


def test_quiet_keeps_the_output_in_the_file(place):
    run = place.shell("echo hello", "--quiet")
    assert run.code() == 0
    assert run.out == ""
    assert (place.worker() / "stdout").read_text() == "hello\n"


def test_a_working_folder_that_is_gone(place):
    gone = place.path / "gone"
    gone.mkdir()
    run = place.run("--", "true", prefix=("sh", "-c", 'cd gone && rmdir ../gone && exec "$@"', "sh"))
    assert run.code() == 2
    assert "the working folder no longer exists" in run.err
    assert "Traceback" not in run.err


def test_what_is_no_program(place):
    script = place.path / "script"
    script.write_text("no interpreter named\n")
    script.chmod(0o755)
    run = place.run("--", script)
    assert run.code() == 126
    assert f"Exec format error: {script}\n" in run.err


def test_a_command_that_is_not_there_is_not_tried_again(place):
    run = place.run("--max-restarts", "5", "--unconditional-restart", "--", "no-such-command-here")
    assert run.code() == 127
    assert len(place.events("attempt-start-failed")) == 1
