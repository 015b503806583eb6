"""What a command launches: through which shell and wrappers, by which launcher, with what script. Pure.

    ("bash", "-lc", "conda activate llm && torchrun --nproc-per-node 8 train.py --save /ckpt")
    -> shell bash, login, prepared by `conda activate llm`; torchrun; script train.py; arguments --save /ckpt
    ("srun", "-N", "2", "bash", "run.sh") -> reads run.sh: its text is needed, then the same again

source: torchrun --help of PyTorch 2.13; deepspeed/launcher/runner.py; accelerate/commands/launch.py; bash(1)
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from holdfast.core.checks.env.programs import (
    CONDA_BASE,
    ELSEWHERE,
    FLAGS,
    HARMLESS_EVAL,
    KNOWN_SOURCE,
    LAUNCHERS,
    MODULE_LAUNCHERS,
    PREPARES,
    PYTHON,
    PYTHON_TAKES,
    RESOLVERS,
    SCANNED,
    SCRIPT,
    SHELLS,
)
from holdfast.core.checks.env.shell_text import TESTS, SimpleCommand, is_known, simple_commands
from holdfast.late_pattern import late

NESTED_MAX = 6
_RANK_OF_SCRIPT = 3
_FOLDER_LISTS = frozenset(("PATH", "PYTHONPATH", "LD_LIBRARY_PATH"))
_ASSIGNS = late(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


_OWN_FOLDER = late(
    r"\$\(\s*dirname\s+(?:--\s+)?(?:\$\(\s*(?:readlink|realpath)\s+(?:-f\s+)?)?\"?\$(?:0|\{?BASH_SOURCE(?:\[0\])?\}?)\"?"
    r"\s*\)?\s*\)|\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"
)
_HERE = late(r"\$\(\s*pwd(?:\s+-[PL])?\s*\)|`\s*pwd\s*`")
_OWN_FOLDER_FULL = late(
    r"\$\(\s*cd\s+(?:--\s+|-P\s+)?(?P<quote>\"?)(?P<folder>[^\s()\"&;]+)(?P=quote)(?:\s+[>&]\S+)*\s*(?:&&|;)\s*pwd(?:\s+-P)?\s*\)"
)


class Preparation(Struct, frozen=True, kw_only=True):
    """A command of the shell that makes the environment ready. `must`: what comes after it is not run if it fails."""

    raw: str
    kind: str  # "conda", "module", "source", "eval", "set"; "unknown": it may do anything, so it is not run to look
    must: bool = False


class Shell(Struct, frozen=True, kw_only=True):
    """The shell that the command is run by. `file`: the script it reads; empty: its text is in the command."""

    program: str
    login: bool = False
    interactive: bool = False
    file: str = ""
    preparations: tuple[Preparation, ...] = ()


class Launch(Struct, frozen=True, kw_only=True):
    """`program`: the word that is started in the end. `options`: the launcher's own, `arguments`: the script's.

    `wrappers`: what is before it; `prefix`: those of them that choose the Python (conda run). `env`, `folder`: what the
    command changes. `reads`: a file whose text is needed to say more. `unclear`: why nothing can be said of the Python.
    """

    launcher: str = ""
    program: str = ""
    script: str = ""
    module: str = ""
    options: dict[str, str] = {}
    python_options: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    wrappers: tuple[str, ...] = ()
    wrapper_options: dict[str, str] = {}
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = {}
    folder: str = ""
    shell: Shell | None = None
    reads: str = ""
    unclear: str = ""
    words: tuple[str, ...] = ()  # all that belong to the launch in the end


def launch_of(
    command: Sequence[str], env: Mapping[str, str], texts: Mapping[str, str] | None = None
) -> Launch:
    """`texts`: of the shell scripts that an earlier answer said to read, by that name. Total: any words have an answer."""
    return _of(tuple(command), env, texts or {}, 0)


def name_of(word: str) -> str:
    return word.rpartition("/")[2]


def _of(words: tuple[str, ...], env: Mapping[str, str], texts: Mapping[str, str], depth: int) -> Launch:
    if not words or depth > NESTED_MAX:
        return Launch(unclear="" if words else "there is no command")
    name = name_of(words[0])
    if name == "env":
        return _by_env(words, env, texts, depth)
    if name == "conda" and len(words) > 2 and words[1] == "run":
        return _by_conda_run(words, env, texts, depth)
    if name in RESOLVERS:
        return Launch(program=words[0], unclear=f"{name} chooses the Python when it starts", words=words)
    if name in ELSEWHERE:
        return Launch(program=words[0], unclear=f"{name} runs it elsewhere", words=words)
    if name in SHELLS:
        return _by_shell(words, env, texts, depth)
    if PYTHON.fullmatch(name):
        return _by_python(words)
    if name in LAUNCHERS:
        return _by_launcher(name, words)
    if name in SCANNED:
        return _by_wrapper(words, env, texts, depth)
    if SCRIPT.fullmatch(name) or words[0] in texts:
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
    """What stands after the options, which are of many kinds: the first word that is known to start something."""
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
        inner = structs.replace(inner, unclear=f"{name} runs it in a container")
    return structs.replace(
        inner, wrappers=(name, *inner.wrappers), wrapper_options=own | inner.wrapper_options
    )


def _is_start(word: str, before: str) -> bool:
    name = name_of(word)
    known = name in LAUNCHERS or name in SHELLS or name in SCANNED or name in ELSEWHERE or name in RESOLVERS
    is_file = bool(SCRIPT.fullmatch(name)) or name.endswith(".py")
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
    """The launch among the commands of a text: one of a launcher before one of a mere script."""
    preparations: list[Preparation] = []
    sets: dict[str, str] = {}
    folder = ""
    strict = False
    found: list[tuple[Launch, bool]] = []
    for command in simple_commands(_HERE.sub(".", text), env, arguments):
        words = command.words
        if not words:
            preparations += _set(command)
        elif words[0] == "set":
            strict = strict or any(_is_errexit(word) for word in words[1:])
        elif words[0] == "export":
            exported = {match[1]: match[2] for word in words[1:] if (match := _ASSIGNS.fullmatch(word))}
            sets |= exported if command.is_sure else {}
            preparations += _set(command)
        elif words[0] == "cd" and len(words) > 1:
            folder = _changed(folder, words[1], command.is_sure)
        elif words[0] in PREPARES:
            preparations += _prepared(command, strict)
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
    """Without what only a run can tell; of a list of folders, the others are kept."""
    found = {name: value for name, value in sets.items() if is_known(value)}
    for name in _FOLDER_LISTS & (sets.keys() - found.keys()):
        found[name] = ":".join(part for part in sets[name].split(":") if part and is_known(part))
    return found


def _changed(before: str, folder: str, is_sure: bool) -> str:
    if not is_sure:
        return f"$(cd {folder})"
    return folder if folder.startswith(("/", "~")) or not before else f"{before}/{folder}"


def _likeliest(found: Sequence[tuple[Launch, bool]], shell: Shell) -> Launch:
    """The first of those that are most surely the training. Of several in branches, nobody can tell which."""
    if not found:
        return Launch(program=shell.program, shell=shell)
    most = max(_rank(launch) for launch, _ in found)
    best = [(launch, is_sure) for launch, is_sure in found if _rank(launch) == most]
    launch, is_sure = best[0]
    if most >= _RANK_OF_SCRIPT and len({one.words for one, _ in best}) > 1 and not is_sure:
        return Launch(
            program=shell.program, shell=shell, unclear="which of its launches is run is known only then"
        )
    return launch


def _set(command: SimpleCommand) -> list[Preparation]:
    """A value that later preparations may use. One that runs a program to be known is left out, but for conda's own."""
    runs = CONDA_BASE.sub("", command.raw)
    if not command.is_sure:
        return []
    return [] if "$(" in runs or "`" in runs else [Preparation(raw=command.raw, kind="set")]


