"""Parses the words of a launcher or of Python: its options, the script or module, and the script's arguments.

Pure.

source: torchrun --help of PyTorch 2.13; deepspeed/launcher/runner.py; accelerate/commands/launch.py
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from holdfast.core.checks.env.preparations import Preparation
from holdfast.late_pattern import late

TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch.distributed.elastic.run")
LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "colossalai", "composer")
_MODULE_LAUNCHERS = dict.fromkeys(TORCH_MODULES, "torchrun") | {
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "accelerate.commands.launch": "accelerate",
    "accelerate": "accelerate",
}
_FLAGS = frozenset(
    (
        *(
            "standalone",
            "no-python",
            "module",
            "run-path",
            "m",
            "use-env",
            "multi-gpu",
            "cpu",
            "tpu",
            "mps",
            "q",
        ),
        *(
            "use-deepspeed",
            "use-fsdp",
            "use-megatron-lm",
            "debug",
            "quiet",
            "same-network",
            "dynamo-use-dynamic",
        ),
        *(
            "no-local-rank",
            "no-ssh",
            "no-ssh-check",
            "force-multi",
            "save-pid",
            "bind-cores-to-rank",
            "use-xpu",
        ),
        *(
            "elastic-training",
            "disable-gpu-id-override",
            "no-ssh-check",
            "ipex",
            "use-cpu",
            "enable-cpu-affinity",
        ),
    )
)
_PYTHON_TAKES = ("-X", "-W", "--check-hash-based-pycs")
PYTHON = late(r"(?:python|pypy)(?:\d+(?:\.\d+)*)?")


class Shell(Struct, frozen=True, kw_only=True):
    """The shell that runs the command.

    `file`: the script that it reads; empty if its text is in the command.
    """

    program: str
    login: bool = False
    interactive: bool = False
    file: str = ""
    preparations: tuple[Preparation, ...] = ()


class Launch(Struct, frozen=True, kw_only=True):
    """The programs that a command starts, as far as it can be parsed.

    `program`: the program that finally starts. `options`: options of the launcher; `arguments`: those of the script.
    `wrappers`: programs before it; `prefix`: those of them that select the Python (conda run). `env`, `folder`:
    changes that the command makes. `reads`: a file whose content is needed to parse more. `unclear`: why the Python
    is unknown.
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
    words: tuple[str, ...] = ()  # all words that belong to the launch


def name_of(word: str) -> str:
    """Returns the file name of a path."""
    return word.rpartition("/")[2]


def by_python(words: tuple[str, ...]) -> Launch:
    """Parses a command that starts with a Python interpreter as the launch of a training."""
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
        own += words[place : place + (2 if word in _PYTHON_TAKES else 1)]
        place += 2 if word in _PYTHON_TAKES else 1
    if place >= len(words):
        return Launch(launcher="python", program=words[0], words=words)
    script = words[place]
    if name_of(script) in LAUNCHERS:
        launch = by_launcher(name_of(script), words[place:])
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
    launcher = _MODULE_LAUNCHERS.get(module)
    if launcher is None:
        return Launch(
            launcher="python",
            program=words[0],
            module=module,
            python_options=own,
            arguments=rest,
            words=words,
        )
    launch = by_launcher(launcher, (launcher, *rest))
    return structs.replace(launch, program=words[0], python_options=own, words=words)


def by_launcher(name: str, words: tuple[str, ...]) -> Launch:
    """Parses a command that starts with a known launcher (torchrun, srun, …) as the launch of a training."""
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
        if not has_value and option not in _FLAGS and rest and not _is_program(rest[0]):
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
        unclear="the launcher starts a program other than Python (--no-python)" if is_program else "",
    )


def _is_program(word: str) -> bool:
    return word.startswith("--") or word.endswith(".py")


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Returns every `--name value` and `--name=value` of any program in the command; the first of
    each name.
    """
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
