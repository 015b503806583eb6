"""Finds the Python interpreter of the training, and has it report about itself, the script and the script's imports.

The interpreter is found as the training finds it: with its environment, working folder, shell and shell preparations.
No code of the training is executed, and every wait has a deadline.
"""

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from holdfast.checks.forked import waited_s
from holdfast.core.checks.asked import Asked, asked_by
from holdfast.core.checks.env.command import SHELLS, launch_of
from holdfast.core.checks.env.launchers import Launch, Shell, name_of
from holdfast.core.checks.env.preparations import Preparation
from holdfast.core.checks.env.script import SHADOWING_PACKAGES, SHADOWING_STANDARD
from holdfast.core.checks.env.shell_text import is_known
from holdfast.model.checks import Scene
from holdfast.observe.processes.procs import tree_below

PYTHON_S = 8.0
SHELL_S = 8.0
BUSY_TIMES = 3.0  # of these times, at most, for a program that waits for a processor
QUICK_S = 2.0  # for each of them, in a quick check: a slower one stays undecided
OUTPUT_BYTES_MAX = 4 << 20
TEXT_BYTES_MAX = 1 << 18
READS_MAX = 4
LOOK_S = 0.01
ERROR_CHARS_MAX = 300
# By its path, as it is started: agents, who never start it themselves, begin without what it imports.
RUN_SIDE = Path(__file__).with_name("inside.py")
MARK = b"holdfast-says:"  # at the head of its answer
_CODE, _HAS, _ENV = "holdfast-code:", "holdfast-has:", "holdfast-env:"
_SIMPLE_OPTION = re.compile(r"-[IsEPS]+")


class Ran(Struct, frozen=True):
    """Result of a program. `code`: its exit code; None if it was killed at its deadline."""

    code: int | None
    out: bytes = b""
    errors: str = ""


class Prepared(Struct, frozen=True, kw_only=True):
    """The environment in which the training starts, after the shell commands that precede it (`conda activate`,
    `module load`).

    `results`: exit code and output of each of these commands. `found`: path of each program; a program that was not
    found is missing. `why_not`: why the environment is unknown, or empty.
    """

    env: dict[str, str] = {}
    folder: str = ""
    found: dict[str, str] = {}
    results: tuple[tuple[Preparation, int, str], ...] = ()
    why_not: str = ""


class Interpreter(Struct, frozen=True, kw_only=True):
    """The Python interpreter of the training.

    `words`: the command that starts it. `absent`: name of the program if it does not exist. `why_not`: why the
    interpreter is unknown.
    """

    words: tuple[str, ...] = ()
    program: str = ""
    absent: str = ""
    why_not: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """What the training's Python reports about itself (`inside.py`).

    `said`: the report; None if there is none, for the reason in `why_not`. `broken`: the error of a Python that
    exists and does not start.
    """

    said: dict[str, Any] | None = None
    why_not: str = ""
    broken: str = ""


class Run(Struct, frozen=True, kw_only=True):
    """The training's command as parsed, with its environment and Python interpreter."""

    launch: Launch
    asked: Asked
    prepared: Prepared
    interpreter: Interpreter


def run_of(scene: Scene) -> Run:
    """Returns the parsed command of a scene with its environment and interpreter. Never raises."""
    return _run_of(msgspec.json.encode(scene))


def answer_of(scene: Scene) -> Answer:
    """Returns what the Python of the training reports; it is queried once for all checks of a scene."""
    return _answer_of(msgspec.json.encode(scene))


def launch_for(command: Sequence[str], env: Mapping[str, str], folder: str) -> Launch:
    """Parses the command, reading each shell script that it starts, and returns how the training is
    launched.
    """
    texts: dict[str, str] = {}
    launch = launch_of(command, env, texts)
    while launch.reads and launch.reads not in texts and len(texts) < READS_MAX:
        texts[launch.reads] = _text(Path(folder or "/") / os.path.expanduser(launch.reads))
        launch = launch_of(command, env, texts)
    return launch