def _is_errexit(word: str) -> bool:
    return word == "errexit" or bool(re.fullmatch(r"-\w*e\w*", word))


def _rank(launch: Launch) -> int:
    """How sure it is the training itself."""
    starts = bool(launch.script or launch.module)
    if launch.launcher and launch.launcher != "python" and (starts or launch.unclear):
        return _RANK_OF_SCRIPT + 1
    if launch.script and "setup.py" not in launch.script:
        return _RANK_OF_SCRIPT
    return 2 if launch.reads else 1 if launch.unclear or launch.module else 0


def _prepared(command: SimpleCommand, strict: bool) -> list[Preparation]:
    """What may be run again to learn what it does: it changes the environment and nothing else."""
    words, first = command.words, command.words[0]
    must = strict or command.then == "&&"
    found = _changing(command, words, first, must)
    if not command.is_sure:  # what it would change is known only when it runs
        return [structs.replace(one, kind="unknown", must=False) for one in found if one.kind != "set"]
    if command.then == "||":  # it may fail
        return [structs.replace(one, kind="unknown" if one.kind == "unknown" else "set") for one in found]
    return found


def _changing(command: SimpleCommand, words: Sequence[str], first: str, must: bool) -> list[Preparation]:
    if (
        first in ("conda", "mamba", "micromamba")
        and len(words) > 1
        and words[1] in ("activate", "deactivate")
    ):
        return [Preparation(raw=command.raw, kind="conda", must=must)]
    if first == "source" and len(words) > 2 and words[1] == "activate":
        return [Preparation(raw=command.raw, kind="conda", must=must)]
    if first in ("source", ".") and len(words) > 1:
        known = KNOWN_SOURCE.search(words[1]) and "`" not in command.raw
        known = known and "$(" not in CONDA_BASE.sub("", command.raw)
        return [Preparation(raw=command.raw, kind="source" if known else "unknown", must=must)]
    if first in ("module", "ml", "spack"):
        return [Preparation(raw=command.raw, kind="module", must=must)]
    if first == "eval" and HARMLESS_EVAL.fullmatch(command.raw):
        return [Preparation(raw=command.raw, kind="eval", must=must)]
    if first == "unset":
        return [Preparation(raw=command.raw, kind="set")]
    return []


