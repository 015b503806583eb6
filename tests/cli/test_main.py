"""The command line as a whole: help, exit codes, one-line complaints, completion, the start's weight."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.cli.line.command_line import COMMANDS
from holdfast.cli.line.flags import BadParameter
from holdfast.cli.run import full_command

SCRIPT = Path(sys.executable).with_name("holdfast")
PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
# What help must not wait for.
HEAVY = (
    "typer",
    "pydantic",
    "rich",
    "msgspec",
    "psutil",
    "sqlite3",
    "asyncio",
    "yaml",
    "holdfast.core",
    "holdfast.journal",
)


def command(*words, **environ):
    return subprocess.run(
        [SCRIPT, *words], check=False, capture_output=True, text=True, env=environ or None, timeout=200
    )


def test_the_overview_names_every_command(holdfast):
    code, out, err = holdfast("--help")
    assert (code, err) == (0, "")
    for name, place in COMMANDS.items():
        assert f"  {name} " in out
        assert place.help.partition(".")[0] in out
    assert holdfast() == (0, out, "")


def test_the_version():
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"holdfast {__version__}\n", "")


def test_ctrl_c_while_the_command_is_still_imported_ends_it_without_a_word(place):
    (place / "click.py").write_text("raise KeyboardInterrupt\n")
    paths = os.pathsep.join([str(place), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = command("status", **{**os.environ, "PYTHONPATH": paths})
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_help_loads_nothing_heavy():
    """Rather than a time, which another process may stretch: 0.06 s were measured, of at most 0.3 s."""
    look = f"import sys, holdfast.cli.line.command_line as m; m.exit_code(['--help']); print([h for h in {HEAVY} if h in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", look], check=False, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_every_command_has_help_with_its_flags_in_the_docs(holdfast, name):
    code, out, err = holdfast(name, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: holdfast {name} ")
    page = PAGE.read_text()
    for word in out.split():
        flag = word.strip("[],.:").partition("/")[0]
        if flag.startswith("--") and flag not in ("--", "--help"):
            assert f"`{flag}" in page, f"{flag} of {name} is not in docs/settings.md"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "holdfast: no such command 'rnu'. Did you mean 'run'?"),
        (["--verison"], "did you mean --version?"),
        (["run", "--max-restart", "3", "--", "true"], "did you mean --max-restarts?"),
        (
            ["run", "--max-restarts", "0", "--", "true"],
            "--max-restarts cannot be '0'; allowed: 1 to 128, or none",
        ),
        (["run", "--grace", "90", "--", "true"], "'90' has no unit: write 90s"),
        (["run"], "holdfast run [FLAGS] -- "),
        (["run", "--policy", "modelart", "--", "true"], "did you mean modelarts?"),
        (["run", "--nproc-per-node", "none", "train.py"], "'none' is neither a number"),
        (["status", "--jsn"], "did you mean --json?"),
        (["attach", "--quite"], "did you mean --quiet?"),
        (["log", "a", "b"], "unexpected extra argument"),
        (["simulate"], "give a SCENARIO.yaml, or --seed N"),
        (["diagnose", "gone"], "'gone' cannot be read: No such file or directory"),
        (["diagnose", "--lang", "de", "."], "'de' is not one of en, zh"),
        (["signatures"], "missing command"),
    ],
)
def test_a_usage_error_is_one_line_and_a_two(holdfast, words, says):
    code, out, err = holdfast(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_result_that_cannot_be_written_is_one_line(place):
    with open("/dev/full", "w") as full:
        done = subprocess.run([SCRIPT, "config"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: the result cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_what_the_terminal_cannot_show_is_a_question_mark(place):
    look = "import sys; from holdfast.cli.line import standard_streams as s; s.fill_standard_streams(); sys.stdout.write('step \u4e2d')"
    done = subprocess.run(
        [sys.executable, "-c", look],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"step ?", b"")


def test_a_reader_that_has_enough_is_no_error(place):
    done = subprocess.run(
        ["sh", "-c", f"{SCRIPT} config | head -1"], check=False, capture_output=True, text=True, timeout=200
    )
    assert done.stdout.startswith("job ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("holdfast s", "status\nstacks\nshell\nsteps\nserve\nsignatures\nsimulate"),
        ("holdfast log --f", "--follow"),
        ("holdfast diagnose --l", "--lang"),
        ("holdfast signatures s", "show"),
        ("holdfast signatures list --c", "--category"),
    ],
)
def test_completion_knows_commands_and_flags(line, offers):
    done = command(_HOLDFAST_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(line.count(" ")))
    assert done.stdout.strip().replace("plain,", "") == offers


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_what_completes_lines(holdfast, monkeypatch, shell):
    code, named, err = holdfast("--show-completion", shell)
    assert (code, err) == (0, "")
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in named
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert holdfast("--show-completion") == (0, named, "")


@pytest.mark.parametrize(
    ("shell", "script", "settings"),
    [
        ("bash", ".bash_completions/holdfast.sh", ".bashrc"),
        ("zsh", ".zfunc/_holdfast", ".zshrc"),
        ("fish", ".config/fish/completions/holdfast.fish", None),
    ],
)
def test_completion_is_installed_where_the_shell_finds_it_and_once(holdfast, place, shell, script, settings):
    home = place / "home"
    if settings:
        home.mkdir()
        (home / settings).write_text("alias ll='ls -l'")  # without an end of line
    code, out, err = holdfast("--install-completion", shell)
    assert (code, err) == (0, "")
    assert str(home / script) in out
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in (home / script).read_text()
    assert holdfast("--install-completion", shell)[0] == 0
    if settings:
        assert str(home / settings) in out
        first, line = (home / settings).read_text().splitlines()
        assert first == "alias ll='ls -l'" and ("holdfast.sh" in line or ".zfunc" in line)


def test_bash_completes_by_what_was_installed(holdfast, place):
    holdfast("--install-completion", "bash")
    look = "shopt -s expand_aliases; . ~/.bashrc; COMP_WORDS=(holdfast sim); COMP_CWORD=1; "
    look += f"_holdfast_completion {SCRIPT}; echo ${{COMPREPLY[0]}}"
    done = subprocess.run(
        ["bash", "-c", look],
        check=False,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout == "simulate\n", done.stderr


def test_a_shell_that_is_not_known(holdfast, monkeypatch, place):
    code, out, err = holdfast("--show-completion", "tcsh")
    assert (code, out) == (2, "")
    assert "'tcsh' is not one of bash, zsh, fish" in err
    monkeypatch.delenv("SHELL", raising=False)
    assert "SHELL is not set" in holdfast("--install-completion")[2]
    assert not (place / "home").exists()


def test_a_home_that_cannot_be_written_is_said(holdfast, place):
    (place / "home").write_text("no folder")
    code, _, err = holdfast("--install-completion", "fish")
    assert code == 2 and "home" in err and err.count("\n") == 1


def test_the_command_is_run_as_it_is_written():
    assert full_command(["torchrun", "--", "x"], None) == ("torchrun", "--", "x")


def test_the_short_form_takes_the_torchrun_on_the_users_path(place, monkeypatch):
    tools = place / "bin"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(BadParameter, match="neither torchrun nor python is on PATH"):
        full_command(["train.py"], "2")
    standalone = ("--standalone", "--nproc-per-node", "2", "train.py", "--lr", "1")
    for name, launcher in (
        ("python3", ("python3", "-m", "torch.distributed.run")),
        ("python", ("python", "-m", "torch.distributed.run")),
        ("torchrun", ("torchrun",)),
    ):
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
        assert full_command(["train.py", "--lr", "1"], "2") == (*launcher, *standalone)


SCENARIO = """
cluster: {workers: 2}
policy: {max_restarts: 8, unconditional_restart: true}
total_steps: 200
faults: [{at_s: 100, kind: exit, worker: 0, rank: 1, exit_code: 1, error: "RuntimeError: boom"}]
expect: {rungs: [RUNG], outcome: succeeded}
"""


def test_a_scenario_is_shown_and_compared_with_what_it_expects(holdfast, place):
    file = place / "one.yaml"
    file.write_text(SCENARIO.replace("RUNG", "reschedule-unconditional"))
    code, out, err = holdfast("simulate", str(file))
    assert (code, err) == (0, "")
    assert "incident 1: reschedule-unconditional: " in out
    assert "\nsucceeded\n" in out
    code, out, err = holdfast("simulate", str(file), "--json")
    assert out.startswith('{\n  "outcome": "succeeded",')
    file.write_text(SCENARIO.replace("RUNG", "fail"))
    code, _, err = holdfast("simulate", str(file))
    assert code == 1
    assert "expectation not met: rungs" in err


def test_a_scenario_that_cannot_be_read(holdfast, place):
    (place / "bad.yaml").write_text("clutser: {workers: 2}\n")
    code, out, err = holdfast("simulate", "bad.yaml")
    assert (code, out) == (2, "")
    assert "'cluster'" in err