def _text(path: Path) -> str:
    """Returns the text of a file; empty if it cannot be read or is binary."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            data = file.read(TEXT_BYTES_MAX)
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode(errors="replace")


@lru_cache(maxsize=2)
def _run_of(scene_json: bytes) -> Run:
    scene = msgspec.json.decode(scene_json, type=Scene)
    env = dict(scene.env or os.environ)
    command = scene.command or _usual_python(env)
    launch = launch_for(command, env, scene.cwd)
    prepared = _prepared(launch, env, scene.cwd, QUICK_S if scene.quick else SHELL_S)
    return Run(
        launch=launch,
        asked=asked_by(launch, command, env),
        prepared=prepared,
        interpreter=_interpreter(launch, prepared),
    )


def _usual_python(env: Mapping[str, str]) -> tuple[str, ...]:
    return next(((name,) for name in ("python", "python3") if _which(name, env, "/")), ())


# The shell


def _prepared(launch: Launch, env: Mapping[str, str], cwd: str, within_s: float) -> Prepared:
    folder = _folder(launch.folder, env, cwd)
    if not folder:
        return Prepared(env={**env, **launch.env}, why_not=f"cd {launch.folder} is only known at run time")
    shell = launch.shell
    unknown = next((one for one in shell.preparations if one.kind == "unknown"), None) if shell else None
    if unknown is not None:
        return Prepared(
            env={**env, **launch.env}, folder=folder, why_not=f"`{unknown.raw}` cannot be run by a check"
        )
    if shell is None or not _needs_shell(shell, env):
        full = {**env, **launch.env}
        path = _which(launch.program, full, folder) if launch.program else ""
        return Prepared(env=full, folder=folder, found={launch.program: path} if path else {})
    done = in_shell(shell, env, cwd, (launch.program,), within_s)
    return structs.replace(done, folder=folder, env={**done.env, **launch.env} if done.env else {})


def _needs_shell(shell: Shell, env: Mapping[str, str]) -> bool:
    changes = any(one.kind != "set" for one in shell.preparations)
    return changes or shell.login or shell.interactive or bool(env.get("BASH_ENV"))


def _folder(folder: str, env: Mapping[str, str], cwd: str) -> str:
    """Returns the absolute path of a folder in the command; empty if it is only known at run time."""
    if not is_known(folder):
        return ""
    if folder.startswith("~"):
        home = env.get("HOME", "")
        folder = home + folder[1:] if home and folder[1:2] in ("", "/") else ""
        return folder
    return os.path.normpath(os.path.join(cwd or "/", folder))


def in_shell(
    shell: Shell, env: Mapping[str, str], cwd: str, programs: Sequence[str], within_s: float
) -> Prepared:
    """Starts the shell that the command uses, runs the shell commands that precede the training, and returns the
    resulting environment.
    """
    if name_of(shell.program) not in SHELLS:
        return Prepared(why_not=f"{shell.program} is an unsupported shell")
    program = _which(shell.program, env, cwd)
    if not program:
        return Prepared(why_not=f"the shell {shell.program} does not exist")
    lines = [
        f"eval {shlex.quote(one.raw)} >&2; printf '\\n{_CODE}%s:%s\\n' {place} $?"
        for place, one in enumerate(shell.preparations)
    ]
    lines += [f"printf '\\n{_HAS}%s\\n' \"$(command -v {shlex.quote(word)})\"" for word in programs if word]
    lines.append(f"printf '\\n{_ENV}\\n'; env -0")
    options = [*(["-l"] if shell.login else []), *(["-i"] if shell.interactive else [])]
    ran = run_within([program, *options, "-c", "\n".join(lines)], env, cwd, within_s)
    if ran.code is None:
        return Prepared(why_not=f"{shell.program} was not ready within {within_s:g} s")
    head, mark, tail = ran.out.rpartition(f"\n{_ENV}\n".encode())
    if not mark:
        return Prepared(
            why_not=f"{shell.program} ended before it reported its environment: {_last(ran.errors)}"
        )
    said = head.decode(errors="replace").splitlines()
    codes = dict(line[len(_CODE) :].split(":", 1) for line in said if line.startswith(_CODE))
    paths = [line[len(_HAS) :] for line in said if line.startswith(_HAS)]
    pairs = zip([word for word in programs if word], paths, strict=False)
    return Prepared(
        env=dict(_pairs(tail)),
        found={word: path for word, path in pairs if path},
        results=tuple(
            (one, int(codes.get(str(place), "0") or 0), ran.errors)
            for place, one in enumerate(shell.preparations)
        ),
    )


def _pairs(data: bytes) -> list[tuple[str, str]]:
    found = []
    for piece in data.split(b"\0"):
        name, is_one, value = piece.decode(errors="surrogateescape").partition("=")
        if is_one and name:
            found.append((name, value))
    return found


# The interpreter


def _interpreter(launch: Launch, prepared: Prepared) -> Interpreter:
    if launch.unclear:
        return Interpreter(why_not=launch.unclear)
    if launch.reads:
        return Interpreter(why_not=f"{launch.reads} cannot be read")
    if prepared.why_not:
        return Interpreter(why_not=prepared.why_not)
    if not launch.launcher:
        return Interpreter(
            why_not=f"{name_of(launch.program) or 'the command'} is not a known Python interpreter"
        )
    if not is_known(launch.program):
        return Interpreter(why_not=f"{launch.program} is only known at run time")
    if launch.prefix:
        return _by_prefix(launch, prepared)
    path = prepared.found.get(launch.program, "")
    if not path.startswith("/"):
        full = os.path.normpath(os.path.join(prepared.folder, path)) if "/" in path else ""
        if path and not full:
            return Interpreter(why_not=f"{launch.program} is {path!r} of the shell, not a program")
        path = full
    if not path:
        return Interpreter(absent=launch.program)
    if re.match(r"(?:python|pypy)", name_of(launch.program)):
        return Interpreter(words=(path,), program=path)
    own = prepared.env.get("PYTHON_EXEC", "") if launch.launcher == "torchrun" else ""
    python = own or shebang_python(path, prepared.env, prepared.folder)
    if not python:
        return Interpreter(program=path, why_not=f"it is unknown which Python runs {path}")
    return Interpreter(words=(python,), program=path)


def _by_prefix(launch: Launch, prepared: Prepared) -> Interpreter:
    """Returns the interpreter of a command such as `conda run -n NAME`, which chooses the Python itself."""
    if not _which(launch.prefix[0], prepared.env, prepared.folder):
        return Interpreter(absent=launch.prefix[0])
    is_python = re.match(r"(?:python|pypy)", name_of(launch.program))
    return Interpreter(
        words=(*launch.prefix, launch.program if is_python else "python"), program=launch.prefix[0]
    )


def shebang_python(path: str, env: Mapping[str, str], folder: str) -> str:
    """Returns the Python interpreter in the first lines of a script such as torchrun; empty if it does not
    exist.

    source: pip writes a long path as `#!/bin/sh` and `'''exec' "/long/path/python" "$0" "$@"`
    """
    try:
        with open(path, "rb") as file:
            lines = file.read(4096).decode(errors="replace").splitlines()[:3]
    except OSError:
        return ""
    if not lines or not lines[0].startswith("#!"):
        return ""
    words = lines[0][2:].split()
    if words and name_of(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        words = [_which(words[0], env, folder)] if words else []
    if words and name_of(words[0]) == "sh" and len(lines) > 1 and "exec" in lines[1]:
        found = re.match(r"'''exec'\s+\"?([^\"]+?)\"?\s+\"\$0\"", lines[1])
        words = [found[1]] if found else words
    if words and name_of(words[0]).startswith(("python", "pypy")):
        return words[0] if os.access(words[0], os.X_OK) else ""
    beside = Path(path).parent / "python"  # a shim, whose Python is the shim beside it
    return str(beside) if os.access(beside, os.X_OK) else ""


@lru_cache(maxsize=2)
def _answer_of(scene_json: bytes) -> Answer:
    run = _run_of(scene_json)
    interpreter, launch = run.interpreter, run.launch
    if not interpreter.words:
        return Answer(why_not=interpreter.why_not or f"{interpreter.absent} does not exist")
    script = "" if not is_known(launch.script) else os.path.expanduser(launch.script)
    question = msgspec.json.encode(
        {
            "script": script,
            "module": launch.module if is_known(launch.module) else "",
            "names": SHADOWING_STANDARD,
            "packages": SHADOWING_PACKAGES,
        }
    ).decode()
    options = [option for option in launch.python_options if _SIMPLE_OPTION.fullmatch(option)]
    words = [*interpreter.words, *options, str(RUN_SIDE), question]
    within_s = QUICK_S if msgspec.json.decode(scene_json, type=Scene).quick else PYTHON_S
    ran = run_within(words, run.prepared.env, run.prepared.folder, within_s)
    return _answered(ran, interpreter.words, within_s)


def _answered(ran: Ran, words: Sequence[str], within_s: float) -> Answer:
    python = " ".join(words)
    if ran.code is None:
        return Answer(why_not=f"{python} did not finish within {within_s:g} s")
    line = next((line for line in ran.out.splitlines()[::-1] if line.startswith(MARK)), None)
    if line is None:
        if "SyntaxError" in ran.errors and "inside.py" in ran.errors:
            return Answer(why_not=f"{python} is older than Python 3.7")
        return Answer(why_not=f"{python} does not start: {_last(ran.errors)}", broken=_last(ran.errors))
    try:
        return Answer(said=msgspec.json.decode(line[len(MARK) :]))
    except msgspec.MsgspecError as error:
        return Answer(why_not=f"the output of {python} cannot be read: {error}")


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "it printed nothing")[:ERROR_CHARS_MAX]


def _which(word: str, env: Mapping[str, str], folder: str) -> str:
    """Returns the path of a program as a shell finds it, relative paths from `folder`; empty if it does
    not exist.
    """
    if "/" in word:
        places = [os.path.join(folder, os.path.expanduser(word))]
    else:
        path = env.get("PATH", os.defpath)
        places = [os.path.join(folder, place, word) for place in path.split(":")]
    return next((place for place in places if os.path.isfile(place) and os.access(place, os.X_OK)), "")


def which(word: str, env: Mapping[str, str], folder: str) -> str:
    return _which(word, env, folder)


# Programs with a deadline


def run_within(words: Sequence[str], env: Mapping[str, str], folder: str, within_s: float) -> Ran:
    """Runs a program, and kills it with all its children if it has not ended at the deadline.

    Time in which it was runnable and had no CPU does not count, so that a busy machine is not taken for a hang; after
    `BUSY_TIMES` times `within_s` it is killed in any case.
    It stays in our process group, so it ends with us if we are killed.
    """
    out = os.memfd_create("out", os.MFD_CLOEXEC)
    errors = os.memfd_create("errors", os.MFD_CLOEXEC)
    try:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=folder or "/",
            env=dict(env),
        )
    except (OSError, ValueError) as error:
        os.close(out)
        os.close(errors)
        return Ran(127, b"", f"{words[0]}: {error}")
    try:
        code = _wait(process, within_s)
        return Ran(code, _content(out), _content(errors).decode(errors="replace"))
    finally:
        os.close(out)
        os.close(errors)


def _wait(process: subprocess.Popen[bytes], within_s: float) -> int | None:
    began_s, left_s = time.monotonic(), within_s
    while left_s > 0:
        try:
            return process.wait(max(left_s, LOOK_S))
        except subprocess.TimeoutExpired:
            left_s = began_s + allowed_s(within_s, waited_s(process.pid)) - time.monotonic()
    end_tree(process)
    return None


def allowed_s(within_s: float, waited_s: float) -> float:
    """Returns the time limit of a program in seconds: `within_s`, extended by the time that it waited for a CPU."""
    return min(within_s + waited_s, within_s * BUSY_TIMES)


def end_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its children. Processes that the kernel blocks are abandoned."""
    family = [process.pid, *tree_below(process.pid)] if process.poll() is None else []
    for pid in family:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    until_s = time.monotonic() + 0.5
    while process.poll() is None and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    if process.returncode is None:
        process.returncode = -signal.SIGKILL  # it is left to die: Popen would complain of it


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, OUTPUT_BYTES_MAX, 0)
