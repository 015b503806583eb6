"""Finds what a command launches: its shell, wrappers, launcher and script. Pure.

    ("bash", "-lc", "conda activate llm && torchrun --nproc-per-node 8 train.py --save /ckpt")
    -> shell bash, login, prepared by `conda activate llm`; torchrun; script train.py; arguments --save /ckpt
    ("srun", "-N", "2", "bash", "run.sh") -> reads run.sh: its content is needed, then the same again

source: torchrun --help of PyTorch 2.13; deepspeed/launcher/runner.py; accelerate/commands/launch.py; bash(1)
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import structs

from holdfast.core.checks.env.launchers import (
    LAUNCHERS,
    PYTHON,
    Launch,
    Shell,
    by_launcher,
    by_python,
    name_of,
    options_of,
)
from holdfast.core.checks.env.preparations import PREPARES, Preparation, of_assignment, of_command
from holdfast.core.checks.env.shell_text import TESTS, is_known, simple_commands
from holdfast.late_pattern import late

NESTED_MAX = 6
_RANK_OF_SCRIPT = 3
_FOLDER_LISTS = frozenset(("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"))
SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
_SCRIPT = late(r"\S*\.(?:sh|bash|slurm|sbatch|zsh)")
_SCANNED = frozenset(
    (
        *("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "jsrun", "aprun", "horovodrun"),
        *(
            "nohup",
            "time",
            "nice",
            "ionice",
            "stdbuf",
            "timeout",
            "exec",
            "taskset",
            "numactl",
            "setsid",
            "unbuffer",
        ),
        *(
            "nsys",
            "ncu",
            "strace",
            "ltrace",
            "gdb",
            "sudo",
            "catchsegv",
            "chrt",
            "prlimit",
            "script",
            "holdfast",
        ),
    )
)
_ELSEWHERE = frozenset(
    (
        *(
            "docker",
            "podman",
            "nerdctl",
            "singularity",
            "apptainer",
            "enroot",
            "kubectl",
            "ssh",
            "pdsh",
            "clush",
        ),
        *("ray", "sbatch", "salloc", "bsub", "qsub", "dsub", "aws", "gcloud", "sky"),
    )
)
_RESOLVERS = frozenset(
    ("uv", "uvx", "poetry", "pipenv", "pixi", "hatch", "pdm", "rye", "nix", "nix-shell", "guix")
)
_ASSIGNS = late(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


_OWN_FOLDER = late(
    r"\$\(\s*dirname\s+(?:--\s+)?(?:\$\(\s*(?:readlink|realpath)\s+(?:-f\s+)?)?\"?\$(?:0|\{?BASH_SOURCE(?:\[0\])?\}?)\"?"
    r"\s*\)?\s*\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"
)
_HERE = late(r"\$\(\s*pwd(?:\s+-[PL])?\s*\)|`\s*pwd\s*`")
_OWN_FOLDER_FULL = late(
    r"\$\(\s*cd\s+(?:--\s+|-P\s+)?(?P<quote>\"?)(?P<folder>[^\s()\"&;]+)(?P=quote)(?:\s+[>&]\S+)*\s*(?:&&|;)\s*pwd(?:\s+-P)?\s*\)"
)


def launch_of(
    command: Sequence[str], env: Mapping[str, str], texts: Mapping[str, str] | None = None
) -> Launch:
    """Returns what a command launches; any words give a result.

    `texts`: by name, the contents of shell scripts that `Launch.reads` of an earlier result named.
    """
    return _of(tuple(command), env, texts or {}, 0)


def _of(words: tuple[str, ...], env: Mapping[str, str], texts: Mapping[str, str], depth: int) -> Launch:
    if not words or depth > NESTED_MAX:
        return Launch(unclear="" if words else "the command is empty")
    name = name_of(words[0])
    if name == "env":
        return _by_env(words, env, texts, depth)
    if name == "conda" and len(words) > 2 and words[1] == "run":
        return _by_conda_run(words, env, texts, depth)
    if name in _RESOLVERS:
        return Launch(program=words[0], unclear=f"{name} chooses the Python when it starts", words=words)
    if name in _ELSEWHERE:
        return Launch(
            program=words[0],
            unclear=f"{name} runs the command on another host or in a container",
            words=words,
        )
    if name in SHELLS:
        return _by_shell(words, env, texts, depth)
    if PYTHON.fullmatch(name):
        return by_python(words)
    if name in LAUNCHERS:
        return by_launcher(name, words)
    if name in _SCANNED:
        return _by_wrapper(words, env, texts, depth)
    if _SCRIPT.fullmatch(name) or words[0] in texts:
        return _by_file(words[0], words[1:], "", False, env, texts, depth)
    if name.endswith(".py"):
        return Launch(launcher="python", program=words[0], script=words[0], arguments=words[1:], words=words)
    reads = words[0] if "/" in words[0] else ""
    return Launch(program=words[0], arguments=words[1:], reads=reads, words=words)


# What is before the launcher


def _by_env(words: tuple[str, ...], env: Mapping[str, str], texts: Mapping[str, str], depth: int) -> Launch:
    rest = list(words[1:])
    sets: dict[str, str] = {}
    while rest:
        if rest[0] in ("-u", "--unset", "-C", "--chdir", "-S"):
            rest = rest[2:] if rest[0] != "-S" else rest[1:]
        elif rest[0].startswith("-"):
            rest.pop(0)
        elif found := _ASSIGNS.fullmatch(rest[0]):
            sets[found[1]] = found[2]
            rest.pop(0)
        else:
            break
    inner = _of(tuple(rest), {**env, **sets}, texts, depth + 1)
    return structs.replace(inner, env=sets | inner.env)


def _by_conda_run(
    words: tuple[str, ...], env: Mapping[str, str], texts: Mapping[str, str], depth: int
) -> Launch:
    place = 2
    while place < len(words) and words[place].startswith("-"):
        takes = words[place] in ("-n", "--name", "-p", "--prefix", "--cwd")
        place += 2 if takes else 1
    inner = _of(words[place:], env, texts, depth + 1)
    return structs.replace(
        inner, prefix=(*words[:place], *inner.prefix), wrappers=("conda run", *inner.wrappers)
    )


def _by_wrapper(
    words: tuple[str, ...], env: Mapping[str, str], texts: Mapping[str, str], depth: int
) -> Launch:
    """Returns the launch after a wrapper's options, which are of many kinds: it starts at the first known
    program.
    """
    name = name_of(words[0])
    if name == "exec" and len(words) > 1 and not words[1].startswith("-"):
        inner = _of(words[1:], env, texts, depth + 1)
        return structs.replace(inner, wrappers=(name, *inner.wrappers))
    place = next(
        (place for place, word in enumerate(words) if place and _is_start(word, words[place - 1])), 0
    )
    if not place:
        last = next((word for word in reversed(words[1:]) if "/" in word and not word.startswith("-")), "")
        return Launch(program=last, wrappers=(name,), words=words)
    own = options_of(words[1:place])
    inner = _of(words[place:], env, texts, depth + 1)
    if any(option.startswith("container-image") for option in own):
        inner = structs.replace(inner, unclear=f"{name} runs the command in a container")
    return structs.replace(
        inner, wrappers=(name, *inner.wrappers), wrapper_options=own | inner.wrapper_options
    )


def _is_start(word: str, before: str) -> bool:
    name = name_of(word)
    known = (
        name in LAUNCHERS or name in SHELLS or name in _SCANNED or name in _ELSEWHERE or name in _RESOLVERS
    )
    is_file = bool(_SCRIPT.fullmatch(name)) or name.endswith(".py")
    starts = known or bool(PYTHON.fullmatch(name)) or is_file or name in ("env", "conda")
    return starts and before not in ("--launcher", "-x", "--job-name", "-J", "--comment")


# Shells


def _by_shell(words: tuple[str, ...], env: Mapping[str, str], texts: Mapping[str, str], depth: int) -> Launch:
    program, rest = words[0], list(words[1:])
    login = interactive = False
    while rest and rest[0][:1] in ("-", "+") and len(rest[0]) > 1:
        option = rest.pop(0)
        if option in ("-o", "+o", "-O", "--rcfile", "--init-file"):
            rest = rest[1:]
            continue
        is_short = not option.startswith("--")
        login = login or option == "--login" or (is_short and "l" in option)
        interactive = interactive or (is_short and "i" in option)
        if is_short and "c" in option and rest:
            shell = Shell(program=program, login=login, interactive=interactive)
            named = {**env, "0": rest[1]} if len(rest) > 1 else env  # $0, and then $1
            return _in_text(rest[0], shell, rest[2:], named, texts, depth)
        if option == "--":
            break
    if not rest:
        return Launch(program=program, unclear=f"{name_of(program)} reads its commands from its input")
    return _by_file(rest[0], tuple(rest[1:]), program, login, env, texts, depth)


def _by_file(
    file: str,
    arguments: Sequence[str],
    program: str,
    login: bool,
    env: Mapping[str, str],
    texts: Mapping[str, str],
    depth: int,
) -> Launch:
    text = texts.get(file)
    if text is None:
        return Launch(program=program or file, reads=file, words=(file, *arguments))
    if not program:
        found = re.match(r"#!\s*(?:\S*/env\s+(?:-S\s+)?)?(\S+)((?:\s+-\S+)*)", text)
        program = found[1] if found else "sh"
        login = bool(found and re.search(r"\s-\w*l", found[2]))
        if name_of(program) not in SHELLS:
            return Launch(program=file, arguments=tuple(arguments))
    own = file.rpartition("/")[0] or "."
    text = _OWN_FOLDER_FULL.sub(r"\g<folder>", _OWN_FOLDER.sub(lambda _: own, text))
    return _in_text(text, Shell(program=program, login=login, file=file), arguments, env, texts, depth)


def _in_text(
    text: str,
    shell: Shell,
    arguments: Sequence[str],
    env: Mapping[str, str],
    texts: Mapping[str, str],
    depth: int,
) -> Launch:
    """Returns the launch among the commands of a shell script: one with a launcher before one with a plain
    script.
    """
    preparations: list[Preparation] = []
    sets: dict[str, str] = {}
    folder = ""
    strict = False
    found: list[tuple[Launch, bool]] = []
    for command in simple_commands(_HERE.sub(".", text), env, arguments):
        words = command.words
        if not words:
            preparations += of_assignment(command)
        elif words[0] == "set":
            strict = strict or any(_is_errexit(word) for word in words[1:])
        elif words[0] == "export":
            exported = {match[1]: match[2] for word in words[1:] if (match := _ASSIGNS.fullmatch(word))}
            sets |= exported if command.is_sure else {}
            preparations += of_assignment(command)
        elif words[0] == "cd" and len(words) > 1:
            folder = _changed(folder, words[1], command.is_sure)
        elif words[0] in PREPARES:
            preparations += of_command(command, strict)
        elif words[0] not in TESTS:
            launch = _of(words, {**env, **sets}, texts, depth + 1)
            inner = launch.shell or shell
            done = (*preparations, *(launch.shell.preparations if launch.shell else ()))
            own = structs.replace(
                launch,
                env=_known(sets | command.sets | launch.env),
                folder=launch.folder or folder,
                shell=structs.replace(inner, preparations=done),
            )
            found.append((own, command.is_sure))
    return _likeliest(found, structs.replace(shell, preparations=tuple(preparations)))


def _known(sets: Mapping[str, str]) -> dict[str, str]:
    """Returns the assignments without values known only at run time; the known parts of folder lists are
    kept.
    """
    found = {name: value for name, value in sets.items() if is_known(value)}
    for name in _FOLDER_LISTS & (sets.keys() - found.keys()):
        found[name] = ":".join(part for part in sets[name].split(":") if part and is_known(part))
    return found


def _changed(before: str, folder: str, is_sure: bool) -> str:
    if not is_sure:
        return f"$(cd {folder})"
    return folder if folder.startswith(("/", "~")) or not before else f"{before}/{folder}"


def _likeliest(found: Sequence[tuple[Launch, bool]], shell: Shell) -> Launch:
    """Returns the first of the launches that are most likely the training.

    Among several in branches, none can be chosen.
    """
    if not found:
        return Launch(program=shell.program, shell=shell)
    most = max(_rank(launch) for launch, _ in found)
    best = [(launch, is_sure) for launch, is_sure in found if _rank(launch) == most]
    launch, is_sure = best[0]
    if most >= _RANK_OF_SCRIPT and len({one.words for one, _ in best}) > 1 and not is_sure:
        return Launch(
            program=shell.program,
            shell=shell,
            unclear="the script starts one of several programs; which one is known only at run time",
        )
    return launch


def _is_errexit(word: str) -> bool:
    return word == "errexit" or bool(re.fullmatch(r"-\w*e\w*", word))


def _rank(launch: Launch) -> int:
    """Returns how likely a launch is the training itself."""
    starts = bool(launch.script or launch.module)
    if launch.launcher and launch.launcher != "python" and (starts or launch.unclear):
        return _RANK_OF_SCRIPT + 1
    if launch.script and "setup.py" not in launch.script:
        return _RANK_OF_SCRIPT
    return 2 if launch.reads else 1 if launch.unclear or launch.module else 0