# Launchers


def _by_python(words: tuple[str, ...]) -> Launch:
    own: list[str] = []
    place = 1
    while place < len(words):
        word = words[place]
        if word == "-m" and place + 1 < len(words):
            return _by_module(words, tuple(own), words[place + 1], words[place + 2 :])
        if word == "-c" or word == "-":
            return Launch(launcher="python", program=words[0], words=words)
        if not word.startswith("-"):
            break
        own += words[place : place + (2 if word in PYTHON_TAKES else 1)]
        place += 2 if word in PYTHON_TAKES else 1
    if place >= len(words):
        return Launch(launcher="python", program=words[0], words=words)
    script = words[place]
    if name_of(script) in LAUNCHERS:
        launch = _by_launcher(name_of(script), words[place:])
        return structs.replace(launch, program=words[0], python_options=tuple(own), words=words)
    return Launch(
        launcher="python",
        program=words[0],
        script=script,
        python_options=tuple(own),
        arguments=words[place + 1 :],
        words=words,
    )


def _by_module(words: tuple[str, ...], own: tuple[str, ...], module: str, rest: tuple[str, ...]) -> Launch:
    launcher = MODULE_LAUNCHERS.get(module)
    if launcher is None:
        return Launch(
            launcher="python",
            program=words[0],
            module=module,
            python_options=own,
            arguments=rest,
            words=words,
        )
    launch = _by_launcher(launcher, (launcher, *rest))
    return structs.replace(launch, program=words[0], python_options=own, words=words)


def _by_launcher(name: str, words: tuple[str, ...]) -> Launch:
    rest = list(words[1:])
    if name in ("accelerate", "colossalai") and rest:
        if rest[0] not in ("launch", "run") and not rest[0].startswith("-") and not rest[0].endswith(".py"):
            return Launch(launcher=name, program=words[0], words=words)
        rest = rest[1:] if rest[0] in ("launch", "run") else rest
    options: dict[str, str] = {}
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        option, has_value, value = word.lstrip("-").partition("=")
        option = option.replace("_", "-").lower() if word.startswith("--") else option
        if not has_value and option not in FLAGS and rest and not _is_program(rest[0]):
            value = rest.pop(0)
        options.setdefault(option, value)
    script = rest[0] if rest else ""
    is_module = "module" in options or "m" in options
    is_program = "no-python" in options
    return Launch(
        launcher=name,
        program=words[0],
        script="" if is_module or is_program else script,
        module=script if is_module else "",
        options=options,
        arguments=tuple(rest[1:]),
        words=words,
        unclear="the launcher starts a program of its own (--no-python)" if is_program else "",
    )


def _is_program(word: str) -> bool:
    return word.startswith("--") or word.endswith(".py")


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Every `--name value` and `--name=value`, whoever of the command's programs it is for; the first of each."""
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, has_value, value = word[2:].partition("=")
        if not has_value:
            value = words[index + 1] if index + 1 < len(words) else ""
            value = "" if value.startswith("--") else value
        found.setdefault(name.replace("_", "-").lower(), value)
    return found
