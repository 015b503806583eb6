"""`holdfast bisect` over real commits, nodes and variables."""

import json
import os
import subprocess
import sys

import pytest

from holdfast.cli.line.command_line import exit_code

TRAIN = "for s in range(1, 12): print(f'step {{s}}/11 loss: {{{base} - 0.01 * s:.4f}}', flush=True)\n{tail}"


def git(folder, *words):
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(["git", *words], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Nine commits: from the fifth on the loss is higher, the seventh alone crashes."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "config", "user.email", "a@example.org")
    git(folder, "config", "user.name", "a")
    for number in range(1, 10):
        tail = "raise SystemExit(3)" if number == 7 else ""
        (folder / "train.py").write_text(
            f"# {number}\n" + TRAIN.format(base=3.0 if number >= 5 else 2.0, tail=tail)
        )
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", f"change {number}")
    monkeypatch.chdir(folder)
    return folder


def bisected(capsys, state, *words, command=(sys.executable, "train.py")):
    code = exit_code(["bisect", "--json", "--state-dir", str(state), *words, "--", *command])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else {}


def test_the_first_bad_commit(repository, tmp_path, capsys):
    before = git(repository, "status", "--porcelain", "--branch")
    code, found = bisected(
        capsys, tmp_path / "state", "--good", "HEAD~8", "--bad", "HEAD", "--until", "loss>2.5@8"
    )
    assert (code, found["found"]) == (0, [git(repository, "rev-parse", "HEAD~4")])
    assert len(found["runs"]) <= 2 + 3
    assert git(repository, "status", "--porcelain", "--branch") == before
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_ends_that_are_not_so_are_said(repository, tmp_path, capsys):
    code, found = bisected(
        capsys, tmp_path / "state", "--good", "HEAD~3", "--bad", "HEAD", "--until", "loss>2.5@8"
    )
    assert code == 1 and "the good commit" in found["text"][0] and "is bad" in found["text"][0]
    code, found = bisected(
        capsys, tmp_path / "state", "--good", "HEAD~8", "--bad", "HEAD~5", "--until", "loss>2.5@8"
    )
    assert code == 1 and "the bad commit" in found["text"][0] and "is good" in found["text"][0]


def test_an_interrupted_bisection_goes_on(repository, tmp_path, capsys):
    words = ["--good", "HEAD~8", "--bad", "HEAD", "--until", "loss>2.5", "--job", "search"]
    stop = tmp_path / "stop"
    stop.write_text("")
    code = f"import os, pathlib, signal, runpy; runpy.run_path('train.py')\nif pathlib.Path({str(stop)!r}).exists() and pathlib.Path('train.py').read_text()[2] == '5': os.kill(os.getppid(), signal.SIGINT)"
    command = (sys.executable, "-c", code)
    first = subprocess.run(
        [
            sys.executable,
            "-m",
            "holdfast",
            "bisect",
            "--state-dir",
            str(tmp_path / "state"),
            *words,
            "--",
            *command,
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 130, first.stderr
    assert "--job search resumes it" in first.stderr
    stop.unlink()
    code, found = bisected(capsys, tmp_path / "state", *words, command=command)
    assert (code, found["found"]) == (0, [git(repository, "rev-parse", "HEAD~4")])
    places = [run["place"] for run in found["runs"]]
    assert len(places) == len(set(places))
    assert (
        exit_code(["bisect", "--state-dir", str(tmp_path / "state"), *words, "--", *command]) == 2
    )  # it has ended


def test_the_bad_variable_and_the_bad_node(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [f"SETTING_{number}" for number in range(6)]
    (tmp_path / "good.env").write_text("".join(f"{name}=0\n" for name in names))
    (tmp_path / "bad.env").write_text("".join(f"export {name}='1'\n" for name in names))
    program = "import os; raise SystemExit(os.environ['SETTING_2'] == '1' and os.environ['SETTING_5'] == '1')"
    words = ["--settings", "--good", "good.env", "--bad", "bad.env", "--until", "exit!=0"]
    code, found = bisected(capsys, tmp_path / "state", *words, command=(sys.executable, "-c", program))
    assert (code, found["found"]) == (0, ["SETTING_2", "SETTING_5"])
    program = "import sys; raise SystemExit('n3' in sys.argv[1].split(','))"
    words = ["--nodes", "n1,n2,n3,n4,n5", "--until", "exit==1"]
    command = (sys.executable, "-c", program, "{nodes}")
    code, found = bisected(capsys, tmp_path / "state", *words, command=command)
    assert (code, found["found"]) == (0, ["n3"])


@pytest.mark.parametrize(
    "words",
    [
        ["--good", "a", "--bad", "b", "--", "true"],
        ["--good", "a", "--until", "nan", "--", "true"],
        ["--good", "a", "--bad", "b", "--until", "speed>1", "--", "true"],
        ["--nodes", "a", "--until", "nan", "--", "true"],
        ["--good", "a", "--bad", "b", "--until", "nan"],
    ],
)
def test_what_is_asked_wrongly(words, tmp_path, capsys):
    assert exit_code(["bisect", "--state-dir", str(tmp_path), *words]) == 2
